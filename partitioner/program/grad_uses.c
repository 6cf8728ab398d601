/* SPDX-License-Identifier: Apache-2.0 */
/* grad_uses.c - a parameter's gradients, one per use, summed over uses, tensor
 * ranks and replicas
 *
 * A tied parameter's uses are summed ((u0 + u1) + u2 ..) in graph order
 * wherever they are: the running sum travels along their stages, and the
 * total back to all of them.  A single rank sums in the same order.
 */
#include "config.h"

#include "partitioner/program/step.h"

#include "base/error.h"

static void add_use(struct merak_build *b, struct merak_uses *uses,
                    const struct merak_value *value)
{
    const struct merak_layout *layout = b->sharded->layout;
    int part = b->stages->of_node[value->producer];
    int stage = b->stage_of_part[part];

    if (value->use >= MERAK_MAX_USES) {
        merak_build_fail(b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                       "parameter %s is used more than %d "
                                       "times",
                                       uses->param->name, MERAK_MAX_USES));
        return;
    }
    uses->at[value->use].value = value->id;
    uses->at[value->use].stage = stage;
    if (uses->n++ == 0)
        uses->same_layout = true;
    else
        uses->same_layout =
            uses->same_layout &&
            merak_layout_equal(&b->sharded->mesh, &layout[value->id],
                               &layout[uses->last]);
    uses->last = value->id;
    uses->spread = uses->spread || stage != b->stage;
    uses->left += stage == b->stage;
    uses->here = uses->left;
    b->params.uses_of[value->id] = uses;
}

void merak_build_uses(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    struct merak_uses **of = b->params.uses_of; /* first by PARAM value */

    b->params.uses = merak_build_alloc(b, ((size_t)prog->n_params + 1) *
                                              sizeof(*b->params.uses));
    if (b->rc != MERAK_OK)
        return;
    for (int i = 0; i < prog->n_params; i++) {
        b->params.uses[i].param = &prog->param[i];
        b->params.uses[i].part[0] = b->params.uses[i].part[1] = -1;
        of[prog->param[i].value] = &b->params.uses[i];
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
    const struct merak_value *value = b->graph->value[param];
    struct merak_slot slot = {.category = MERAK_CAT_GRAD,
                              .name = value->name,
                              .value = param,
                              .dtype = merak_graph_grad_dtype(value)};
    int id;

    merak_build_box(b, param, layout, &slot);
    id = merak_build_slot(b, &slot);
    if (id >= 0)
        merak_build_begin(b, id);
    return id;
}

/* The parameter's layout, but still partial along the tensor axes that
 * merak_build_reduce() is going to sum over. */
static struct merak_layout summed_layout(const struct merak_build *b, int param,
                                         const struct merak_layout *from)
{
    struct merak_layout to = merak_build_layout(b, param);

    for (int a = 0; a < b->mesh.n_axes; a++) {
        if (merak_build_is_replicated(b, param, a) &&
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
        struct merak_exchange *ex =
            merak_build_exchange(b, mesh, b->coord, &hop[h], &from,
                                 &value->shape, b->prog->slot[slot].dtype);
        int next = slot; /* an all-reduce works in place */

        for (int a = merak_build_dp_axis(b); a < b->mesh.n_axes; a++)
            hop[h].to.at[a] =
                (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1};
        if (hop[h].kind != MERAK_CONVERT_ALL_REDUCE)
            next = grad_slot(b, param, &hop[h].to);
        merak_step_exchange(
            b, ex, merak_build_group(b, hop[h].axis), slot, next,
            merak_step_tag(b, b->params.index[param],
                           MERAK_TAG_CONVERT + use * MERAK_MAX_HOPS + h),
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
    struct merak_instr in = {
        .phase = MERAK_PHASE_W,
        .microbatch = -1,
        .tag = merak_step_tag(b, b->params.index[param], what),
        .name = merak_build_name(
            b, send ? "send d/%s -> stage %d" : "recv d/%s <- stage %d", name,
            stage)};

    merak_build_message(b, &in, send, slot, merak_build_peer(b, stage));
}

/* The layout a running sum over uses has. */
static struct merak_layout sum_layout(const struct merak_build *b, int param,
                                      const struct merak_uses *uses)
{
    return merak_build_layout(b, uses->same_layout ? uses->at[0].value : param);
}

/* The slot of one use's gradient: its accumulator, converted if layouts
 * differ. */
static int use_grad_slot(struct merak_build *b, int param,
                         const struct merak_uses *uses, int u)
{
    int v = uses->at[u].value;
    int slot = merak_build_param_slot(b, v, b->fetch.microbatch);

    if (uses->same_layout)
        return slot;
    return convert(b, param, v, slot, u, merak_build_layout(b, param));
}

/* Running sum along the uses; the slot with the total on the last stage. */
static int sum_uses(struct merak_build *b, int param,
                    const struct merak_uses *uses)
{
    struct merak_layout layout = sum_layout(b, param, uses);
    int sum = -1;

    for (int u = 0; u < uses->n && b->rc == MERAK_OK; u++) {
        int stage = uses->at[u].stage;
        int before = u > 0 ? uses->at[u - 1].stage : stage;

        if (stage != before && before == b->stage)
            transfer(b, param, sum, stage, true, MERAK_TAG_TIE + u);
        if (stage != b->stage)
            continue;
        if (stage != before) {
            sum = grad_slot(b, param, &layout);
            transfer(b, param, sum, before, false, MERAK_TAG_TIE + u);
        }
        if (u == 0)
            sum = use_grad_slot(b, param, uses, u);
        else
            merak_step_add_grad(b, uses->param->name,
                                use_grad_slot(b, param, uses, u), sum);
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

/* --- over stages of unlike ranks ------------------------------------------ */

/* Are the stages that use a parameter unlike?  Then replicas of one do not
 * stand for replicas of another. */
static bool crosses_meshes(const struct merak_build *b,
                           const struct merak_uses *uses)
{
    bool unlike = false;

    for (int u = 1; u < uses->n; u++)
        unlike =
            unlike || merak_plan_is_unlike(&b->prog->plan, uses->at[0].stage,
                                           uses->at[u].stage);
    return unlike;
}

/* This stage's uses, summed over its own ranks: the same on all replicas. */
static int sum_stage(struct merak_build *b, const struct merak_uses *uses)
{
    int param = uses->param->value, sum = -1;
    struct merak_layout layout = sum_layout(b, param, uses);

    for (int u = 0; u < uses->n && b->rc == MERAK_OK; u++) {
        int slot;

        if (uses->at[u].stage != b->stage)
            continue;
        slot = use_grad_slot(b, param, uses, u);
        if (sum >= 0)
            merak_step_add_grad(b, uses->param->name, slot, sum);
        else
            sum = slot;
    }
    layout = summed_layout(b, param, &layout);
    if (uses->same_layout && b->rc == MERAK_OK)
        sum = convert(b, param, uses->at[0].value, sum, uses->n, layout);
    if (b->rc == MERAK_OK)
        merak_build_reduce_whole(b, uses->param, sum, &layout);
    return sum;
}

static void cross(struct merak_build *b, int param, int slot, int from, int to,
                  int what)
{
    const char *name = b->graph->value[param]->name;
    const struct merak_crossing *c =
        merak_build_param_crossing(b, param, from, to);
    struct merak_instr in = {
        .phase = MERAK_PHASE_W,
        .microbatch = -1,
        .tag = merak_step_tag(b, b->params.index[param], what),
        .name = from == b->stage
                    ? merak_build_name(b, "send d/%s -> stage %d", name, to)
                    : merak_build_name(b, "recv d/%s <- stage %d", name, from)};

    if (b->rc != MERAK_OK)
        return;
    merak_build_cross(b, c, &in, slot);
    if (!c->send)
        merak_build_arrived(b, c, &in, slot);
}

/* What another stage sends. */
static int receive_sum(struct merak_build *b, int param, int from, int what)
{
    const struct merak_layout layout = merak_build_layout(b, param);
    int slot = grad_slot(b, param, &layout);

    if (slot >= 0)
        cross(b, param, slot, from, b->stage, what);
    return slot;
}

/* From the stage that has the total to every other that has the parameter. */
static int spread_total(struct merak_build *b, const struct merak_uses *uses,
                        int last, int sum, bool unlike)
{
    int param = uses->param->value;
    struct merak_layout layout = sum_layout(b, param, uses);

    for (int u = 0; u < uses->n && b->rc == MERAK_OK; u++) {
        int stage = uses->at[u].stage, what = MERAK_TAG_TOTAL + u;

        if (stage == last || !is_first_of_stage(uses, u))
            continue;
        if (b->stage == last && unlike)
            cross(b, param, sum, last, stage, what);
        else if (b->stage == last)
            transfer(b, param, sum, stage, true, what);
        if (b->stage == stage && unlike) {
            sum = receive_sum(b, param, last, what);
        } else if (b->stage == stage) {
            sum = grad_slot(b, param, &layout);
            transfer(b, param, sum, last, false, what);
        }
    }
    return sum;
}

/* Each stage sums its uses; the running sum goes along the stages in the order
 * of their first uses, and the total back to all of them. */
static int sum_over_meshes(struct merak_build *b, const struct merak_uses *uses)
{
    int param = uses->param->value, last = -1, sum = sum_stage(b, uses);

    for (int u = 0; u < uses->n && b->rc == MERAK_OK; u++) {
        int stage = uses->at[u].stage;

        if (!is_first_of_stage(uses, u))
            continue;
        if (last >= 0 && last == b->stage)
            cross(b, param, sum, last, stage, MERAK_TAG_TIE + u);
        if (last >= 0 && stage == b->stage) {
            int before = receive_sum(b, param, last, MERAK_TAG_TIE + u);

            merak_step_add_grad(b, uses->param->name, sum, before);
            sum = before;
        }
        last = stage;
    }
    return spread_total(b, uses, last, sum, true);
}

/* The sum goes to p->grad, or to this part of it. */
static void finish_grad(struct merak_build *b, struct merak_uses *uses,
                        int part)
{
    struct merak_param_slots *p = uses->param;
    struct merak_layout layout;
    int sum;

    uses->finished = true;
    if (uses->n == 0 || p->frozen) {
        p->grad = -1; /* the loss does not depend on it, or it is frozen */
        return;
    }
    if (crosses_meshes(b, uses)) {
        sum = sum_over_meshes(b, uses);
        if (b->rc == MERAK_OK)
            p->grad = merak_build_state_part(b, p->value, sum);
        return;
    }
    sum = sum_uses(b, p->value, uses);
    sum = spread_total(b, uses, uses->at[uses->n - 1].stage, sum, false);
    if (b->rc == MERAK_OK && sum < 0)
        merak_build_fail(b, merak_fail(b->err, MERAK_ERR_UNSUPPORTED,
                                       "stage %d uses parameter %s but has no "
                                       "gradient of it",
                                       b->stage, p->name));
    if (b->rc != MERAK_OK)
        return;
    layout = sum_layout(b, p->value, uses);
    layout = summed_layout(b, p->value, &layout);
    if (uses->same_layout)
        sum = convert(b, p->value, uses->at[0].value, sum, uses->n, layout);
    if (b->rc != MERAK_OK)
        return;
    if (part >= 0)
        merak_build_begin(b, part);
    merak_build_reduce(b, p, sum, &layout, part);
    if (b->rc == MERAK_OK && merak_build_sums_each(b, p->value))
        merak_build_note_sum(b, uses, sum, part);
}

/* Is a gradient that only this stage makes complete, but not reduced yet? */
static bool is_complete(const struct merak_uses *uses)
{
    return uses->n > 0 && uses->left == 0 && !uses->spread && !uses->finished;
}

/* The slot of a micro-batch's part of a sum over replicas; the first one's is
 * where the others are added. */
static int part_slot(struct merak_build *b, struct merak_uses *uses,
                     int microbatch)
{
    int *part = &uses->part[merak_build_is_higher(b, microbatch)];
    struct merak_slot proto;

    if (microbatch == 0)
        return -1;
    if (*part < 0) {
        proto = b->prog->slot[merak_build_sum_slot(b, uses->param)];
        proto.bytes = 0;
        *part = merak_build_slot(b, &proto);
    }
    return *part;
}

/* Sum one micro-batch's gradient of a parameter that is summed each time. */
static void finish_one(struct merak_build *b, struct merak_uses *uses,
                       int microbatch)
{
    merak_build_begin_sum(b, uses, microbatch);
    b->fetch.turn = b->fetch.microbatch = microbatch;
    finish_grad(b, uses, part_slot(b, uses, microbatch));
    b->fetch.turn = b->fetch.microbatch = -1;
    if (microbatch == b->prog->plan.microbatches - 1)
        return;
    uses->finished = false;
    uses->left = uses->here;
}

/* Do tensor ranks exchange a gradient before replicas sum it? */
static bool is_exchanged_first(const struct merak_build *b,
                               const struct merak_uses *uses)
{
    int param = uses->param->value;
    struct merak_layout from = sum_layout(b, param, uses);
    struct merak_layout to = merak_build_layout(b, param);

    for (int a = 0; a < merak_sharded_tensor_axes(b->sharded); a++) {
        if (from.at[a].kind != to.at[a].kind || from.at[a].dim != to.at[a].dim)
            return true;
    }
    return false;
}

/* A gradient is reduced as soon as the last micro-batch has made it, overlapped
 * with the backward of the layers before, or, if tensor ranks exchange it
 * first, when all of that backward has been queued.  A gradient that several
 * stages share waits for the others, at the end, where nothing queues after it.
 */
void merak_build_grads_made(struct merak_build *b, int chunk,
                            const struct merak_node *node, int microbatch)
{
    bool last = microbatch == b->prog->plan.microbatches - 1;

    for (int i = 0; i < node->n_out && b->rc == MERAK_OK; i++) {
        struct merak_uses *uses = b->params.uses_of[node->out[i]->id];
        bool each =
            uses != NULL && merak_build_sums_each(b, uses->param->value);

        if (uses == NULL || (!each && !last))
            continue;
        uses->left--;
        if (!is_complete(uses))
            continue;
        if (each)
            finish_one(b, uses, microbatch);
        else if (merak_plan_delays_reduce(b->schedule, &b->prog->plan, b->stage,
                                          b->chunk[chunk].part) &&
                 is_exchanged_first(b, uses))
            b->params.reduce_pending = true;
        else
            finish_grad(b, uses, -1);
    }
}

void merak_build_delayed_reduces(struct merak_build *b)
{
    for (int i = 0; i < b->prog->n_params && b->params.reduce_pending; i++) {
        if (b->rc == MERAK_OK && is_complete(&b->params.uses[i]))
            finish_grad(b, &b->params.uses[i], -1);
    }
    b->params.reduce_pending = false;
}

void merak_build_finish_grads(struct merak_build *b)
{
    merak_build_settle_sums(b);
    for (int i = 0; i < b->prog->n_params && b->rc == MERAK_OK; i++) {
        if (!b->params.uses[i].finished)
            finish_grad(b, &b->params.uses[i], -1);
    }
}
