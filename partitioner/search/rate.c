/* SPDX-License-Identifier: Apache-2.0 */
/* rate.c - a candidate's step, action by action
 *
 * The schedule's own lists of actions are played (play.h) with the durations
 * that the table gives.  Before the first forward come the parameters that
 * replicas updated in parts, after the last backward the reduction over
 * replicas, the norm and the update, as in step.c.  Stages of a node share its
 * ways for both; what else overlaps there is the simulator's.  The backward
 * loses what the reductions take that begin while it lasts (struct
 * merak_beside).
 */
#include "config.h"

#include "partitioner/search/impl.h"
#include "partitioner/search/play.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static int stage_of(const struct merak_rater *r, int segment)
{
    int part = 0;

    while (r->range[part].to <= segment)
        part++;
    return r->lists->stage_of[part];
}

/* --- before the first forward --------------------------------------------- */

/* n collectives over replicas of `bytes` each way in all. */
static double over_dp(const struct merak_rater *r, bool reduce, double bytes,
                      int n)
{
    /* All stages gather at the same time, and reduce when each is ready. */
    const struct merak_cost_model *cost = reduce ? r->cost : &r->crowded;
    int dp = r->plan->dp;
    enum merak_convert_kind kind = MERAK_CONVERT_ALL_GATHER;
    double latency;

    if (dp == 1)
        return 0;
    if (reduce && !r->plan->zero1)
        kind = MERAK_CONVERT_ALL_REDUCE;
    latency = merak_cost_exchange(cost, kind, 0, dp, r->dp_inside);
    bytes *= (kind == MERAK_CONVERT_ALL_REDUCE ? 2.0 : 1.0) * (dp - 1) / dp;
    return (n - 1) * latency +
           merak_cost_exchange(cost, kind, bytes, dp, r->dp_inside);
}

/* What one of them takes from kernels. */
static struct merak_beside over_dp_takes(const struct merak_rater *r,
                                         bool reduce, double bytes)
{
    int dp = r->plan->dp;
    enum merak_convert_kind kind = MERAK_CONVERT_ALL_GATHER;

    if (dp == 1)
        return (struct merak_beside){0};
    if (reduce && !r->plan->zero1)
        kind = MERAK_CONVERT_ALL_REDUCE;
    bytes *= (kind == MERAK_CONVERT_ALL_REDUCE ? 2.0 : 1.0) * (dp - 1) / dp;
    return merak_cost_beside(r->cost, kind, bytes, dp);
}

/* Of a segment on stage s: what was not gathered for an earlier one. */
static struct merak_hold fresh_hold(const struct merak_rater *r, int s,
                                    const struct merak_segment *seg)
{
    struct merak_hold hold = seg->hold;

    for (int i = 0; i < seg->n_shares; i++) {
        const struct merak_share *share =
            &r->table->share[seg->first_share + i];

        if (stage_of(r, share->prev) != s)
            merak_hold_add(&hold, &share->hold);
    }
    return merak_hold_of(&hold, r->plan->zero1);
}

static double gather_bytes(const struct merak_hold *hold)
{
    return 2 * hold->low + 4 * hold->full;
}

/* Of parameters in parts, over replicas and then tensor ranks. */
static double gathers_s(const struct merak_rater *r,
                        const struct merak_hold *hold)
{
    if (hold->n == 0)
        return 0;
    return over_dp(r, false, gather_bytes(hold), hold->n) + hold->gather_s;
}

static double gather_s(const struct merak_rater *r, int s,
                       const struct merak_segment *seg)
{
    struct merak_hold hold;

    if (seg->n_shares == 0)
        return r->gather_s[seg - r->table->segment];
    hold = fresh_hold(r, s, seg);
    return gathers_s(r, &hold);
}

/* Of all segments of a stage. */
static double stage_gather_s(const struct merak_rater *r, int s)
{
    double all = 0;

    for (int c = 0; c < r->chunks; c++) {
        const struct merak_range *g =
            &r->range[r->lists->part[s * r->chunks + c]];

        for (int i = g->from; i < g->to; i++)
            all += gather_s(r, s, &r->table->segment[i]);
    }
    return all;
}

/* What was updated in parts is gathered in the order in which a stage
 * reads it, and each segment waits for its own; on all stages but the first,
 * exchanges wait for all. */
static void set_front(struct merak_rater *r, int s)
{
    double gathered = 0, sum = stage_gather_s(r, s), all = s > 0 ? sum : 0;
    double taken = over_dp_takes(r, false, 0).wake_s; /* once: all at once */

    for (int c = 0; c < r->chunks; c++) {
        int part = r->lists->part[s * r->chunks + c];
        const struct merak_range *g = &r->range[part];
        double *front_s = &r->front_s[part];

        *front_s = 0;
        for (int i = g->from; i < g->to && sum > 0; i++) {
            const struct merak_segment *seg = &r->table->segment[i];
            struct merak_hold hold = merak_hold_of(&seg->hold, true);
            double ready;

            gathered += gather_s(r, s, seg);
            ready = seg->exchanged > 0 && all > gathered ? all : gathered;
            *front_s = (ready > *front_s ? ready : *front_s) + seg->f_s;
            taken += over_dp_takes(r, false, gather_bytes(&hold)).copy_s;
        }
        *front_s += sum > 0 ? taken : 0;
    }
}

/* --- after the last backward ---------------------------------------------- */

struct tail {
    double ready; /* the norm can begin on this stage */
    double tp_s;  /* of it, tensor peers */
    double update_s;
};

/* When the total of tied gradients is there, by stage: the running sum goes
 * up from stage to stage, the total back. */
static void tie(const struct merak_rater *r, const double *end, double *tied)
{
    const struct merak_table *t = r->table;
    int pp = r->plan->pp;

    for (int s = 0; s < pp; s++)
        tied[s] = 0;
    for (int back = 0; back < 2; back++) {
        for (int i = 0; i < t->n_shares; i++) {
            const struct merak_share *share =
                &t->share[back ? t->n_shares - 1 - i : i];
            double elements = share->hold.low + share->hold.full, took, at;
            int low = stage_of(r, share->prev), high = low;

            if (elements == 0)
                continue;
            high = stage_of(r, share->segment);
            if (low == high)
                continue;
            took = merak_cost_transfer(
                r->cost, 4 * elements,
                merak_cost_together(r->cost,
                                    merak_plan_rank(r->plan, 0, 0, low),
                                    merak_plan_rank(r->plan, 0, 0, high)));
            at = tied[low] > end[low] ? tied[low] : end[low];
            if (back)
                tied[low] = tied[high] + took;
            else
                tied[high] = (at > end[high] ? at : end[high]) + took;
        }
    }
}

/* Of parameters of the mean size, their state in so many parts. */
static double adamw_s(const struct merak_rater *r, const struct merak_hold *h,
                      double parts)
{
    double each = h->n * parts;
    struct merak_kernel_size size;

    if (h->n == 0)
        return 0;
    size = (struct merak_kernel_size){14 * (h->low + h->full) / each,
                                      (30 * h->low + 28 * h->full) / each, 0};
    return h->n * merak_cost_kernel(r->cost, "adamw", r->plan->tp, &size);
}

/* Of what segment i of stage s is the first to hold: what no other stage
 * has. */
static struct merak_hold own_hold(const struct merak_rater *r, int s, int i)
{
    struct merak_hold hold = r->table->segment[i].hold;

    for (int k = 0; k < r->table->n_shares && hold.n > 0; k++) {
        const struct merak_share *share = &r->table->share[k];

        if (share->prev != i || stage_of(r, share->segment) == s)
            continue;
        hold.low -= share->hold.low;
        hold.full -= share->hold.full;
        hold.low_less -= share->hold.low_less;
        hold.full_less -= share->hold.full_less;
        hold.n -= share->hold.n;
    }
    return merak_hold_of(&hold, r->plan->zero1);
}

/* To sum its gradients over replicas. */
static double reduce_s(const struct merak_rater *r, int s, int i)
{
    struct merak_hold hold;

    if (r->table->segment[i].lent == 0)
        return r->reduce_s[i];
    hold = own_hold(r, s, i);
    return hold.n > 0 ? over_dp(r, true, 4 * (hold.low + hold.full), hold.n)
                      : 0;
}

/* What the ranks of a stage take of their node's way for that. */
static double way_s(const struct merak_rater *r, int s, int i)
{
    struct merak_hold hold;

    if (r->way_s_per_byte == 0)
        return 0;
    hold = own_hold(r, s, i);
    return r->way_s_per_byte * 4 * (hold.low + hold.full);
}

/* A stage's queue of collectives as its last backwards fill it. */
struct drain {
    double at;    /* compute has come to here */
    double free;  /* the queue is */
    double since; /* when it was before that, last */
    double way_s; /* that its reductions since then take */
};

/* From kernels behind a segment's weights. */
static double reduction_takes(const struct merak_rater *r,
                              const struct merak_hold *hold)
{
    struct merak_beside beside =
        over_dp_takes(r, true, 4 * (hold->low + hold->full));

    return hold->n * beside.wake_s + beside.copy_s;
}

/*
 * The last backward of a part: what a segment's weights had of gradients is
 * summed over replicas as soon as the last is there, behind the segments
 * before it.  Exchanges of these stand in the same queue.
 */
static void drain_part(const struct merak_rater *r, int part, double made,
                       struct drain *d)
{
    const struct merak_range *g = &r->range[part];
    bool splits = r->lists->schedule->splits_w;
    double work = splits ? g->w_s : g->b_s;

    if (made - work > d->at)
        d->at = made - work;
    for (int i = g->to - 1; i >= g->from; i--) {
        const struct merak_segment *seg = &r->table->segment[i];
        const struct merak_hold hold =
            merak_hold_of(&seg->hold, r->plan->zero1);
        double reduce = reduce_s(r, r->lists->stage_of[part], i);

        d->at += splits ? seg->w_s : seg->b_s;
        if (!splits && seg->exchanged > 0 && d->free > d->at)
            d->at = d->free;
        if (reduce == 0)
            continue;
        if (d->free < d->at) {
            d->free = d->since = d->at;
            d->way_s = 0;
        }
        d->free += hold.convert_s + reduce;
        d->way_s += way_s(r, r->lists->stage_of[part], i);
        if (i > 0) /* compute goes on */
            d->at += reduction_takes(r, &hold);
    }
}

/* The part of a stage that ends after `last` (-1: first); -1 if there is
 * none. */
static int next_made(const struct merak_player *p, int s, int last)
{
    int next = -1;

    for (int c = 0; c < p->r->chunks; c++) {
        int part = p->lists->part[s * p->r->chunks + c];

        if (last >= 0 && (p->made[part] < p->made[last] ||
                          (p->made[part] == p->made[last] && part <= last)))
            continue;
        if (next < 0 || p->made[part] < p->made[next])
            next = part;
    }
    return next;
}

/* When all gradients of a stage are summed over replicas, but of what several
 * stages have. */
static struct merak_drained drain_stage(const struct merak_player *p, int s)
{
    struct drain d = {0};

    for (int part = next_made(p, s, -1); part >= 0;
         part = next_made(p, s, part))
        drain_part(p->r, part, p->made[part], &d);
    return (struct merak_drained){d.since, d.free > d.at ? d.free : d.at,
                                  d.way_s};
}

/* Stages from..to share a node's way: what they have for it is through when it
 * was never idle since one of them began. */
static void crowd(struct merak_drained *drained, int from, int to)
{
    double through = 0;

    for (int s = from; s < to; s++) {
        double end = drained[s].since;

        for (int k = from; k < to; k++)
            end += drained[k].since >= drained[s].since ? drained[k].way_s : 0;
        through = end > through ? end : through;
    }
    for (int s = from; s < to; s++)
        drained[s].end = through > drained[s].end ? through : drained[s].end;
}

/* When the gradients of every stage are summed over replicas. */
static void drain_all(const struct merak_player *p)
{
    const struct merak_rater *r = p->r;
    int pp = r->plan->pp, from = 0;

    if (r->plan->dp == 1)
        return;
    for (int s = 0; s < pp; s++)
        r->drained[s] = drain_stage(p, s);
    for (int s = 1; s <= pp && r->way_s_per_byte > 0; s++) {
        if (s < pp &&
            merak_cost_together(r->cost, merak_plan_rank(r->plan, 0, 0, from),
                                merak_plan_rank(r->plan, 0, 0, s)))
            continue;
        crowd(r->drained, from, s);
        from = s;
    }
}

static struct tail tail_of(const struct merak_player *p, int s,
                           const struct merak_range *g, double tied)
{
    const struct merak_rater *r = p->r;
    const struct merak_hold own = merak_hold_of(&g->hold, r->plan->zero1);
    const struct merak_hold *h = &own;
    bool flat = r->plan->dp > 1 && r->plan->zero1;
    double elements = h->low + h->full;
    double late = tied > 0 ? g->tied + g->lent : 0;
    double parts = flat ? r->plan->dp : 1;
    struct tail t = {.ready = p->end[s] + h->convert_s, .tp_s = h->convert_s};

    if (r->plan->dp > 1) {
        double drained = r->drained[s].end;

        t.ready = p->end[s] > drained ? p->end[s] : drained;
        t.tp_s = 0;
    }
    if (late > 0) {
        t.ready = t.ready > tied ? t.ready : tied;
        if (r->plan->dp > 1)
            t.ready += over_dp(r, true, 4 * late, 1);
    }
    /* step.c: norms of all parameters of the model, those held here. */
    t.ready += r->table->n_params * r->cost->kernel_s +
               4 * elements / parts / r->cost->bytes_per_s;
    t.update_s = adamw_s(r, h, parts);
    return t;
}

/* Sums of squares meet over tp, dp and pp. */
static double norm_s(const struct merak_rater *r)
{
    const struct merak_plan *p = r->plan;
    double bytes = 8.0 * r->table->n_params;
    int across =
        merak_cost_together(r->cost, 0, p->tp * p->dp * p->pp - 1) ? p->pp : 1;

    return merak_cost_exchange(r->cost, MERAK_CONVERT_ALL_REDUCE, 2 * bytes,
                               p->tp, p->tp) +
           merak_cost_exchange(r->cost, MERAK_CONVERT_ALL_REDUCE, 2 * bytes,
                               p->dp, r->dp_inside) +
           merak_cost_exchange(r->cost, MERAK_CONVERT_ALL_REDUCE, 2 * bytes,
                               p->pp, across) +
           r->cost->kernel_s;
}

/* --- rating --------------------------------------------------------------- */

static enum merak_status make_lists(struct merak_rater *r,
                                    const struct merak_candidate *cand,
                                    struct merak_error *err)
{
    const struct merak_follow *follow = cand->follow;

    if (follow == NULL) {
        if (!merak_follow_init(&r->own, cand->schedule, r->plan))
            return merak_fail_nomem(err, (size_t)r->parts * sizeof(int));
        follow = &r->own;
    }
    r->lists = follow->lists;
    r->lists_less = follow->less;
    return MERAK_OK;
}

/* What is exchanged of each segment's parameters and gradients. */
static enum merak_status fill_exchanges(struct merak_rater *r,
                                        struct merak_error *err)
{
    size_t n = (size_t)r->table->n;

    r->gather_s = calloc(2 * n, sizeof(*r->gather_s));
    if (r->gather_s == NULL)
        return merak_fail_nomem(err, 2 * n * sizeof(*r->gather_s));
    r->reduce_s = r->gather_s + n;
    for (size_t i = 0; i < n; i++) {
        const struct merak_hold hold =
            merak_hold_of(&r->table->segment[i].hold, r->plan->zero1);

        if (hold.n == 0)
            continue;
        r->gather_s[i] = gathers_s(r, &hold);
        r->reduce_s[i] = over_dp(r, true, 4 * (hold.low + hold.full), hold.n);
    }
    return MERAK_OK;
}

/* Of all segments before one. */
static enum merak_status fill_sums(struct merak_rater *r,
                                   struct merak_error *err)
{
    size_t n = (size_t)r->table->n + 1;
    int passes = merak_plan_passes(r->plan);

    r->work_s = calloc(2 * n, sizeof(*r->work_s));
    if (r->work_s == NULL)
        return merak_fail_nomem(err, 2 * n * sizeof(*r->work_s));
    r->forward_s = r->work_s + n;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct merak_segment *seg = &r->table->segment[i];

        r->work_s[i + 1] = r->work_s[i] + passes * seg->f_s + seg->b_s;
        r->forward_s[i + 1] = r->forward_s[i] + seg->f_s;
    }
    return MERAK_OK;
}

/* How the ranks of several stages share the ways of a node. */
static void set_crowd(struct merak_rater *r,
                      const struct merak_cost_model *cost)
{
    const struct merak_plan *p = r->plan;
    int stage = merak_cost_sharers(cost, p, 0, false);
    int all = merak_cost_sharers(cost, p, 0, true);
    double kind = p->zero1 ? 1 : 2;

    r->crowded = merak_cost_crowded(cost, all);
    if (all > stage)
        r->way_s_per_byte = kind * (p->dp - r->dp_inside) / p->dp * stage /
                            cost->node_bytes_per_s;
}

enum merak_status merak_rater_init(struct merak_rater *rater,
                                   const struct merak_cost_model *cost,
                                   const struct merak_candidate *cand,
                                   double limit, struct merak_error *err)
{
    const struct merak_plan *p = &cand->plan;
    size_t parts = (size_t)merak_plan_parts(p), turns;
    enum merak_status rc;

    *rater = (struct merak_rater){.shared = merak_cost_shared(cost, p, 0),
                                  .table = cand->table,
                                  .plan = p,
                                  .parts = (int)parts,
                                  .chunks = (int)parts / p->pp,
                                  .limit = limit};
    rater->cost = &rater->shared;
    for (int d = 0; d < p->dp; d++)
        rater->dp_inside +=
            merak_cost_together(cost, 0, merak_plan_rank(p, 0, d, 0));
    set_crowd(rater, cost);
    rc = fill_exchanges(rater, err);
    if (rc == MERAK_OK)
        rc = make_lists(rater, cand, err);
    if (rc != MERAK_OK)
        return rc;
    rc = fill_sums(rater, err);
    if (rc != MERAK_OK)
        return rc;
    turns = (size_t)rater->lists->units * ((size_t)rater->lists->passes + 1);
    rater->work =
        calloc(parts * (turns + 7) + 3 * (size_t)p->pp + 8, sizeof(double));
    rater->front_s = calloc(parts, sizeof(*rater->front_s));
    rater->drained = calloc((size_t)p->pp, sizeof(*rater->drained));
    rater->range = calloc(parts, sizeof(*rater->range));
    rater->keeps = calloc(parts, sizeof(*rater->keeps));
    rater->drop = calloc(parts, sizeof(*rater->drop));
    rater->marks.mark =
        malloc((size_t)cand->table->n * sizeof(*rater->marks.mark));
    rater->marks.top =
        malloc((size_t)cand->table->n * sizeof(*rater->marks.top));
    if (rater->work == NULL || rater->drained == NULL ||
        rater->front_s == NULL || rater->range == NULL ||
        rater->keeps == NULL || rater->drop == NULL ||
        rater->marks.mark == NULL || rater->marks.top == NULL)
        return merak_fail_nomem(err, parts * sizeof(*rater->range));
    return MERAK_OK;
}

void merak_rater_fini(struct merak_rater *rater)
{
    merak_follow_fini(&rater->own);
    free(rater->work);
    free(rater->drained);
    free(rater->front_s);
    free(rater->gather_s);
    free(rater->range);
    free(rater->keeps);
    free(rater->drop);
    free(rater->work_s);
    free(rater->marks.mark);
    free(rater->marks.top);
}

/* Tensor ranks send all of a value each, not a part. */
static bool sends_whole(const struct merak_rater *r, bool inside)
{
    return r->plan->scatter == 0 || (inside && r->plan->scatter > 1);
}

/* Negative: there is nothing to wait for.  A cut behind the last node that
 * has a gradient is such a place.  Of a pair's halves one is gathered behind
 * the other's compute. */
static double cross_s(const struct merak_rater *r, double bytes, double part,
                      bool inside, double *gather_s)
{
    bool whole = sends_whole(r, inside);
    int tp = r->plan->tp;

    *gather_s = 0;
    if (bytes == 0)
        return -1;
    if (!whole && part < bytes)
        *gather_s =
            merak_cost_exchange(r->cost, MERAK_CONVERT_ALL_GATHER,
                                (bytes - part) / r->table->width, tp, tp);
    return merak_cost_transfer(r->cost, whole ? bytes : part, inside);
}

/* From the kernels of either end. */
static double crossing_takes(const struct merak_rater *r, double bytes,
                             double part, bool inside)
{
    struct merak_beside beside = {0};

    if (bytes > 0)
        beside = merak_cost_beside(r->cost, MERAK_CONVERT_ALL_GATHER,
                                   sends_whole(r, inside) ? bytes : part, 2);
    return beside.wake_s + beside.copy_s;
}

static void set_player(const struct merak_rater *r,
                       const struct merak_lists *lists, struct merak_player *p)
{
    size_t parts = (size_t)r->parts, pp = (size_t)r->plan->pp;
    size_t cells = parts * (size_t)lists->units * (size_t)lists->passes;
    double *up = r->work, *down = up + parts, *up_gather = down + parts;
    double *down_gather = up_gather + parts, *made = down_gather + parts;
    double *up_lost = made + parts, *down_lost = up_lost + parts;
    double *rest = down_lost + parts;

    up_lost[0] = down_lost[0] = 0;
    for (size_t k = 1; k < parts; k++) {
        const struct merak_segment *seg = &r->table->segment[r->range[k].from];
        bool inside = merak_cost_together(
            r->cost, merak_plan_rank(r->plan, 0, 0, lists->stage_of[k - 1]),
            merak_plan_rank(r->plan, 0, 0, lists->stage_of[k]));
        bool stays = lists->stage_of[k - 1] == lists->stage_of[k];

        up[k] = cross_s(r, seg->up_bytes, seg->up_part, inside, &up_gather[k]);
        down[k] = cross_s(r, seg->down_bytes, seg->down_part, inside,
                          &down_gather[k]);
        up_lost[k] = down_lost[k] = 0;
        if (stays)
            continue;
        up_lost[k] = crossing_takes(r, seg->up_bytes, seg->up_part, inside);
        down_lost[k] =
            crossing_takes(r, seg->down_bytes, seg->down_part, inside);
    }
    *p = (struct merak_player){.r = r,
                               .lists = lists,
                               .up_s = up,
                               .down_s = down,
                               .up_gather_s = up_gather,
                               .down_gather_s = down_gather,
                               .up_lost_s = up_lost,
                               .down_lost_s = down_lost,
                               .end = rest,
                               .before = rest + pp,
                               .made = made,
                               .next = (int *)(rest + 2 * pp),
                               .f_end = rest + 3 * pp,
                               .b_end = rest + 3 * pp + cells};
}

/* Of the step: all stages' ends, then their tails. */
static double whole_step(const struct merak_rater *r,
                         const struct merak_player *p, struct tail *busiest,
                         int at)
{
    double ready = 0, update = 0, *tied = p->before; /* not needed any more */

    tie(r, p->end, tied);
    drain_all(p);
    for (int s = 0; s < r->plan->pp; s++) {
        struct merak_range holds = merak_stage_holds(r, s);
        struct tail t = tail_of(p, s, &holds, tied[s]);

        ready = t.ready > ready ? t.ready : ready;
        update = t.update_s > update ? t.update_s : update;
        if (s == at)
            *busiest = t;
    }
    return ready + norm_s(r) + update;
}

/* What a stage's kernels, exchanges and recomputations take for a unit. */
struct work {
    double all_s, kernel_s, again_s;
};

static struct work work_of(const struct merak_rater *r, int stage)
{
    struct work work = {0};
    int more = merak_plan_passes(r->plan) - 1;

    for (int c = 0; c < r->chunks; c++) {
        int part = r->lists->part[stage * r->chunks + c];
        const struct merak_range *g = &r->range[part];

        work.again_s += r->keeps[part].again_s;
        work.kernel_s += g->kernel_s + more * g->f_s;
        work.all_s += (1 + more) * g->f_s + g->b_s + r->keeps[part].again_s;
    }
    if (work.kernel_s > work.all_s - work.again_s)
        work.kernel_s = work.all_s - work.again_s;
    return work;
}

static void share_out(const struct merak_rater *r, const struct merak_player *p,
                      double step, int at, const struct tail *t, double *part_s)
{
    double units = merak_plan_units(r->plan);
    struct work work = work_of(r, at);
    double front = r->front_s[0] - r->range[0].f_s; /* all wait for that */

    part_s[MERAK_PART_COMPUTE] = units * work.kernel_s;
    part_s[MERAK_PART_RECOMPUTE] = units * work.again_s;
    part_s[MERAK_PART_TP] =
        units * (work.all_s - work.kernel_s - work.again_s) + t->tp_s;
    part_s[MERAK_PART_DP] = 0;
    if (r->plan->dp > 1)
        part_s[MERAK_PART_DP] =
            t->ready - p->end[at] - t->tp_s + (front > 0 ? front : 0);
    part_s[MERAK_PART_OPTIMIZER] = t->update_s + norm_s(r);
    part_s[MERAK_PART_BUBBLE] = step;
    for (int i = 0; i < MERAK_PART_COUNT; i++) {
        if (i != MERAK_PART_BUBBLE)
            part_s[MERAK_PART_BUBBLE] -= part_s[i];
    }
}

static int busiest_stage(const struct merak_rater *r)
{
    int at = 0;

    for (int s = 1; s < r->plan->pp; s++) {
        if (work_of(r, s).all_s > work_of(r, at).all_s)
            at = s;
    }
    return at;
}

static void set_ranges(struct merak_rater *r, const int *bound)
{
    for (int k = 0; k < r->parts; k++) {
        if (r->range[k].to == bound[k + 1] && r->range[k].from == bound[k])
            continue; /* as it was */
        merak_range_start(&r->range[k], bound[k], &r->marks);
        while (r->range[k].to < bound[k + 1])
            merak_range_add(r->table, &r->range[k]);
    }
}

/* Carry the ends of a pipeline that has settled on to all units: at the rate
 * of the last ones, but no faster than the longest stage. */
static void carry_on(const struct merak_rater *r, double less_s, int busiest,
                     const struct merak_player *p)
{
    int by = r->lists->units - r->lists_less->units;
    double period = (p->end[0] - less_s) / by;
    double least = work_of(r, busiest).all_s;
    double more = (period > least ? period : least) *
                  (merak_plan_units(r->plan) - r->lists->units);

    for (int s = 0; s < r->plan->pp; s++)
        p->end[s] += more;
    for (int k = 0; k < r->parts; k++)
        p->made[k] += more;
}

/* A stage works so long, from when the first unit can have come there; with
 * what it drops, if that is known. */
static double least_step(const struct merak_rater *r, const int *bound,
                         bool again)
{
    double most = 0, units = merak_plan_units(r->plan);

    for (int s = 0; s < r->plan->pp; s++) {
        double work = 0, step;
        int first = 0;

        for (int c = 0; c < r->chunks; c++) {
            int part = r->lists->part[s * r->chunks + c];

            work += r->work_s[bound[part + 1]] - r->work_s[bound[part]];
            work += again ? r->keeps[part].again_s : 0;
        }
        while (r->lists->stage_of[first] != s)
            first++;
        step = r->forward_s[bound[first]] + units * work;
        most = step > most ? step : most;
    }
    return most;
}

/* Does it surely take more than is of use? */
static bool is_too_long(const struct merak_rater *r, const int *bound,
                        bool again, double *least_p)
{
    if (r->most_s == 0)
        return false;
    *least_p = least_step(r, bound, again);
    return *least_p * (1 - 1e-6) > r->most_s;
}

double merak_rate(struct merak_rater *r, const int *bound, double *part_s,
                  double *bytes_p, int *stage_p)
{
    int busiest, stage = 0;
    double less_s = 0, step, bytes;
    struct tail tail = {0};
    struct merak_player p;

    if (is_too_long(r, bound, false, &step))
        return step;
    set_ranges(r, bound);
    bytes = merak_stages_need(r, &stage);
    if (bytes_p != NULL) {
        *bytes_p = bytes;
        *stage_p = stage;
    }
    if (is_too_long(r, bound, true, &step) ||
        (r->most_s > 0 && bytes > r->most_bytes))
        return step;
    busiest = busiest_stage(r);
    for (int i = 0; i < r->plan->pp && r->plan->zero1; i++)
        set_front(r, i);
    if (r->lists_less != NULL) {
        set_player(r, r->lists_less, &p);
        merak_play(&p);
        less_s = p.end[0];
    }
    set_player(r, r->lists, &p);
    merak_play(&p);
    if (r->lists_less != NULL)
        carry_on(r, less_s, busiest, &p);
    step = whole_step(r, &p, &tail, busiest);
    if (part_s != NULL)
        share_out(r, &p, step, busiest, &tail, part_s);
    return step;
}
