/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/order/coarsen.h - items put together, level by level
 *
 * Of blocks.c, which tells the whole of it.
 */
#ifndef MERAK_PARTITIONER_ORDER_COARSEN_H
#define MERAK_PARTITIONER_ORDER_COARSEN_H

#include "partitioner/order/dag.h"

#include <stdbool.h>

/* What is left after so many merges; its items are those of `finer`. */
struct merak_level {
    struct merak_dag dag; /* edges sorted, one between any two */
    int *next;            /* [n + 1] by item: begins of its edges */
    int *prev, *prev_of;  /* edges by the item they lead to: [n + 1], begins */
    int *up;              /* by item: what it is merged to, on the next level */
    struct merak_level *finer;
};

struct merak_coarsening {
    const struct merak_block_options *opt;
    double seconds; /* of all */
    double most;    /* that a block may take, unless it is one item */
    int n;          /* items */
    struct merak_level *level;
    int depth;
    struct merak_error *err;
};

/* The items of `from` put together as `up` says, n of them: w->level. */
enum merak_status merak_level_push(struct merak_coarsening *w,
                                   const struct merak_dag *from, const int *up,
                                   int n) MERAK_CHECKED;
/* Back to the finer level. */
void merak_level_pop(struct merak_coarsening *w);
/* Seconds: the mean of items and two standard deviations. */
double merak_level_deviation(const struct merak_dag *dag);
/* May a block hold so many bytes? */
bool merak_block_fits(const struct merak_coarsening *w, double memory);
/* Merge neighbours until there are no more than there are to be blocks, or none
 * can be merged. */
enum merak_status merak_coarsen(struct merak_coarsening *w) MERAK_CHECKED;
/* Then those side by side: all items' numbers lead up, so that they are
 * convex. */
enum merak_status merak_compact(struct merak_coarsening *w) MERAK_CHECKED;

#endif
