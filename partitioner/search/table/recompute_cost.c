/* SPDX-License-Identifier: Apache-2.0 */
/* recompute_cost.c - which nodes a recomputing stage recomputes
 *
 * The rule is that of program/closure.h, as in programs, but the model is taken
 * as one part, so that all blocks are whole.
 */
#include "config.h"

#include "partitioner/search/table/walker.h"

#include "base/error.h"
#include "partitioner/program/closure.h"

#include <stdlib.h>

struct dropper {
    const struct merak_walker *walker;
    enum merak_keep keep;
};

static bool is_here(const void *arg, int node)
{
    const struct dropper *d = arg;

    return !merak_fold_is_early(&d->walker->fold, d->walker->graph->node[node]);
}

static bool drops(const void *arg, int node)
{
    const struct dropper *d = arg;

    if (merak_walker_folds(d->walker, node))
        return merak_fold_is_again(&d->walker->fold,
                                   d->walker->graph->node[node]);
    return d->keep == MERAK_KEEP_LEAST ||
           merak_op_is_attention(d->walker->graph->node[node]->op);
}

void merak_walker_find_recomputed(struct merak_walker *w)
{
    struct dropper dropper = {.walker = w};
    struct merak_closure closure = {
        .sharded = w->sharded,
        .block = w->block,
        .crosses = calloc((size_t)w->graph->n_values + 1, sizeof(bool)),
        .is_here = is_here,
        .drops = drops,
        .arg = &dropper};

    if (closure.crosses == NULL) {
        w->rc = merak_fail_nomem(w->err, (size_t)w->graph->n_values);
        return;
    }
    merak_closure_find_crossings(&closure);
    for (int v = 0; v < w->graph->n_values; v++)
        closure.crosses[v] = closure.crosses[v] && !merak_walker_is_inner(w, v);
    for (int keep = MERAK_KEEP_ALL + 1; keep < MERAK_KEEPS; keep++) {
        dropper.keep = (enum merak_keep)keep;
        closure.recompute = w->recompute[keep];
        merak_closure_find(&closure);
        /* what runs again always is counted with gradients */
        for (int n = 0; n < w->graph->n_nodes; n++)
            closure.recompute[n] =
                closure.recompute[n] && !merak_walker_folds(w, n);
    }
    free(closure.crosses);
}
