/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/graphs.h - cache of a model's graphs and sharded graphs */
#ifndef MERAK_PARTITIONER_SEARCH_GRAPHS_H
#define MERAK_PARTITIONER_SEARCH_GRAPHS_H

#include "partitioner/search/search.h"

/* A model's graphs, each micro-batch size described once. */
struct merak_graphs;
enum merak_status merak_graphs_create(const struct merak_search_input *in,
                                      struct merak_graphs **graphs_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* Share with another search of the same model, sequence length and dtype; each
 * user calls merak_graphs_destroy(). */
struct merak_graphs *merak_graphs_share(struct merak_graphs *graphs);
void merak_graphs_destroy(struct merak_graphs *graphs);

/* Bytes of one replica's parameters, gradient accumulators and optimizer
 * state. */
struct merak_state {
    double whole;  /* what every replica holds in full */
    double parted; /* what ZeRO-1 splits over replicas */
};
enum merak_status merak_graphs_state(struct merak_graphs *graphs,
                                     struct merak_state *state,
                                     struct merak_error *err) MERAK_CHECKED;
/* Seconds that a sequence takes one rank at least, forward and backward: of its
 * kernels' FLOPs and of the bytes of what is made of the sequence.  Those of
 * parameters may be read once for many sequences. */
enum merak_status merak_graphs_least_s(struct merak_graphs *graphs,
                                       const struct merak_cost_model *cost,
                                       double *seconds_p,
                                       struct merak_error *err) MERAK_CHECKED;
/* What merak_shard_experts() finds; 0, too, if the model cannot be described,
 * for which the search fails. */
size_t merak_graphs_experts(struct merak_graphs *graphs);
/* Shard as this plan's trainer does: the program that runs is the one planned.
 * Borrowed until the next call; the latest results are cached.
 * MERAK_ERR_TIMEOUT once the deadline, unless it is NULL, is past. */
enum merak_status merak_graphs_shard(struct merak_graphs *graphs,
                                     const struct merak_plan *plan,
                                     const struct merak_deadline *deadline,
                                     const struct merak_sharded **sharded_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* The model's graph, as it is described for a plan; lives as long as `graphs`.
 */
enum merak_status merak_graphs_describe(struct merak_graphs *graphs,
                                        const struct merak_plan *plan,
                                        struct merak_graph **graph_p,
                                        struct merak_error *err) MERAK_CHECKED;
/* Add what was sharded so far to the tally. */
void merak_graphs_count(const struct merak_graphs *graphs,
                        struct merak_search_tally *tally);

#endif
