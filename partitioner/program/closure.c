/* SPDX-License-Identifier: Apache-2.0 */
/* closure.c - what gradients need of what was dropped, directly or through
 * other dropped values
 */
#include "config.h"

#include "partitioner/program/closure.h"

bool merak_op_is_attention(const struct merak_op *op)
{
    return op->role == MERAK_ROLE_ATTENTION;
}

void merak_closure_find_crossings(struct merak_closure *c)
{
    const struct merak_graph *graph = c->sharded->graph;

    for (int n = 0; n < graph->n_nodes; n++) {
        const struct merak_node *node = graph->node[n];

        if (node->phase != MERAK_PHASE_F)
            continue;
        for (int i = 0; i < node->n_in; i++) {
            int from = node->in[i]->producer;

            if (from >= 0 && c->block[from] != c->block[n])
                c->crosses[node->in[i]->id] = true;
        }
    }
}

/* Are a forward node's outputs dropped?  All of them or none: a norm whose
 * result is kept keeps its statistics, too. */
static bool drops(const struct merak_closure *c, const struct merak_node *node)
{
    switch (c->sharded->hop[node->id].kind) {
    case MERAK_CONVERT_ALL_REDUCE:
    case MERAK_CONVERT_REDUCE_SCATTER:
    case MERAK_CONVERT_ALL_TO_ALL:
        return false;
    default:
        break;
    }
    for (int i = 0; i < node->n_out; i++) {
        if (c->crosses[node->out[i]->id])
            return false;
    }
    return c->drops(c->arg, node->id);
}

/* A gradient node, or one that runs again, reads these. */
static void want_inputs(struct merak_closure *c, const struct merak_node *node)
{
    const struct merak_graph *graph = c->sharded->graph;

    for (int i = 0; i < node->n_in; i++) {
        int from = node->in[i]->producer;

        if (from < 0 || graph->node[from]->phase != MERAK_PHASE_F ||
            !c->is_here(c->arg, from) || !drops(c, graph->node[from]))
            continue;
        c->recompute[from] = true;
        if (c->dropped != NULL)
            c->dropped[node->in[i]->id] = true;
    }
}

/* Gradient nodes come after all forward nodes, so that going backwards every
 * reader of a value is met before its producer. */
void merak_closure_find(struct merak_closure *c)
{
    const struct merak_graph *graph = c->sharded->graph;

    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        if (c->is_here(c->arg, n) &&
            (graph->node[n]->phase != MERAK_PHASE_F || c->recompute[n]))
            want_inputs(c, graph->node[n]);
    }
}
