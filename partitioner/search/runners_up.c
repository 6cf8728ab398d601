/* SPDX-License-Identifier: Apache-2.0 */
/* runners_up.c - those that would be named are no better than what is chosen
 *
 * At the end of a search, runners-up that would be named have their cuts
 * polished; those whose estimates are then as good as the chosen plan's step
 * are simulated, and those that need a little too much memory cut again for
 * less.  What memory makes slow is tried with more room (moves.c).  What is
 * chosen then is tried in less memory than it takes.
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
    merak_search_try_moves(s);
    try_near(s);
    climb_near(s);
    lessen_chosen(s);
}
