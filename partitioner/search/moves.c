/* SPDX-License-Identifier: Apache-2.0 */
/* moves.c - what memory or sums over replicas make slow, in another way
 *
 * A search rates plans that share out optimizer state and sum over all replicas
 * at once.  Those that recompute, or do not fit, though they might be faster
 * than what is chosen, are rated once more with their optimizer state in the
 * host's memory, and with more shared out over replicas; those that wait for
 * their sums with two of them, within nodes and between them.  The best of
 * these are simulated.
 */
#include "config.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/improve.h"
#include "partitioner/search/need.h"
#include "partitioner/search/replicas.h"

#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define LEAST_TRIED 4   /* that are simulated, or .. */
#define LEAST_FITTING 2 /* of those that fit, and more while .. */
#define MOST_TRIED 12   /* that takes less than the effort for a request */
#define GAIN 1.005      /* for which more is shared out than for the like */
#define CLIMB_NEAR 1.05 /* times the chosen step: other cuts may be faster */
#define MAX_KINDS 128   /* that are rated with a move, .. */
#define MOST_PARTS 4000 /* while that rates so few parts of plans, or */
#define MOST_SHARE 0.01 /* so small a share of those of the whole search */

/* Optimizer state in the host's memory; a level of merak_search_set_level();
 * two sums over replicas. */
enum { AWAY, SHARE, SUMS };

/* Of plans that need at most so many times the limit, without the move. */
struct move {
    int kind, level;
    double most;
    enum merak_search_part saves; /* at most all of that */
};

/* The requests that have them. */
struct moved {
    const struct merak_search_input *asked;
    struct merak_search_input away, sharded, summed;
};

/* Seconds that it takes without a part of them. */
static double without(const struct merak_candidate *c,
                      enum merak_search_part part)
{
    return merak_search_time(c) - c->part_s[part];
}

static int by_least(const struct merak_candidate *x,
                    const struct merak_candidate *y,
                    enum merak_search_part part)
{
    double dx = without(x, part), dy = without(y, part);

    return dx != dy ? (dx < dy ? -1 : 1)
                    : merak_search_compare_plans(&x->plan, &y->plan);
}

/* What is fastest without recomputation, or without sums, first. */
static int by_recomputed(const void *a, const void *b)
{
    return by_least(a, b, MERAK_PART_RECOMPUTE);
}

static int by_summed(const void *a, const void *b)
{
    return by_least(a, b, MERAK_PART_DP);
}

/* Make the move; false: it is none for this plan. */
static bool make(struct merak_search *s, const struct moved *in,
                 const struct move *move, struct merak_plan *plan)
{
    const int zero = plan->zero;
    bool made;

    if (move->kind == SUMS)
        return merak_plan_mesh(plan, 0).dp > 1 && plan->dp_in <= 1;
    if (move->kind == AWAY) {
        made = plan->offload != in->away.pin.offload;
        plan->offload = in->away.pin.offload;
        return made;
    }
    s->in = &in->sharded;
    made = merak_search_set_level(s, move->level, plan) && plan->zero > zero;
    s->in = in->asked;
    return made;
}

/* Does it lose by its memory: does it not fit, or only since it recomputes? */
static bool is_full(const struct merak_search *s,
                    const struct merak_candidate *c)
{
    bool drops = merak_drops_any(c->drop, merak_plan_parts(&c->plan));

    return (!c->settled || drops) &&
           (drops || c->bytes > merak_search_limit(s, c));
}

/* May it be as fast as the chosen plan with the move? */
static bool may_move(struct merak_search *s, const struct moved *in,
                     const struct move *move, const struct merak_candidate *c)
{
    double least_s = without(c, move->saves);
    struct merak_plan plan = c->plan;

    return c->given.cut == NULL &&
           c->bytes <= move->most * merak_search_limit(s, c) &&
           c->step_s < DBL_MAX && c->rated_s < DBL_MAX &&
           (move->kind == SUMS || is_full(s, c)) &&
           least_s < MERAK_SEARCH_ERROR * merak_search_time(&s->cand[0]) &&
           make(s, in, move, &plan);
}

/* Do both have the same stages under the same schedule? */
static bool has_stages(const struct merak_candidate *a,
                       const struct merak_candidate *b)
{
    return a->table == b->table && a->schedule == b->schedule &&
           a->plan.pp == b->plan.pp && a->plan.chunks == b->plan.chunks;
}

/* Of those that may move the first of each kind, in the order of what they may
 * take: a list to be freed, and its length. */
static struct merak_candidate *list_movable(struct merak_search *s,
                                            const struct moved *in,
                                            const struct move *move, int *n_p)
{
    int all = s->n_cands + s->n_bigs, some = 0, n = 0;
    struct merak_candidate *list = calloc((size_t)all, sizeof(*list));

    if (list == NULL)
        s->rc = merak_fail_nomem(s->err, (size_t)all * sizeof(*list));
    for (int i = 0; list != NULL && i < all; i++) {
        const struct merak_candidate *c =
            i < s->n_cands ? &s->cand[i] : &s->big[i - s->n_cands];

        if (may_move(s, in, move, c))
            list[some++] = *c;
    }
    if (some > 0)
        qsort(list, (size_t)some, sizeof(*list),
              move->kind == SUMS ? by_summed : by_recomputed);
    for (int i = 0; i < some && n < MAX_KINDS; i++) {
        int k = 0;

        while (k < n && !has_stages(&list[k], &list[i]))
            k++;
        if (k == n)
            list[n++] = list[i];
    }
    *n_p = n;
    return list;
}

/* May it fit, however it is cut? */
static bool may_fit(struct merak_search *s, struct merak_candidate *c)
{
    struct merak_follow follow;
    bool may = false;

    if (merak_follow_init(&follow, c->schedule, &c->plan)) {
        c->follow = &follow;
        may = merak_stages_least(&s->cost, c) <=
              merak_search_limit(s, c) * MERAK_SEARCH_SLACK;
    }
    c->follow = NULL;
    merak_follow_fini(&follow);
    return may;
}

/* Rate it anew, if it may fit.  Is it nearly as fast as the chosen plan, or
 * faster? */
static bool rate(struct merak_search *s, struct merak_candidate *c)
{
    struct merak_candidate fewer;
    double limit;

    c->step_s = c->arena = c->comms_bytes = 0;
    c->settled = c->polished = c->retried = false;
    if (!may_fit(s, c) || !merak_search_room(s, c))
        return false;
    limit = merak_search_limit(s, c);
    merak_search_cut(s, c, NULL, limit * MERAK_SEARCH_SLACK, false);
    if (c->rated_s > 0 && merak_search_fewest(s, c, limit, &fewer) &&
        fewer.rated_s < c->rated_s)
        *c = fewer;
    return c->rated_s > 0 &&
           c->rated_s < MERAK_SEARCH_ERROR * merak_search_time(&s->cand[0]);
}

/* Rate it with each way of a request to lay out replicas; *best: the best of
 * those that are rated so. */
static void rate_homes(struct merak_search *s,
                       const struct merak_search_input *in,
                       const struct move *move, const struct merak_candidate *c,
                       struct merak_candidate *best)
{
    const struct merak_search_input *asked = s->in;
    struct merak_home home[MERAK_MAX_HOMES];
    int n;

    s->in = in;
    n = merak_search_homes(s, c, home);
    s->in = asked;
    for (int i = 0; i < n && s->rc == MERAK_OK; i++) {
        struct merak_candidate with = *c;

        with.plan.dp_in = home[i].dp_in;
        with.plan.zero_home = home[i].home;
        if (move->kind == SUMS && with.plan.dp_in <= 1)
            continue; /* as it is without the move */
        if (rate(s, &with) &&
            (best->rated_s == 0 || with.rated_s < best->rated_s))
            *best = with;
    }
}

/* Rate it with the move, replicas laid out in the best way. */
static bool rate_moved(struct merak_search *s, const struct moved *in,
                       const struct move *move, struct merak_candidate *c)
{
    struct merak_candidate best = {.rated_s = 0}, other = *c;

    if (!make(s, in, move, &c->plan))
        return false;
    if (move->kind == AWAY)
        return rate(s, c);
    rate_homes(s, move->kind == SUMS ? &in->summed : &in->sharded, move, c,
               &best);
    other.plan.order_tp_pp_dp = !c->plan.order_tp_pp_dp;
    if (move->kind == SUMS &&
        merak_search_has_order(s, &other.plan, other.plan.order_tp_pp_dp))
        rate_homes(s, &in->summed, move, &other, &best);
    if (best.rated_s > 0)
        *c = best;
    return best.rated_s > 0;
}

/* Append it to a list, or put it in the place of the one with its stages, if it
 * is faster enough. */
static void add(struct merak_search *s, struct merak_candidate **list, int *n,
                const struct merak_candidate *c)
{
    int i = 0;

    while (i < *n && !has_stages(&(*list)[i], c))
        i++;
    if (i == *n)
        merak_search_keep(s, list, n, c);
    else if (c->rated_s * GAIN < (*list)[i].rated_s)
        (*list)[i] = *c;
}

/* Rate what may move, with it; those that may be as fast as the chosen plan are
 * added to a list. */
static void rate_move(struct merak_search *s, const struct moved *in,
                      const struct move *move, struct merak_candidate **some,
                      int *n_some)
{
    double most = fmax(MOST_PARTS, MOST_SHARE * (double)s->tally.parts) +
                  (double)s->tally.parts;
    int n;
    struct merak_candidate *list = list_movable(s, in, move, &n);

    for (int i = 0;
         i < n && (double)s->tally.parts < most && merak_search_goes_on(s);
         i++) {
        if (rate_moved(s, in, move, &list[i]))
            add(s, some, n_some, &list[i]);
    }
    free(list);
}

/* Any of what memory makes slow may be the fastest then, not only what would be
 * named: which those are changes with the memory, and more of it is not to make
 * a plan slower.  The bound of all degrees is for what ranks keep as asked. */
void merak_search_try_moves(struct merak_search *s)
{
    struct moved in = {.asked = s->in};
    bool away = merak_search_may_offload(s, &in.away);
    bool shard = merak_search_may_shard_more(s, &in.sharded);
    bool sums = !s->in->pin.given[MERAK_CHOICE_DP_IN] &&
                s->in->pin.dp_in != MERAK_OPTION_AUTO;
    struct merak_candidate *list = NULL;
    double most = s->effort.done + MERAK_EFFORT;
    int n = 0, fitting = 0;

    in.summed = *s->in;
    if (sums)
        in.sharded.pin.dp_in = in.summed.pin.dp_in = MERAK_OPTION_AUTO;
    if (away)
        rate_move(s, &in,
                  &(struct move){AWAY, 0, 2, MERAK_PART_RECOMPUTE}, &list, &n);
    for (int l = 0; l < MERAK_SEARCH_LEVELS && shard; l++)
        rate_move(s, &in,
                  &(struct move){SHARE, l, 4, MERAK_PART_RECOMPUTE}, &list, &n);
    if (sums)
        rate_move(s, &in, &(struct move){SUMS, 0, 1, MERAK_PART_DP}, &list, &n);
    merak_candidates_sort(list, n);
    for (int i = 0; i < n && i < MOST_TRIED && merak_search_goes_on(s); i++) {
        struct merak_candidate *c = &list[i];
        double rated_s = c->rated_s;

        if ((i >= LEAST_TRIED || fitting >= LEAST_FITTING) &&
            s->effort.done > most)
            break;
        merak_candidate_try_polished(s, c);
        if (c->step_s < CLIMB_NEAR * merak_search_time(&s->cand[0]) &&
            merak_search_effort(c) <= MERAK_EFFORT / 4)
            merak_candidate_climb(s, c, MERAK_EFFORT);
        merak_candidates_correct(&list[i + 1], n - i - 1, c, rated_s, 1);
        merak_search_keep(s, &s->cand, &s->n_cands, c);
        fitting += c->settled;
    }
    if (n > 0)
        s->bound_s = fmin(s->bound_s, merak_search_least_step(s));
    merak_candidates_sort(s->cand, s->n_cands);
    free(list);
}
