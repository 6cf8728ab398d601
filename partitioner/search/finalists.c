/* SPDX-License-Identifier: Apache-2.0 */
/* finalists.c - which candidates are simulated
 *
 * Those with the best estimates come first; then, while there is effort left,
 * those that by the table need a little too much memory, and other cuts of the
 * best.
 */
#include "config.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/improve.h"

#include <float.h>
#include <math.h>

#define MAX_FINALISTS 20
#define MIN_FINALISTS 3
#define FEW_SEGMENTS 4     /* of a part */
#define MAX_COARSE 16      /* that are polished for it, while that replays .. */
#define COARSE_ACTIONS 1e6 /* so few actions, or */
#define COARSE_SHARE 0.03  /* so small a share of those of the whole search */

/* Does it equal the one tried last except for the schedule's name? */
static bool is_repeat(const struct merak_candidate *c,
                      const struct merak_candidate *last)
{
    return c->rated_s == last->rated_s && c->bytes == last->bytes &&
           c->table == last->table && c->plan.pp == last->plan.pp &&
           c->schedule->splits_w == last->schedule->splits_w;
}

/* With a plan that takes best_s, can candidates from rated_s on be skipped? */
static bool is_enough(const struct merak_search *s, double rated_s,
                      double best_s)
{
    if (rated_s < best_s && s->effort.done < MERAK_MOST_EFFORT)
        return false;
    return (s->n_simulated >= MAX_FINALISTS &&
            s->effort.done > MERAK_EFFORT / 4) ||
           (s->n_simulated >= MIN_FINALISTS && s->effort.done > MERAK_EFFORT);
}

/* The candidate that takes least by the table, of those not built yet. */
static struct merak_candidate *find_least(const struct merak_search *s)
{
    struct merak_candidate *least = NULL;

    for (int i = 0; i < s->n_cands; i++) {
        struct merak_candidate *c = &s->cand[i];

        if (c->arena == 0 && (least == NULL || c->bytes < least->bytes))
            least = c;
    }
    return least;
}

/* None of the best fits: does one of those that take least?  If not, there is
 * no use in building the others. */
static double run_least(struct merak_search *s)
{
    for (int i = 0; i < MIN_FINALISTS && s->rc == MERAK_OK; i++) {
        struct merak_candidate *c = find_least(s);

        if (c == NULL)
            break;
        merak_candidate_try_polished(s, c);
        if (c->settled)
            return c->step_s;
        if (c->arena == 0) /* it was left */
            c->arena = DBL_MAX;
    }
    return DBL_MAX;
}

/* There seems to be time for none: try the one that takes least of it. */
static void run_shortest(struct merak_search *s)
{
    struct merak_candidate *shortest = NULL;

    for (int i = 0; i < s->n_cands; i++) {
        struct merak_candidate *c = &s->cand[i];

        if (c->step_s == 0 &&
            (shortest == NULL ||
             merak_search_effort(c) < merak_search_effort(shortest)))
            shortest = c;
    }
    if (shortest != NULL)
        merak_candidate_try(s, shortest);
}

/* Try the candidates with the best estimates. */
static void run_best(struct merak_search *s)
{
    struct merak_candidate last = {0};
    const struct merak_schedule *hangs = NULL; /* in a device's queues */
    double best_s = DBL_MAX;                   /* of those that fit */
    int tried = 0;

    for (int i = 0; i < s->n_cands && s->rc == MERAK_OK; i++) {
        struct merak_candidate *c = &s->cand[i];

        /* There is no time to try its other plans before there is one. */
        if (s->cut_short && !s->found && c->schedule == hangs)
            continue;
        if (best_s == DBL_MAX &&
            (tried == MAX_FINALISTS || merak_search_is_over(s))) {
            best_s = run_least(s);
            if (best_s == DBL_MAX)
                break;
        }
        if (merak_search_is_useless(s, c->rated_s) ||
            (best_s < DBL_MAX && (is_enough(s, merak_search_time(c), best_s) ||
                                  merak_search_is_over(s))))
            break;
        if (c->arena > 0 || is_repeat(c, &last))
            continue;
        last = *c;
        merak_candidate_try_polished(s, c);
        merak_candidates_correct(c + 1, s->n_cands - i - 1, c, last.rated_s,
                                 MERAK_SEARCH_ERROR);
        tried++;
        if (c->step_s == DBL_MAX)
            hangs = c->schedule;
        if (c->settled && c->step_s < best_s)
            best_s = c->step_s;
    }
    if (s->n_simulated == 0 || (s->cut_short && !s->found))
        run_shortest(s);
}

/* None fits as built: for the table takes a little too little.  The first is
 * cut again whatever effort that is, before the request is refused. */
static void refit(struct merak_search *s)
{
    for (int i = 0; i < s->n_cands && s->rc == MERAK_OK && !s->found &&
                    !merak_search_is_over(s);
         i++) {
        if (s->cand[i].given.cut == NULL &&
            (i == 0 || s->effort.done < MERAK_MOST_EFFORT))
            merak_candidate_refit(s, &s->cand[i]);
    }
}

/* Try those that need a little too much memory by the table: their programs may
 * pack better, or fit with other cuts. */
static void run_tight(struct merak_search *s)
{
    for (int i = 0; i < s->n_bigs && s->effort.done < MERAK_EFFORT; i++) {
        struct merak_candidate c = s->big[i];

        if (!merak_candidate_is_tight(s, &c) ||
            !merak_search_limit_allows(s, merak_search_effort(&c)) ||
            merak_search_is_useless(s, c.rated_s))
            continue;
        if ((s->found || s->n_simulated > 0) && merak_search_is_over(s))
            break;
        merak_candidate_try(s, &c);
        merak_search_keep(s, &s->cand, &s->n_cands, &c);
    }
}

/* Is it the first with its order of nodes? */
static bool is_first(const struct merak_search *s, int cand)
{
    int i = 0;

    while (s->cand[i].plan.branches != s->cand[cand].plan.branches)
        i++;
    return i == cand;
}

/* The best plan of each order of nodes gets the effort that it would get as the
 * only one; the others get less. */
static void climb_all(struct merak_search *s)
{
    int n = s->n_cands < MERAK_MAX_CLIMBS ? s->n_cands : MERAK_MAX_CLIMBS;

    if (s->in->pin.list.cut != NULL)
        return;
    for (int first = 1; first >= 0; first--) {
        for (int i = 0; i < n && !merak_search_is_over(s); i++) {
            struct merak_candidate *c = &s->cand[i];

            if (c->step_s > 0 && !merak_search_is_useless(s, c->step_s) &&
                merak_search_effort(c) <= MERAK_EFFORT / MERAK_MAX_CLIMBS / 2 &&
                is_first(s, i) == (first == 1))
                merak_candidate_climb(s, c,
                                      first ? MERAK_EFFORT
                                            : MERAK_EFFORT / MERAK_MAX_CLIMBS);
        }
    }
}

/* Do both divide the ranks alike? */
static bool has_degrees(const struct merak_candidate *a,
                        const struct merak_candidate *b)
{
    return merak_plan_tensor_ranks(&a->plan) ==
               merak_plan_tensor_ranks(&b->plan) &&
           a->plan.pp == b->plan.pp && a->table->width == b->table->width;
}

/* Where parts have few segments the first cut may be far from the best: the
 * first of each degrees is polished before estimates are compared. */
static void polish_coarse(struct merak_search *s)
{
    struct merak_candidate *done[MAX_COARSE];
    double most =
        fmax(COARSE_ACTIONS, COARSE_SHARE * (double)s->tally.actions) +
        (double)s->tally.actions;
    int n = 0;

    for (int i = 0; i < s->n_cands && n < MAX_COARSE &&
                    (double)s->tally.actions < most && merak_search_goes_on(s);
         i++) {
        struct merak_candidate *c = &s->cand[i];
        int k = 0;

        if (merak_search_is_slow(s, c->rated_s))
            break;
        while (k < n && !has_degrees(done[k], c))
            k++;
        if (k < n || c->plan.pp == 1 || c->polished ||
            c->table->n >= FEW_SEGMENTS * merak_plan_parts(&c->plan))
            continue;
        merak_search_limit_trial(s);
        merak_search_polish(s, c);
        done[n++] = c;
    }
    merak_candidates_sort(s->cand, s->n_cands);
}

void merak_search_finals(struct merak_search *s)
{
    merak_candidates_sort(s->cand, s->n_cands);
    polish_coarse(s);
    merak_candidates_sort(s->big, s->n_bigs);
    run_best(s);
    refit(s);
    run_tight(s);
    merak_candidates_sort(s->cand, s->n_cands);
    climb_all(s);
    merak_candidates_sort(s->cand, s->n_cands);
}
