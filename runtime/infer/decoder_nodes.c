/* SPDX-License-Identifier: Apache-2.0 */
/* decoder_nodes.c - which nodes of the graph to run for cache, logits or
 * loss */
#include "config.h"

#include "runtime/infer/decoder_impl.h"

#include "partitioner/graph/letters.h"

#include "base/error.h"

/* Mark the nodes that value v depends on, including the one that computes
 * it. */
static void mark(const struct merak_graph *g, const struct merak_value *v,
                 bool *node)
{
    if (v->producer < 0 || node[v->producer])
        return;
    node[v->producer] = true;
    for (int n = v->producer; n >= 0; n--) {
        for (int i = 0; node[n] && i < g->node[n]->n_in; i++) {
            if (g->node[n]->in[i]->producer >= 0)
                node[g->node[n]->in[i]->producer] = true;
        }
    }
}

static const struct merak_node *find_node(const struct merak_graph *g,
                                          enum merak_op_role role)
{
    for (int n = 0; n < g->n_forward; n++) {
        if (g->node[n]->op->role == role)
            return g->node[n];
    }
    return NULL;
}

/* Does a node mix positions in a way that the cache does not support? */
static bool mixes_positions(const struct merak_node *node)
{
    if (merak_node_mixes_positions(node))
        return true;
    for (int o = 0; o < node->n_out; o++) {
        if (!merak_value_has_positions(node->out[o]))
            return true;
    }
    return false;
}

static enum merak_status find_kernels(struct merak_decoder *d,
                                      struct merak_error *err)
{
    const struct merak_graph *g = d->graph;

    for (int n = 0; n < g->n_forward; n++) {
        enum merak_status rc;

        if (!d->wanted[MERAK_WISH_LOSS][n])
            continue;
        if (mixes_positions(g->node[n]))
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "op %s computes a position from others: no "
                              "token can be computed after another",
                              g->node[n]->name);
        rc = merak_kernel_find(d->backend, g->node[n]->op->name, &d->kernel[n],
                               err);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}

enum merak_status merak_decoder_find_nodes(struct merak_decoder *d,
                                           struct merak_error *err)
{
    const struct merak_graph *g = d->graph;
    const struct merak_node *part = find_node(g, MERAK_ROLE_LOSS_PART);
    const struct merak_node *loss = find_node(g, MERAK_ROLE_LOSS);

    for (int v = 0; v < g->n_values; v++)
        d->place[v].positions = merak_value_has_positions(g->value[v]);
    if (g->passes > 1)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the model runs %d passes: no token can be computed "
                          "after another",
                          g->passes);
    if (part == NULL || loss == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the model has no cross-entropy loss, so its logits "
                          "cannot be found");
    d->logits = part->in[0];
    d->nll = loss->out[0];
    mark(g, d->logits, d->wanted[MERAK_WISH_LOGITS]);
    mark(g, d->nll, d->wanted[MERAK_WISH_LOSS]);
    for (int n = 0; n < g->n_forward; n++) {
        for (int i = 0; i < g->node[n]->n_in; i++) {
            const struct merak_value *in = g->node[n]->in[i];

            if (!d->wanted[MERAK_WISH_LOSS][n] ||
                !merak_node_reads_back(g->node[n], i))
                continue;
            d->place[in->id].kept = true;
            mark(g, in, d->wanted[MERAK_WISH_CACHE]);
        }
    }
    return find_kernels(d, err);
}
