/* SPDX-License-Identifier: Apache-2.0 */
/* shard_write.c - write the sharded graph out
 *
 * The same nodes in the same order, with convert nodes, one per hop, right
 * before a consumer that needs another layout.  A copy is made once for all
 * consumers that need it.  The backward pass uses a copy of the forward pass
 * only if that costs no memory (merak_copy_is_kept); otherwise it converts
 * again, as Megatron gathers its inputs again.
 *
 * What a weight's gradient needs gathered again is gathered before the input's
 * gradient of the same node, not after it: the gather overlaps with the compute
 * of the input's gradient, which is reduced during the weight's gradient.
 *
 * A gradient is converted to the dual layout of its value as soon as it is
 * whole, on the side of its producers.  Contributions in one layout are summed
 * first, in the order of the graph, wherever they were made; the sums are then
 * converted and added in the order in which their layouts first occurred.
 * None of this depends on stages.
 */
#include "config.h"

#include "partitioner/layout/shard_writer.h"

#include "partitioner/graph/mem_pool.h"

#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GROUPS \
    MERAK_CODES /* layouts among the contributions to one gradient */

/* Contributions so far to the gradient of an old value. */
struct group {
    struct merak_value *sum;
};
struct merak_grad_chain {
    int n_groups;
    struct group group[MAX_GROUPS];
    int n_sums; /* old sums met and not used yet for a name */
    const struct merak_node *sums[MAX_GROUPS];
};

/* --- gradients
 * ---------------------------------------------------------------------- */

static void dual_of(const struct merak_shard_writer *w, int old,
                    struct merak_layout *dual)
{
    merak_layout_dual(&w->mesh,
                      merak_write_layout(w, w->entry[old].copies->value), dual);
}

/* One of the adds that replace the old sums, named after the next of them. */
static enum merak_status emit_add(struct merak_shard_writer *w, int of,
                                  struct merak_value *a, struct merak_value *b,
                                  struct merak_value **sum_p,
                                  struct merak_error *err)
{
    struct merak_grad_chain *chain = w->chain[of];
    const struct merak_node *old = chain->sums[0];
    struct merak_value *in[2] = {a, b};
    struct merak_strategy strategy = MERAK_STRATEGY_NONE;
    struct merak_node *node;
    enum merak_status rc;

    assert(chain->n_sums > 0);
    chain->n_sums--;
    memmove(chain->sums, chain->sums + 1,
            (size_t)chain->n_sums * sizeof(chain->sums[0]));
    merak_strategy_alike(&w->mesh, &w->sig[old->id], 2,
                         merak_write_layout(w, a), &strategy);
    rc = merak_graph_node(w->graph, old->op, &old->attrs, MERAK_PHASE_B,
                          w->node[old->forward], 2, in, &node, err);
    if (rc == MERAK_OK)
        rc = merak_write_set_node(w, node, &strategy, NULL, err);
    if (rc == MERAK_OK)
        rc = merak_write_set_layout(w, node->out[0], merak_write_layout(w, a),
                                    err);
    if (rc == MERAK_OK)
        rc = merak_write_rename(w, node->out[0], old->out[0]->name, "", err);
    if (rc != MERAK_OK)
        return rc;
    node->name = merak_graph_name(w->graph, "%s", old->name);
    if (node->name == NULL)
        return merak_fail_nomem(err, strlen(old->name) + 1);
    node->out[0]->of = w->entry[of].copies->value->id;
    *sum_p = node->out[0];
    return MERAK_OK;
}

static enum merak_status contribute(struct merak_shard_writer *w, int of,
                                    struct merak_value *grad,
                                    struct merak_error *err)
{
    struct merak_grad_chain *chain = w->chain[of];
    int g = 0;

    while (g < chain->n_groups &&
           !merak_layout_equal(&w->mesh,
                               merak_write_layout(w, chain->group[g].sum),
                               merak_write_layout(w, grad)))
        g++;
    if (g < chain->n_groups)
        return emit_add(w, of, chain->group[g].sum, grad, &chain->group[g].sum,
                        err);
    assert(g < MAX_GROUPS);
    chain->group[chain->n_groups++].sum = grad;
    return MERAK_OK;
}

/* All contributions are in: convert the sums, add them up. */
static enum merak_status finish_chain(struct merak_shard_writer *w, int of,
                                      const struct merak_node *last,
                                      struct merak_error *err)
{
    struct merak_grad_chain *chain = w->chain[of];
    struct merak_value *total = NULL;
    struct merak_layout dual;
    enum merak_status rc = MERAK_OK;

    dual_of(w, of, &dual);
    for (int g = 0; g < chain->n_groups && rc == MERAK_OK; g++) {
        struct merak_value *part;

        rc = merak_write_convert(w, chain->group[g].sum, &dual, MERAK_PHASE_B,
                                 w->node[last->forward], &part, err);
        if (rc == MERAK_OK && g > 0)
            rc = emit_add(w, of, total, part, &part, err);
        if (rc == MERAK_OK)
            total = part;
    }
    return rc != MERAK_OK ? rc
                          : merak_write_add_copy(w, last->out[0]->id, total,
                                                 MERAK_PHASE_B, err);
}

/* A sum of the old graph: its operands are contributions, or sums before it
 * in the chain. */
static enum merak_status write_sum(struct merak_shard_writer *w,
                                   const struct merak_node *old,
                                   struct merak_error *err)
{
    int of = old->out[0]->of;
    struct merak_grad_chain *chain = w->chain[of];
    enum merak_status rc = MERAK_OK;

    if (chain == NULL) {
        chain = merak_pool_alloc(w->graph->pool, sizeof(*chain));
        if (chain == NULL)
            return merak_fail_nomem(err, sizeof(*chain));
        w->chain[of] = chain;
    }
    assert(chain->n_sums < MAX_GROUPS);
    chain->sums[chain->n_sums++] = old;
    for (int i = 0; i < 2 && rc == MERAK_OK; i++) {
        const struct merak_value *v = old->in[i];

        if (v->of == of && merak_node_is_sum(w->old->node[v->producer]))
            continue;
        rc = contribute(w, of, w->entry[v->id].copies->value, err);
    }
    if (rc != MERAK_OK || w->is_part[old->out[0]->id])
        return rc;
    return finish_chain(w, of, old, err);
}

/* --- nodes
 * ----------------------------------------------------------------------------
 */

static void strategy_of(const struct merak_shard_writer *w,
                        const struct merak_node *old,
                        struct merak_strategy *strategy)
{
    *strategy = MERAK_STRATEGY_NONE;
    if (old->phase == MERAK_PHASE_F)
        *strategy = w->strategy[old->id];
    else
        merak_strategy_inherit(&w->mesh, &w->sig[old->forward],
                               &w->strategy[old->forward], &w->sig[old->id],
                               strategy);
}

static enum merak_status write_inputs(struct merak_shard_writer *w,
                                      const struct merak_node *old,
                                      struct merak_value **in,
                                      struct merak_error *err)
{
    int forward = old->phase == MERAK_PHASE_F ? -1 : w->node[old->forward];
    struct merak_strategy strategy;
    enum merak_status rc = MERAK_OK;

    strategy_of(w, old, &strategy);
    for (int i = 0; i < old->n_in && rc == MERAK_OK; i++) {
        struct merak_layout layout;
        int v = old->in[i]->id;

        merak_strategy_layout(&w->mesh, &w->sig[old->id], old->n_in, &strategy,
                              i, &layout);
        rc = merak_write_get(w, v, &layout, old->phase, forward, &in[i], err);
    }
    return rc;
}

/* Is everything that a node reads made before old node `before`? */
static bool is_made(const struct merak_node *old, int before)
{
    for (int i = 0; i < old->n_in; i++) {
        if (old->in[i]->producer >= before)
            return false;
    }
    return true;
}

/* The inputs of the W nodes that follow a B node of the same forward node. */
static enum merak_status fetch_for_weights(struct merak_shard_writer *w,
                                           const struct merak_node *old,
                                           struct merak_error *err)
{
    struct merak_value *in[MERAK_MAX_OPERANDS];
    enum merak_status rc = MERAK_OK;

    for (int n = old->id + 1; n < w->old->n_nodes && rc == MERAK_OK; n++) {
        const struct merak_node *next = w->old->node[n];

        if (old->phase != MERAK_PHASE_B || next->forward != old->forward ||
            merak_node_is_sum(next))
            break;
        if (next->phase == MERAK_PHASE_W && is_made(next, old->id))
            rc = write_inputs(w, next, in, err);
    }
    return rc;
}

static enum merak_status
write_output(struct merak_shard_writer *w, const struct merak_value *old,
             struct merak_value *v, const struct merak_layout *layout,
             const struct merak_node *node, struct merak_error *err)
{
    enum merak_status rc = merak_write_set_layout(w, v, layout, err);
    struct merak_layout dual;

    if (rc == MERAK_OK)
        rc = merak_write_rename(w, v, old->name, "", err);
    if (rc != MERAK_OK)
        return rc;
    v->kind = old->kind;
    v->use = old->use;
    if (old->of >= 0)
        v->of = w->entry[old->of].copies->value->id;
    if (old->kind == MERAK_VALUE_GRADIENT && old->of >= 0 &&
        !w->is_part[old->id]) {
        dual_of(w, old->of, &dual);
        rc = merak_write_convert(w, v, &dual, MERAK_PHASE_B, node->forward, &v,
                                 err);
    }
    return rc != MERAK_OK
               ? rc
               : merak_write_add_copy(w, old->id, v, node->phase, err);
}

/* The loss and what is recycled by the next pass are needed whole. */
static enum merak_status write_whole(struct merak_shard_writer *w,
                                     const struct merak_value *old,
                                     const struct merak_node *node,
                                     struct merak_error *err)
{
    struct merak_layout whole;
    enum merak_status rc = MERAK_OK;

    merak_layout_replicated(&whole);
    if (old == w->old->loss)
        rc = merak_write_get(w, old->id, &whole, MERAK_PHASE_F, node->id,
                             &w->graph->loss, err);
    for (int i = 0; i < w->old->n_recycling && rc == MERAK_OK; i++) {
        if (old == w->old->recycling[i].out)
            rc = merak_write_get(w, old->id, &whole, MERAK_PHASE_F, node->id,
                                 &w->graph->recycling[i].out, err);
    }
    return rc;
}

static enum merak_status write_node(struct merak_shard_writer *w,
                                    const struct merak_node *old,
                                    struct merak_error *err)
{
    struct merak_value *in[MERAK_MAX_OPERANDS];
    const struct merak_signature *sig = &w->sig[old->id];
    struct merak_strategy strategy;
    int first = w->graph->n_nodes;
    struct merak_node *node;
    enum merak_status rc;

    strategy_of(w, old, &strategy);
    rc = write_inputs(w, old, in, err);
    if (rc == MERAK_OK)
        rc = fetch_for_weights(w, old, err);
    if (rc == MERAK_OK)
        rc = merak_graph_node(
            w->graph, old->op, &old->attrs, old->phase,
            old->phase == MERAK_PHASE_F ? 0 : w->node[old->forward], old->n_in,
            in, &node, err);
    if (rc == MERAK_OK)
        rc = merak_write_set_node(w, node, &strategy, NULL, err);
    if (rc != MERAK_OK)
        return rc;
    node->name = merak_graph_name(w->graph, "%s", old->name);
    if (node->name == NULL)
        return merak_fail_nomem(err, strlen(old->name) + 1);
    w->node[old->id] = node->id;
    for (int i = first; i < node->id && old->phase == MERAK_PHASE_F; i++)
        w->graph->node[i]->forward = node->id;
    for (int i = 0; i < node->n_out && rc == MERAK_OK; i++) {
        struct merak_layout layout;

        merak_strategy_layout(&w->mesh, sig, old->n_in, &strategy,
                              old->n_in + i, &layout);
        rc = write_output(w, old->out[i], node->out[i], &layout, node, err);
        if (rc == MERAK_OK && old->phase == MERAK_PHASE_F)
            rc = write_whole(w, old->out[i], node, err);
    }
    return rc;
}

/* --- the whole
 * -------------------------------------------------------------------------- */

/* A parameter has the layout that its first use needs; inputs are whole. */
static void leaf_layout(const struct merak_shard_writer *w,
                        const struct merak_value *v,
                        struct merak_layout *layout)
{
    merak_layout_replicated(layout);
    for (int n = 0; n < w->old->n_forward && v->kind == MERAK_VALUE_PARAM;
         n++) {
        const struct merak_node *node = w->old->node[n];

        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i] != v)
                continue;
            merak_strategy_layout(&w->mesh, &w->sig[n], node->n_in,
                                  &w->strategy[n], i, layout);
            return;
        }
    }
}

static enum merak_status write_leaves(struct merak_shard_writer *w,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < w->old->n_values && rc == MERAK_OK; i++) {
        const struct merak_value *old = w->old->value[i];
        struct merak_layout layout;
        struct merak_value *v;

        if (old->kind != MERAK_VALUE_INPUT && old->kind != MERAK_VALUE_PARAM &&
            old->kind != MERAK_VALUE_RECYCLED)
            continue;
        leaf_layout(w, old, &layout);
        rc = merak_graph_value(w->graph, old, &v, err);
        if (rc == MERAK_OK)
            rc = merak_write_set_layout(w, v, &layout, err);
        if (rc == MERAK_OK)
            rc = merak_write_add_copy(w, i, v, MERAK_PHASE_F, err);
    }
    return rc;
}

static void mark_parts(struct merak_shard_writer *w)
{
    for (int n = w->old->n_forward; n < w->old->n_nodes; n++) {
        const struct merak_node *node = w->old->node[n];

        for (int i = 0; i < node->n_in && merak_node_is_sum(node); i++)
            if (node->in[i]->of == node->out[0]->of)
                w->is_part[node->in[i]->id] = true;
    }
}

static enum merak_status writer_init(struct merak_shard_writer *w,
                                     struct merak_error *err)
{
    size_t v = (size_t)w->old->n_values + 1, n = (size_t)w->old->n_nodes + 1;

    w->entry = calloc(v, sizeof(*w->entry));
    w->chain = calloc(v, sizeof(*w->chain));
    w->is_part = calloc(v, sizeof(*w->is_part));
    w->node = calloc(n, sizeof(*w->node));
    if (w->entry == NULL || w->chain == NULL || w->is_part == NULL ||
        w->node == NULL)
        return merak_fail_nomem(err, v * sizeof(*w->entry));
    w->mesh = w->out->mesh;
    mark_parts(w);
    return merak_graph_create(&w->graph, err);
}

static void writer_fini(struct merak_shard_writer *w)
{
    merak_graph_destroy(w->graph);
    free(w->entry);
    free(w->chain);
    free(w->is_part);
    free(w->node);
}

enum merak_status merak_shard_write(const struct merak_graph *graph,
                                    const struct merak_signature *sig,
                                    const struct merak_strategy *strategy,
                                    struct merak_sharded *sharded,
                                    struct merak_error *err)
{
    struct merak_shard_writer w = {
        .old = graph, .sig = sig, .strategy = strategy, .out = sharded};
    enum merak_status rc = writer_init(&w, err);

    if (rc == MERAK_OK) {
        w.graph->dtype = graph->dtype;
        w.graph->micro_batch = graph->micro_batch;
        w.graph->seq = graph->seq;
        rc = write_leaves(&w, err);
    }
    if (rc == MERAK_OK) {
        w.graph->passes = w.old->passes;
        w.graph->n_recycling = w.old->n_recycling;
        for (int i = 0; i < w.old->n_recycling; i++)
            w.graph->recycling[i].in =
                w.entry[w.old->recycling[i].in->id].copies->value;
    }
    for (int i = 0; i < graph->n_nodes && rc == MERAK_OK; i++) {
        const struct merak_node *node = graph->node[i];

        rc = merak_node_is_sum(node) ? write_sum(&w, node, err)
                                     : write_node(&w, node, err);
    }
    if (rc == MERAK_OK) {
        sharded->graph = w.graph;
        w.graph = NULL;
    }
    writer_fini(&w);
    return rc;
}
