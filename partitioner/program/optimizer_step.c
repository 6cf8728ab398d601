/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_step.c - what follows the last micro-batch: the norm and AdamW;
 * and gathering the updated parameters
 */
#include "config.h"

#include "partitioner/program/staged.h"
#include "partitioner/program/step.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

uint64_t merak_step_tag(const struct merak_build *b, int param_index, int what)
{
    int id = merak_build_ids(b) + what;

    if (param_index >= 0)
        id += MERAK_TAG_STEP_FIXED + param_index * MERAK_TAG_PER_PARAM;
    return merak_build_tag(b, b->fetch.turn, id);
}

struct merak_instr merak_step_instr(enum merak_instr_kind kind,
                                    const char *name)
{
    return (struct merak_instr){.kind = kind,
                                .phase = MERAK_PHASE_W,
                                .microbatch = -1,
                                .node = -1,
                                .peer = -1,
                                .name = name};
}

/* The attributes of kernels that have none. */
static const struct merak_attrs no_attrs;

static void add_kernel(struct merak_build *b, const char *op, int n_in,
                       int n_out, const int *slot,
                       const struct merak_attrs *attrs, const char *name)
{
    struct merak_instr in = merak_step_instr(MERAK_INSTR_KERNEL, name);

    if (b->rc != MERAK_OK)
        return;
    in.op = merak_op_find(op);
    if (in.op == NULL) {
        merak_build_fail(b, merak_fail(b->err, MERAK_ERR_NOT_FOUND,
                                       "no op '%s'; the step needs it", op));
        return;
    }
    in.attrs = attrs;
    in.n_in = (int8_t)n_in;
    in.n_out = (int8_t)n_out;
    memcpy(in.slot, slot, (size_t)(n_in + n_out) * sizeof(*slot));
    merak_build_push(b, &in);
}

void merak_step_add_grad(struct merak_build *b, const char *param, int from,
                         int sum)
{
    const int slot[] = {from, sum};

    add_kernel(b, "grad_add", 1, 1, slot, &no_attrs,
               merak_build_name(b, "add d/%s", param));
}

/* Does an exchange join the one before it?  What stages data does not: it would
 * wait for the memory. */
static bool joins(const struct merak_build *b, const struct merak_instr *in)
{
    int before = b->prog->n_instrs - 1;
    const struct merak_instr *last;

    if (b->fetch.bundle < 0 || before < b->fetch.bundle ||
        merak_exchange_room(in->exchange, b->opt->direct) > 0)
        return false;
    last = &b->prog->instr[before];
    return last->kind == in->kind && last->scratch < 0 &&
           last->group == in->group &&
           last->exchange->kind == in->exchange->kind;
}

void merak_step_exchange(struct merak_build *b, struct merak_exchange *ex,
                         int group, int from, int to, uint64_t tag,
                         const char *name)
{
    struct merak_instr in = merak_step_instr(MERAK_INSTR_EXCHANGE, name);

    if (b->rc != MERAK_OK)
        return;
    if (ex->kind == MERAK_CONVERT_SLICE)
        in.kind = MERAK_INSTR_SLICE;
    in.microbatch = b->fetch.microbatch;
    in.exchange = ex;
    in.group = group;
    in.tag = tag;
    in.n_in = in.n_out = 1;
    in.slot[0] = from;
    in.slot[1] = to;
    in.joined = joins(b, &in);
    merak_build_push(b, &in);
}

/* A frozen parameter has no step items; its value is not sent otherwise. */
static uint64_t fetch_tag(const struct merak_build *b,
                          const struct merak_param_slots *p, int axis)
{
    return merak_build_tag(b, b->fetch.turn * MERAK_MAX_AXES + axis, p->value);
}

void merak_build_step_hop(struct merak_build *b,
                          const struct merak_param_slots *p,
                          const struct merak_layout *from,
                          const struct merak_hop *hop, int in, int out)
{
    bool gather = hop->kind == MERAK_CONVERT_ALL_GATHER;
    int tag = (gather ? MERAK_TAG_GATHER : MERAK_TAG_REDUCE) + hop->axis;
    const char *axis = b->mesh.axis[hop->axis].name;
    struct merak_step_hop *made =
        &b->params.uses[p - b->prog->param].hop[gather][hop->axis];

    if (made->ex == NULL) {
        made->ex = merak_build_exchange(b, &b->mesh, b->coord, hop, from,
                                        &p->shape, b->prog->slot[in].dtype);
        made->name = merak_build_name(
            b, gather ? "gather %s over %s" : "reduce d/%s over %s", p->name,
            axis);
    }
    merak_step_exchange(b, made->ex, merak_build_group(b, hop->axis), in, out,
                        gather && b->fetch.turn >= 0
                            ? fetch_tag(b, p, hop->axis)
                            : merak_step_tag(b, b->params.index[p->value], tag),
                        made->name);
}

/* Sum a small vector over a group, into a new slot. */
static int reduce_vector(struct merak_build *b, int slot, int key, uint64_t tag,
                         const char *name)
{
    struct merak_slot proto = b->prog->slot[slot];
    const struct merak_shape shape = {1, {proto.box.len[0]}};
    const struct merak_group *group;
    struct merak_mesh mesh = {.n_axes = 1};
    struct merak_layout from = {{{.kind = MERAK_PARTIAL_SUM, .dim = -1}}};
    struct merak_hop hop = {.kind = MERAK_CONVERT_ALL_REDUCE};
    int g = merak_build_group(b, key), to;

    proto.bytes = 0; /* a whole slot of its own */
    to = merak_build_slot(b, &proto);
    if (b->rc != MERAK_OK)
        return -1;
    merak_build_begin(b, to);
    group = &b->prog->group[g];
    mesh.axis[0].size = group->n;
    merak_layout_replicated(&hop.to);
    merak_step_exchange(b,
                        merak_build_exchange(b, &mesh, &group->me, &hop, &from,
                                             &shape, proto.dtype),
                        g, slot, to, tag, name);
    return to;
}

/* --- norm and optimizer ------------------------------------------------- */

static const struct merak_param_slots *param_of(const struct merak_build *b,
                                                int v)
{
    for (int i = 0; i < b->prog->n_params; i++) {
        if (b->prog->param[i].value == v)
            return &b->prog->param[i];
    }
    return NULL;
}

/* One sum of squares for each parameter of the model, in graph order; 0 for
 * those that another rank counts. */
static int sum_squares(struct merak_build *b)
{
    struct merak_slot proto =
        merak_build_vector(MERAK_F64, (size_t)b->params.n, "sumsq");
    struct merak_slot none = merak_build_vector(MERAK_F32, 0, "nothing");
    struct merak_slot one = merak_build_vector(MERAK_F64, 1, "sumsq");
    int vector = merak_build_slot(b, &proto);
    int empty = merak_build_slot(b, &none);

    if (b->rc != MERAK_OK)
        return -1;
    merak_build_begin(b, vector);
    merak_build_begin(b, empty);
    for (int v = 0; v < b->graph->n_values && b->rc == MERAK_OK; v++) {
        const struct merak_param_slots *p;
        int slot[2] = {empty, -1};

        if (b->graph->value[v]->kind != MERAK_VALUE_PARAM ||
            b->graph->value[v]->frozen)
            continue;
        p = param_of(b, v);
        if (p != NULL && p->primary && p->grad >= 0 &&
            b->graph->value[v]->sign_rate == 0 &&
            b->graph->value[v]->mean_rate == 0)
            slot[0] = p->grad;
        slot[1] = merak_build_alias(
            b, vector, (size_t)b->params.index[v] * sizeof(double), &one);
        add_kernel(b, "sumsq", 1, 1, slot, &no_attrs,
                   merak_build_name(b, "sumsq d/%s", b->graph->value[v]->name));
    }
    return vector;
}

static void move_vector(struct merak_build *b, int slot, int tp_index,
                        int dp_index, bool send)
{
    struct merak_instr in = merak_step_instr(MERAK_INSTR_SEND, "norm of all");

    in.tag = merak_step_tag(b, -1, MERAK_TAG_NORM_PP);
    merak_build_message(b, &in, send, slot,
                        merak_stage_rank(&b->prog->mesh, tp_index, dp_index));
}

/* Stages of unlike ranks: the first rank of each sums over stages, and gives
 * the result to the first rank of each replica, and these to the others. */
static int norm_over_meshes(struct merak_build *b, int vector)
{
    const struct merak_program *prog = b->prog;
    struct merak_slot proto = prog->slot[vector];

    proto.bytes = 0;
    if (prog->tp_index == 0 && prog->dp_index == 0) {
        vector = reduce_vector(b, vector, MERAK_GROUP_PP,
                               merak_step_tag(b, -1, MERAK_TAG_NORM_PP),
                               "norm over pp");
        for (int d = 1; d < prog->mesh.dp && b->rc == MERAK_OK; d++)
            move_vector(b, vector, 0, d, true);
    } else {
        vector = merak_build_slot(b, &proto);
        if (b->rc != MERAK_OK)
            return -1;
        merak_build_begin(b, vector);
        move_vector(b, vector, 0, prog->tp_index == 0 ? 0 : prog->dp_index,
                    false);
    }
    for (int t = 1; t < prog->mesh.tp && prog->tp_index == 0; t++)
        move_vector(b, vector, t, prog->dp_index, true);
    return vector;
}

static void emit_norm(struct merak_build *b)
{
    struct merak_slot proto = merak_build_vector(MERAK_F32, 2, "norm");
    int vector = sum_squares(b), first_dp = merak_build_dp_axis(b);
    int slot[2];

    if (b->rc == MERAK_OK && b->prog->mesh.tp > 1)
        vector = reduce_vector(b, vector, MERAK_GROUP_TP,
                               merak_step_tag(b, -1, MERAK_TAG_NORM_TP),
                               "norm over tp");
    for (int a = first_dp; a < b->mesh.n_axes && b->rc == MERAK_OK; a++)
        vector = reduce_vector(
            b, vector, a,
            merak_step_tag(
                b, -1, a == first_dp ? MERAK_TAG_NORM_DP : MERAK_TAG_LOSS + a),
            merak_build_name(b, "norm over %s", b->mesh.axis[a].name));
    if (b->rc == MERAK_OK && b->prog->plan.stage != NULL)
        vector = norm_over_meshes(b, vector);
    else if (b->rc == MERAK_OK && b->prog->plan.pp > 1)
        vector = reduce_vector(b, vector, MERAK_GROUP_PP,
                               merak_step_tag(b, -1, MERAK_TAG_NORM_PP),
                               "norm over pp");
    b->prog->norm = merak_build_slot(b, &proto);
    if (b->rc != MERAK_OK)
        return;
    merak_build_begin(b, b->prog->norm);
    slot[0] = vector;
    slot[1] = b->prog->norm;
    add_kernel(b, "clip", 1, 1, slot, &no_attrs, "clip");
}

static bool is_f32(const struct merak_build *b,
                   const struct merak_param_slots *p)
{
    return b->prog->slot[p->param].dtype == MERAK_F32;
}

/* The same for all parameters, unless the learning rate is scaled. */
static const struct merak_attrs *adamw_attrs(struct merak_build *b,
                                             const struct merak_param_slots *p)
{
    static const struct merak_attrs plain[] = {{.i = {false}}, {.i = {true}}};
    struct merak_attrs *own;

    if (p->lr_scale == 0)
        return &plain[p->decay];
    own = merak_build_alloc_kept(b, sizeof(*own));
    if (own != NULL) {
        own->i[0] = p->decay;
        own->f[0] = (double)p->lr_scale;
    }
    return own;
}

/* In the place of AdamW; share: by which the op multiplies the gradient, which is
 * a sum over micro-batches and replicas, or 0 if it does not. */
static void update_by(struct merak_build *b, const char *op,
                      const struct merak_param_slots *p, float rate,
                      double share)
{
    struct merak_attrs *attrs = merak_build_alloc_kept(b, sizeof(*attrs));
    const int slot[] = {p->grad, p->master};

    if (attrs == NULL)
        return;
    attrs->f[0] = (double)rate;
    attrs->f[1] = share;
    add_kernel(b, op, 1, 1, slot, attrs,
               merak_build_name(b, "%s %s", op, p->name));
}

static double share_of_step(const struct merak_build *b)
{
    return 1 / ((double)b->prog->plan.microbatches * (double)b->prog->mesh.dp);
}

void merak_step_adamw(struct merak_build *b, const struct merak_param_slots *p,
                      const int slot[6])
{
    const struct merak_attrs *attrs = adamw_attrs(b, p);

    if (b->rc == MERAK_OK)
        add_kernel(b, "adamw", 2, is_f32(b, p) ? 3 : 4, slot, attrs,
                   merak_build_name(b, "adamw %s", p->name));
}

static void update(struct merak_build *b, const struct merak_param_slots *p)
{
    const struct merak_value *value = b->graph->value[p->value];
    int part = is_f32(b, p) ? p->master : merak_build_own_part(b, p);
    const int slot[6] = {p->grad, b->prog->norm, p->master, p->m, p->v, part};

    if (value->sign_rate > 0)
        update_by(b, "sign_step", p, value->sign_rate, 0);
    else if (value->mean_rate > 0)
        update_by(b, "mean_step", p, value->mean_rate, share_of_step(b));
    else
        merak_step_adamw(b, p, slot);
}

static int sooner(const void *a, const void *b)
{
    const struct merak_first_use *x = a, *y = b;

    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

/* The parameters in the order in which a forward reads them. */
static struct merak_first_use *order_by_use(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    struct merak_first_use *order =
        merak_build_alloc(b, ((size_t)prog->n_params + 1) * sizeof(*order));

    if (order == NULL)
        return NULL;
    for (int i = 0; i < prog->n_params; i++)
        order[i] = (struct merak_first_use){&prog->param[i], b->graph->n_nodes};
    for (int n = b->graph->n_nodes - 1; n >= 0; n--) {
        const struct merak_node *node = b->graph->node[n];

        for (int k = 0; k < node->n_in; k++) {
            const struct merak_uses *uses = b->params.uses_of[node->in[k]->id];

            if (node->in[k]->kind == MERAK_VALUE_PARAM && uses != NULL &&
                b->stage_of_part[b->stages->of_node[n]] == b->stage)
                order[uses->param - prog->param].node = n;
        }
    }
    qsort(order, (size_t)prog->n_params, sizeof(*order), sooner);
    return order;
}

/* Does a node read what is fetched for it, if not all matrices are? */
static bool is_fetched_for(const struct merak_build *b, int n)
{
    const struct merak_node *node = b->graph->node[n];

    for (int k = 0; k < node->n_in && b->prog->plan.fetch > 0; k++) {
        if (node->in[k]->kind == MERAK_VALUE_PARAM &&
            merak_build_is_fetched(b, node->in[k]->id))
            return true;
    }
    return false;
}

/* Does this node communicate with tensor ranks in this stage's current
 * forward, or what is fetched for it with replicas?  A pass without gradients
 * leaves out what it does not need: gathers placed before such a node would
 * come too late. */
static bool is_exchange(const struct merak_build *b, int n)
{
    return (merak_sharded_exchanges(b->sharded, n) || is_fetched_for(b, n)) &&
           b->graph->node[n]->phase == MERAK_PHASE_F &&
           b->stage_of_part[b->stages->of_node[n]] == b->stage &&
           merak_build_runs_now(b, n);
}

/* Gather what is read before the first exchange from node n on.  If ZeRO-3
 * fetches all matrices these are vectors, which take longer to begin than to
 * run: a bundle. */
static void gather_up_to(struct merak_build *b, int n)
{
    if (b->prog->plan.zero >= MERAK_ZERO_PARAMS && b->prog->plan.fetch == 0)
        b->fetch.bundle = b->prog->n_instrs;
    while (n < b->graph->n_nodes && !is_exchange(b, n))
        n++;
    while (b->params.gathered < b->prog->n_params && b->rc == MERAK_OK &&
           (n == b->graph->n_nodes ||
            b->params.gather[b->params.gathered].node < n)) {
        const struct merak_param_slots *p =
            b->params.gather[b->params.gathered++].param;

        if (b->params.uses[p - b->prog->param].n > 0 && p->home == p->param)
            merak_build_gather_param(b, p);
    }
    b->fetch.bundle = -1;
}

/*
 * What the last step updated in parts is gathered at the start of the next
 * step (also of the first, without effect), and of an evaluation, where all
 * that is not needed at once overlaps with the forward.
 * Exchanges of that forward are in one queue with those between tensor ranks
 * that follow gathers over replicas.  On the first stage, which begins at once,
 * each comes before the gathers that are needed only after the next one; other
 * stages gather while they wait for the first stage.
 */
void merak_build_gathers(struct merak_build *b)
{
    /* Vocabulary-parallel layers run in a different order. */
    bool in_order = b->sharded->n_shared == 0, any = false;

    b->params.gathered = b->prog->n_params;
    for (int i = 0; i < b->prog->n_params; i++)
        any = any || merak_build_is_flat(b, b->prog->param[i].value);
    if (!any)
        return;
    b->params.gather = order_by_use(b);
    b->params.gathered = 0;
    if (b->params.gather != NULL)
        gather_up_to(b, b->stage == 0 && in_order ? 0 : b->graph->n_nodes);
}

void merak_build_gathers_before(struct merak_build *b,
                                const struct merak_node *node, int microbatch)
{
    if (b->params.gathered == b->prog->n_params || !is_exchange(b, node->id))
        return;
    if (microbatch == 0)
        gather_up_to(b, node->id + 1);
    else /* overlapped with gathers that the next chunk is going to need */
        gather_up_to(b, b->params.gather[b->params.gathered].node);
}

static void update_params(struct merak_build *b)
{
    struct merak_first_use *order = order_by_use(b);
    struct merak_away last = {.param = NULL};

    for (int i = 0; i < b->prog->n_params && b->rc == MERAK_OK; i++) {
        if (order[i].param->grad < 0)
            continue;
        if (merak_build_is_offloaded(b, order[i].param->value))
            merak_step_update_away(b, &last, order[i].param);
        else
            update(b, order[i].param);
    }
    merak_step_settle_away(b, &last);
}

/* A loss that is cut over tensor ranks is summed once, all micro-batches
 * together. */
static void reduce_loss(struct merak_build *b)
{
    const struct merak_layout *layout;

    if (b->prog->loss < 0)
        return;
    layout = &b->sharded->layout[b->graph->loss->id];
    for (int a = 0; a < b->sharded->mesh.n_axes && b->rc == MERAK_OK; a++) {
        if (layout->at[a].kind == MERAK_PARTIAL_SUM)
            b->prog->loss = reduce_vector(
                b, b->prog->loss, a, merak_step_tag(b, -1, MERAK_TAG_LOSS + a),
                "sum loss");
    }
}

void merak_build_step(struct merak_build *b)
{
    struct merak_program *prog = b->prog;

    reduce_loss(b);
    if (!b->opt->forward_only && b->rc == MERAK_OK) {
        merak_build_finish_grads(b);
        if (b->rc == MERAK_OK)
            emit_norm(b);
        if (b->rc == MERAK_OK)
            update_params(b);
    }
    if (b->rc != MERAK_OK)
        return;
    /* What is read after the step. */
    if (prog->loss >= 0)
        merak_build_extend(b, prog->loss);
    if (prog->norm >= 0)
        merak_build_extend(b, prog->norm);
    if (prog->reports >= 0)
        merak_build_extend(b, prog->reports);
    for (int i = 0; b->opt->dump_grads && i < prog->n_params; i++) {
        if (prog->param[i].grad >= 0)
            merak_build_extend(b, prog->param[i].grad);
    }
}
