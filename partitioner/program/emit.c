/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - the instructions of a micro-batch: kernels, exchanges, transfers
 */
#include "config.h"

#include "partitioner/program/build.h"
#include "partitioner/program/closure.h"

#include "partitioner/graph/letters.h"

void merak_build_message(struct merak_build *b, struct merak_instr *in,
                         bool send, int slot, int peer)
{
    in->kind = send ? MERAK_INSTR_SEND : MERAK_INSTR_RECV;
    in->node = -1;
    in->n_in = send ? 1 : 0;
    in->n_out = send ? 0 : 1;
    in->slot[0] = slot;
    in->peer = peer;
    if (slot >= 0)
        merak_build_push(b, in);
}

int merak_build_peer(const struct merak_build *b, int stage)
{
    return merak_plan_rank(&b->prog->plan, b->prog->tp_index, b->prog->dp_index,
                           stage);
}

/* Is it the second of the two values that a packed one is? */
static bool is_places(const struct merak_graph *graph,
                      const struct merak_value *value)
{
    const struct merak_node *node =
        value->producer >= 0 ? graph->node[value->producer] : NULL;

    return node != NULL && node->op->role == MERAK_ROLE_PACK &&
           node->out[1] == value;
}

void merak_build_transfer(struct merak_build *b, int v, int microbatch,
                          bool send)
{
    const struct merak_flow *f = &b->flow[v];
    const struct merak_crossing *crossing = send ? f->out : f->in;
    struct merak_instr in = {
        .phase = merak_build_is_forward(b, v) ? MERAK_PHASE_F : MERAK_PHASE_B,
        .microbatch = microbatch,
        .pass = b->now.pass,
        .chunk = f->chunk,
        .places = is_places(b->graph, b->graph->value[v]),
        .tag = merak_build_tag(b, merak_build_turn(b, microbatch),
                               merak_build_crossing_id(b, v)),
        .name = send ? f->send_name : f->recv_name};

    if (crossing != NULL)
        merak_build_cross(b, crossing, &in,
                          merak_build_value(b, v, microbatch));
    else
        merak_build_message(b, &in, send,
                            merak_build_moved(b, v, microbatch, send),
                            send ? f->peer_to : f->peer_from);
}

void merak_build_load(struct merak_build *b, int v, int microbatch)
{
    const struct merak_value *value = b->graph->value[v];
    struct merak_instr in = {.kind = MERAK_INSTR_LOAD,
                             .microbatch = microbatch,
                             .pass = b->now.pass,
                             .chunk = b->flow[v].chunk,
                             .node = -1,
                             .n_out = 1,
                             .slot = {merak_build_value(b, v, microbatch)},
                             .input = (int8_t)value->input,
                             .peer = -1,
                             .name = value->name};

    if (in.slot[0] >= 0)
        merak_build_push(b, &in);
}

/* True if this shard has coordinate 0 on every axis that the op is reduced
 * over: see merak_kernel_call.first. */
static bool find_first(const struct merak_build *b,
                       const struct merak_node *node)
{
    struct merak_signature sig = {0};

    merak_node_signature(node, &sig);
    for (int a = 0; a < b->sharded->mesh.n_axes; a++) {
        int x = b->sharded->strategy[node->id].cut[a];

        if (x < 0 || b->coord[a] == 0)
            continue;
        for (int o = node->n_in; o < node->n_in + node->n_out; o++) {
            bool has = false;

            for (int d = 0; d < merak_node_operand(node, o)->shape.ndim; d++)
                has = has || sig.operand_dim[o][d] == x;
            if (!has)
                return false;
        }
    }
    return true;
}

static bool is_first(struct merak_build *b, const struct merak_node *node)
{
    int8_t *first = &b->once.first[node->id];

    if (*first == 0)
        *first = find_first(b, node) ? 1 : -1;
    return *first > 0;
}

static void emit_convert(struct merak_build *b, const struct merak_node *node,
                         struct merak_instr *in)
{
    const struct merak_hop *hop = &b->sharded->hop[node->id];
    const struct merak_value *from = node->in[0];
    const bool sliced = merak_build_is_sliced(b, from->id) && b->slice.n > 1;
    struct merak_exchange **ex =
        &b->once.exchange[node->id * merak_build_slice_kinds(b) +
                          (sliced ? merak_build_slice_kind(b) : 0)];

    in->op = NULL;
    if (*ex == NULL) {
        struct merak_shape shape = from->shape;

        if (sliced)
            shape.dim[1] = merak_build_slice_len(b);
        merak_build_piece_shape(b, node, &shape);
        *ex = merak_build_exchange(b, &b->sharded->mesh, b->coord, hop,
                                   &b->sharded->layout[from->id], &shape,
                                   from->dtype);
    }
    in->exchange = *ex;
    if (hop->kind == MERAK_CONVERT_SLICE) {
        in->kind = MERAK_INSTR_SLICE;
        return;
    }
    in->kind = MERAK_INSTR_EXCHANGE;
    in->group = merak_build_group(b, hop->axis);
    in->tag = merak_build_tag(b, merak_build_turn(b, in->microbatch),
                              b->graph->n_values + node->id +
                                  (in->recompute ? b->graph->n_nodes : 0));
}

/* "again linear.12", made once. */
static const char *recompute_name(struct merak_build *b,
                                  const struct merak_node *node)
{
    const char **name = &b->once.recompute_name[node->id];

    if (*name == NULL)
        *name = merak_build_name(b, "again %s", node->name);
    return *name;
}

/* Gradients of parameters accumulate over a step's micro-batches, slices and
 * pieces, those of keys and values over a micro-batch's slices. */
static bool accumulates(const struct merak_build *b,
                        const struct merak_node *node, int microbatch)
{
    if (node->out[0]->kind == MERAK_VALUE_PARAM_GRAD)
        return (microbatch > 0 &&
                !merak_build_sums_each(b, node->out[0]->of)) ||
               !merak_build_first_back(b) || b->now.piece > 0;
    return !merak_build_first_back(b) && node->phase == MERAK_PHASE_B &&
           merak_op_is_attention(node->op);
}

static void emit_kernel(struct merak_build *b, const struct merak_node *node,
                        const struct merak_item *item, struct merak_instr *in)
{
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const struct merak_value *value = merak_node_operand(node, i);

        if (i == node->n_in)
            merak_build_overwrite(b, item, in->microbatch);
        in->slot[i] = merak_build_slice_slot(
            b, node, i, merak_build_value(b, value->id, in->microbatch));
        in->slot[i] = merak_build_piece_slot(b, node, i, in->slot[i]);
    }
    if (b->rc != MERAK_OK)
        return;
    in->accumulate = accumulates(b, node, in->microbatch);
    if (b->sharded->hop[node->id].kind != MERAK_CONVERT_NONE)
        emit_convert(b, node, in);
    else
        in->first = is_first(b, node);
    if (item->recompute)
        in->name = recompute_name(b, node);
    for (int i = node->n_in; !in->accumulate && i < node->n_in + node->n_out;
         i++) {
        if (merak_node_operand(node, i)->kind == MERAK_VALUE_PARAM_GRAD)
            merak_build_begin(b, in->slot[i]);
    }
    merak_build_push(b, in);
}

void merak_build_node(struct merak_build *b, const struct merak_item *item,
                      int chunk, int microbatch)
{
    const struct merak_node *node = b->graph->node[item->node];
    struct merak_instr in = {.kind = MERAK_INSTR_KERNEL,
                             .phase = node->phase,
                             .microbatch = microbatch,
                             .pass = b->now.pass,
                             .chunk = chunk,
                             .node = node->id,
                             .recompute = item->recompute,
                             .op = node->op,
                             .attrs = &node->attrs,
                             .pieces = merak_node_pieces(b->graph, node),
                             .n_in = (int8_t)node->n_in,
                             .n_out = (int8_t)node->n_out,
                             .peer = -1,
                             .name = node->name};

    if (!merak_build_runs(b, node) || !merak_build_runs_now(b, node->id))
        return;
    if (!item->recompute)
        merak_build_gathers_before(b, node, microbatch);
    b->now.piece = item->piece;
    emit_kernel(b, node, item, &in);
    b->now.piece = -1;
    if (item->piece >= 0 && item->piece < b->fold.pieces - 1)
        return; /* the rest is for all of it */
    for (int i = 0; i < node->n_out && !item->recompute; i++) {
        int v = node->out[i]->id;

        if (b->flow[v].to >= 0 && merak_build_reads(b, v))
            merak_build_transfer(b, v, microbatch, true);
        merak_build_recycle(b, v, microbatch);
    }
    if (node->phase == MERAK_PHASE_F && !item->recompute)
        merak_build_take_away(b, node, microbatch);
    if (node->out[0]->kind == MERAK_VALUE_PARAM_GRAD &&
        merak_build_last_back(b))
        merak_build_grads_made(b, chunk, node, microbatch);
}
