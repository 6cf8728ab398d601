/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_step.c - what follows the last micro-batch: gradients summed over
 * uses, tensor ranks and replicas, the norm, AdamW, parameters gathered
 *
 * A tied parameter's uses are summed ((u0 + u1) + u2 ..) in graph order
 * wherever they are: the running sum travels along their stages, and the
 * total back to all of them.  One rank does the same sums in the same order.
 */
#include "config.h"

#include "partitioner/program/build.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define MAX_USES 64

/* Tags of step items: each parameter has a band of them. */
enum {
    TAG_NORM_TP,
    TAG_NORM_DP,
    TAG_NORM_PP,
    TAG_LOSS,
    TAG_STEP_FIXED = TAG_LOSS + MERAK_MAX_AXES,

    TAG_TIE = 0,                /* + use: running sum to that use */
    TAG_TOTAL = MAX_USES,       /* + stage's first use: total back */
    TAG_CONVERT = 2 * MAX_USES, /* + use * hops + hop */
    TAG_REDUCE = TAG_CONVERT + MERAK_MAX_HOPS * (MAX_USES + 1), /* + axis */
    TAG_GATHER = TAG_REDUCE + MERAK_MAX_AXES,                   /* + axis */
    TAG_PER_PARAM = TAG_GATHER + MERAK_MAX_AXES
};

/* The uses of a parameter, each with a gradient of its own, in graph order. */
struct merak_uses {
    struct merak_param_slots *param;
    int n;
    struct {
        int value; /* PARAM_GRAD */
        int stage;
    } at[MAX_USES];
    int last;      /* value added last */
    bool alike;    /* all in the same layout */
    bool spread;   /* over several stages */
    bool finished; /* its summed gradient is emitted */
    int left;      /* of this stage's uses, whose gradient is still to come */
};

static uint64_t step_tag(const struct merak_build *b, int param_index, int what)
{
    int id = b->graph->n_values + 2 * b->graph->n_nodes + what;

    if (param_index >= 0)
        id += TAG_STEP_FIXED + param_index * TAG_PER_PARAM;
    return merak_build_tag(b, -1, id);
}

static struct merak_instr step_instr(enum merak_instr_kind kind,
                                     enum merak_queue queue, const char *name)
{
    return (struct merak_instr){.kind = kind,
                                .queue = queue,
                                .phase = MERAK_PHASE_W,
                                .microbatch = -1,
                                .node = -1,
                                .peer = -1,
                                .name = name};
}

static void emit_kernel(struct merak_build *b, const char *op, int n_in,
                        int n_out, const int *slot, bool decay,
                        const char *name)
{
    static const struct merak_attrs attrs[] = {{.i = {false}}, {.i = {true}}};
    struct merak_instr in =
        step_instr(MERAK_INSTR_KERNEL, MERAK_QUEUE_COMPUTE, name);

    if (b->rc != MERAK_OK)
        return;
    in.op = merak_op_find(op);
    if (in.op == NULL) {
        merak_build_fail(b, merak_fail(b->err, MERAK_ERR_NOT_FOUND,
                                       "no op '%s'; the step needs it", op));
        return;
    }
    in.attrs = &attrs[decay];
    in.n_in = (int8_t)n_in;
    in.n_out = (int8_t)n_out;
    memcpy(in.slot, slot, (size_t)(n_in + n_out) * sizeof(*slot));
    merak_build_push(b, &in);
}

static void emit_exchange(struct merak_build *b, struct merak_exchange *ex,
                          int group, int from, int to, uint64_t tag,
                          const char *name)
{
    struct merak_instr in =
        step_instr(MERAK_INSTR_EXCHANGE, MERAK_QUEUE_COLLECTIVE, name);

    if (b->rc != MERAK_OK)
        return;
    if (ex->kind == MERAK_CONVERT_SLICE) {
        in.kind = MERAK_INSTR_SLICE;
        in.queue = MERAK_QUEUE_COMPUTE;
    }
    in.exchange = ex;
    in.group = group;
    in.tag = tag;
    in.n_in = in.n_out = 1;
    in.slot[0] = from;
    in.slot[1] = to;
    merak_build_push(b, &in);
}

void merak_build_step_hop(struct merak_build *b,
                          const struct merak_param_slots *p,
                          const struct merak_layout *from,
                          const struct merak_hop *hop, int in, int out)
{
    bool gather = hop->kind == MERAK_CONVERT_ALL_GATHER;
    int tag = (gather ? TAG_GATHER : TAG_REDUCE) + hop->axis;
    const char *axis = b->mesh.axis[hop->axis].name;
    struct merak_exchange *ex = merak_build_exchange(
        b, &b->mesh, b->coord, hop, from, &p->shape, b->prog->slot[in].dtype);

    emit_exchange(b, ex, merak_build_group(b, hop->axis), in, out,
                  step_tag(b, b->param_index[p->value], tag),
                  merak_build_name(
                      b, gather ? "gather %s over %s" : "reduce d/%s over %s",
                      p->name, axis));
}

/* Sum a small vector over a group, into a new slot. */
static int reduce_vector(struct merak_build *b, int slot, int key, uint64_t tag,
                         const char *name)
{
    struct merak_slot proto = b->prog->slot[slot];
    const struct merak_shape shape = {1, {proto.box.len[0]}};
    const struct merak_group *group;
    struct merak_mesh mesh = {.n_axes = 1};
    struct merak_layout from = {{{MERAK_PARTIAL_SUM, -1}}};
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
    emit_exchange(b,
                  merak_build_exchange(b, &mesh, &group->me, &hop, &from,
                                       &shape, proto.dtype),
                  g, slot, to, tag, name);
    return to;
}

/* --- gradients of one parameter ----------------------------------------- */

static void add_use(struct merak_build *b, struct merak_uses *uses,
                    const struct merak_value *value)
{
    const struct merak_layout *layout = b->sharded->layout;
    int part = b->stages->of_node[value->producer];
    int stage = b->stage_of_part[part];

    if (value->use >= MAX_USES) {
        merak_build_fail(b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                       "parameter %s is used more than %d "
                                       "times",
                                       uses->param->name, MAX_USES));
        return;
    }
    uses->at[value->use].value = value->id;
    uses->at[value->use].stage = stage;
    if (uses->n++ == 0)
        uses->alike = true;
    else
        uses->alike = uses->alike &&
                      merak_layout_equal(&b->sharded->mesh, &layout[value->id],
                                         &layout[uses->last]);
    uses->last = value->id;
    uses->spread = uses->spread || stage != b->stage;
    uses->left += stage == b->stage;
    b->uses_of[value->id] = uses;
}

void merak_build_uses(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    struct merak_uses **of = b->uses_of; /* first by PARAM value */

    b->uses =
        merak_build_alloc(b, ((size_t)prog->n_params + 1) * sizeof(*b->uses));
    if (b->rc != MERAK_OK)
        return;
    for (int i = 0; i < prog->n_params; i++) {
        b->uses[i].param = &prog->param[i];
        of[prog->param[i].value] = &b->uses[i];
    }
    for (int v = 0; v < b->graph->n_values && b->rc == MERAK_OK; v++) {
        const struct merak_value *value = b->graph->value[v];

        if (value->kind == MERAK_VALUE_PARAM_GRAD && of[value->of] != NULL)
            add_use(b, of[value->of], value);
    }
}

/* A slot for the gradient of `param` in some layout. */
static int grad_slot(struct merak_build *b, int param,
                     const struct merak_layout *layout)
{
    struct merak_slot slot = {.category = MERAK_CAT_GRAD,
                              .name = b->graph->value[param]->name,
                              .value = param,
                              .dtype = MERAK_F32};
    int id;

    merak_build_box(b, param, layout, &slot);
    id = merak_build_slot(b, &slot);
    if (id >= 0)
        merak_build_begin(b, id);
    return id;
}

/* The parameter's layout, but as it is where tensor ranks that hold it alike
 * are going to sum it: merak_build_reduce(). */
static struct merak_layout summed_layout(const struct merak_build *b, int param,
                                         const struct merak_layout *from)
{
    struct merak_layout to = merak_build_layout(b, param);

    for (int a = 0; a < b->mesh.n_axes; a++) {
        if (merak_build_is_alike(b, param, a) &&
            from->at[a].kind == MERAK_PARTIAL_SUM)
            to.at[a] = from->at[a];
    }
    return to;
}

/* From a gradient's natural layout to another on the tensor axes. */
static int convert(struct merak_build *b, int param, int grad, int slot,
                   int use, struct merak_layout to)
{
    const struct merak_value *value = b->graph->value[param];
    const struct merak_mesh *mesh = &b->sharded->mesh;
    struct merak_layout from = merak_build_layout(b, grad);
    struct merak_hop hop[MERAK_MAX_HOPS];
    int n =
        merak_sharded_path(b->sharded, &value->shape, &from, &to, hop, NULL);

    if (n < 0) {
        merak_build_fail(b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                       "the gradient of %s cannot be brought "
                                       "to the parameter's layout",
                                       value->name));
        return -1;
    }
    for (int h = 0; h < n && b->rc == MERAK_OK; h++) {
        struct merak_exchange *ex = merak_build_exchange(
            b, mesh, b->coord, &hop[h], &from, &value->shape, MERAK_F32);
        int next = slot; /* an all-reduce works in place */

        if (b->dp_axis >= 0)
            hop[h].to.at[b->dp_axis] = (struct merak_place){0, -1};
        if (hop[h].kind != MERAK_CONVERT_ALL_REDUCE)
            next = grad_slot(b, param, &hop[h].to);
        emit_exchange(b, ex, merak_build_group(b, hop[h].axis), slot, next,
                      step_tag(b, b->param_index[param],
                               TAG_CONVERT + use * MERAK_MAX_HOPS + h),
                      merak_build_name(b, "convert d/%s", value->name));
        slot = next;
        from = hop[h].to;
    }
    return slot;
}

static void transfer(struct merak_build *b, int param, int slot, int stage,
                     bool send, int what)
{
    const char *name = b->graph->value[param]->name;
    struct merak_instr in = step_instr(
        send ? MERAK_INSTR_SEND : MERAK_INSTR_RECV, MERAK_QUEUE_P2P,
        merak_build_name(
            b, send ? "send d/%s -> stage %d" : "recv d/%s <- stage %d", name,
            stage));

    if (b->rc != MERAK_OK)
        return;
    in.n_in = send ? 1 : 0;
    in.n_out = send ? 0 : 1;
    in.slot[0] = slot;
    in.peer = merak_plan_rank(&b->prog->plan, b->prog->tp_index,
                              b->prog->dp_index, stage);
    in.tag = step_tag(b, b->param_index[param], what);
    merak_build_push(b, &in);
}

/* The layout a running sum over uses has. */
static struct merak_layout sum_layout(const struct merak_build *b, int param,
                                      const struct merak_uses *uses)
{
    return merak_build_layout(b, uses->alike ? uses->at[0].value : param);
}

/* One use's part of the sum: its accumulator, converted if uses differ. */
static int part_of(struct merak_build *b, int param,
                   const struct merak_uses *uses, int u)
{
    int v = uses->at[u].value;

    if (uses->alike)
        return b->param_slot[v];
    return convert(b, param, v, b->param_slot[v], u,
                   merak_build_layout(b, param));
}

/* Running sum along the uses; the slot with the total on the last stage. */
static int sum_uses(struct merak_build *b, int param,
                    const struct merak_uses *uses)
{
    struct merak_layout layout = sum_layout(b, param, uses);
    const char *name = b->graph->value[param]->name;
    int sum = -1;

    for (int u = 0; u < uses->n && b->rc == MERAK_OK; u++) {
        int stage = uses->at[u].stage;
        int before = u > 0 ? uses->at[u - 1].stage : stage;

        if (stage != before && before == b->stage)
            transfer(b, param, sum, stage, true, TAG_TIE + u);
        if (stage != b->stage)
            continue;
        if (stage != before) {
            sum = grad_slot(b, param, &layout);
            transfer(b, param, sum, before, false, TAG_TIE + u);
        }
        if (u == 0) {
            sum = part_of(b, param, uses, u);
        } else {
            int slot[2] = {part_of(b, param, uses, u), sum};

            emit_kernel(b, "grad_add", 1, 1, slot, false,
                        merak_build_name(b, "add d/%s", name));
        }
    }
    return sum;
}

static bool is_first_of_stage(const struct merak_uses *uses, int u)
{
    for (int e = 0; e < u; e++) {
        if (uses->at[e].stage == uses->at[u].stage)
            return false;
    }
    return true;
}

/* From the last use's stage to every other that has the parameter. */
static int spread_total(struct merak_build *b, int param,
                        const struct merak_uses *uses, int sum)
{
    int last = uses->at[uses->n - 1].stage;
    struct merak_layout layout = sum_layout(b, param, uses);

    for (int u = 0; u < uses->n && b->rc == MERAK_OK; u++) {
        int stage = uses->at[u].stage;

        if (stage == last || !is_first_of_stage(uses, u))
            continue;
        if (b->stage == last)
            transfer(b, param, sum, stage, true, TAG_TOTAL + u);
        if (b->stage == stage) {
            sum = grad_slot(b, param, &layout);
            transfer(b, param, sum, last, false, TAG_TOTAL + u);
        }
    }
    return sum;
}

static void finish_grad(struct merak_build *b, struct merak_uses *uses)
{
    struct merak_param_slots *p = uses->param;
    struct merak_layout layout;
    int sum;

    uses->finished = true;
    if (uses->n == 0) {
        p->grad = -1; /* the loss does not depend on it */
        return;
    }
    sum = sum_uses(b, p->value, uses);
    sum = spread_total(b, p->value, uses, sum);
    if (b->rc == MERAK_OK && sum < 0)
        merak_build_fail(b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                       "stage %d uses parameter %s but has no "
                                       "gradient of it",
                                       b->stage, p->name));
    if (b->rc != MERAK_OK)
        return;
    layout = sum_layout(b, p->value, uses);
    layout = summed_layout(b, p->value, &layout);
    if (uses->alike)
        sum = convert(b, p->value, uses->at[0].value, sum, uses->n, layout);
    if (b->rc == MERAK_OK)
        merak_build_reduce(b, p, sum, &layout);
}

/* Has this stage all of a gradient that it alone makes, yet to be summed? */
static bool is_made(const struct merak_uses *uses)
{
    return uses->n > 0 && uses->left == 0 && !uses->spread && !uses->finished;
}

/* A gradient is reduced as soon as the last micro-batch has made it, behind
 * the backward of the layers before, or when all of that backward has been
 * queued.  What several stages share waits for the others, at the end, where
 * nothing queues behind it. */
void merak_build_grads_made(struct merak_build *b, int chunk,
                            const struct merak_node *node)
{
    for (int i = 0; i < node->n_out && b->rc == MERAK_OK; i++) {
        struct merak_uses *uses = b->uses_of[node->out[i]->id];

        if (uses == NULL)
            continue;
        uses->left--;
        if (!is_made(uses))
            continue;
        if (merak_plan_sums_behind(b->schedule, &b->prog->plan,
                                   b->chunk[chunk].part))
            b->sums_due = true;
        else
            finish_grad(b, uses);
    }
}

void merak_build_sums_due(struct merak_build *b)
{
    for (int i = 0; i < b->prog->n_params && b->sums_due; i++) {
        if (b->rc == MERAK_OK && is_made(&b->uses[i]))
            finish_grad(b, &b->uses[i]);
    }
    b->sums_due = false;
}

static void finish_grads(struct merak_build *b)
{
    for (int i = 0; i < b->prog->n_params && b->rc == MERAK_OK; i++) {
        if (!b->uses[i].finished)
            finish_grad(b, &b->uses[i]);
    }
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

/* One sum of squares for each parameter of the model, in graph order; those
 * that another rank counts are sums of nothing. */
static int sum_squares(struct merak_build *b)
{
    struct merak_slot proto = merak_build_vector(MERAK_F64, (size_t)b->n_params,
                                                 MERAK_CAT_TRANSIENT, "sumsq");
    struct merak_slot none =
        merak_build_vector(MERAK_F32, 0, MERAK_CAT_TRANSIENT, "nothing");
    struct merak_slot one =
        merak_build_vector(MERAK_F64, 1, MERAK_CAT_TRANSIENT, "sumsq");
    int vector = merak_build_slot(b, &proto);
    int empty = merak_build_slot(b, &none);

    if (b->rc != MERAK_OK)
        return -1;
    merak_build_begin(b, vector);
    merak_build_begin(b, empty);
    for (int v = 0; v < b->graph->n_values && b->rc == MERAK_OK; v++) {
        const struct merak_param_slots *p;
        int slot[2] = {empty, -1};

        if (b->graph->value[v]->kind != MERAK_VALUE_PARAM)
            continue;
        p = param_of(b, v);
        if (p != NULL && p->primary && p->grad >= 0)
            slot[0] = p->grad;
        slot[1] = merak_build_alias(
            b, vector, (size_t)b->param_index[v] * sizeof(double), &one);
        emit_kernel(
            b, "sumsq", 1, 1, slot, false,
            merak_build_name(b, "sumsq d/%s", b->graph->value[v]->name));
    }
    return vector;
}

static void emit_norm(struct merak_build *b)
{
    struct merak_slot proto =
        merak_build_vector(MERAK_F32, 2, MERAK_CAT_TRANSIENT, "norm");
    int vector = sum_squares(b);
    int slot[2];

    if (b->rc == MERAK_OK && b->prog->plan.tp > 1)
        vector = reduce_vector(b, vector, MERAK_GROUP_TP,
                               step_tag(b, -1, TAG_NORM_TP), "norm over tp");
    if (b->rc == MERAK_OK && b->prog->plan.dp > 1)
        vector = reduce_vector(b, vector, b->dp_axis,
                               step_tag(b, -1, TAG_NORM_DP), "norm over dp");
    if (b->rc == MERAK_OK && b->prog->plan.pp > 1)
        vector = reduce_vector(b, vector, MERAK_GROUP_PP,
                               step_tag(b, -1, TAG_NORM_PP), "norm over pp");
    b->prog->norm = merak_build_slot(b, &proto);
    if (b->rc != MERAK_OK)
        return;
    merak_build_begin(b, b->prog->norm);
    slot[0] = vector;
    slot[1] = b->prog->norm;
    emit_kernel(b, "clip", 1, 1, slot, false, "clip");
}

static bool is_f32(const struct merak_build *b,
                   const struct merak_param_slots *p)
{
    return b->prog->slot[p->param].dtype == MERAK_F32;
}

static void update(struct merak_build *b, const struct merak_param_slots *p)
{
    int part = is_f32(b, p) ? p->master : merak_build_own_part(b, p);
    int slot[6] = {p->grad, b->prog->norm, p->master, p->m, p->v, part};

    if (b->rc == MERAK_OK)
        emit_kernel(b, "adamw", 2, is_f32(b, p) ? 3 : 4, slot, p->decay,
                    merak_build_name(b, "adamw %s", p->name));
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
            const struct merak_uses *uses = b->uses_of[node->in[k]->id];

            if (node->in[k]->kind == MERAK_VALUE_PARAM && uses != NULL &&
                b->stage_of_part[b->stages->of_node[n]] == b->stage)
                order[uses->param - prog->param].node = n;
        }
    }
    qsort(order, (size_t)prog->n_params, sizeof(*order), sooner);
    return order;
}

/* Does this node talk to tensor peers in the forward under way, of this
 * stage?  A pass without gradients leaves out what it does not need: the
 * gathers behind such a node would come too late. */
static bool is_exchange(const struct merak_build *b, int n)
{
    return merak_sharded_exchanges(b->sharded, n) &&
           b->graph->node[n]->phase == MERAK_PHASE_F &&
           b->stage_of_part[b->stages->of_node[n]] == b->stage &&
           merak_build_runs_now(b, n);
}

/* Gather what is read before the first exchange from node n on. */
static void gather_up_to(struct merak_build *b, int n)
{
    while (n < b->graph->n_nodes && !is_exchange(b, n))
        n++;
    while (b->gathered < b->prog->n_params && b->rc == MERAK_OK &&
           (n == b->graph->n_nodes || b->gather[b->gathered].node < n)) {
        const struct merak_param_slots *p = b->gather[b->gathered++].param;

        if (b->uses[p - b->prog->param].n > 0)
            merak_build_gather_param(b, p);
    }
}

/*
 * What the last step updated in parts is gathered at the front of the next
 * step (of its first, too: to no effect), and of an evaluation, where the
 * forward hides all that it does not need at once.
 * Exchanges of that forward stand in the same queue.  On the first stage, which
 * begins at once, each comes before the gathers that only what follows the next
 * one needs; the others gather while they wait for the first stage.
 */
void merak_build_gathers(struct merak_build *b)
{
    /* Blocks that all stages run together have an order of their own. */
    bool in_order = b->sharded->n_shared == 0, any = false;

    b->gathered = b->prog->n_params;
    for (int i = 0; i < b->prog->n_params; i++)
        any = any || merak_build_is_flat(b, b->prog->param[i].value);
    if (!any)
        return;
    b->gather = order_by_use(b);
    b->gathered = 0;
    if (b->gather != NULL)
        gather_up_to(b, b->stage == 0 && in_order ? 0 : b->graph->n_nodes);
}

void merak_build_gathers_before(struct merak_build *b,
                                const struct merak_node *node, int microbatch)
{
    if (b->gathered == b->prog->n_params || !is_exchange(b, node->id))
        return;
    if (microbatch == 0)
        gather_up_to(b, node->id + 1);
    else /* they hide what the next chunk is going to need */
        gather_up_to(b, b->gather[b->gathered].node);
}

static void update_params(struct merak_build *b)
{
    struct merak_first_use *order = order_by_use(b);

    for (int i = 0; i < b->prog->n_params && b->rc == MERAK_OK; i++) {
        if (order[i].param->grad >= 0)
            update(b, order[i].param);
    }
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
                b, b->prog->loss, a, step_tag(b, -1, TAG_LOSS + a), "sum loss");
    }
}

void merak_build_step(struct merak_build *b)
{
    struct merak_program *prog = b->prog;

    reduce_loss(b);
    if (!b->opt->forward_only && b->rc == MERAK_OK) {
        finish_grads(b);
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
    for (int i = 0; b->opt->dump_grads && i < prog->n_params; i++) {
        if (prog->param[i].grad >= 0)
            merak_build_extend(b, prog->param[i].grad);
    }
}
