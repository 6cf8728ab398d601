/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/pairs.h - in which order the two micro-batches of a
 * sub-pipeline run
 */
#ifndef MERAK_PARTITIONER_PROGRAM_PAIRS_H
#define MERAK_PARTITIONER_PROGRAM_PAIRS_H

#include "partitioner/layout/shard.h"

/* Half 0 or 1 of the pair runs node `at` of the list, or, `next`, of what the
 * next pair is ahead with. */
struct merak_pair_step {
    int at;
    uint8_t half;
    bool next;
};

/* What two micro-batches run, both of it. */
struct merak_pair_list {
    const int *node; /* ids, each once, in an order in which they can run */
    int n;
    const int *lead; /* of the next pair, another two micro-batches, may begin
                        before these end; they do not begin it without */
    int n_lead;
};

/*
 * Zip the runs of a list, so that exchanges of one half are behind kernels of
 * the other.
 *
 *   sharded  in   whose nodes they are
 *   order    out  [2 (n + n_lead)]
 *
 * Each half keeps its list's order, and half 1 is never ahead of half 0.  A
 * function of the graph alone: all tensor ranks get the same.
 */
enum merak_status merak_pair_order(const struct merak_sharded *sharded,
                                   const struct merak_pair_list *list,
                                   struct merak_pair_step *order,
                                   struct merak_error *err) MERAK_CHECKED;
/* How many first nodes of a list are no more than exchanges and the little
 * between them, up to an exchange: 0 if it begins with kernels. */
int merak_pair_lead(const struct merak_sharded *sharded, const int *node,
                    int n);

#endif
