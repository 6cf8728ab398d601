/* SPDX-License-Identifier: Apache-2.0 */
/* finalists.c - which candidates are simulated
 *
 * Those with the best estimates come first; then, while there is effort left,
 * those that by the table need a little too much memory, and other cuts of the
 * best.  At the end, runners-up that would be named have their cuts polished;
 * those whose estimates are then as good as the chosen plan's step are
 * simulated, and those that need a little too much memory cut again for less.
 * Effort is counted in instructions, so that all machines make the same plans.
 */
#include "config.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/search_impl.h"
#include "partitioner/search/tried.h"

#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FINALISTS 20
#define MIN_FINALISTS 3
#define EFFORT 50000 /* instructions */
#define MOST_EFFORT (4 * EFFORT)
#define MAX_CLIMBS 12
#define MAX_REFITS 3
#define MAX_FEWEST 3     /* corrections of how few blocks are fetched */
#define MAX_TIGHT 4      /* runners-up that seem too big and are simulated */
#define MAX_NAMED 12     /* runners-up that are simulated, about */
#define CLIMB_NEAR 1.025 /* times the chosen step: other cuts may be faster */
#define TIGHT 1.25       /* memory by the table, over the limit */

/* Simulated ones that fit come first, by time; then the rest, by estimate. */
static int sooner(const void *a, const void *b)
{
    const struct merak_candidate *x = a, *y = b;
    double tx = merak_search_time(x), ty = merak_search_time(y);

    if (x->settled != y->settled)
        return x->settled ? -1 : 1;
    if (tx != ty)
        return tx < ty ? -1 : 1;
    return merak_search_compare_plans(&x->plan, &y->plan);
}

static void sort(struct merak_candidate *list, int n)
{
    if (n > 0)
        qsort(list, (size_t)n, sizeof(*list), sooner);
}

/* It takes more time than there is. */
static void leave(struct merak_search *s, struct merak_candidate *c)
{
    c->settled = false;
    c->step_s = 0;
    c->arena = DBL_MAX;
    s->cut_short = true;
}

/* Build and simulate; `settled` if it fits. */
static void try_one(struct merak_search *s, struct merak_candidate *c)
{
    struct merak_error why = {.status = MERAK_OK};
    enum merak_status rc;

    if (s->rc != MERAK_OK || merak_search_would_hang(s, c))
        return;
    merak_progress_note(s->in->progress, "building plan %d",
                        s->n_simulated + 1);
    c->step_s = 0;
    merak_search_limit_trial(s);
    s->trials.leaves =
        s->found && s->effort.done >= fmax(EFFORT, s->effort.whole);
    rc = merak_search_try_once(s, c, &why);
    s->effort.done += merak_search_effort(c);
    if (rc == MERAK_ERR_TIMEOUT) {
        s->trials.too_much = merak_search_effort(c) / 2;
        leave(s, c);
        return;
    }
    s->n_simulated++;
    /* The programs deadlock, or a value would go down the pipeline. */
    if (rc == MERAK_ERR_CORRUPT || rc == MERAK_ERR_UNSUPPORTED) {
        c->settled = false;
        c->step_s = c->arena = DBL_MAX;
        s->run_error = why;
        s->run_error.status = rc;
        return;
    }
    c->settled = c->step_s > 0 && c->arena <= s->limit;
    if (rc == MERAK_OK && c->settled)
        merak_search_limit_found(s, merak_search_effort(c));
    if (rc != MERAK_OK)
        merak_search_fail(s, rc, &why);
}

/* Does it equal the one tried last except for the schedule's name? */
static bool is_repeat(const struct merak_candidate *c,
                      const struct merak_candidate *last)
{
    return c->rated_s == last->rated_s && c->bytes == last->bytes &&
           c->table == last->table && c->plan.pp == last->plan.pp &&
           c->schedule->splits_w == last->schedule->splits_w;
}

/* Only seconds are asked for: is it too slow, or did a large plan answer? */
static bool is_useless(const struct merak_search *s, double seconds)
{
    return seconds >= MERAK_SEARCH_ERROR * merak_search_worth_s(s->in) ||
           (s->in->most_s > 0 && s->found && s->effort.done > EFFORT);
}

/* With a plan that takes best_s, can candidates from rated_s on be skipped? */
static bool is_enough(const struct merak_search *s, double rated_s,
                      double best_s)
{
    if (rated_s < best_s && s->effort.done < MOST_EFFORT)
        return false;
    return (s->n_simulated >= MAX_FINALISTS && s->effort.done > EFFORT / 4) ||
           (s->n_simulated >= MIN_FINALISTS && s->effort.done > EFFORT);
}

/* Does a fit and is faster, or does it need less where neither fits? */
static bool is_better(const struct merak_candidate *a,
                      const struct merak_candidate *b)
{
    if (a->settled != b->settled)
        return a->settled;
    return a->settled ? a->step_s < b->step_s * (1 - 1e-9)
                      : a->arena < b->arena;
}

/* A copy of the candidate's bounds to be changed; NULL if the search has
 * failed. */
static int *copy_bound(struct merak_search *s, const struct merak_candidate *c)
{
    size_t bytes = ((size_t)merak_plan_parts(&c->plan) + 1) * sizeof(int);
    int *bound;

    if (s->rc != MERAK_OK)
        return NULL;
    bound = merak_pool_alloc(s->pool, bytes);
    if (bound == NULL)
        s->rc = merak_fail_nomem(s->err, bytes);
    else
        memcpy(bound, c->bound, bytes);
    return bound;
}

/* Try a candidate with other bounds; if it is better, *c becomes that. */
static bool try_cut(struct merak_search *s, struct merak_candidate *c,
                    const int *bound)
{
    struct merak_candidate next = *c;
    size_t parts = (size_t)merak_plan_parts(&c->plan);

    if (!merak_fixed_allows(c, bound) || !merak_search_room(s, &next))
        return false;
    memcpy(next.bound, bound, (parts + 1) * sizeof(*bound));
    s->rc = merak_search_rate(&s->cost, &next, s->limit * MERAK_SEARCH_SLACK,
                              s->err);
    try_one(s, &next);
    if (s->rc != MERAK_OK || !is_better(&next, c))
        return false;
    *c = next;
    return true;
}

/* May stages drop more if a program takes more than the table estimated? */
static bool may_settle(const struct merak_candidate *c)
{
    return c->plan.recompute == MERAK_RECOMPUTE_AUTO && c->given.drop == NULL;
}

/* How few blocks can be fetched is known by what the programs take, in place of
 * the table's estimate. */
static void try_fewest(struct merak_search *s, struct merak_candidate *c)
{
    struct merak_candidate next;

    for (int i = 0; i < MAX_FEWEST && c->plan.fetch > 0; i++) {
        double more = c->arena - c->bytes;

        if (c->step_s <= 0 || c->step_s == DBL_MAX ||
            !merak_search_fewest(s, c, s->limit - more, &next) ||
            next.plan.fetch == c->plan.fetch)
            return;
        try_one(s, &next);
        if (s->rc != MERAK_OK || !is_better(&next, c))
            return;
        *c = next;
    }
}

/* Try it with its cut improved, or as it was if only that fits. */
static void try_polished(struct merak_search *s, struct merak_candidate *c)
{
    int *bound = may_settle(c) ? NULL : copy_bound(s, c);

    if (!merak_search_limit_allows(s, merak_search_effort(c))) {
        leave(s, c);
        return;
    }
    merak_search_limit_trial(s);
    merak_search_polish(s, c);
    try_one(s, c);
    if (bound != NULL && !c->settled &&
        memcmp(bound, c->bound,
               (size_t)merak_plan_parts(&c->plan) * sizeof(*bound)) != 0)
        try_cut(s, c, bound);
    try_fewest(s, c);
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
        try_polished(s, c);
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
        try_one(s, shortest);
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
        if (is_useless(s, c->rated_s) ||
            (best_s < DBL_MAX &&
             (is_enough(s, c->rated_s, best_s) || merak_search_is_over(s))))
            break;
        if (c->arena > 0 || is_repeat(c, &last))
            continue;
        last = *c;
        try_polished(s, c);
        tried++;
        if (c->step_s == DBL_MAX)
            hangs = c->schedule;
        if (c->settled && c->step_s < best_s)
            best_s = c->step_s;
    }
    if (s->n_simulated == 0 || (s->cut_short && !s->found))
        run_shortest(s);
}

/* Cut it anew within what the table says of programs that fit; if that is not
 * enough, within less, as much less as programs took too much. */
static void refit_one(struct merak_search *s, struct merak_candidate *c)
{
    double limit = c->bytes;
    struct merak_candidate last = *c;

    for (int i = 0; i < MAX_REFITS && s->rc == MERAK_OK && !c->settled; i++) {
        struct merak_candidate next = last;

        limit *= s->limit / last.arena;
        if (last.step_s <= 0 || last.step_s == DBL_MAX ||
            !merak_search_room(s, &next))
            return;
        merak_search_cut(s, &next, NULL, limit, false);
        if (next.rated_s == 0)
            return;
        try_one(s, &next);
        last = next;
        if (s->rc == MERAK_OK && is_better(&next, c))
            *c = next;
    }
}

/* None fits as built: for the table takes a little too little. */
static void refit(struct merak_search *s)
{
    for (int i = 0; i < s->n_cands && s->rc == MERAK_OK && !s->found &&
                    !merak_search_is_over(s);
         i++) {
        if (s->cand[i].given.cut == NULL && s->effort.done < MOST_EFFORT)
            refit_one(s, &s->cand[i]);
    }
}

/* Does it need only a little too much memory?  A given cut has no alternative,
 * and the table may be far off. */
static bool is_tight(const struct merak_search *s,
                     const struct merak_candidate *c)
{
    return c->given.cut != NULL || c->bytes <= s->limit * TIGHT;
}

/* Try those that need a little too much memory by the table: their programs may
 * pack better, or fit with other cuts. */
static void run_tight(struct merak_search *s)
{
    for (int i = 0; i < s->n_bigs && s->effort.done < EFFORT; i++) {
        struct merak_candidate c = s->big[i];

        if (!is_tight(s, &c) ||
            !merak_search_limit_allows(s, merak_search_effort(&c)) ||
            is_useless(s, c.rated_s))
            continue;
        if ((s->found || s->n_simulated > 0) && merak_search_is_over(s))
            break;
        try_one(s, &c);
        merak_search_keep(s, &s->cand, &s->n_cands, &c);
    }
}

/* Move one boundary to `to` if that is better. */
static bool move(struct merak_search *s, struct merak_candidate *c, int part,
                 int to)
{
    int at = c->bound[part];
    int *bound;

    if (to <= c->bound[part - 1] || to >= c->bound[part + 1] || to == at)
        return false;
    bound = copy_bound(s, c);
    if (bound == NULL)
        return false;
    bound[part] = to;
    return try_cut(s, c, bound);
}

/* Try every way to cut it. */
static void sweep(struct merak_search *s, struct merak_candidate *c)
{
    int *bound = copy_bound(s, c), parts = merak_candidate_parts(c);

    if (bound == NULL)
        return;
    merak_cuts_first(bound, parts, merak_candidate_segments(c));
    do
        try_cut(s, c, bound);
    while (merak_search_goes_on(s) &&
           merak_cuts_next(bound, parts, merak_candidate_segments(c)));
}

/* Try a boundary everywhere between its neighbours, the nearest first; does it
 * move? */
static bool move_about(struct merak_search *s, struct merak_candidate *c,
                       int part)
{
    int at = c->bound[part];
    bool moved = false;

    for (int by = 1; by < merak_candidate_segments(c); by++) {
        for (int side = -1; side <= 1; side += 2) {
            if (s->effort.done > s->effort.most || merak_search_is_over(s))
                return moved;
            moved = move(s, c, part, at + side * by) || moved;
        }
    }
    return moved;
}

/* Hill climbing from a good plan: simulate other cuts of it, with so much
 * effort.  That is its own: what others took does not count, so that a plan is
 * the same whichever others a request has. */
static void climb(struct merak_search *s, struct merak_candidate *c,
                  double effort)
{
    int parts = merak_candidate_parts(c);
    bool moved;

    s->effort.most = s->effort.done + effort;
    if (merak_cuts_count(parts, merak_candidate_segments(c)) *
            merak_search_effort(c) <
        EFFORT / MAX_CLIMBS) {
        sweep(s, c);
        return;
    }
    do {
        moved = false;
        for (int part = 1; part < parts; part++)
            moved = move_about(s, c, part) || moved;
    } while (moved && s->effort.done <= s->effort.most &&
             !merak_search_is_over(s));
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
    int n = s->n_cands < MAX_CLIMBS ? s->n_cands : MAX_CLIMBS;

    if (s->in->pin.list.cut != NULL)
        return;
    for (int first = 1; first >= 0; first--) {
        for (int i = 0; i < n && !merak_search_is_over(s); i++) {
            struct merak_candidate *c = &s->cand[i];

            if (c->step_s > 0 && !is_useless(s, c->step_s) &&
                merak_search_effort(c) <= EFFORT / MAX_CLIMBS / 2 &&
                is_first(s, i) == (first == 1))
                climb(s, c, first ? EFFORT : EFFORT / MAX_CLIMBS);
        }
    }
}

void merak_search_finals(struct merak_search *s)
{
    sort(s->cand, s->n_cands);
    sort(s->big, s->n_bigs);
    run_best(s);
    refit(s);
    run_tight(s);
    sort(s->cand, s->n_cands);
    climb_all(s);
    sort(s->cand, s->n_cands);
}

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
        sort(s->cand, s->n_cands);
        all += polished;
    } while (polished > 0 && all < MAX_NAMED);
}

static void try_near(struct merak_search *s)
{
    struct merak_candidate *near[MERAK_SEARCH_CHOICES];
    int n, tried = 0;

    do {
        double error = s->effort.done < MOST_EFFORT ? MERAK_SEARCH_ERROR : 1;

        polish_near(s);
        n = merak_search_near(s, false, error, near);
        for (int i = 0; i < n && merak_search_goes_on(s); i++, tried++)
            try_polished(s, near[i]);
        sort(s->cand, s->n_cands);
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
        merak_search_effort(&s->cand[0]) <= EFFORT / MAX_CLIMBS / 2)
        climb(s, &s->cand[0], EFFORT);
    for (int i = 0; i < n && merak_search_goes_on(s); i++) {
        if (merak_search_effort(near[i]) <= EFFORT / 4)
            climb(s, near[i], EFFORT);
    }
    sort(s->cand, s->n_cands);
}

/* A runner-up that would be named as a little too big; NULL: there is none. */
static struct merak_candidate *next_big(const struct merak_search *s)
{
    struct merak_candidate *near[MERAK_SEARCH_CHOICES];
    int n = merak_search_near_big(s, near);

    for (int i = 0; i < n; i++) {
        if (is_tight(s, near[i]))
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
    s->effort.whole = s->effort.done + EFFORT;
    if (c.arena == 0)
        try_polished(s, &c);
    if (c.step_s == DBL_MAX || s->in->pin.list.cut != NULL)
        return c;
    if (!c.settled)
        refit_one(s, &c);
    if (merak_search_effort(&c) <= EFFORT / 4)
        climb(s, &c, EFFORT);
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
        sort(s->cand, s->n_cands);
        big = next_big(s);
    }
}

void merak_search_try_named(struct merak_search *s)
{
    if (is_useless(s, 0))
        return;
    try_big(s);
    try_near(s);
    climb_near(s);
}
