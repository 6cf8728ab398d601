/* SPDX-License-Identifier: Apache-2.0 */
/* runners_up.c - those that would be named are no better than what is chosen
 *
 * At the end of a search, runners-up that would be named have their cuts
 * polished; those whose estimates are then as good as the chosen plan's step
 * are simulated, and those that need a little too much memory cut again for
 * less.  What memory makes slow is tried with optimizer state in the host's.
 * What is chosen then is tried in less memory than it takes.
 */
#include "config.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/improve.h"
#include "partitioner/search/need.h"

#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define MAX_TIGHT 4      /* runners-up that seem too big and are simulated */
#define MAX_KINDS 128    /* rated with their state in the host's memory, .. */
#define MOST_MOVED 2     /* of those that need so many times the memory, .. */
#define AWAY_PARTS 4000  /* while that rates so few parts of plans, or */
#define AWAY_SHARE 0.01  /* so small a share of those of the whole search */
#define MAX_NAMED 12     /* runners-up that are simulated, about */
#define CLIMB_NEAR 1.025 /* times the chosen step: other cuts may be faster */

/* An estimate tells how fast a plan is once its cut is polished: until then it
 * may be far from what the same plan takes as a finalist. */
static void polish_near(struct merak_search *s)
{
    struct merak_candidate *near[MERAK_SEARCH_CHOICES];
    int polished, all = 0;

    do {
        int n = merak_search_near(s, false, MERAK_SEARCH_HOPELESS, near);

        polished = 0;
        for (int i = 0; i < n && merak_search_goes_on(s); i++) {
            if (near[i]->polished || near[i]->arena > 0)
                continue;
            merak_search_limit_trial(s);
            merak_search_polish(s, near[i]);
            polished++;
        }
        merak_candidates_sort(s->cand, s->n_cands);
        all += polished;
    } while (polished > 0 && all < MAX_NAMED);
}

static void try_near(struct merak_search *s)
{
    struct merak_candidate *near[MERAK_SEARCH_CHOICES];
    int n, tried = 0;

    do {
        double error =
            s->effort.done < MERAK_MOST_EFFORT ? MERAK_SEARCH_ERROR : 1;

        polish_near(s);
        n = merak_search_near(s, false, error, near);
        for (int i = 0; i < n && merak_search_goes_on(s); i++, tried++)
            merak_candidate_try_polished(s, near[i]);
        merak_candidates_sort(s->cand, s->n_cands);
    } while (n > 0 && tried < MAX_NAMED && merak_search_goes_on(s));
}

/* A runner-up that is nearly as fast as the chosen plan gets the effort that it
 * would get if it were pinned: none is to be better than what was chosen. */
static void climb_near(struct merak_search *s)
{
    struct merak_candidate *near[MERAK_SEARCH_CHOICES];
    int n = s->in->pin.list.cut != NULL
                ? 0
                : merak_search_near(s, true, CLIMB_NEAR, near);

    /* It may have had less effort, as one of the others. */
    if (s->in->pin.list.cut == NULL && merak_search_goes_on(s) &&
        merak_search_effort(&s->cand[0]) <= MERAK_EFFORT / MERAK_MAX_CLIMBS / 2)
        merak_candidate_climb(s, &s->cand[0], MERAK_EFFORT);
    for (int i = 0; i < n && merak_search_goes_on(s); i++) {
        if (merak_search_effort(near[i]) <= MERAK_EFFORT / 4)
            merak_candidate_climb(s, near[i], MERAK_EFFORT);
    }
    merak_candidates_sort(s->cand, s->n_cands);
}

/* The chosen plan, if another trial of it is a small part of the search. */
static void lessen_chosen(struct merak_search *s)
{
    if (s->in->pin.list.cut == NULL && merak_search_goes_on(s) &&
        merak_search_effort(&s->cand[0]) <= MERAK_EFFORT / MERAK_MAX_CLIMBS / 2)
        merak_candidate_lessen(s, &s->cand[0]);
}

/* A runner-up that would be named as a little too big; NULL: there is none. */
static struct merak_candidate *next_big(const struct merak_search *s)
{
    struct merak_candidate *near[MERAK_SEARCH_CHOICES];
    int n = merak_search_near_big(s, near);

    for (int i = 0; i < n; i++) {
        if (merak_candidate_is_tight(s, near[i]))
            return near[i];
    }
    return NULL;
}

/* What it becomes when it is built and cut again, if it does not fit, with the
 * effort that it would get if it were pinned. */
static struct merak_candidate retry(struct merak_search *s,
                                    const struct merak_candidate *big)
{
    struct merak_candidate c = *big;

    c.retried = true;
    s->effort.whole = s->effort.done + MERAK_EFFORT;
    if (c.arena == 0)
        merak_candidate_try_polished(s, &c);
    if (c.step_s == DBL_MAX || s->in->pin.list.cut != NULL)
        return c;
    if (!c.settled)
        merak_candidate_refit(s, &c);
    if (merak_search_effort(&c) <= MERAK_EFFORT / 4)
        merak_candidate_climb(s, &c, MERAK_EFFORT);
    return c;
}

/* Seconds that it may take if there were memory enough. */
static double least_s(const struct merak_candidate *c)
{
    return merak_search_time(c) - c->part_s[MERAK_PART_RECOMPUTE];
}

/* What has least to lose by its memory first. */
static int by_least(const void *a, const void *b)
{
    const struct merak_candidate *x = a, *y = b;
    double dx = least_s(x), dy = least_s(y);

    return dx != dy ? (dx < dy ? -1 : 1)
                    : merak_search_compare_plans(&x->plan, &y->plan);
}

/* Does it not fit, or only since it recomputes, though it may be as fast as the
 * chosen plan? */
static bool may_move(const struct merak_search *s,
                     const struct merak_candidate *c, int offload)
{
    bool drops = merak_drops_any(c->drop, merak_plan_parts(&c->plan));

    return c->given.cut == NULL && c->bytes <= MOST_MOVED * s->limit &&
           (int)c->plan.offload != offload && c->step_s < DBL_MAX &&
           c->rated_s < DBL_MAX && (!c->settled || drops) &&
           (drops || c->bytes > s->limit) &&
           least_s(c) < MERAK_SEARCH_ERROR * merak_search_time(&s->cand[0]);
}

/* Do both have the same stages under the same schedule? */
static bool has_stages(const struct merak_candidate *a,
                       const struct merak_candidate *b)
{
    return a->table == b->table && a->schedule == b->schedule &&
           a->plan.pp == b->plan.pp && a->plan.chunks == b->plan.chunks;
}

/* Of those that may move the first of each kind, by least_s(): a list to be
 * freed, and its length. */
static struct merak_candidate *list_away(struct merak_search *s, int offload,
                                         int *n_p)
{
    int all = s->n_cands + s->n_bigs, some = 0, n = 0;
    struct merak_candidate *list = calloc((size_t)all, sizeof(*list));

    if (list == NULL)
        s->rc = merak_fail_nomem(s->err, (size_t)all * sizeof(*list));
    for (int i = 0; list != NULL && i < all; i++) {
        const struct merak_candidate *c =
            i < s->n_cands ? &s->cand[i] : &s->big[i - s->n_cands];

        if (may_move(s, c, offload))
            list[some++] = *c;
    }
    if (some > 0)
        qsort(list, (size_t)some, sizeof(*list), by_least);
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
        may = merak_stages_least(&s->cost, c) <= s->limit * MERAK_SEARCH_SLACK;
    }
    c->follow = NULL;
    merak_follow_fini(&follow);
    return may;
}

/* Rate it with its optimizer state there, if it may fit.  Is it nearly as fast
 * as the chosen plan, or faster? */
static bool rate_away(struct merak_search *s, struct merak_candidate *c,
                      enum merak_offload offload)
{
    c->plan.offload = offload;
    c->step_s = c->arena = 0;
    c->settled = c->polished = c->retried = false;
    if (!may_fit(s, c) || !merak_search_room(s, c))
        return false;
    merak_search_cut(s, c, NULL, s->limit * MERAK_SEARCH_SLACK, false);
    return c->rated_s > 0 &&
           c->rated_s < MERAK_SEARCH_ERROR * merak_search_time(&s->cand[0]);
}

/* What memory makes slow, or does not fit, with its optimizer state in the
 * host's memory.  Any of it may be the fastest then, not only what would be
 * named: which those are changes with the memory, and more of it is not to make
 * a plan slower.  The bound of all degrees is for state that ranks keep. */
static void try_away(struct merak_search *s)
{
    struct merak_search_input away;
    struct merak_candidate *list;
    double most = fmax(AWAY_PARTS, AWAY_SHARE * (double)s->tally.parts) +
                  (double)s->tally.parts;
    int n, some = 0;

    if (!merak_search_may_offload(s, &away) || !merak_search_goes_on(s))
        return;
    list = list_away(s, (int)away.pin.offload, &n);
    for (int i = 0;
         i < n && (double)s->tally.parts < most && merak_search_goes_on(s);
         i++) {
        if (rate_away(s, &list[i], away.pin.offload))
            list[some++] = list[i];
    }
    merak_candidates_sort(list, some);
    for (int i = 0; i < some && i < MAX_TIGHT && merak_search_goes_on(s); i++) {
        struct merak_candidate *c = &list[i];

        merak_candidate_try_polished(s, c);
        if (c->step_s < DBL_MAX && merak_search_effort(c) <= MERAK_EFFORT / 4)
            merak_candidate_climb(s, c, MERAK_EFFORT);
        merak_search_keep(s, &s->cand, &s->n_cands, c);
    }
    if (some > 0)
        s->bound_s = fmin(s->bound_s, merak_search_least_step(s));
    merak_candidates_sort(s->cand, s->n_cands);
    free(list);
}

/* One that fits after all, maybe with another cut, and is faster, is chosen. */
static void try_big(struct merak_search *s)
{
    struct merak_candidate *big = next_big(s);

    for (int tried = 0;
         tried < MAX_TIGHT && merak_search_goes_on(s) && big != NULL; tried++) {
        struct merak_candidate c = retry(s, big);

        if (big >= s->cand && big < s->cand + s->n_cands) {
            *big = c;
        } else {
            big->arena = DBL_MAX; /* what was tried may be named instead */
            merak_search_keep(s, &s->cand, &s->n_cands, &c);
        }
        merak_candidates_sort(s->cand, s->n_cands);
        big = next_big(s);
    }
}

void merak_search_try_named(struct merak_search *s)
{
    if (merak_search_is_useless(s, 0))
        return;
    try_big(s);
    try_away(s);
    try_near(s);
    climb_near(s);
    lessen_chosen(s);
}
