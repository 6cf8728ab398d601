/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/stages.h - parts of the model: where it is cut, and what
 * each holds
 */
#ifndef MERAK_PARTITIONER_PROGRAM_STAGES_H
#define MERAK_PARTITIONER_PROGRAM_STAGES_H

#include "partitioner/device/cost_model.h"
#include "partitioner/plan/plan.h"

/* Which part of the model each node of the sharded graph is in (gradient and
 * convert nodes included).  Parts are pipeline stages, or with several model
 * chunks per rank the parts that the schedule gives to stages; after these
 * come the vocabulary-parallel layers, which all stages run together. */
struct merak_stages {
    int n;
    int *of_node;   /* by node id */
    int *block;     /* by node id, forward nodes: counted over the model, what
                       lies between two neighbouring cut points */
    int *n_blocks;  /* by part; 0 for vocabulary-parallel layers */
    double *flops;  /* by part, forward + backward of one micro-batch */
    size_t *params; /* by part, elements held (global sizes) */
    struct merak_drop *drop; /* by part; nothing, until recomputation is
                                chosen */
    /* Of unlike stages, in the first one's; else NULL: as in struct
     * merak_sharded. */
    struct merak_stages **by_stage;
    int n_stages;
};

/* Cut into n parts, including vocabulary-parallel layers, at points where the
 * fewest values cross, balanced by what FLOPs and sends take with this cost
 * model (NULL: the built-in one).  speed: by part, how fast its ranks together
 * are, in any unit; NULL: all alike.
 * MERAK_ERR_CONFIG if there are fewer cut points than stages - 1: names
 * both numbers. */
enum merak_status merak_stages_cut(const struct merak_sharded *sharded, int n,
                                   const double *speed,
                                   const struct merak_cost_model *cost,
                                   struct merak_stages **stages_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* A cut point: what crosses it are values of nodes before it. */
struct merak_cut_point {
    int node;     /* the first after it */
    int alive;    /* values that cross */
    double bytes; /* of them, global sizes */
};
/* Into cut, with room for one more than nodes: the graph's start, the cut
 * points in order, and its end; *n_p is how many these are.  before_loss: leave
 * out those within the loss, whose gradient is divided by the positions of a
 * micro-batch, which stages of other replicas have more of, or fewer. */
enum merak_status merak_cut_points_find(const struct merak_sharded *sharded,
                                        bool before_loss,
                                        struct merak_cut_point *cut, int *n_p,
                                        struct merak_error *err) MERAK_CHECKED;
/* The cut points in order: place[0] is the graph's start, then n cut points
 * follow, and place[n + 1] is its end.  The caller frees *place_p. */
enum merak_status merak_stages_list(const struct merak_sharded *sharded,
                                    struct merak_cut_point **place_p, int *n_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* The number of cut points; a stage can begin at each. */
enum merak_status
merak_stages_count_points(const struct merak_sharded *sharded, int *n_p,
                          struct merak_error *err) MERAK_CHECKED;
/* Cut at cut points place[n - 1] (vocabulary-parallel layers not counted),
 * ascending; 0 is the first after the graph's start. */
enum merak_status merak_stages_at(const struct merak_sharded *sharded,
                                  const int *place, int n,
                                  struct merak_stages **stages_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* Stages of n parts that `assign` gives the nodes and their blocks to. */
typedef void (*merak_assign_fn)(const struct merak_sharded *sharded,
                                struct merak_stages *stages);
enum merak_status merak_stages_assigned(const struct merak_sharded *sharded,
                                        int n, merak_assign_fn assign,
                                        struct merak_stages **stages_p,
                                        struct merak_error *err) MERAK_CHECKED;
/* The parts, as a forward node of the graph without tensor ranks has them. */
enum merak_status merak_stages_parts(const struct merak_sharded *sharded,
                                     const struct merak_stages *stages,
                                     struct merak_parts **parts_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* A forward node of the loss. */
bool merak_node_is_of_loss(const struct merak_node *node);
/* Is any of the loss before the last part? */
bool merak_parts_cut_loss(const struct merak_graph *graph,
                          const struct merak_parts *parts);
/* Stages of the parts that a graph was written for; with those of the graphs
 * of the other stages. */
enum merak_status merak_stages_of_parts(const struct merak_sharded *sharded,
                                        struct merak_stages **stages_p,
                                        struct merak_error *err) MERAK_CHECKED;
/* Those of a stage's graph. */
const struct merak_stages *merak_stages_of(const struct merak_stages *stages,
                                           int stage);
void merak_stages_destroy(struct merak_stages *stages);

/*
 * How many layers begin in each part: models number them in their parameters'
 * names.
 *
 *   count    out  [stages->n]
 *   split_p  out  how many go on in a later part
 */
enum merak_status merak_stages_layers(const struct merak_sharded *sharded,
                                      const struct merak_stages *stages,
                                      int *count, int *split_p,
                                      struct merak_error *err) MERAK_CHECKED;

/* The n - 1 cut points between parts of so many whole layers each.
 * MERAK_ERR_CONFIG if the graph cannot be cut there. */
enum merak_status
merak_stages_cut_layers(const struct merak_sharded *sharded, const int *count,
                        int n, int *place,
                        struct merak_error *err) MERAK_CHECKED;

/* May micro-batches of one sequence run in slices?  Not if tensor ranks hold
 * parts of sequences. */
bool merak_sharded_may_slice(const struct merak_sharded *sharded);

#endif
