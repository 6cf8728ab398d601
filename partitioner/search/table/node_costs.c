/* SPDX-License-Identifier: Apache-2.0 */
/* node_costs.c - time of each node of a sharded graph on its own
 *
 * Kernel times come from the cost model; collectives share the network with
 * all ranks that communicate at the same time.
 */
#include "config.h"

#include "partitioner/search/table/walker.h"
#include "partitioner/graph/letters.h"
#include "partitioner/graph/padding.h"
#include "partitioner/program/closure.h"
#include "partitioner/program/staged.h"
#include "partitioner/program/instr_cost.h"

#include <string.h>

double merak_walker_count(const struct merak_walker *w, int value)
{
    struct merak_box box;

    merak_layout_box(&w->sharded->mesh, &w->sharded->layout[value],
                     &w->graph->value[value]->shape, w->coord, &box);
    return (double)merak_box_count(&box);
}

/* Of a part of a value, that of one piece. */
static void cut(const struct merak_walker *w, const struct merak_node *node,
                const struct merak_value *v, struct merak_box *box)
{
    size_t n[2];

    if (!merak_walker_folds(w, node->id) || v->kind == MERAK_VALUE_PARAM ||
        v->kind == MERAK_VALUE_PARAM_GRAD ||
        !merak_fold_cut(w->fold.pieces,
                        merak_fold_rows(w->graph, w->fold.of[node->id]),
                        box->len, n))
        return;
    box->len[0] /= n[0];
    if (n[1] > 1)
        box->len[1] /= n[1];
}

static void local_operand(const struct merak_walker *w,
                          const struct merak_node *node,
                          const struct merak_value *v, struct merak_operand *op)
{
    struct merak_box box;

    merak_layout_box(&w->sharded->mesh, &w->sharded->layout[v->id], &v->shape,
                     w->coord, &box);
    cut(w, node, v, &box);
    *op = (struct merak_operand){.dtype = v->dtype, .full = v->shape};
    op->local = merak_box_shape(&box);
    memcpy(op->lo, box.lo, sizeof(op->lo));
    if (w->may_pad[v->id])
        op->ld = merak_padded_ld(box.ndim, box.len, v->dtype,
                                 w->in->memory.row_bytes);
}

static int tensor_ranks(const struct merak_walker *w)
{
    const struct merak_mesh *mesh = &w->sharded->mesh;
    int n = 1;

    for (int a = 0; a < mesh->n_axes; a++)
        n *= mesh->axis[a].size;
    return n;
}

static double seconds_of(const struct merak_walker *w,
                         const struct merak_node *node,
                         const struct merak_infer *inf,
                         const struct merak_cost *cost)
{
    const struct merak_kernel_size size = {
        .flops = cost->flops,
        .bytes = cost->bytes,
        .width = merak_kernel_width(inf->shape[0].ndim, inf->shape[0].dim)};

    return merak_cost_kernel(w->cost, node->op, tensor_ranks(w), &size);
}

/* Of the seconds of a node that reads what lies before a slice, those that grow
 * with the square of the length: half a sequence takes a quarter of these, and
 * half of the others. */
static double square_s(const struct merak_walker *w,
                       const struct merak_node *node,
                       const struct merak_infer *whole,
                       const struct merak_cost *whole_cost)
{
    struct merak_infer half = *whole;
    struct merak_cost cost = {0};
    double square;

    for (int o = 0; o < node->n_in + node->n_out; o++) {
        if (merak_value_has_positions(merak_node_operand(node, o)))
            half.shape[o].dim[1] /= 2;
    }
    node->op->cost(&half, &cost);
    square = 2 * seconds_of(w, node, whole, whole_cost) -
             4 * seconds_of(w, node, &half, &cost);
    return square > 0 ? square : 0;
}

/* Seconds of a mean slice.  Where a slice also reads what lies before it, all
 * slices together take as much as the whole. */
static double slice_seconds(const struct merak_walker *w,
                            const struct merak_node *node,
                            struct merak_infer *inf, struct merak_cost *cost)
{
    struct merak_kernel_size size = {
        .width = merak_kernel_width(inf->shape[0].ndim, inf->shape[0].dim)};
    int tp = tensor_ranks(w);
    double n = w->table->slices;
    bool reads_back = (node->op->back_in | node->op->back_out) != 0;

    /* Once for all slices, with the last one. */
    if (!merak_value_has_positions(node->out[0]) &&
        node->out[0]->kind != MERAK_VALUE_PARAM_GRAD) {
        size.flops = cost->flops;
        size.bytes = cost->bytes;
        cost->flops /= n;
        return merak_cost_kernel(w->cost, node->op, tp, &size) / n;
    }
    for (int o = 0; o < node->n_in + node->n_out && !reads_back; o++) {
        if (merak_value_has_positions(merak_node_operand(node, o)))
            inf->shape[o].dim[1] /= (size_t)n;
    }
    if (reads_back) {
        w->table->square_s += square_s(w, node, inf, cost);
        *cost = (struct merak_cost){cost->flops / n, cost->bytes / n};
    } else {
        node->op->cost(inf, cost);
    }
    size.flops = cost->flops;
    size.bytes = cost->bytes;
    return merak_cost_kernel(w->cost, node->op, tp, &size);
}

static void measure_kernel(struct merak_walker *w,
                           const struct merak_node *node)
{
    struct merak_kernel_call call = {.attrs = &node->attrs,
                                     .n_in = node->n_in,
                                     .n_out = node->n_out,
                                     .pieces =
                                         merak_node_pieces(w->graph, node)};
    struct merak_infer inf = {.attrs = &node->attrs,
                              .n_in = node->n_in,
                              .n_out = node->n_out,
                              .pieces = merak_node_pieces(w->graph, node)};
    struct merak_cost cost = {0};

    for (int o = 0; o < node->n_in + node->n_out; o++) {
        local_operand(w, node, merak_node_operand(node, o), &call.operand[o]);
        inf.shape[o] = call.operand[o].local;
        inf.dtype[o] = call.operand[o].dtype;
    }
    call.narrow = merak_node_is_narrow(node);
    node->op->cost(&inf, &cost);
    w->node_s[node->id] = w->table->slices > 1
                              ? slice_seconds(w, node, &inf, &cost)
                              : seconds_of(w, node, &inf, &cost);
    if (merak_walker_folds(w, node->id))
        w->node_s[node->id] *= w->fold.pieces;
    if (w->in->memory.scratch != NULL)
        w->node_scratch[node->id] = (double)w->in->memory.scratch(
            w->in->memory.arg, node->op->name, &call);
}

/* The stages as the first one meets them. */
static struct merak_spread spread_of_stages(const struct merak_walker *w)
{
    struct merak_spread spread = {.n = {0}};

    for (int s = 0; s < w->plan->pp; s++)
        spread.n[merak_links_level(&w->cost->links, 0,
                                   merak_plan_rank(w->plan, 0, 0, s))]++;
    return spread;
}

/* What the other half's concurrent kernel loses to a collective; measured times
 * of tensor ranks' kernels already include that. */
static double kernel_loss_s(const struct merak_walker *w,
                            enum merak_convert_kind kind, double bytes, int n)
{
    struct merak_interference interference = {0};

    if (n > 1 && w->cost->tp_rates == NULL)
        interference = merak_cost_interference(w->cost, kind, bytes, n);
    return interference.wake_s + interference.copy_s;
}

/* The members of this rank's group along a tensor axis.  Tensor ranks have
 * neighbouring numbers, from the first of a node on if they leave one. */
static struct merak_spread spread_along(const struct merak_walker *w, int axis)
{
    const struct merak_mesh *mesh = &w->sharded->mesh;
    struct merak_spread spread = {.n = {0}};
    int stride = 1, me = 0, size = 1;

    for (int a = merak_sharded_tensor_axes(w->sharded) - 1; a >= 0; a--) {
        me += w->coord[a] * size;
        size *= mesh->axis[a].size;
        if (a > axis)
            stride = size;
    }
    for (int i = 0; i < mesh->axis[axis].size; i++)
        spread.n[merak_links_level(&w->cost->links, me,
                                   me + (i - w->coord[axis]) * stride)]++;
    return spread;
}

static void measure_convert(struct merak_walker *w,
                            const struct merak_node *node)
{
    const struct merak_hop *hop = &w->sharded->hop[node->id];
    const struct merak_value *from = node->in[0];
    struct merak_exchange ex;
    struct merak_spread spread;
    double pieces = merak_walker_folds(w, node->id) ? w->fold.pieces : 1;
    double bytes,
        parts = merak_value_has_positions(from) ? w->table->slices : 1;

    parts *= pieces;
    if (hop->kind == MERAK_CONVERT_SLICE) {
        w->node_s[node->id] =
            merak_cost_copy(w->cost, 2 * w->bytes[node->out[0]->id] / parts);
        return;
    }
    w->rc = merak_exchange_init(&ex, &w->sharded->mesh, hop,
                                &w->sharded->layout[from->id], &from->shape,
                                from->dtype, w->coord, w->err);
    if (w->rc != MERAK_OK)
        return;
    bytes = (double)merak_exchange_bytes(&ex);
    w->node_scratch[node->id] =
        (double)merak_exchange_room(&ex, w->in->direct) / pieces;
    if (hop->axis < merak_sharded_tensor_axes(w->sharded)) {
        spread = spread_along(w, hop->axis);
        w->node_s[node->id] = merak_links_exchange_s(
            spread.n[0] < ex.n ? &w->filled : &w->cost->links, hop->kind,
            bytes / parts, &spread);
    } else {
        spread = spread_of_stages(w);
        w->node_s[node->id] =
            merak_links_exchange_s(&w->contended, hop->kind, bytes, &spread);
    }
    w->node_s[node->id] *= pieces;
    w->lost_s[node->id] =
        pieces * kernel_loss_s(w, hop->kind, bytes / parts, ex.n);
    w->table->segment[w->of_node[node->id]].exchanged +=
        w->table->width * bytes / w->table->slices;
    merak_exchange_fini(&ex);
    if (node->n_in < 2)
        return;
    if (!(w->cost->expert_load > node->attrs.f[0]))
        w->node_s[node->id] = w->lost_s[node->id] = 0; /* it does not run */
    if (merak_sharded_asks(w->sharded, node->id))
        w->node_s[node->id] += merak_cost_read_back(w->cost);
}

/* Of a loop, a node whose time tells when the loop is run: that which makes
 * logits, or the first that makes gradients; -1: nothing is trained. */
static int first_of(const struct merak_walker *w, int logits, bool forward)
{
    if (forward)
        return w->graph->value[logits]->producer;
    for (int n = 0; n < w->graph->n_nodes; n++) {
        if (w->fold.of[n] == logits &&
            w->graph->node[n]->phase == MERAK_PHASE_B)
            return n;
    }
    return -1;
}

/* What runs with the forward takes as long as the product does longer; what a
 * loop's gradients run again, and its weight gradients, which run with them, as
 * the gradient of logits does longer. */
static void charge_loops(struct merak_walker *w)
{
    for (int n = 0; n < w->graph->n_nodes; n++) {
        const struct merak_node *node = w->graph->node[n];
        bool early = merak_fold_is_early(&w->fold, node);
        bool moves = early || node->phase == MERAK_PHASE_W;
        int to;

        if (!merak_walker_folds(w, n) ||
            (!moves && !merak_fold_is_again(&w->fold, node)))
            continue;
        to = first_of(w, w->fold.of[n], early);
        if (to < 0 || to == n)
            continue;
        w->node_s[to] += w->node_s[n];
        if (moves)
            w->node_s[n] = 0;
    }
}

void merak_walker_measure_nodes(struct merak_walker *w)
{
    for (int v = 0; v < w->graph->n_values; v++)
        w->bytes[v] = merak_walker_count(w, v) *
                      (double)merak_dtype_bytes(w->graph->value[v]->dtype) /
                      (merak_walker_is_inner(w, v) ? w->fold.pieces : 1);
    for (int n = 0; n < w->graph->n_nodes && w->rc == MERAK_OK; n++) {
        if (merak_walker_converts(w, n))
            measure_convert(w, w->graph->node[n]);
        else
            measure_kernel(w, w->graph->node[n]);
    }
    if (w->rc == MERAK_OK && w->fold.pieces > 1)
        charge_loops(w);
}
