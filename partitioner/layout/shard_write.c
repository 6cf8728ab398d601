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

#include "base/arrays.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Layouts among the contributions to one gradient. */
#define MAX_GROUPS MERAK_KIND_LAYOUTS

/* Contributions so far to the gradient of an old value. */
struct group {
    struct merak_value *sum;
};
struct merak_grad_chain {
    int n_groups;
    struct group group[MAX_GROUPS];
    int n_sums; /* old sums met and not used yet for a name */
    const struct merak_node *sums[MAX_GROUPS];
    int part;    /* of the contributions so far */
    int forward; /* the new forward node of the last one */
    int total;   /* old value: what they add up to */
};

/* --- gradients
 * ---------------------------------------------------------------------- */

/* The part that an old node is in; all are in one if there are none. */
static int part_of(const struct merak_shard_writer *w,
                   const struct merak_node *old)
{
    return w->parts == NULL ? 0 : w->parts->of_node[old->forward];
}

static void dual_of(const struct merak_shard_writer *w, int old,
                    struct merak_layout *dual)
{
    merak_layout_dual(&w->mesh,
                      merak_write_layout(w, w->entry[old].copies->value), dual);
}

/* One of the adds that replace the old sums, named after the next of them. */
static struct merak_value *emit_add(struct merak_shard_writer *w, int of,
                                    struct merak_value *a,
                                    struct merak_value *b)
{
    struct merak_grad_chain *chain = w->chain[of];
    const struct merak_node *old = chain->sums[0];
    struct merak_node proto = *old, *node;
    struct merak_strategy strategy = MERAK_STRATEGY_NONE;

    if (w->rc != MERAK_OK)
        return NULL;
    assert(chain->n_sums > 0);
    chain->n_sums--;
    memmove(chain->sums, chain->sums + 1,
            (size_t)chain->n_sums * sizeof(chain->sums[0]));
    merak_strategy_alike(&w->mesh, &w->sig[old->id], 2,
                         merak_write_layout(w, a), &strategy);
    proto.forward = w->node[old->forward];
    proto.in[0] = a;
    proto.in[1] = b;
    node = merak_write_node(w, &proto, &strategy, NULL);
    if (node == NULL)
        return NULL;
    merak_write_set_layout(w, node->out[0], merak_write_layout(w, a));
    node->out[0]->name = merak_write_name(w, "%s", old->out[0]->name);
    node->out[0]->of = w->entry[of].copies->value->id;
    return node->out[0];
}

/* Convert the sums and add them up. */
static struct merak_value *join_groups(struct merak_shard_writer *w, int of,
                                       int forward)
{
    struct merak_grad_chain *chain = w->chain[of];
    struct merak_value *total = NULL;
    struct merak_layout dual;

    dual_of(w, of, &dual);
    for (int g = 0; g < chain->n_groups; g++) {
        struct merak_value *part = merak_write_convert(
            w, chain->group[g].sum, &dual, MERAK_PHASE_B, forward);

        total = g == 0 ? part : emit_add(w, of, total, part);
    }
    return total;
}

/* What another part contributed comes from there as one value. */
static void end_part(struct merak_shard_writer *w, int of)
{
    struct merak_grad_chain *chain = w->chain[of];
    struct merak_value *total;
    int now = w->part;

    w->part = chain->part;
    total = join_groups(w, of, chain->forward);
    w->part = now;
    if (w->rc != MERAK_OK)
        return;
    if (w->entry[chain->total].copies != NULL) /* a single contribution */
        merak_write_set_origin(w, w->entry[chain->total].copies->value, -1);
    merak_write_set_origin(w, total, chain->total);
    chain->group[0].sum = total;
    chain->n_groups = 1;
}

static void contribute(struct merak_shard_writer *w, int of,
                       const struct merak_node *by, struct merak_value *grad)
{
    struct merak_grad_chain *chain = w->chain[of];
    int part = part_of(w, by), g = 0;

    if (chain->n_groups > 0 && part != chain->part)
        end_part(w, of);
    chain->part = part;
    chain->forward = w->node[by->forward];
    while (g < chain->n_groups &&
           !merak_layout_equal(&w->mesh,
                               merak_write_layout(w, chain->group[g].sum),
                               merak_write_layout(w, grad)))
        g++;
    if (g < chain->n_groups) {
        chain->group[g].sum = emit_add(w, of, chain->group[g].sum, grad);
        return;
    }
    assert(g < MAX_GROUPS);
    chain->group[chain->n_groups++].sum = grad;
}

/* All contributions are in: convert the sums, add them up. */
static void finish_chain(struct merak_shard_writer *w, int of,
                         const struct merak_node *last)
{
    struct merak_value *total = join_groups(w, of, w->node[last->forward]);

    merak_write_add_copy(w, last->out[0]->id, total, MERAK_PHASE_B);
}

/* A sum of the old graph: its operands are contributions, or sums before it
 * in the chain. */
static void write_sum(struct merak_shard_writer *w,
                      const struct merak_node *old)
{
    int of = old->out[0]->of;
    struct merak_grad_chain *chain = w->chain[of];

    w->part = part_of(w, old);
    if (chain == NULL) {
        chain = merak_pool_alloc(w->graph->pool, sizeof(*chain));
        if (chain == NULL) {
            w->rc = merak_fail_nomem(w->err, sizeof(*chain));
            return;
        }
        w->chain[of] = chain;
    }
    assert(chain->n_sums < MAX_GROUPS);
    chain->sums[chain->n_sums++] = old;
    for (int i = 0; i < 2 && w->rc == MERAK_OK; i++) {
        const struct merak_value *v = old->in[i];

        if (v->of == of && merak_node_is_sum(w->old->node[v->producer]))
            continue;
        if (chain->n_groups == 0)
            chain->total = v->id;
        /* One that an op passes on is the gradient of the op's output: it comes
         * from wherever that is made, whole. */
        contribute(w, of, v->of == of ? w->old->node[v->producer] : old,
                   w->entry[v->id].copies->value);
    }
    chain->total = old->out[0]->id;
    if (!w->is_part[old->out[0]->id])
        finish_chain(w, of, old);
}

/* --- nodes
 * ----------------------------------------------------------------------------
 */

void merak_write_strategy(const struct merak_shard_writer *w,
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

/* The input that comes k-th: first the number that others depend on. */
static int in_turn(const struct merak_op *op, int k)
{
    if (k == 0)
        return op->rows_left_in;
    return k <= op->rows_left_in ? k - 1 : k;
}

static void write_inputs(struct merak_shard_writer *w,
                         const struct merak_node *old, struct merak_value **in)
{
    int forward = old->phase == MERAK_PHASE_F ? -1 : w->node[old->forward];
    struct merak_strategy strategy;

    merak_write_strategy(w, old, &strategy);
    for (int k = 0; k < old->n_in && w->rc == MERAK_OK; k++) {
        int i = in_turn(old->op, k);
        struct merak_layout layout, wide;

        merak_strategy_layout(&w->mesh, &w->sig[old->id], old->n_in, &strategy,
                              i, &layout);
        wide = layout;
        if ((old->op->rows_left_reads >> i & 1) != 0) {
            w->rows_left = in[old->op->rows_left_in];
            w->rows_left_load = old->attrs.f[0];
        }
        if (merak_strategy_reach(&w->mesh, &w->sig[old->id], i, &wide))
            in[i] = merak_write_halo(w, old->in[i]->id, &layout, &wide,
                                     old->phase, forward);
        else
            in[i] = merak_write_get(w, old->in[i]->id, &layout, old->phase,
                                    forward);
        w->rows_left = NULL;
    }
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
static void fetch_for_weights(struct merak_shard_writer *w,
                              const struct merak_node *old)
{
    struct merak_value *in[MERAK_MAX_OPERANDS];

    for (int n = old->id + 1; n < w->old->n_nodes; n++) {
        const struct merak_node *next = w->old->node[n];

        if (old->phase != MERAK_PHASE_B || next->forward != old->forward ||
            merak_node_is_sum(next))
            break;
        if (next->phase == MERAK_PHASE_W && is_made(next, old->id))
            write_inputs(w, next, in);
    }
}

static bool is_partial(const struct merak_shard_writer *w,
                       const struct merak_layout *layout)
{
    bool partial = false;

    for (int a = 0; a < w->mesh.n_axes; a++)
        partial = partial || merak_place_is_partial(&layout->at[a]);
    return partial;
}

static void write_output(struct merak_shard_writer *w,
                         const struct merak_value *old, struct merak_value *v,
                         const struct merak_layout *layout,
                         const struct merak_node *node)
{
    struct merak_layout dual;

    merak_write_set_layout(w, v, layout);
    v->name = merak_write_name(w, "%s", old->name);
    v->kind = old->kind;
    v->dtype = old->dtype;
    v->use = old->use;
    memcpy(v->letter, old->letter, sizeof(v->letter));
    if (old->of >= 0)
        v->of = w->entry[old->of].copies->value->id;
    if (old->kind == MERAK_VALUE_GRADIENT && old->of >= 0 &&
        !w->is_part[old->id]) {
        dual_of(w, old->of, &dual);
        v = merak_write_convert(w, v, &dual, MERAK_PHASE_B, node->forward);
    }
    if (w->crosses[old->id] && is_partial(w, layout)) {
        /* Other stages may have fewer tensor ranks, or more. */
        merak_layout_dual(&w->mesh, layout, &dual);
        v = merak_write_convert(w, v, &dual, node->phase, node->forward);
    }
    merak_write_add_copy(w, old->id, v, node->phase);
}

/* The loss and what is recycled by the next pass are needed whole. */
static void write_whole(struct merak_shard_writer *w,
                        const struct merak_value *old,
                        const struct merak_node *node)
{
    struct merak_layout whole;

    merak_layout_replicated(&whole);
    if (old == w->old->loss)
        w->graph->loss =
            merak_write_get(w, old->id, &whole, MERAK_PHASE_F, node->id);
    for (int i = 0; i < w->old->n_recycling; i++) {
        if (old == w->old->recycling[i].out)
            w->graph->recycling[i].out =
                merak_write_get(w, old->id, &whole, MERAK_PHASE_F, node->id);
    }
}

static void write_node(struct merak_shard_writer *w,
                       const struct merak_node *old)
{
    struct merak_node proto = *old, *node;
    struct merak_strategy strategy;
    int first = w->graph->n_nodes;

    w->part = part_of(w, old);
    merak_write_strategy(w, old, &strategy);
    write_inputs(w, old, proto.in);
    fetch_for_weights(w, old);
    if (old->phase != MERAK_PHASE_F)
        proto.forward = w->node[old->forward];
    node = merak_write_node(w, &proto, &strategy, NULL);
    if (node == NULL)
        return;
    w->node[old->id] = node->id;
    for (int i = first; i < node->id && old->phase == MERAK_PHASE_F; i++)
        w->graph->node[i]->forward = node->id;
    for (int i = 0; i < node->n_out && w->rc == MERAK_OK; i++) {
        struct merak_layout layout;

        node->out[i]->reported = old->out[i]->reported;
        merak_strategy_layout(&w->mesh, &w->sig[old->id], old->n_in, &strategy,
                              old->n_in + i, &layout);
        write_output(w, old->out[i], node->out[i], &layout, node);
        if (old->phase == MERAK_PHASE_F)
            write_whole(w, old->out[i], node);
    }
}

/* --- the whole
 * -------------------------------------------------------------------------- */

/* Names are those of the new graph's values, which outlive the model. */
static void copy_inputs(struct merak_shard_writer *w)
{
    struct merak_graph *graph = w->graph;

    memcpy(graph->input, w->old->input, sizeof(graph->input));
    graph->n_inputs = w->old->n_inputs;
    for (int v = 0; v < graph->n_values; v++) {
        if (graph->value[v]->kind == MERAK_VALUE_INPUT)
            graph->input[graph->value[v]->input].name = graph->value[v]->name;
    }
}

static void copy_losses(struct merak_shard_writer *w)
{
    struct merak_graph *graph = w->graph;

    memcpy(graph->losses, w->old->losses, sizeof(graph->losses));
    graph->n_losses = w->old->n_losses;
    for (int i = 0; i < graph->n_losses && w->rc == MERAK_OK; i++) {
        const char *name = graph->losses[i].name;

        if (name != NULL)
            graph->losses[i].name = merak_pool_text(graph->pool, name);
        if (name != NULL && graph->losses[i].name == NULL)
            w->rc = merak_fail_nomem(w->err, strlen(name));
    }
}

/* The values that passes recycle are leaves, too. */
static void copy_frame(struct merak_shard_writer *w)
{
    w->graph->dtype = w->old->dtype;
    w->graph->grad_dtype = w->old->grad_dtype;
    w->graph->micro_batch = w->old->micro_batch;
    w->graph->seq = w->old->seq;
    copy_inputs(w);
    copy_losses(w);
    w->graph->passes = w->old->passes;
    w->graph->n_recycling = w->old->n_recycling;
    for (int i = 0; i < w->old->n_recycling; i++)
        w->graph->recycling[i].in =
            w->entry[w->old->recycling[i].in->id].copies->value;
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

/* What one part makes and another reads. */
static void mark_crossing(struct merak_shard_writer *w)
{
    for (int n = 0; n < w->old->n_nodes && w->parts != NULL; n++) {
        const struct merak_node *node = w->old->node[n];

        for (int i = 0; i < node->n_in; i++) {
            int producer = node->in[i]->producer;

            if (producer >= 0 &&
                part_of(w, w->old->node[producer]) != part_of(w, node))
                w->crosses[node->in[i]->id] = true;
        }
    }
}

static void writer_init(struct merak_shard_writer *w)
{
    size_t v = (size_t)w->old->n_values + 1, n = (size_t)w->old->n_nodes + 1;

    const struct merak_array arrays[] = {
        MERAK_ARRAY(w->entry, v), MERAK_ARRAY(w->chain, v),
        MERAK_ARRAY(w->is_part, v), MERAK_ARRAY(w->crosses, v),
        MERAK_ARRAY(w->node, n)};

    w->rc = MERAK_ARRAYS(arrays, w->err);
    if (w->rc != MERAK_OK)
        return;
    w->mesh = w->out->mesh;
    mark_parts(w);
    mark_crossing(w);
    w->rc = merak_graph_create(&w->graph, w->err);
}

/* Values without an origin, at the end, are in the array, too. */
static void fill_origins(struct merak_shard_writer *w)
{
    const struct merak_value *last = w->graph->value[w->graph->n_values - 1];

    if ((size_t)last->id >= w->origins)
        merak_write_set_origin(w, last, -1);
}

static void writer_fini(struct merak_shard_writer *w)
{
    merak_graph_destroy(w->graph);
    free(w->entry);
}

enum merak_status merak_shard_write(const struct merak_graph *graph,
                                    const struct merak_signature *sig,
                                    const struct merak_strategy *strategy,
                                    const struct merak_parts *parts,
                                    struct merak_sharded *sharded,
                                    struct merak_error *err)
{
    struct merak_shard_writer w = {.old = graph,
                                   .sig = sig,
                                   .strategy = strategy,
                                   .out = sharded,
                                   .parts = parts,
                                   .err = err};

    writer_init(&w);
    if (w.rc == MERAK_OK)
        merak_write_leaves(&w);
    if (w.rc == MERAK_OK)
        copy_frame(&w);
    for (int i = 0; i < graph->n_nodes && w.rc == MERAK_OK; i++) {
        if (merak_node_is_sum(graph->node[i]))
            write_sum(&w, graph->node[i]);
        else
            write_node(&w, graph->node[i]);
    }
    if (w.rc == MERAK_OK)
        fill_origins(&w);
    if (w.rc == MERAK_OK) {
        sharded->graph = w.graph;
        w.graph = NULL;
    }
    writer_fini(&w);
    return w.rc;
}
