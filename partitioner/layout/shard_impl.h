/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/shard_impl.h - internal interfaces of the layout search */
#ifndef MERAK_PARTITIONER_LAYOUT_SHARD_IMPL_H
#define MERAK_PARTITIONER_LAYOUT_SHARD_IMPL_H

#include "partitioner/layout/layout_code.h"
#include "partitioner/layout/shard.h"

#define MERAK_STAGE_AXES 3 /* that a node is cut along by choice */
#define MERAK_CODES 1000   /* layouts over that many axes */
/* Of these, how many the values of one shape and type may have; a set of them
 * is that many bits. */
#define MERAK_KIND_LAYOUTS 128
/* An index, none, or passed through, on each axis. */
#define MERAK_MAX_CUTS (MERAK_MAX_INDICES + 2)
#define MERAK_MAX_STRATEGIES (MERAK_MAX_CUTS * MERAK_MAX_CUTS * MERAK_MAX_CUTS)

#define MERAK_STRATEGY_NONE   \
    ((struct merak_strategy){ \
        {MERAK_CUT_NONE, MERAK_CUT_NONE, MERAK_CUT_NONE, MERAK_CUT_NONE}})

/* May the sequence dim (index t) be cut along a tensor axis? */
enum merak_t_rule {
    MERAK_T_NEVER,
    MERAK_T_MAY,
    MERAK_T_MUST, /* wherever every rank would otherwise compute the node */
};

/* May a node be cut by samples along an axis for weights? */
enum merak_samples_rule {
    MERAK_SAMPLES_NEVER,
    MERAK_SAMPLES_MAY,
    MERAK_SAMPLES_MUST, /* and by nothing else, if it has any */
};

/* Choices that the signatures leave open. */
struct merak_cut_rule {
    enum merak_t_rule t;
    enum merak_cp_form cp;
    const uint8_t *samples; /* by forward node: enum merak_samples_rule; NULL:
                               never */
    const enum merak_tp_style *style; /* by forward node, of tp_plan; NULL: all
                                         are free */
    const struct merak_tp_plan *tp_plan;
    const struct merak_deadline *deadline; /* as in merak_shard_options */
};

/* --- shard_mesh.c: the axes within a stage --------------------------------
 */

/* The mesh, or several, of which the one with the cheapest layouts is to be
 * taken: cp is one axis, or two if not all of its ranks can exchange heads but
 * those of the second can; or an axis for each of one, two or three dims of
 * space.  MERAK_ERR_CONFIG if tp, or cp, does not divide what it has to cut. */
#define MERAK_MAX_MESHES 3
enum merak_status merak_shard_meshes(const struct merak_graph *graph,
                                     const struct merak_shard_options *opt,
                                     struct merak_mesh mesh[MERAK_MAX_MESHES],
                                     int *n_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* What an axis for sequences cuts: positions, or of a model without them the
 * dim of space that has the axis' place among all of these. */
char merak_axis_letter(const struct merak_graph *graph,
                       const struct merak_mesh *mesh, int axis);
/* Is it the first of cp's two axes? */
bool merak_axis_is_outer(const struct merak_mesh *mesh, int axis);
/* In how many pieces ranks of cp have sequences, if that is of use; 0: in
 * order. */
size_t merak_shard_pieces(const struct merak_graph *graph,
                          const struct merak_shard_options *opt);
/* With cp, may each node be cut along the sequence, or by heads? */
enum merak_status merak_shard_check_cp(const struct merak_graph *graph,
                                       const struct merak_signature *sig,
                                       const struct merak_mesh *mesh,
                                       const struct merak_shard_options *opt,
                                       struct merak_error *err) MERAK_CHECKED;

/* --- shard_space.c: dims of space ----------------------------------------- */

/*
 * Factors of cp, the first for the first dim of space: what --cp-axes says, or,
 * of one, two and three of them, those whose busiest rank has the fewest points
 * on its faces.
 *
 *   most  axes that cp may have
 *   *n_p  how many; 1 grid of none for models that cp cuts by positions
 *
 * MERAK_ERR_CONFIG if no factors divide the points of the inputs, or those that
 * are asked for do not.
 */
enum merak_status merak_space_grids(const struct merak_graph *graph,
                                    const struct merak_shard_options *opt,
                                    int most, int64_t grid[MERAK_MAX_MESHES],
                                    int *n_p,
                                    struct merak_error *err) MERAK_CHECKED;

/* --- shard_strategy.c: what a cut of a node means ------------------------- */

/* Signatures of all nodes; free with free(). */
enum merak_status merak_signatures(const struct merak_graph *graph,
                                   struct merak_signature **sig_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* All ways to cut a node; list[MERAK_MAX_STRATEGIES].  At least one. */
int merak_strategy_list(const struct merak_graph *graph,
                        const struct merak_mesh *mesh,
                        const struct merak_node *node,
                        const struct merak_signature *sig,
                        const struct merak_cut_rule *rule,
                        struct merak_strategy *list);
/* Does it read positions of a sequence that it cannot be cut along? */
bool merak_node_needs_sequences(const struct merak_node *node,
                                const struct merak_signature *sig);
/* Has it an index along positions that may be cut? */
bool merak_strategy_has_positions(const struct merak_signature *sig);
/* The layout of operand o: required of an input, produced for an output. */
void merak_strategy_layout(const struct merak_mesh *mesh,
                           const struct merak_signature *sig, int n_in,
                           const struct merak_strategy *strategy, int o,
                           struct merak_layout *layout);
/* A gradient node's strategy: the same cuts, by index name. */
/* Add to operand o's layout what windows read of the neighbours' parts; false
 * if that is nothing. */
bool merak_strategy_reach(const struct merak_mesh *mesh,
                          const struct merak_signature *sig, int o,
                          struct merak_layout *layout);
void merak_strategy_inherit(const struct merak_mesh *mesh,
                            const struct merak_signature *forward_sig,
                            const struct merak_strategy *forward,
                            const struct merak_signature *sig,
                            struct merak_strategy *strategy);
/* The strategy of a linear node with all operands in one layout. */
void merak_strategy_alike(const struct merak_mesh *mesh,
                          const struct merak_signature *sig, int n_in,
                          const struct merak_layout *layout,
                          struct merak_strategy *strategy);
/* The factor by which cutting divides a node's work. */
double merak_strategy_degree(const struct merak_mesh *mesh,
                             const struct merak_strategy *strategy);
/* The layout of a value's gradient: partial becomes replicated. */
void merak_layout_dual(const struct merak_mesh *mesh,
                       const struct merak_layout *layout,
                       struct merak_layout *dual);
/* Does the node sum contributions to one activation's gradient (grad.c)? */
bool merak_node_is_sum(const struct merak_node *node);
/*
 * May the backward pass use a copy that the forward pass made, rather than
 * convert again?  Only if keeping it costs no more memory than the value it
 * was made from: a gathered copy is gathered again.
 */
bool merak_copy_is_kept(const struct merak_mesh *mesh,
                        const struct merak_shape *shape,
                        const struct merak_layout *natural,
                        const struct merak_layout *copy);

/* --- shard_cost.c: seconds -------------------------------------------------
 */

struct merak_shard_costs;

enum merak_status merak_shard_costs_create(
    const struct merak_graph *graph, const struct merak_mesh *mesh,
    const struct merak_shard_options *opt, struct merak_shard_costs **costs_p,
    struct merak_error *err) MERAK_CHECKED;
void merak_shard_costs_destroy(struct merak_shard_costs *costs);
/* Of converting a value between two layouts (codes); INFINITY: impossible. */
double merak_shard_convert_s(struct merak_shard_costs *costs, int value,
                             int from, int to);
/*
 * The layouts that values of this one's shape and type were asked about so far
 * are numbered: the number of a code (a new one, if it has none), the code of a
 * number, and how many there are.  There is no more to choose from, while the
 * possible codes grow tenfold with each axis.
 */
int merak_shard_layout_number(struct merak_shard_costs *costs, int value,
                              int code);
int merak_shard_numbered_code(const struct merak_shard_costs *costs, int value,
                              int number);
int merak_shard_layout_numbers(const struct merak_shard_costs *costs,
                               int value);
/* MERAK_ERR_UNSUPPORTED if some value had more than MERAK_KIND_LAYOUTS: what
 * was searched with these costs is then not to be used. */
enum merak_status
merak_shard_costs_check(const struct merak_shard_costs *costs,
                        struct merak_error *err) MERAK_CHECKED;
/* FLOPs of attention whose queries are cut, for the rank with most of them, if
 * sequences are in so many pieces; of all else 0. */
double merak_shard_queries_flops(const struct merak_shard_costs *costs,
                                 const struct merak_node *node,
                                 const struct merak_signature *sig,
                                 const struct merak_strategy *strategy,
                                 size_t pieces);
/* Of a node under this strategy. */
double merak_shard_node_s(const struct merak_shard_costs *costs,
                          const struct merak_node *node,
                          const struct merak_signature *sig,
                          const struct merak_strategy *strategy);
/* Of holding a parameter in this layout, per step and micro-batch. */
double merak_shard_param_s(const struct merak_shard_costs *costs, int value,
                           int code);
/* Of all exchanges with neighbours in a written graph, which the search leaves
 * out: along an axis all layouts have the same. */
double merak_shard_halos_s(const struct merak_shard_costs *costs,
                           const struct merak_sharded *sharded);
/* Of making whole, from these layouts, the outputs that are needed whole. */
double merak_shard_whole_s(struct merak_shard_costs *costs,
                           const struct merak_node *node, const int *code);
/* Costs per step are spread over this many micro-batches. */
#define MERAK_SHARD_MICROBATCHES 8

/* --- shard_shared.c: the stages' axis, last in the mesh --------------------
 */

/* Cut the nodes that have a vocabulary along it: those of the embedding (1), or
 * of the embedding and the head (2). */
enum merak_status merak_shared_cut(const struct merak_graph *graph,
                                   const struct merak_signature *sig,
                                   const struct merak_mesh *mesh, int n_shared,
                                   struct merak_strategy *strategy,
                                   struct merak_error *err) MERAK_CHECKED;

/* --- shard_search.c, shard_write.c -----------------------------------------
 */

struct merak_shard_found {
    double cost;  /* seconds per micro-batch */
    long records; /* of live values, examined: what the search does most */
};

/* The cheapest strategies of the forward nodes: strategy[graph->n_forward]. */
enum merak_status merak_shard_search(
    const struct merak_graph *graph, const struct merak_mesh *mesh,
    const struct merak_signature *sig, struct merak_shard_costs *costs,
    const struct merak_cut_rule *rule, struct merak_strategy *strategy,
    struct merak_shard_found *found, struct merak_error *err) MERAK_CHECKED;

/* Fill sharded (its mesh is set) with the rewritten graph; parts: or NULL. */
enum merak_status merak_shard_write(const struct merak_graph *graph,
                                    const struct merak_signature *sig,
                                    const struct merak_strategy *strategy,
                                    const struct merak_parts *parts,
                                    struct merak_sharded *sharded,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
