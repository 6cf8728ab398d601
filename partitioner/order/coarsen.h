/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/order/coarsen.h - merging items, level by level
 *
 * For blocks.c, which describes the whole algorithm.
 */
#ifndef MERAK_PARTITIONER_ORDER_COARSEN_H
#define MERAK_PARTITIONER_ORDER_COARSEN_H

#include "partitioner/order/dag.h"

#include <stdbool.h>

/* The items after a round of merges; each consists of items of `finer`. */
struct merak_level {
    struct merak_dag dag; /* edges sorted, one between any two */
    int *next;            /* [n + 1] by item: start of its edges */
    int *prev, *prev_of;  /* edges by the item they lead to; their starts */
    int *up;              /* by item: what it becomes on the next level */
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

/* Merge the items of `from` into n, item i into up[i]: the new w->level. */
enum merak_status merak_level_push(struct merak_coarsening *w,
                                   const struct merak_dag *from, const int *up,
                                   int n) MERAK_CHECKED;
/* Back to the finer level. */
void merak_level_pop(struct merak_coarsening *w);
/* Seconds: the mean of the items plus two standard deviations. */
double merak_level_deviation(const struct merak_dag *dag);
/* May a block hold this many bytes? */
bool merak_block_fits(const struct merak_coarsening *w, double memory);
/* Merge neighbours until at most as many items as blocks are left, or none can
 * be merged. */
enum merak_status merak_coarsen(struct merak_coarsening *w) MERAK_CHECKED;
/* Then merge adjacent items: every edge leads to a higher number, so that the
 * results are convex. */
enum merak_status merak_compact(struct merak_coarsening *w) MERAK_CHECKED;

#endif
