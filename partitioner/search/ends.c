/* SPDX-License-Identifier: Apache-2.0 */
/* ends.c - the end of a step, after its last backward
 *
 * Gradients are reduced over replicas, those of tied parameters summed over
 * stages, the norm found and all updated, as in optimizer_step.c.  Stages on a
 * node share its uplink for that; other overlap is left to the simulator.
 */
#include "config.h"

#include "partitioner/program/offload.h"
#include "partitioner/search/ends.h"
#include "partitioner/search/lent.h"
#include "partitioner/search/need.h"
#include "partitioner/search/replicas.h"

#include "base/arrays.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

static int stage_of(const struct merak_rater *r, int segment)
{
    int part = 0;

    while (r->range[part].to <= segment)
        part++;
    return r->lists->stage_of[part];
}

bool merak_stage_runs(const struct merak_rater *r, int segment, int s)
{
    int stage = stage_of(r, segment);

    return stage < 0 || stage == s;
}

/* --- after the last backward ---------------------------------------------- */

/* When the sum of tied gradients arrives, by stage: the running sum goes up
 * from stage to stage, and the total comes back. */
static void sum_tied(const struct merak_rater *r, const double *end,
                     double *tied)
{
    const struct merak_table *t = r->table;
    int pp = r->plan->pp;

    for (int s = 0; s < pp; s++)
        tied[s] = 0;
    for (int back = 0; back < 2; back++) {
        for (int i = 0; i < t->n_shares; i++) {
            const struct merak_share *share =
                &t->share[back ? t->n_shares - 1 - i : i];
            double bytes = merak_param_state_grads(&share->hold, r->plan), took,
                   at;
            int low = stage_of(r, share->prev), high = low;

            if (bytes == 0)
                continue;
            high = stage_of(r, share->segment);
            if (low == high) /* or both on all stages */
                continue;
            took = merak_links_transfer_s(
                &r->links, merak_plan_rank(r->plan, 0, 0, low),
                merak_plan_rank(r->plan, 0, 0, high), bytes);
            at = tied[low] > end[low] ? tied[low] : end[low];
            if (back)
                tied[low] = tied[high] + took;
            else
                tied[high] = (at > end[high] ? at : end[high]) + took;
        }
    }
}

/* Seconds of AdamW: n parameters of the mean size, state split in `parts`. */
static double adamw_s(const struct merak_rater *r,
                      const struct merak_param_state *h, double parts)
{
    double each = h->n * parts;
    struct merak_kernel_size size;

    if (h->n == 0)
        return 0;
    size = (struct merak_kernel_size){
        .flops = 14 * (h->bf16_elems + h->f32_elems) / each,
        .bytes = merak_param_state_touched(h, r->plan) / each};
    return h->n * merak_cost_kernel(r->cost, merak_op_find("adamw"), r->mesh.tp,
                                    &size);
}

/* Seconds of the updates: of AdamW, or of the copies of its state, if that is
 * the host's and they take longer. */
static double update_s(const struct merak_rater *r,
                       const struct merak_param_state *h, double parts)
{
    double adamw = adamw_s(r, h, parts);
    double bytes = 2 * merak_param_state_optimizer(h) / parts;
    int each = h->bf16_elems > 0 ? 6 : 4; /* f32 has no master to copy */
    double copies = each * h->n + bytes / (4.0 * MERAK_OFFLOAD_PIECE);

    if (!merak_rater_held(r, MERAK_HELD_STATE, false).host || h->n == 0)
        return adamw;
    return fmax(adamw, copies * merak_cost_host_copy(r->cost, bytes / copies));
}

/* The parameters that segment i is the first to hold, without those that
 * stages other than s hold, too. */
static struct merak_param_state own_hold(const struct merak_rater *r, int s,
                                         int i)
{
    struct merak_param_state hold = r->table->segment[i].hold;

    for (int k = 0; k < r->table->n_shares && hold.n > 0; k++) {
        const struct merak_share *share = &r->table->share[k];

        if (share->prev == i && !merak_stage_runs(r, share->segment, s))
            merak_param_state_drop(&hold, &share->hold);
    }
    return merak_param_state_of(&hold, r->plan->zero > 0);
}

/* Seconds to sum its gradients over replicas. */
static double reduce_s(const struct merak_rater *r, int s, int i)
{
    struct merak_param_state hold;

    if (r->table->segment[i].shared_later_elems == 0)
        return r->ends.reduce_s[i];
    hold = own_hold(r, s, i);
    return hold.n > 0
               ? merak_over_dp(r, true, merak_param_state_grads(&hold, r->plan),
                               hold.n)
               : 0;
}

/* Seconds of their node's uplink that the ranks of a stage use for that. */
static double uplink_s(const struct merak_rater *r, int s, int i)
{
    struct merak_param_state hold;

    if (r->uplink_s_per_byte == 0)
        return 0;
    hold = own_hold(r, s, i);
    return r->uplink_s_per_byte * merak_param_state_grads(&hold, r->plan);
}

/* A stage while its last backwards fill its queue of sums over replicas. */
struct merak_drain {
    double at;       /* time that compute has reached */
    double free;     /* when all that has begun in the queue is over */
    double awake;    /* until when communication is awake */
    double since;    /* when the queue last was empty */
    double uplink_s; /* uplink time of the reductions since then */
    int first, last; /* segments whose reductions have not begun, or -1 */
};

/* The reduction of a segment's weight gradients. */
struct merak_reduction {
    double seconds;
    struct merak_interference interference; /* from a concurrent kernel */
    int next; /* segment whose turn is next, or -1 */
};

/* Queue the reduction of segment i. */
static void add_reduction(const struct merak_rater *r, int s, int i,
                          struct merak_drain *d)
{
    const struct merak_segment *seg = &r->table->segment[i];
    const struct merak_param_state hold =
        merak_param_state_of(&seg->hold, r->plan->zero > 0);
    struct merak_reduction *add = &r->ends.reduction[i];
    double reduce = reduce_s(r, s, i), work;

    if (reduce == 0)
        return;
    *add = (struct merak_reduction){
        .seconds = hold.convert_s + reduce,
        .interference = merak_over_dp_interference(
            r, true, merak_param_state_grads(&hold, r->plan)),
        .next = -1};
    /* Each parameter's wakes communication if it ends before the next. */
    work = r->lists->schedule->splits_w ? seg->w_s : seg->b_s;
    if (add->seconds < work && hold.n * add->interference.wake_s < work)
        add->interference.wake_s *= hold.n;
    if (d->first >= 0)
        r->ends.reduction[d->last].next = i;
    else
        d->first = i;
    if (d->first == i && d->free < d->at) { /* it begins at once */
        d->free = d->since = d->at;
        d->uplink_s = 0;
    }
    d->uplink_s += uplink_s(r, s, i);
    d->last = i;
}

/* Begin the next reduction; returns what a kernel that runs then loses. */
static double begin_next(const struct merak_rater *r, struct merak_drain *d)
{
    const struct merak_reduction *next = &r->ends.reduction[d->first];
    double lost_s = next->interference.copy_s, until = d->free + next->seconds;

    if (d->free > d->awake)
        lost_s += next->interference.wake_s;
    if (until < d->free + next->interference.wake_s)
        until = d->free + next->interference.wake_s;
    d->awake = until > d->awake ? until : d->awake;
    d->free += next->seconds;
    d->first = next->next;
    return lost_s;
}

static void begin_all(const struct merak_rater *r, struct merak_drain *d)
{
    while (d->first >= 0)
        begin_next(r, d);
}

/* Run kernels for `seconds` plus what they lose to reductions. */
static void compute(const struct merak_rater *r, double seconds,
                    struct merak_drain *d)
{
    double end = d->at + seconds;

    while (d->first >= 0 && d->free < d->at)
        begin_next(r, d); /* while nothing ran */
    while (d->first >= 0 && d->free < end)
        end += begin_next(r, d);
    d->at = end;
}

/* Is a segment summed once all of its part are done?  Programs decide that by
 * gradient: here by what takes most of the time. */
static bool is_delayed(const struct merak_rater *r, int part, int i)
{
    return part > 0 && r->delays_reduce &&
           r->table->segment[i].hold.convert_s > r->ends.reduce_s[i];
}

/* The last backward of a part, which begins at `from` at the earliest.  A
 * segment's weight gradients are summed over replicas once it is done, or once
 * all segments of the part are. */
static void drain_part(const struct merak_rater *r, int s, int part,
                       double from, struct merak_drain *d)
{
    const struct merak_range *g = &r->range[part];
    bool splits = r->lists->schedule->splits_w;
    double begins = r->player.made[part] - (splits ? g->w_s : g->b_s) -
                    merak_lent_sums_s(r, part); /* added below, apart */

    begins = from > begins ? from : begins;
    d->at = begins > d->at ? begins : d->at;
    for (int i = g->to - 1; i >= g->from; i--) {
        const struct merak_segment *seg = &r->table->segment[i];

        compute(r, splits ? seg->w_s : seg->b_s, d);
        if (!is_delayed(r, part, i))
            add_reduction(r, s, i, d);
    }
    for (int i = g->to - 1; i >= g->from; i--) {
        if (is_delayed(r, part, i))
            add_reduction(r, s, i, d);
    }
}

/* The part of a stage that ends next after `last` (-1: the first to end); -1
 * if there is none. */
static int next_made(const struct merak_rater *r, int s, int last)
{
    int next = -1;

    for (int c = 0; c < r->chunks; c++) {
        int part = r->lists->part[s * r->chunks + c];

        if (last >= 0 &&
            (r->player.made[part] < r->player.made[last] ||
             (r->player.made[part] == r->player.made[last] && part <= last)))
            continue;
        if (next < 0 || r->player.made[part] < r->player.made[next])
            next = part;
    }
    return next;
}

/* With separate weight gradients or vocabulary-parallel layers: each stage's
 * parts in the order in which they end. */
static void drain_stages(const struct merak_rater *r)
{

    for (int s = 0; s < r->plan->pp; s++) {
        for (int part = next_made(r, s, -1); part >= 0;
             part = next_made(r, s, part))
            drain_part(r, s, part, 0, &r->ends.drain[s]);
        begin_all(r,
                  &r->ends.drain[s]); /* the next stage reuses ends.reduction */
    }
}

/* Last backwards, from the last part down.  One that waits for reductions
 * delays the part below. */
static void drain_backwards(const struct merak_rater *r)
{
    double from = 0; /* when the gradient from the part above arrives */

    for (int part = r->parts - 1; part >= 0; part--) {
        int s = r->lists->stage_of[part];

        drain_part(r, s, part, from, &r->ends.drain[s]);
        from = 0;
        if (part > 0 && r->part_cost[part].down >= 0)
            from = r->ends.drain[s].at;
        if (from > 0 && r->lists->stage_of[part - 1] != s)
            from += r->part_cost[part].down + r->part_cost[part].down_gather;
    }
}

/* Stages from .. to - 1 share a node's uplink: their bytes are through when it
 * was busy without a break since one of them began. */
static void share_uplink(struct merak_drain *drain, int from, int to)
{
    double through = 0;

    for (int s = from; s < to; s++) {
        double end = drain[s].since;

        for (int k = from; k < to; k++)
            end += drain[k].since >= drain[s].since ? drain[k].uplink_s : 0;
        through = end > through ? end : through;
    }
    for (int s = from; s < to; s++)
        drain[s].free = through > drain[s].free ? through : drain[s].free;
}

static void share_uplinks(const struct merak_rater *r)
{
    int pp = r->plan->pp, from = 0;

    for (int s = 1; s <= pp && r->uplink_s_per_byte > 0; s++) {
        if (s < pp && merak_links_level(
                          &r->links, merak_plan_rank(r->plan, 0, 0, from),
                          merak_plan_rank(r->plan, 0, 0, s)) <= r->uplink_level)
            continue;
        share_uplink(r->ends.drain, from, s);
        from = s;
    }
}

/* The drain adds these sums. */
double merak_stage_end(const struct merak_rater *r, int s)
{
    int last = -1;

    for (int part = next_made(r, s, -1); part >= 0;
         part = next_made(r, s, part))
        last = part;
    return r->player.end[s] - merak_lent_sums_s(r, last);
}

/* When each stage is done with its backwards; ends.drain has when its queue of
 * exchanges over replicas is done. */
static const double *drain_all(const struct merak_rater *r)
{

    if (r->mesh.dp == 1)
        return r->player.end;
    for (int s = 0; s < r->plan->pp; s++)
        r->ends.drain[s] = (struct merak_drain){.first = -1};
    if (r->lists->schedule->splits_w || r->parts > r->chain)
        drain_stages(r);
    else
        drain_backwards(r);
    for (int s = 0; s < r->plan->pp; s++) {
        struct merak_drain *d = &r->ends.drain[s];

        begin_all(r, d);
        r->ends.done[s] = fmax(d->at, merak_stage_end(r, s));
    }
    share_uplinks(r);
    return r->ends.done;
}

/* The tail of a stage whose backwards end at `done`. */
static struct merak_tail tail_of(const struct merak_rater *r, int s,
                                 const struct merak_range *g, double done,
                                 double tied)
{
    const struct merak_param_state own =
        merak_param_state_of(&g->hold, r->plan->zero > 0);
    const struct merak_param_state *h = &own;
    double late = tied > 0 ? g->tied + g->shared_later_elems : 0;
    double parts =
        merak_rater_parts(r, merak_rater_held(r, MERAK_HELD_STATE, false));
    bool each = merak_rater_held(r, MERAK_HELD_GRAD, true).used > 0;
    double convert = h->convert_s - (each ? h->lent_sum_s : 0);
    struct merak_tail t = {.ready = done + convert, .tp_s = convert};

    if (r->mesh.dp > 1) {
        t.ready = done > r->ends.drain[s].free ? done : r->ends.drain[s].free;
        t.tp_s = 0;
    }
    if (late > 0) {
        t.ready = t.ready > tied ? t.ready : tied;
        if (r->mesh.dp > 1)
            t.ready += merak_over_dp(
                r, true, (double)merak_dtype_bytes(r->plan->grad_dtype) * late,
                1);
    }
    /* As in optimizer_step.c: one kernel per parameter of the model, bytes of
     * those held here. */
    t.norm_s =
        r->table->n_params * r->cost->kernel_s +
        merak_param_state_grads(h, r->plan) / parts / r->cost->bytes_per_s;
    t.ready += t.norm_s;
    t.update_s = update_s(r, h, parts);
    return t;
}

double merak_norm_s(const struct merak_rater *r)
{
    const struct merak_plan *p = r->plan;
    double bytes = 8.0 * r->table->n_params;
    const struct merak_spread inside = {.n = {r->mesh.tp}};
    struct merak_spread stages = {.n = {1}};

    stages.n[merak_links_level(&r->links, 0, merak_plan_ranks(p) - 1)] +=
        p->pp - 1;
    return merak_links_exchange_s(&r->links, MERAK_CONVERT_ALL_REDUCE,
                                  2 * bytes, &inside) +
           merak_norm_over_dp(r, bytes) +
           merak_links_exchange_s(&r->links, MERAK_CONVERT_ALL_REDUCE,
                                  2 * bytes, &stages) +
           r->cost->kernel_s;
}

/* --- rating --------------------------------------------------------------- */

static enum merak_status alloc(struct merak_rater *r, struct merak_error *err)
{
    size_t n = (size_t)r->table->n, pp = (size_t)r->plan->pp;
    size_t gathered = r->plan->zero > 0 ? n : 0;
    struct merak_ends *e = &r->ends;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(e->gather_s, n),        MERAK_ARRAY(e->reduce_s, n),
        MERAK_ARRAY(e->gathered, gathered), MERAK_ARRAY(e->all_gathered, pp),
        MERAK_ARRAY(e->done, pp),           MERAK_ARRAY(e->reduction, n),
        MERAK_ARRAY(e->drain, pp)};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    if (gathered == 0)
        e->gathered = NULL;
    return rc;
}

enum merak_status merak_ends_init(struct merak_rater *r,
                                  struct merak_error *err)
{
    enum merak_status rc = alloc(r, err);

    for (int i = 0; i < r->table->n && rc == MERAK_OK; i++) {
        const struct merak_param_state hold =
            merak_param_state_of(&r->table->segment[i].hold, r->plan->zero > 0);

        if (hold.n == 0)
            continue;
        r->ends.gather_s[i] = merak_gathers_s(r, &hold);
        r->ends.reduce_s[i] = merak_over_dp(
            r, true, merak_param_state_grads(&hold, r->plan), hold.n);
    }
    return rc;
}

void merak_ends_fini(struct merak_rater *r)
{
    free(r->ends.gather_s);
}

/* Seconds of the step: all stages' backwards, then their tails. */
double merak_whole_step(const struct merak_rater *r, struct merak_tail *busiest,
                        int at)
{
    double ready = 0, update = 0;
    double *tied = r->player.before; /* no longer in use */
    const double *done = drain_all(r);

    sum_tied(r, done, tied);
    for (int s = 0; s < r->plan->pp; s++) {
        struct merak_range holds = merak_stage_holds(r, s);
        struct merak_tail t = tail_of(r, s, &holds, done[s], tied[s]);

        ready = t.ready > ready ? t.ready : ready;
        update = t.update_s > update ? t.update_s : update;
        if (s == at)
            *busiest = t;
    }
    return ready + merak_norm_s(r) + update;
}
