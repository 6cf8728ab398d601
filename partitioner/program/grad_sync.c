/* SPDX-License-Identifier: Apache-2.0 */
/* grad_sync.c - gradients summed over the ranks that a parameter is replicated
 * on, and the parameter gathered from them again
 *
 * Those are tensor ranks that have all of it (merak_sharded_flat_axes()) and
 * replicas.  Sums go axis by axis: over each replica's tensor ranks first, then
 * over replicas.  Under ZeRO-1 every sum leaves a rank its flat part: an
 * element is summed in the same order with and without ZeRO-1.
 *
 * A rank's part of a sum is made inside the gradient's accumulator, where no
 * other rank reads that part.  Only what is summed each micro-batch has memory
 * of its own for it, since its accumulator is given up: params.c.
 */
#include "config.h"

#include "partitioner/program/step.h"

bool merak_build_is_replicated(const struct merak_build *b, int param, int axis)
{
    return (merak_sharded_flat_axes(b->sharded, param) >> axis & 1) != 0;
}

int merak_build_last_replicated(const struct merak_build *b, int param)
{
    int axis = b->sharded->mesh.n_axes - 1;

    while (axis >= 0 && !merak_build_is_replicated(b, param, axis))
        axis--;
    return axis;
}

/* Is an axis that of replicas whose inner sums are kept? */
static bool is_outer(const struct merak_build *b, int axis)
{
    return merak_plan_is_home_in(&b->prog->plan) && axis == b->mesh.n_axes - 1;
}

/* Is the optimizer's state of a parameter cut flat along an axis?  A frozen
 * one has none: is what is kept of it? */
static bool is_flat_along(const struct merak_build *b, int param, int axis)
{
    return (!b->graph->value[param]->frozen ||
            merak_build_is_fetched(b, param)) &&
           b->prog->plan.zero > 0 &&
           (merak_build_is_dp(b, axis) ||
            merak_build_is_replicated(b, param, axis)) &&
           !(b->graph->value[param]->frozen && is_outer(b, axis));
}

bool merak_build_is_flat(const struct merak_build *b, int param)
{
    for (int a = 0; a < b->mesh.n_axes; a++) {
        if (is_flat_along(b, param, a))
            return true;
    }
    return false;
}

struct merak_layout merak_build_state_layout(const struct merak_build *b,
                                             int param)
{
    struct merak_layout layout = merak_build_layout(b, param);

    for (int a = 0; a < b->mesh.n_axes; a++) {
        if (is_flat_along(b, param, a))
            layout.at[a] = (struct merak_place){.kind = MERAK_FLAT, .dim = -1};
    }
    return layout;
}

struct merak_layout merak_build_home_layout(const struct merak_build *b,
                                            int param)
{
    struct merak_layout layout = merak_build_state_layout(b, param);

    for (int a = 0; a < b->mesh.n_axes; a++) {
        if (is_outer(b, a))
            layout.at[a] =
                (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1};
    }
    return layout;
}

bool merak_build_is_primary(const struct merak_build *b, int param)
{
    const struct merak_layout layout = merak_build_layout(b, param);

    /* The first stage that uses it has the copy that counts, unless each has
     * a part of it. */
    if (!b->flow[param].first &&
        (b->pp_axis < 0 || layout.at[b->pp_axis].kind != MERAK_SPLIT))
        return false;
    for (int a = 0; a < b->mesh.n_axes; a++) {
        if (a != b->pp_axis && layout.at[a].kind == MERAK_REPLICATED &&
            b->coord[a] != 0 && !is_flat_along(b, param, a))
            return false;
    }
    return true;
}

/* The slot of a flat part of a parameter, or its gradient, in a slot of all
 * of it or of a larger part. */
static int new_part(struct merak_build *b, int param, int slot,
                    const struct merak_layout *layout)
{
    struct merak_slot part = b->prog->slot[slot];
    int whole = part.whole;
    size_t lo = b->prog->slot[whole].flat_lo, hi = b->prog->slot[whole].flat_hi;

    merak_build_box(b, param, layout, &part);
    part.bytes = 0;
    if (part.flat_lo == lo && part.flat_hi == hi)
        return whole;
    return merak_build_alias(
        b, whole, (part.flat_lo - lo) * merak_dtype_bytes(part.dtype), &part);
}

/* The same before or after a hop along an axis, made once; the gradient of a
 * pair's higher micro-batch is in another slot. */
static int part_in(struct merak_build *b, const struct merak_param_slots *p,
                   int slot, const struct merak_layout *layout, bool gather,
                   int axis)
{
    struct merak_step_hop *hop =
        &b->params.uses[p - b->prog->param].hop[gather][axis];

    if (!gather && merak_build_is_higher(b, b->fetch.microbatch))
        return new_part(b, p->value, slot, layout);
    if (hop->slot == 0)
        hop->slot = new_part(b, p->value, slot, layout) + 1;
    return hop->slot - 1;
}

int merak_build_own_part(struct merak_build *b,
                         const struct merak_param_slots *p)
{
    return merak_build_state_part(b, p->value, p->home);
}

/* --- gradients ------------------------------------------------------------ */

/* Along a tensor axis: sum what is partial, keep this rank's part, in slot
 * `sum` (-1: inside `slot`). */
static int reduce_along(struct merak_build *b,
                        const struct merak_param_slots *p, int slot, int axis,
                        int sum, struct merak_layout *layout)
{
    bool partial = layout->at[axis].kind == MERAK_PARTIAL_SUM;
    struct merak_hop hop = {
        .kind = MERAK_CONVERT_ALL_REDUCE, .axis = axis, .to = *layout};
    int to = slot; /* an all-reduce works in place */

    hop.to.at[axis] = (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1};
    if (is_flat_along(b, p->value, axis)) {
        hop.kind = MERAK_CONVERT_REDUCE_SCATTER;
        hop.to.at[axis].kind = MERAK_FLAT;
        to = sum >= 0 ? sum : part_in(b, p, slot, &hop.to, false, axis);
    }
    if (partial)
        merak_build_step_hop(b, p, layout, &hop, slot, to);
    *layout = hop.to;
    return to;
}

/* Along an axis of replicas: to slot `to` (-1: inside `slot`) if a rank keeps
 * its part, else in place. */
static int reduce_over(struct merak_build *b, const struct merak_param_slots *p,
                       int slot, int axis, int to, struct merak_layout *layout)
{
    struct merak_hop hop = {
        .kind = MERAK_CONVERT_ALL_REDUCE, .axis = axis, .to = *layout};
    bool flat = is_flat_along(b, p->value, axis);

    hop.to.at[axis] = (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1};
    layout->at[axis] =
        (struct merak_place){.kind = MERAK_PARTIAL_SUM, .dim = -1};
    if (flat) {
        hop.kind = MERAK_CONVERT_REDUCE_SCATTER;
        hop.to.at[axis].kind = MERAK_FLAT;
        if (to < 0)
            to = part_in(b, p, slot, &hop.to, false, axis);
    } else
        to = slot;
    merak_build_step_hop(b, p, layout, &hop, slot, to);
    *layout = hop.to;
    return to;
}

int merak_build_sum_slot(const struct merak_build *b,
                         const struct merak_param_slots *p)
{
    int inner = b->fetch.inner_sum[p->value];

    return inner >= 0 ? inner : p->grad;
}

void merak_build_reduce(struct merak_build *b, struct merak_param_slots *p,
                        int slot, const struct merak_layout *layout, int part)
{
    struct merak_layout at = *layout;
    int sum = part >= 0 ? part : merak_build_sum_slot(b, p);
    int last = b->mesh.n_axes; /* an inner sum ends before the outer axis */
    int inside =
        b->n_dp_axes > 0 ? -1 : merak_build_last_replicated(b, p->value);

    last -= merak_build_sum_slot(b, p) != p->grad;
    for (int a = 0; a < b->mesh.n_axes && b->rc == MERAK_OK; a++) {
        if (merak_build_is_replicated(b, p->value, a))
            slot = reduce_along(b, p, slot, a, a == inside ? sum : -1, &at);
    }
    for (int a = merak_build_dp_axis(b); a < last && b->rc == MERAK_OK; a++)
        slot = reduce_over(b, p, slot, a, a == last - 1 ? sum : -1, &at);
    if (part < 0 && last == b->mesh.n_axes)
        p->grad = slot;
}

void merak_build_reduce_outer(struct merak_build *b,
                              const struct merak_param_slots *p)
{
    struct merak_layout at = merak_build_home_layout(b, p->value);

    (void)reduce_over(b, p, merak_build_sum_slot(b, p), b->mesh.n_axes - 1,
                      p->grad, &at);
}

/* In place, along one axis. */
static void reduce_here(struct merak_build *b,
                        const struct merak_param_slots *p, int slot, int axis,
                        struct merak_layout *layout)
{
    struct merak_hop hop = {
        .kind = MERAK_CONVERT_ALL_REDUCE, .axis = axis, .to = *layout};
    struct merak_exchange *ex;

    hop.to.at[axis] = (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1};
    ex = merak_build_exchange(b, &b->mesh, b->coord, &hop, layout, &p->shape,
                              b->prog->slot[slot].dtype);
    if (b->rc == MERAK_OK)
        merak_step_exchange(b, ex, merak_build_group(b, axis), slot, slot,
                            merak_step_tag(b, b->params.index[p->value],
                                           MERAK_TAG_REDUCE + axis),
                            merak_build_name(b, "reduce d/%s over %s", p->name,
                                             b->mesh.axis[axis].name));
    *layout = hop.to;
}

void merak_build_reduce_whole(struct merak_build *b,
                              const struct merak_param_slots *p, int slot,
                              const struct merak_layout *layout)
{
    struct merak_layout at = *layout;

    for (int a = 0; a < b->mesh.n_axes && b->rc == MERAK_OK; a++) {
        if (at.at[a].kind == MERAK_PARTIAL_SUM)
            reduce_here(b, p, slot, a, &at);
    }
    for (int a = merak_build_dp_axis(b);
         a < b->mesh.n_axes && b->rc == MERAK_OK; a++) {
        at.at[a].kind = MERAK_PARTIAL_SUM;
        reduce_here(b, p, slot, a, &at);
    }
}

int merak_build_state_part(struct merak_build *b, int param, int slot)
{
    const struct merak_layout layout = merak_build_state_layout(b, param);

    return merak_build_is_flat(b, param) ? new_part(b, param, slot, &layout)
                                         : slot;
}

/* --- parameters ----------------------------------------------------------- */

/* From the innermost axis out: replicas' parts, then tensor ranks'.  From what
 * is in one slot to all of another. */
static void gather(struct merak_build *b, const struct merak_param_slots *p,
                   int part, struct merak_layout from, int whole,
                   const struct merak_layout *to)
{
    for (int a = b->mesh.n_axes - 1; a >= 0 && b->rc == MERAK_OK; a--) {
        struct merak_hop hop = {
            .kind = MERAK_CONVERT_ALL_GATHER, .axis = a, .to = from};
        int next;

        if (from.at[a].kind != MERAK_FLAT || to->at[a].kind == MERAK_FLAT)
            continue;
        hop.to.at[a] =
            (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1};
        next = part_in(b, p, whole, &hop.to, true, a);
        if (b->rc == MERAK_OK)
            merak_build_step_hop(b, p, &from, &hop, part, next);
        part = next;
        from = hop.to;
    }
}

/* What this rank updates of a parameter. */
static int updated_part(struct merak_build *b,
                        const struct merak_param_slots *p)
{
    return b->prog->slot[p->param].dtype == MERAK_F32
               ? p->master
               : merak_build_own_part(b, p);
}

void merak_build_gather_param(struct merak_build *b,
                              const struct merak_param_slots *p)
{
    const struct merak_layout whole = merak_build_layout(b, p->value);
    bool fetched = p->home != p->param;

    gather(b, p, fetched ? p->home : updated_part(b, p),
           fetched ? merak_build_home_layout(b, p->value)
                   : merak_build_state_layout(b, p->value),
           p->param, &whole);
}

void merak_build_gather_home(struct merak_build *b,
                             const struct merak_param_slots *p)
{
    const struct merak_layout home = merak_build_home_layout(b, p->value);

    gather(b, p, updated_part(b, p), merak_build_state_layout(b, p->value),
           p->home, &home);
}
