/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/pairs.h - in which order the two micro-batches of a
 * sub-pipeline run
 */
#ifndef MERAK_PARTITIONER_PROGRAM_PAIRS_H
#define MERAK_PARTITIONER_PROGRAM_PAIRS_H

#include "partitioner/layout/shard.h"

/* Half 0 or 1 of the pair runs node `at` of the list or, if `next`, of the next
 * pair's lead. */
struct merak_pair_step {
    int at;
    uint8_t half;
    bool next;
};

/* What each of two micro-batches runs. */
struct merak_pair_list {
    const int *node; /* ids, each once, in an order in which they can run */
    int n;
    const int *lead; /* first ids of the next pair, another two micro-batches,
                        that may run before these end */
    int n_lead;
};

/*
 * Interleave the two runs of a list, so that exchanges of one half overlap with
 * kernels of the other.
 *
 *   sharded  in   the graph of the nodes
 *   order    out  [2 (n + n_lead)]
 *
 * Each half keeps its list's order, and half 1 is never ahead of half 0.  A
 * function of the graph alone: all tensor ranks get the same.
 */
enum merak_status merak_pair_order(const struct merak_sharded *sharded,
                                   const struct merak_pair_list *list,
                                   struct merak_pair_step *order,
                                   struct merak_error *err) MERAK_CHECKED;
/* How many nodes at the start of a list are only exchanges with little between
 * them, up to an exchange; 0 if it begins with kernels. */
int merak_pair_lead(const struct merak_sharded *sharded, const int *node,
                    int n);

#endif
