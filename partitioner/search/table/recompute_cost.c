/* SPDX-License-Identifier: Apache-2.0 */
/* recompute_cost.c - which nodes a recomputing stage runs again
 *
 * As program/action_nodes.c decides for programs, but for the model as one
 * part, in which blocks are whole.
 */
#include "config.h"

#include "partitioner/search/table/walker.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static void find_crossings(const struct merak_walker *w, bool *crosses)
{
    for (int n = 0; n < w->graph->n_nodes; n++) {
        const struct merak_node *node = w->graph->node[n];

        if (node->phase != MERAK_PHASE_F)
            continue;
        for (int i = 0; i < node->n_in; i++) {
            int from = node->in[i]->producer;

            if (from >= 0 && w->block[from] != w->block[n])
                crosses[node->in[i]->id] = true;
        }
    }
}

static bool is_attention(const struct merak_node *node)
{
    return strncmp(node->op->name, "attention", strlen("attention")) == 0;
}

static bool drops(const struct merak_walker *w, const struct merak_node *node,
                  enum merak_keep keep, const bool *crosses)
{
    switch (w->sharded->hop[node->id].kind) {
    case MERAK_CONVERT_ALL_REDUCE:
    case MERAK_CONVERT_REDUCE_SCATTER:
    case MERAK_CONVERT_ALL_TO_ALL:
        return false;
    default:
        break;
    }
    for (int i = 0; i < node->n_out; i++) {
        if (crosses[node->out[i]->id])
            return false;
    }
    return keep == MERAK_KEEP_LEAST || is_attention(node);
}

static void want_inputs(struct merak_walker *w, const struct merak_node *node,
                        enum merak_keep keep, const bool *crosses)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct merak_value *in = node->in[i];

        if (in->producer >= 0 && merak_walker_forward(w, in) &&
            drops(w, w->graph->node[in->producer], keep, crosses))
            w->recompute[keep][in->producer] = true;
    }
}

/* Gradient nodes stand after all forward nodes, so that going backwards every
 * reader of a value is met before its producer. */
void merak_walker_find_recomputed(struct merak_walker *w)
{
    bool *crosses = calloc((size_t)w->graph->n_values + 1, sizeof(*crosses));

    if (crosses == NULL) {
        w->rc = merak_fail_nomem(w->err, (size_t)w->graph->n_values);
        return;
    }
    find_crossings(w, crosses);
    for (int keep = MERAK_KEEP_ALL + 1; keep < MERAK_KEEPS; keep++) {
        for (int n = w->graph->n_nodes - 1; n >= 0; n--) {
            if (w->graph->node[n]->phase != MERAK_PHASE_F ||
                w->recompute[keep][n])
                want_inputs(w, w->graph->node[n], (enum merak_keep)keep,
                            crosses);
        }
    }
    free(crosses);
}
