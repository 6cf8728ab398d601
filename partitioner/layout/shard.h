/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/shard.h - a layout for every value, found by search
 *
 * Input: a differentiated graph and the tensor axes of a mesh.  For every
 * forward node a strategy is chosen: for each axis, the index of the op's
 * signature that is cut along it, or none, or (for linear ops) partial
 * operands passed through.  The search is a dynamic program over the forward
 * nodes in order.  Its state is the layouts of the live values (a frontier),
 * its cost the predicted compute plus conversions in both directions: a
 * forward conversion has its dual in the backward pass.
 *
 * Gradient nodes take their forward node's strategy by index name.  Then the
 * sharded graph is written out: the same nodes with "convert" nodes between
 * different layouts.  A converted copy is made once for all consumers that need
 * the same layout; gradient contributions in the same layout are summed
 * before they are converted.
 *
 * Megatron tensor parallelism, vocabulary parallelism and sequence
 * parallelism are what this finds; there is no code for any of them.
 *
 * Samples.  A tensor axis usually cuts weights and what they produce.  Where
 * tp_batch_percent allows it, a node may be cut along that axis by its samples
 * instead: its weights are then whole on every tensor rank, and their gradients
 * are partial and summed once per step.  That is data parallelism, layer by
 * layer: a large vocabulary stays cut while the layers between are replicas.  A
 * table that is not tied may be cut by columns there.
 *
 * Unlike stages.  If stages have other ranks, each has a graph of its own,
 * sharded for these.  The parts of the model are chosen before, and a graph is
 * written for them: what one part makes and another reads crosses between them
 * in one layout, of the value itself, never of a converted copy; and what is
 * summed of a gradient goes from part to part as one value.  So the graphs of
 * all stages agree in what crosses (`origin`), and only its layouts differ.
 *
 * Context parallelism ("cp").  One more axis, the outermost, has another role:
 * every node that can be cut along the sequence is, weights are whole, and
 * their gradients are summed once per step, as where samples are cut.
 * Attention, which reads all earlier keys, is cut there by its queries, and the
 * search gathers keys and values and sums their gradients; or it is cut by
 * heads, with all-to-alls before and after it.  Where not all ranks can be
 * given kv heads, a mesh with two axes is tried, too: heads are exchanged along
 * the second, and along the first keys are gathered, or queries of a kv head
 * divided.  Boxes count positions in the order of graph->position_pieces, so
 * that no layout knows of it.
 *
 * Space.  A model without sequences has its first dims of space cut along cp:
 * one, or two or three with an axis for each ("cp.0" ..).  What windows read of
 * neighbours' parts comes along one axis after another.
 *
 * Experts ("ep").  One more axis, the outermost, cuts these, which it must, and
 * all else by samples, or tables by their vocabulary.  A rank then gathers the
 * tokens of all ranks, computes the rows of its experts, and sums of all ranks
 * go back to the tokens' ranks.  Where rows have places of their experts, these
 * are exchanged instead.  An axis for weights beside it cuts the inner
 * width of each expert; one for sequences the tokens, and with them the rows
 * that are kept for each expert.
 *
 * Vocabulary-parallel layers ("shared").  If the embedding (1), or the
 * embedding and the head (2), are cut over all pipeline stages, the mesh has
 * one more axis, "pp".  Nodes that have a vocabulary are cut by it along that
 * axis, in addition to the cuts found for the tensor axes.  All others have no
 * cut there, which means that they are only on the stage that runs them.
 */
#ifndef MERAK_PARTITIONER_LAYOUT_SHARD_H
#define MERAK_PARTITIONER_LAYOUT_SHARD_H

#include "base/deadline.h"
#include "partitioner/device/cost_model.h"
#include "partitioner/graph/graph.h"
#include "partitioner/layout/layout.h"
#include "partitioner/layout/split.h"
#include "partitioner/layout/tp_plan.h"

#define MERAK_MAX_SHARED 2
#define MERAK_CUT_NONE (-1)
#define MERAK_CUT_LINEAR (-2) /* partial in, partial out */

struct merak_strategy {
    int8_t cut[MERAK_MAX_AXES]; /* index of the signature, or MERAK_CUT_* */
};

enum merak_seq_parallel {
    MERAK_SP_AUTO, /* whatever is cheapest */
    MERAK_SP_OFF,  /* the sequence dim is never cut along a tensor axis */
    MERAK_SP_ON,   /* values between blocks are split along the sequence */
};

/* How attention is cut along cp. */
enum merak_cp_form {
    MERAK_CP_AUTO,   /* whichever is cheaper, each for itself */
    MERAK_CP_GATHER, /* by queries: keys and values are gathered */
    MERAK_CP_HEADS,  /* by heads: all of them are exchanged */
};

/* Which positions a rank of cp has. */
enum merak_cp_order {
    MERAK_CP_ORDER_AUTO, /* HEAD_TAIL where that makes less attention for the
                            rank with the most */
    MERAK_CP_HEAD_TAIL,  /* a piece from the head, one from the tail:
                            merak_position() */
    MERAK_CP_CONTIGUOUS, /* its part of the sequence in a row */
};

/* The order of nodes, where branches leave a choice: order/gather.c. */
enum merak_branches {
    MERAK_BRANCHES_DESCRIBED, /* as the model was described */
    MERAK_BRANCHES_GATHERED,  /* with the fewest bytes alive, to be cut where
                                 few values cross */
    MERAK_BRANCHES_BLOCKS,    /* by blocks of about the same time, to be cut
                                 between them */
    MERAK_BRANCHES_AUTO,      /* in a run's options: whichever is cut best */
};

/* Parts of the model, and blocks in each, by forward node of its graph. */
struct merak_parts {
    int n, n_nodes;
    int *of_node, *block;
    int *n_blocks; /* by part */
    int *place;    /* by part: the cut point where it begins; of the first -1 */
};

struct merak_shard_options {
    int tp;
    int64_t tp_axes; /* its factors, an axis each, the first outermost
                        (base/factors.h); 0: chosen by the heads */
    int cp; /* context parallelism; 0 or 1: sequences are whole */
    int64_t cp_axes; /* of a model without sequences: its factors, an axis for
                        each dim of space; 0: those with the least to
                        exchange */
    enum merak_cp_form cp_form;
    enum merak_cp_order cp_order;
    int ep;     /* > 1: ranks of an axis for experts */
    int stages; /* pp, read if shared > 0 */
    int shared; /* vocabulary-parallel layers over all stages: 0, 1 or 2 */
    enum merak_seq_parallel sp;
    int tp_batch_percent; /* percent of the forward nodes, the last ones, that a
                  tensor axis may cut by samples, if that is cheaper; 0: none.
                  tp must then divide the micro-batch */
    struct merak_layer_split split; /* layers that it cuts by samples, all
                                       others by weights; none: as the
                                       percentage says */
    struct merak_tp_plan tp_plan; /* parameters that it must cut so */
    bool halved; /* for errors: micro-batches are a sub-pipeline's halves */
    enum merak_branches branches;        /* not AUTO */
    const struct merak_cost_model *cost; /* NULL: the same for all machines and
                                            sizes, see shard_cost.c */
    const struct merak_parts *parts;     /* stages are unlike; or NULL */
    const struct merak_deadline *deadline; /* once it is past, the search over
                                              layouts fails with
                                              MERAK_ERR_TIMEOUT; or NULL */
};

struct merak_sharded {
    struct merak_graph *graph; /* owned; a rewritten copy */
    struct merak_mesh mesh;    /* tensor axes: "ep" and "cp", if they are more
                                  than 1, and "tp" or "tp.0","tp.1", .., none if
                                  tp is 1.  A rank's index among them counts the
                                  last axis fastest.  "pp" last, if n_shared > 0
                                */
    int n_shared;
    uint8_t *shared; /* by node id: 1 for the shared embedding, 2 for the
                        shared head, 0 for neither; NULL: all 0 */
    struct merak_layout *layout;     /* by value id */
    struct merak_strategy *strategy; /* by node id */
    struct merak_hop *hop; /* by node id; for convert nodes (one hop each) */
    double saved;  /* fraction of the search's seconds that cuts by samples, and
                      of tables by columns, save */
    long records;  /* records of live values that the search examined */
    bool branches; /* not a chain of blocks: another order is worth a try */
    enum merak_branches order; /* that the nodes are in */
    int *block; /* BLOCKS: by node id, which block a forward node is in,
                   ascending; -1: a conversion or a gradient; else NULL */

    /* Of unlike stages; else NULL. */
    struct merak_parts *parts; /* what the graph was written for */
    int *origin; /* by value id: of the model's graph, the value that it is; -1:
                    a converted copy, which stays in its part */
    struct merak_sharded **by_stage; /* in the first stage's: all stages', of
                                        which several may have the same; owned
                                        like itself */
    int n_stages, n_ids; /* of by_stage; at least n_values + 2 n_nodes of each
                            of them */
};

/* MERAK_ERR_CONFIG if the factors do not make tp, or are too many axes beside
 * cp or ep. */
enum merak_status merak_shard_check_axes(const struct merak_shard_options *opt,
                                         struct merak_error *err) MERAK_CHECKED;
/*
 * Find a layout for every value and write the sharded graph out, its nodes in
 * the order described: opt->branches is ignored.  Callers use merak_shard() of
 * order/shard_order.h instead.
 *
 * MERAK_ERR_CONFIG names the dim and tp, or cp, if it does not divide a dim
 * that must be cut (heads, the sequence).
 */
enum merak_status merak_shard_described(const struct merak_graph *graph,
                                        const struct merak_shard_options *opt,
                                        struct merak_sharded **sharded_p,
                                        struct merak_error *err) MERAK_CHECKED;
/* Fill in sharded->shared, for its nodes in their present order. */
enum merak_status merak_shared_mark(struct merak_sharded *sharded,
                                    struct merak_error *err) MERAK_CHECKED;
/* The experts that an axis may cut: the greatest common divisor of those of all
 * nodes that have several; 0: there are none. */
size_t merak_shard_experts(const struct merak_graph *graph);
void merak_sharded_destroy(struct merak_sharded *sharded);
/* The one of a stage. */
const struct merak_sharded *
merak_sharded_of(const struct merak_sharded *sharded, int stage);
/* Let a stage's graph, which the first stage's owns from now on, also be in its
 * list, which has room for n stages; `first` itself is stage 0's. */
enum merak_status merak_sharded_add(struct merak_sharded *first,
                                    struct merak_sharded *sharded, int stage,
                                    int n,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_parts_destroy(struct merak_parts *parts);
/* Room for this many nodes and parts. */
enum merak_status merak_parts_create(int n_nodes, int n,
                                     struct merak_parts **parts_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Number of the mesh's axes inside a stage. */
int merak_sharded_tensor_axes(const struct merak_sharded *sharded);
/* The fraction of the parameters' elements that is split over tensor ranks. */
double merak_sharded_split_fraction(const struct merak_sharded *sharded);
/* The tensor axes, as bits, along which a parameter (value id) is replicated
 * and its optimizer state is distributed under ZeRO-1. */
unsigned merak_sharded_flat_axes(const struct merak_sharded *sharded,
                                 int param);
/* Does a node communicate with other ranks?  A slice is a local copy. */
bool merak_sharded_exchanges(const struct merak_sharded *sharded, int node);
/* merak_layout_path() over its mesh; a value that neither layout cuts along
 * the stages' axis never leaves its stage on the way. */
int merak_sharded_path(const struct merak_sharded *sharded,
                       const struct merak_shape *shape,
                       const struct merak_layout *from,
                       const struct merak_layout *to, struct merak_hop *hops,
                       double *cost_p);
/* Of the exchanges that take place only where rows are left, is this node the
 * first that depends on its number of them? */
bool merak_sharded_asks(const struct merak_sharded *sharded, int node);
/* How sequences are cut. */
struct merak_sequence_cuts {
    char letter;  /* what cp cuts, or would: merak_graph_sequence_letter() */
    int64_t grid; /* of dims of space, factors of cp (base/factors.h) */
    char letters[4]; /* of each */
    bool over_tp; /* some values, by an axis for weights */
    /* Along cp: how many attentions have keys gathered, and heads exchanged. */
    int gathered, exchanged;
    bool head_tail; /* a rank has positions of the head and of the tail */
};
void merak_sharded_sequence_cuts(const struct merak_sharded *sharded,
                                 struct merak_sequence_cuts *cuts);
/* "; over cp samples are cut along z and y, 4 x 2" */
void merak_space_cuts_text(const struct merak_sequence_cuts *cuts, char *text,
                           size_t bytes);
enum merak_status merak_sharded_print(const struct merak_sharded *sharded,
                                      char **text_p,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
