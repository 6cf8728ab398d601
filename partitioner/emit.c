/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - a schedule's actions, written out as instructions
 *
 * Each micro-batch has slots of its own for its values, taken from what
 * earlier micro-batches no longer need: as many sets as are in flight.
 * Receives stand one action before the one that uses them, so that a
 * transfer runs beside the compute before it.
 */
#include "config.h"

#include "partitioner/build.h"

#include "base/error.h"

#include <stdlib.h>

static bool is_forward(const struct merak_build *b, int value)
{
    int producer = b->graph->value[value]->producer;

    return producer < 0 || b->graph->node[producer]->phase == MERAK_PHASE_F;
}

/* Stage it comes from, or -1 if it is made here. */
static int recv_stage(const struct merak_build *b, int value)
{
    const struct merak_flow *f = &b->flow[value];

    if (f->home < 0 || f->home == b->stage)
        return -1;
    return is_forward(b, value) ? f->lower : f->upper;
}

static int send_stage(const struct merak_build *b, int value)
{
    const struct merak_flow *f = &b->flow[value];

    if (f->home < 0)
        return -1;
    return is_forward(b, value) ? f->upper : f->lower;
}

static int peer_at(const struct merak_build *b, int stage)
{
    return merak_plan_rank(&b->prog->plan, b->prog->tp_index, b->prog->dp_index,
                           stage);
}

/* --- slots of values ------------------------------------------------------ */

static enum merak_category category_of(const struct merak_build *b,
                                       const struct merak_value *value)
{
    if (value->kind == MERAK_VALUE_GRADIENT)
        return MERAK_CAT_TRANSIENT;
    if (value->producer >= 0 &&
        b->sharded->hop[value->producer].kind != MERAK_CONVERT_NONE)
        return MERAK_CAT_TRANSIENT;
    return MERAK_CAT_ACTIVATION;
}

static bool is_loss(const struct merak_build *b, int value)
{
    return b->graph->loss != NULL && b->graph->loss->id == value;
}

static int new_slot(struct merak_build *b, int v, int microbatch)
{
    const struct merak_value *value = b->graph->value[v];
    struct merak_layout layout = merak_build_layout(b, v);
    struct merak_slot slot = {.category = category_of(b, value),
                              .name = value->name,
                              .value = v,
                              .dtype = value->dtype};

    merak_build_box(b, v, &layout, &slot);
    if (is_loss(b, v) && b->prog->loss >= 0)
        return merak_build_alias(b, b->prog->loss,
                                 (size_t)microbatch * sizeof(double), &slot);
    return merak_build_slot(b, &slot);
}

static int *map_of(struct merak_build *b, int microbatch)
{
    int *map = b->map[microbatch];

    if (map != NULL)
        return map;
    map = malloc(((size_t)b->graph->n_values + 1) * sizeof(*map));
    if (map == NULL) {
        merak_build_fail(b, merak_fail_nomem(b->err, sizeof(*map)));
        return NULL;
    }
    for (int v = 0; v < b->graph->n_values; v++)
        map[v] = b->param_slot[v];
    b->map[microbatch] = map;
    return map;
}

static int slot_of(struct merak_build *b, int v, int microbatch)
{
    int *map = map_of(b, microbatch);
    struct merak_flow *f = &b->flow[v];

    if (map == NULL || map[v] >= 0)
        return map == NULL ? -1 : map[v];
    map[v] = f->free_slot;
    if (map[v] >= 0)
        f->free_slot = b->use[map[v]].next_free;
    else
        map[v] = new_slot(b, v, microbatch);
    if (map[v] >= 0)
        merak_build_begin(b, map[v]);
    return map[v];
}

static void give_back(struct merak_build *b, int v, int slot)
{
    b->use[slot].next_free = b->flow[v].free_slot;
    b->flow[v].free_slot = slot;
}

/* A slot that a send reads stays away from other uses for one action more:
 * the send is still under way when the compute queue has moved on. */
static void give_back_later(struct merak_build *b, int v, int slot)
{
    if (!merak_build_grow(b, (void **)&b->lag, &b->cap_lag, b->n_lag,
                          sizeof(*b->lag)))
        return;
    b->lag[b->n_lag++] = (struct merak_lag){.slot = slot, .value = v};
}

static void settle_lags(struct merak_build *b, int n)
{
    for (int i = 0; i < n; i++) {
        merak_build_extend(b, b->lag[i].slot);
        give_back(b, b->lag[i].value, b->lag[i].slot);
    }
    for (int i = n; i < b->n_lag; i++)
        b->lag[i - n] = b->lag[i];
    b->n_lag -= n;
}

/* After an action: what no later action of the micro-batch uses. */
static void release(struct merak_build *b, int microbatch, bool all)
{
    int *map = b->map[microbatch];
    int lagging = b->n_lag;

    for (int i = 0; map != NULL && i < b->n_local; i++) {
        int v = b->local[i];

        if (map[v] < 0 || is_loss(b, v) || (!all && b->flow[v].back))
            continue;
        if (send_stage(b, v) >= 0)
            give_back_later(b, v, map[v]);
        else
            give_back(b, v, map[v]);
        map[v] = -1;
    }
    settle_lags(b, lagging);
    if (all) {
        free(map);
        b->map[microbatch] = NULL;
    }
}

/* --- instructions --------------------------------------------------------- */

static void emit_transfer(struct merak_build *b, int v, int microbatch,
                          bool send)
{
    const struct merak_flow *f = &b->flow[v];
    int slot = slot_of(b, v, microbatch);
    struct merak_instr in = {
        .kind = send ? MERAK_INSTR_SEND : MERAK_INSTR_RECV,
        .queue = MERAK_QUEUE_P2P,
        .phase = is_forward(b, v) ? MERAK_PHASE_F : MERAK_PHASE_B,
        .microbatch = microbatch,
        .node = -1,
        .n_in = send ? 1 : 0,
        .n_out = send ? 0 : 1,
        .slot = {slot},
        .peer = peer_at(b, send ? send_stage(b, v) : recv_stage(b, v)),
        .tag = merak_build_tag(b, microbatch, v),
        .name = send ? f->send_name : f->recv_name};

    if (slot >= 0)
        merak_build_push(b, &in);
}

static void emit_load(struct merak_build *b, int v, int microbatch)
{
    const struct merak_value *value = b->graph->value[v];
    struct merak_instr in = {.kind = MERAK_INSTR_LOAD,
                             .queue = MERAK_QUEUE_COMPUTE,
                             .microbatch = microbatch,
                             .node = -1,
                             .n_out = 1,
                             .slot = {slot_of(b, v, microbatch)},
                             .input = value->input,
                             .peer = -1,
                             .name = value->name};

    if (in.slot[0] >= 0)
        merak_build_push(b, &in);
}

/* True if this shard is the first along every index of the op that is cut
 * and summed: see merak_kernel_call.first. */
static bool is_first(const struct merak_build *b, const struct merak_node *node)
{
    struct merak_infer inf;
    struct merak_signature sig = {0};

    merak_node_infer(node, &inf);
    node->op->signature(&inf, &sig);
    for (int a = 0; a < b->sharded->mesh.n_axes; a++) {
        int x = b->sharded->strategy[node->id].cut[a];

        if (x < 0 || b->coord[a] == 0)
            continue;
        for (int o = node->n_in; o < node->n_in + node->n_out; o++) {
            bool has = false;

            for (int d = 0; d < inf.shape[o].ndim; d++)
                has = has || sig.operand_dim[o][d] == x;
            if (!has)
                return false;
        }
    }
    return true;
}

static void emit_convert(struct merak_build *b, const struct merak_node *node,
                         struct merak_instr *in)
{
    const struct merak_hop *hop = &b->sharded->hop[node->id];
    const struct merak_value *from = node->in[0];
    struct merak_exchange **ex = &b->exchange[node->id];

    in->op = NULL;
    if (*ex == NULL)
        *ex = merak_build_exchange(b, &b->sharded->mesh, b->coord, hop,
                                   &b->sharded->layout[from->id], &from->shape,
                                   from->dtype);
    in->exchange = *ex;
    if (hop->kind == MERAK_CONVERT_SLICE) {
        in->kind = MERAK_INSTR_SLICE;
        return;
    }
    in->kind = MERAK_INSTR_EXCHANGE;
    in->queue = MERAK_QUEUE_COLLECTIVE;
    in->group = merak_build_group(b, hop->axis);
    in->tag = merak_build_tag(b, in->microbatch, b->graph->n_values + node->id);
}

static void emit_node(struct merak_build *b, const struct merak_node *node,
                      int microbatch)
{
    struct merak_instr in = {.kind = MERAK_INSTR_KERNEL,
                             .queue = MERAK_QUEUE_COMPUTE,
                             .phase = node->phase,
                             .microbatch = microbatch,
                             .node = node->id,
                             .op = node->op,
                             .attrs = node->attrs,
                             .n_in = node->n_in,
                             .n_out = node->n_out,
                             .peer = -1,
                             .name = node->name};
    bool convert = b->sharded->hop[node->id].kind != MERAK_CONVERT_NONE;

    for (int i = 0; i < node->n_in; i++)
        in.slot[i] = slot_of(b, node->in[i]->id, microbatch);
    for (int i = 0; i < node->n_out; i++)
        in.slot[node->n_in + i] = slot_of(b, node->out[i]->id, microbatch);
    if (b->rc != MERAK_OK)
        return;
    in.accumulate =
        node->out[0]->kind == MERAK_VALUE_PARAM_GRAD && microbatch > 0;
    if (convert)
        emit_convert(b, node, &in);
    else
        in.first = is_first(b, node);
    merak_build_push(b, &in);
    for (int i = 0; i < node->n_out; i++) {
        if (send_stage(b, node->out[i]->id) >= 0)
            emit_transfer(b, node->out[i]->id, microbatch, true);
    }
}

/* Everything another stage made that this action is the first to need. */
static void post_receives(struct merak_build *b, const struct merak_action *a)
{
    if (a->kind != MERAK_ACT_F && a->kind != MERAK_ACT_B)
        return;
    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i];

        if (recv_stage(b, v) >= 0 &&
            is_forward(b, v) == (a->kind == MERAK_ACT_F))
            emit_transfer(b, v, a->microbatch, false);
    }
}

/* Values on their way past this stage's last use of them go on at once. */
static void pass_on(struct merak_build *b, const struct merak_action *a)
{
    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        int v = b->local[i];

        if (recv_stage(b, v) >= 0 && send_stage(b, v) >= 0 &&
            is_forward(b, v) == (a->kind == MERAK_ACT_F))
            emit_transfer(b, v, a->microbatch, true);
    }
}

static void load_inputs(struct merak_build *b, int microbatch)
{
    for (int i = 0; i < b->n_local && b->rc == MERAK_OK; i++) {
        if (b->graph->value[b->local[i]]->kind == MERAK_VALUE_INPUT)
            emit_load(b, b->local[i], microbatch);
    }
}

static bool runs_in(const struct merak_build *b, const struct merak_node *node,
                    enum merak_action_kind kind)
{
    switch (node->phase) {
    case MERAK_PHASE_F:
        return kind == MERAK_ACT_F;
    case MERAK_PHASE_B:
        return kind == MERAK_ACT_B;
    case MERAK_PHASE_W:
        return kind == (b->schedule->splits_w ? MERAK_ACT_W : MERAK_ACT_B);
    }
    return false;
}

static void run_action(struct merak_build *b, const struct merak_action *a)
{
    enum merak_action_kind last =
        b->schedule->splits_w ? MERAK_ACT_W : MERAK_ACT_B;

    if (a->kind == MERAK_ACT_F)
        load_inputs(b, a->microbatch);
    if (a->kind == MERAK_ACT_F || a->kind == MERAK_ACT_B)
        pass_on(b, a);
    for (int n = 0; n < b->graph->n_nodes && b->rc == MERAK_OK; n++) {
        const struct merak_node *node = b->graph->node[n];

        if (b->stages->of_node[n] == b->stage && runs_in(b, node, a->kind))
            emit_node(b, node, a->microbatch);
    }
    if (b->rc == MERAK_OK)
        release(b, a->microbatch, a->kind == last || b->opt->forward_only);
}

static void run_actions(struct merak_build *b,
                        const struct merak_action *actions, int n)
{
    for (int i = 0; i < n && b->rc == MERAK_OK; i++) {
        if (i == 0)
            post_receives(b, &actions[0]);
        if (i + 1 < n)
            post_receives(b, &actions[i + 1]);
        run_action(b, &actions[i]);
    }
    settle_lags(b, b->n_lag);
}

/* Evaluation runs the forwards alone. */
static int fill_actions(struct merak_build *b,
                        const struct merak_schedule_args *args,
                        struct merak_action *actions)
{
    int n = merak_schedule_count(b->schedule, args);

    merak_schedule_fill(b->schedule, args, actions);
    return b->opt->forward_only ? merak_actions_forward(actions, n) : n;
}

static void make_loss(struct merak_build *b)
{
    const struct merak_value *loss = b->graph->loss;
    struct merak_slot slot;

    if (loss == NULL || !b->flow[loss->id].here ||
        b->flow[loss->id].home != b->stage)
        return;
    slot = merak_build_vector(MERAK_F64, (size_t)b->prog->plan.microbatches,
                              MERAK_CAT_TRANSIENT, "loss");
    slot.value = loss->id;
    b->prog->loss = merak_build_slot(b, &slot);
    if (b->prog->loss >= 0)
        merak_build_begin(b, b->prog->loss);
}

void merak_build_microbatches(struct merak_build *b)
{
    struct merak_schedule_args args = {.stages = b->prog->plan.pp,
                                       .microbatches =
                                           b->prog->plan.microbatches,
                                       .chunks = 1,
                                       .stage = b->stage};
    int n = merak_schedule_count(b->schedule, &args);
    struct merak_action *actions = calloc((size_t)n, sizeof(*actions));

    if (actions == NULL) {
        merak_build_fail(b, merak_fail_nomem(b->err, sizeof(*actions)));
        return;
    }
    make_loss(b);
    n = fill_actions(b, &args, actions);
    run_actions(b, actions, n);
    free(actions);
}
