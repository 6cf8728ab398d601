/* SPDX-License-Identifier: Apache-2.0 */
/* rate.c - a candidate's step, action by action
 *
 * The schedule's own lists of actions are played with the durations that the
 * table gives: an action starts when its stage is free and what it needs has
 * come; a transfer starts when it was sent and its receive is posted, which
 * programs do one action ahead (emit.c).  After the last backward come the
 * reduction over replicas, the norm and the update, as in step.c.
 */
#include "config.h"

#include "partitioner/search/impl.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* --- lists ---------------------------------------------------------------- */

struct merak_lists {
    int stages, microbatches;
    bool splits_w;
    int room;                    /* for actions of a stage */
    int *n;                      /* by stage: actions */
    struct merak_action *action; /* [stages][room] */
    int *in_flight;              /* by stage */
};

static int most_in_flight(const struct merak_lists *lists, int stage)
{
    const struct merak_action *a =
        &lists->action[(size_t)stage * (size_t)lists->room];
    enum merak_action_kind last = lists->splits_w ? MERAK_ACT_W : MERAK_ACT_B;
    int now = 0, most = 0;

    for (int i = 0; i < lists->n[stage]; i++) {
        now += a[i].kind == MERAK_ACT_F;
        most = now > most ? now : most;
        now -= a[i].kind == last;
    }
    return most;
}

/* Programs drop nothing that would have to be recomputed yet, so R is no
 * action of theirs. */
static int strike_recomputes(struct merak_action *actions, int n)
{
    int left = 0;

    for (int i = 0; i < n; i++) {
        if (actions[i].kind != MERAK_ACT_R)
            actions[left++] = actions[i];
    }
    return left;
}

static void fill_lists(struct merak_lists *lists,
                       const struct merak_schedule *schedule,
                       struct merak_schedule_args *args)
{
    for (int s = 0; s < lists->stages; s++) {
        struct merak_action *actions =
            &lists->action[(size_t)s * (size_t)lists->room];

        args->stage = s;
        merak_schedule_fill(schedule, args, actions);
        lists->n[s] =
            strike_recomputes(actions, merak_schedule_count(schedule, args));
        lists->in_flight[s] = most_in_flight(lists, s);
    }
}

struct merak_lists *merak_lists_create(const struct merak_schedule *schedule,
                                       int stages, int microbatches)
{
    struct merak_schedule_args args = {
        .stages = stages, .microbatches = microbatches, .chunks = 1};
    struct merak_lists *lists = calloc(1, sizeof(*lists));

    if (lists == NULL)
        return NULL;
    lists->stages = stages;
    lists->microbatches = microbatches;
    lists->splits_w = schedule->splits_w;
    for (; args.stage < stages; args.stage++) {
        int n = merak_schedule_count(schedule, &args);

        lists->room = n > lists->room ? n : lists->room;
    }
    lists->action =
        calloc((size_t)stages * (size_t)lists->room, sizeof(*lists->action));
    lists->n = calloc((size_t)stages, sizeof(*lists->n));
    lists->in_flight = calloc((size_t)stages, sizeof(*lists->in_flight));
    if (lists->action == NULL || lists->n == NULL || lists->in_flight == NULL) {
        merak_lists_destroy(lists);
        return NULL;
    }
    fill_lists(lists, schedule, &args);
    return lists;
}

void merak_lists_destroy(struct merak_lists *lists)
{
    if (lists == NULL)
        return;
    free(lists->action);
    free(lists->n);
    free(lists->in_flight);
    free(lists);
}

bool merak_lists_equal(const struct merak_lists *a, const struct merak_lists *b)
{
    if (a->splits_w != b->splits_w)
        return false;
    for (int s = 0; s < a->stages; s++) {
        const struct merak_action *x = &a->action[(size_t)s * (size_t)a->room];
        const struct merak_action *y = &b->action[(size_t)s * (size_t)b->room];

        if (a->n[s] != b->n[s])
            return false;
        for (int i = 0; i < a->n[s]; i++) {
            if (x[i].kind != y[i].kind || x[i].microbatch != y[i].microbatch)
                return false;
        }
    }
    return true;
}

int merak_lists_in_flight(const struct merak_lists *lists, int stage)
{
    return lists->in_flight[stage];
}

int merak_rate_settled(int stages)
{
    return 3 * stages + 4;
}

/* --- playing the lists ---------------------------------------------------- */

struct player {
    const struct merak_lists *lists;
    const struct merak_range *range; /* by stage */
    const double *up_s, *down_s;     /* transfers over a stage's lower end */
    double *f_end, *b_end;           /* [stage][microbatch], or < 0 */
    double *end, *before;            /* by stage: of the last action, and of
                                        the one before it */
    int *next;
};

/* When what an action needs is there; negative: not known yet. */
static double arrival(const struct player *p, int s,
                      const struct merak_action *a)
{
    size_t m = (size_t)p->lists->microbatches, i = (size_t)a->microbatch;
    double sent = 0, took = 0;

    if (a->kind == MERAK_ACT_F && s > 0) {
        sent = p->f_end[(size_t)(s - 1) * m + i];
        took = p->up_s[s];
    } else if (a->kind == MERAK_ACT_B && s + 1 < p->lists->stages) {
        sent = p->b_end[(size_t)(s + 1) * m + i];
        took = p->down_s[s + 1];
    } else {
        return 0;
    }
    if (took < 0)
        return 0; /* nothing crosses there */
    if (sent < 0)
        return -1;
    return (sent > p->before[s] ? sent : p->before[s]) + took;
}

static double duration(const struct player *p, int s,
                       enum merak_action_kind kind)
{
    const struct merak_range *r = &p->range[s];

    switch (kind) {
    case MERAK_ACT_F:
        return r->f_s;
    case MERAK_ACT_B:
        return p->lists->splits_w ? r->x_s : r->b_s;
    case MERAK_ACT_W:
        return r->w_s;
    case MERAK_ACT_R:
        return 0;
    }
    return 0;
}

/* As many actions of a stage as can be; true if there were any. */
static bool play_stage(struct player *p, int s)
{
    size_t m = (size_t)p->lists->microbatches;
    int first = p->next[s];

    while (p->next[s] < p->lists->n[s]) {
        const struct merak_action *a =
            &p->lists->action[(size_t)s * (size_t)p->lists->room +
                              (size_t)p->next[s]];
        double at = arrival(p, s, a), end;

        if (at < 0)
            break;
        end = (at > p->end[s] ? at : p->end[s]) + duration(p, s, a->kind);
        if (a->kind == MERAK_ACT_F)
            p->f_end[(size_t)s * m + (size_t)a->microbatch] = end;
        if (a->kind == MERAK_ACT_B)
            p->b_end[(size_t)s * m + (size_t)a->microbatch] = end;
        p->before[s] = p->end[s];
        p->end[s] = end;
        p->next[s]++;
    }
    return p->next[s] > first;
}

static void play(struct player *p)
{
    int stages = p->lists->stages;
    size_t cells = (size_t)stages * (size_t)p->lists->microbatches;
    bool moved = true;

    for (size_t i = 0; i < cells; i++)
        p->f_end[i] = p->b_end[i] = -1;
    for (int s = 0; s < stages; s++) {
        p->end[s] = p->before[s] = 0;
        p->next[s] = 0;
    }
    while (moved) {
        moved = false;
        for (int s = 0; s < stages; s++)
            moved = play_stage(p, s) || moved;
        for (int s = stages - 1; s >= 0; s--)
            moved = play_stage(p, s) || moved;
    }
}

static int stage_of(const struct merak_rater *r, int segment)
{
    int s = 0;

    while (r->range[s].to <= segment)
        s++;
    return s;
}

/* --- after the last backward ---------------------------------------------- */

struct tail {
    double ready; /* the norm can begin on this stage */
    double tp_s;  /* of it, tensor peers */
    double update_s, adamw_s;
};

/* n collectives over replicas of `bytes` each way in all. */
static double over_dp(const struct merak_rater *r, bool reduce, double bytes,
                      int n)
{
    int dp = r->plan->dp;
    enum merak_convert_kind kind = MERAK_CONVERT_ALL_GATHER;
    double latency;

    if (reduce && !r->plan->zero1)
        kind = MERAK_CONVERT_ALL_REDUCE;
    latency = merak_cost_exchange(r->cost, kind, 0, dp, r->dp_inside);
    bytes *= (kind == MERAK_CONVERT_ALL_REDUCE ? 2.0 : 1.0) * (dp - 1) / dp;
    return (n - 1) * latency +
           merak_cost_exchange(r->cost, kind, bytes, dp, r->dp_inside);
}

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

static struct tail tail_of(const struct merak_rater *r,
                           const struct merak_range *g, double end, double tied)
{
    const struct merak_hold *h = &g->hold;
    bool flat = r->plan->dp > 1 && r->plan->zero1;
    double elements = h->low + h->full, gather = 0;
    double late = tied > 0 ? g->tied + g->lent : 0;
    double parts = flat ? r->plan->dp : 1;
    struct tail t = {.ready = end + h->convert_s, .tp_s = h->convert_s};

    /* Little of it hides behind the last backward: the staging of one
     * reduction lies where the activations of that backward do. */
    if (r->plan->dp > 1)
        t.ready += over_dp(r, true, 4 * (elements - late), h->n);
    if (late > 0) {
        t.ready = t.ready > tied ? t.ready : tied;
        if (r->plan->dp > 1)
            t.ready += over_dp(r, true, 4 * late, 1);
    }
    /* step.c: norms of all parameters of the model, those held here. */
    t.ready += r->table->n_params * r->cost->kernel_s +
               4 * elements / parts / r->cost->bytes_per_s;
    t.adamw_s = h->n * r->cost->kernel_s +
                (30 * h->low + 28 * h->full) / parts / r->cost->bytes_per_s;
    if (flat)
        gather = over_dp(r, false, 2 * h->low + 4 * h->full, h->n);
    /* Either hides behind the other, but for one parameter's; h->n may be 0:
     * a stage of the loss alone. */
    t.update_s =
        (t.adamw_s > gather ? t.adamw_s : gather) +
        (t.adamw_s > gather ? gather : t.adamw_s) / (h->n > 0 ? h->n : 1);
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

enum merak_status merak_rater_init(struct merak_rater *rater,
                                   const struct merak_cost_model *cost,
                                   const struct merak_candidate *cand,
                                   struct merak_error *err)
{
    const struct merak_plan *p = &cand->plan;
    size_t m = (size_t)p->microbatches, pp = (size_t)p->pp;
    int follow = p->microbatches, settled = merak_rate_settled(p->pp);

    *rater =
        (struct merak_rater){.cost = cost, .table = cand->table, .plan = p};
    for (int d = 0; d < p->dp; d++)
        rater->dp_inside +=
            merak_cost_together(cost, 0, merak_plan_rank(p, 0, d, 0));
    /* A long pipeline is followed until it repeats itself. */
    if (p->pp > 1 && follow > settled) {
        rater->lists_less =
            merak_lists_create(cand->schedule, p->pp, settled - p->pp);
        follow = settled;
    }
    rater->lists = merak_lists_create(cand->schedule, p->pp, follow);
    rater->work =
        calloc(2 * pp * ((size_t)follow + 1) + 5 * pp + 8, sizeof(double));
    rater->range = calloc(pp, sizeof(*rater->range));
    if (rater->lists == NULL || rater->work == NULL || rater->range == NULL ||
        (follow < p->microbatches && rater->lists_less == NULL))
        return merak_fail_nomem(err, pp * m * sizeof(double));
    return MERAK_OK;
}

void merak_rater_fini(struct merak_rater *rater)
{
    merak_lists_destroy((struct merak_lists *)(uintptr_t)rater->lists);
    merak_lists_destroy((struct merak_lists *)(uintptr_t)rater->lists_less);
    free(rater->work);
    free(rater->range);
}

/* Forwards a stage holds: those of the lists, or as many more as a schedule
 * that does not settle (GPipe) adds with each micro-batch. */
static double in_flight(const struct merak_rater *r, int stage)
{
    double n = merak_lists_in_flight(r->lists, stage);

    if (r->lists_less != NULL) {
        int less = merak_lists_in_flight(r->lists_less, stage);
        int by = r->lists->microbatches - r->lists_less->microbatches;

        n += (n - less) / by * (r->plan->microbatches - r->lists->microbatches);
    }
    return n;
}

double merak_rate_bytes(const struct merak_rater *r,
                        const struct merak_range *g, int stage)
{
    const struct merak_hold *h = &g->hold;
    const struct merak_segment *low = &r->table->segment[g->from];
    bool flat = r->plan->dp > 1 && r->plan->zero1;
    double elements = h->low + h->full, held, work, step;
    double parts = flat ? r->plan->dp : 1;

    held = h->param_bytes + h->grad_bytes + (12 * h->low + 8 * h->full) / parts;
    if (flat)
        held += 4 * elements / parts;
    work = (in_flight(r, stage) - 1) * g->kept + g->peak;
    if (g->from > 0)
        work += low->up_bytes; /* received ahead */
    if (g->to < r->table->n)
        work += r->table->segment[g->to].down_bytes;
    step = 4 * (g->tied + g->lent) + (r->plan->dp > 1 ? 4 * g->largest : 0);
    return held + (work > step ? work : step);
}

/* Negative: there is nothing to wait for.  A cut behind the last node that
 * has a gradient is such a place. */
static double cross_s(const struct merak_rater *r, double bytes, bool inside)
{
    return bytes > 0 ? merak_cost_transfer(r->cost, bytes, inside) : -1;
}

static void set_player(const struct merak_rater *r,
                       const struct merak_lists *lists, struct player *p)
{
    size_t pp = (size_t)r->plan->pp;
    size_t cells = pp * (size_t)lists->microbatches;
    double *up = r->work, *down = up + pp;

    for (size_t s = 1; s < pp; s++) {
        const struct merak_segment *seg = &r->table->segment[r->range[s].from];
        bool inside = merak_cost_together(
            r->cost, merak_plan_rank(r->plan, 0, 0, (int)s - 1),
            merak_plan_rank(r->plan, 0, 0, (int)s));

        up[s] = cross_s(r, seg->up_bytes, inside);
        down[s] = cross_s(r, seg->down_bytes, inside);
    }
    *p = (struct player){.lists = lists,
                         .range = r->range,
                         .up_s = up,
                         .down_s = down,
                         .end = down + pp,
                         .before = down + 2 * pp,
                         .f_end = down + 4 * pp,
                         .b_end = down + 4 * pp + cells,
                         .next = (int *)(down + 3 * pp)};
}

/* Of the step: all stages' ends, then their tails. */
static double whole_step(const struct merak_rater *r, const struct player *p,
                         struct tail *busiest, int at)
{
    double ready = 0, update = 0, *tied = p->before; /* not needed any more */

    tie(r, p->end, tied);
    for (int s = 0; s < r->plan->pp; s++) {
        struct tail t = tail_of(r, &r->range[s], p->end[s], tied[s]);

        ready = t.ready > ready ? t.ready : ready;
        update = t.update_s > update ? t.update_s : update;
        if (s == at)
            *busiest = t;
    }
    return ready + norm_s(r) + update;
}

static void share_out(const struct merak_rater *r, const struct player *p,
                      double step, int at, const struct tail *t, double *part_s)
{
    const struct merak_range *g = &r->range[at];
    double m = r->plan->microbatches, work = m * (g->f_s + g->b_s);

    part_s[MERAK_PART_COMPUTE] = m * g->kernel_s;
    if (part_s[MERAK_PART_COMPUTE] > work)
        part_s[MERAK_PART_COMPUTE] = work;
    part_s[MERAK_PART_TP] = work - part_s[MERAK_PART_COMPUTE] + t->tp_s;
    part_s[MERAK_PART_DP] = 0;
    if (r->plan->dp > 1)
        part_s[MERAK_PART_DP] =
            t->ready - p->end[at] - t->tp_s + t->update_s - t->adamw_s;
    part_s[MERAK_PART_OPTIMIZER] = t->adamw_s + norm_s(r);
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
        if (r->range[s].f_s + r->range[s].b_s >
            r->range[at].f_s + r->range[at].b_s)
            at = s;
    }
    return at;
}

static void set_ranges(struct merak_rater *r, const int *bound)
{
    for (int s = 0; s < r->plan->pp; s++) {
        if (r->range[s].to == bound[s + 1] && r->range[s].from == bound[s])
            continue; /* as it was */
        merak_range_start(&r->range[s], bound[s]);
        while (r->range[s].to < bound[s + 1])
            merak_range_add(r->table, &r->range[s]);
    }
}

/* Carry the ends of a pipeline that has settled on to all micro-batches: at
 * the rate of the last ones, but no faster than the longest stage. */
static void carry_on(const struct merak_rater *r, double less_s, int busiest,
                     const struct player *p)
{
    const struct merak_range *g = &r->range[busiest];
    int by = r->lists->microbatches - r->lists_less->microbatches;
    double period = (p->end[0] - less_s) / by;

    if (period < g->f_s + g->b_s)
        period = g->f_s + g->b_s;
    for (int s = 0; s < r->plan->pp; s++)
        p->end[s] += period * (r->plan->microbatches - r->lists->microbatches);
}

double merak_rate(struct merak_rater *r, const int *bound, double *part_s,
                  double *bytes_p, int *stage_p)
{
    int busiest;
    double less_s = 0, step;
    struct tail tail = {0};
    struct player p;

    set_ranges(r, bound);
    busiest = busiest_stage(r);
    if (r->lists_less != NULL) {
        set_player(r, r->lists_less, &p);
        play(&p);
        less_s = p.end[0];
    }
    set_player(r, r->lists, &p);
    play(&p);
    if (r->lists_less != NULL)
        carry_on(r, less_s, busiest, &p);
    step = whole_step(r, &p, &tail, busiest);
    if (part_s != NULL)
        share_out(r, &p, step, busiest, &tail, part_s);
    if (bytes_p == NULL)
        return step;
    *bytes_p = 0;
    for (int s = 0; s < r->plan->pp; s++) {
        double bytes = merak_rate_bytes(r, &r->range[s], s);

        if (bytes > *bytes_p) {
            *bytes_p = bytes;
            *stage_p = s;
        }
    }
    return step;
}
