/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/graphs.h - a model's graphs, described and sharded once */
#ifndef MERAK_PARTITIONER_SEARCH_GRAPHS_H
#define MERAK_PARTITIONER_SEARCH_GRAPHS_H

#include "partitioner/search/search.h"

/* A model's graph by micro-batch size, described once. */
struct merak_graphs;
enum merak_status merak_graphs_create(const struct merak_search_input *in,
                                      struct merak_graphs **graphs_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* For another search with the same model, sequences and dtype; to be destroyed
 * as often. */
struct merak_graphs *merak_graphs_share(struct merak_graphs *graphs);
void merak_graphs_destroy(struct merak_graphs *graphs);

/* Bytes of parameters, accumulators of their gradients, and what the optimizer
 * keeps, of one replica. */
struct merak_state {
    double whole;    /* that every replica has */
    double parted;   /* that ZeRO-1 shares out over replicas */
    double elements; /* of the parameters */
};
enum merak_status merak_graphs_state(struct merak_graphs *graphs,
                                     struct merak_state *state,
                                     struct merak_error *err) MERAK_CHECKED;
/* As this plan's trainer calls it: the program that runs is the one planned.
 * Borrowed until the next call: the latest are kept. */
enum merak_status merak_graphs_shard(struct merak_graphs *graphs,
                                     const struct merak_plan *plan,
                                     const struct merak_sharded **sharded_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Add what was sharded so far. */
void merak_graphs_count(const struct merak_graphs *graphs,
                        struct merak_search_tally *tally);

#endif
