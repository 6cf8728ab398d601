/* SPDX-License-Identifier: Apache-2.0 */
/* finalists.c - which candidates are simulated
 *
 * Those with the best estimates come first; then, while there is effort left,
 * those that by the table need a little too much memory, and other cuts of the
 * best.  Effort is counted in instructions, so that plans do not depend on the
 * machine that makes them.
 */
#include "config.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/finalist.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/search_impl.h"

#include "base/error.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FINALISTS 20
#define MIN_FINALISTS 3
#define EFFORT 50000 /* instructions */
#define MOST_EFFORT (4 * EFFORT)
#define MAX_CLIMBS 12
#define TIGHT 1.25 /* memory by the table, over the limit */

int merak_search_compare_plans(const struct merak_plan *a,
                               const struct merak_plan *b)
{
    static const enum merak_choice_id first[] = {
        MERAK_CHOICE_PP,          MERAK_CHOICE_TP,
        MERAK_CHOICE_MICRO_BATCH, MERAK_CHOICE_ZERO1,
        MERAK_CHOICE_ORDER,       MERAK_CHOICE_SP,
        MERAK_CHOICE_TP_BATCH,    MERAK_CHOICE_SUB_PIPELINE};
    int by = 0;

    for (size_t i = 0; by == 0 && i < sizeof(first) / sizeof(*first); i++)
        by = merak_choice_compare(&merak_choice[first[i]], a, b);
    /* What is recomputed follows from the others. */
    for (int i = 0; by == 0 && i < MERAK_CHOICE_COUNT; i++)
        by = i == MERAK_CHOICE_RECOMPUTE
                 ? 0
                 : merak_choice_compare(&merak_choice[i], a, b);
    return by != 0 ? by : strcmp(a->schedule, b->schedule);
}

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

/* Build and simulate; `settled` if it fits. */
static enum merak_status try_one(struct merak_search *s,
                                 struct merak_candidate *c)
{
    enum merak_status rc =
        merak_search_try(s->in, &s->cost, s->graphs, s->limit, c, s->err);

    s->effort += merak_search_effort(c);
    s->n_simulated++;
    /* The programs deadlock, or a value would go down the pipeline. */
    if (rc == MERAK_ERR_CORRUPT || rc == MERAK_ERR_UNSUPPORTED) {
        c->settled = false;
        c->step_s = c->arena = DBL_MAX;
        if (s->err != NULL)
            s->run_error = *s->err;
        s->run_error.status = rc;
        return MERAK_OK;
    }
    c->settled = c->arena <= s->limit;
    return rc;
}

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
    if (rated_s < best_s && s->effort < MOST_EFFORT)
        return false;
    return (s->n_simulated >= MAX_FINALISTS && s->effort > EFFORT / 4) ||
           (s->n_simulated >= MIN_FINALISTS && s->effort > EFFORT);
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

/* A copy of the candidate's bounds to be changed; NULL and s->err when out of
 * memory. */
static int *copy_bound(struct merak_search *s, const struct merak_candidate *c)
{
    size_t n = (size_t)merak_plan_parts(&c->plan) + 1;
    int *bound = merak_pool_alloc(s->pool, n * sizeof(*bound));

    if (bound == NULL)
        merak_fail_nomem(s->err, n * sizeof(*bound));
    else
        memcpy(bound, c->bound, n * sizeof(*bound));
    return bound;
}

/* Try the plan with other bounds; if better, sets *better_p and replaces *c. */
static enum merak_status try_cut(struct merak_search *s,
                                 struct merak_candidate *c, const int *bound,
                                 bool *better_p)
{
    struct merak_candidate next = *c;
    size_t parts = (size_t)merak_plan_parts(&c->plan);
    enum merak_status rc;

    if (!merak_fixed_allows(c, bound))
        return MERAK_OK;
    rc = merak_search_room(s, &next);
    if (rc != MERAK_OK)
        return rc;
    memcpy(next.bound, bound, (parts + 1) * sizeof(*bound));
    rc = merak_search_rate(&s->cost, &next, s->limit * MERAK_SEARCH_SLACK,
                           s->err);
    if (rc == MERAK_OK)
        rc = try_one(s, &next);
    if (rc == MERAK_OK && is_better(&next, c)) {
        *c = next;
        *better_p = true;
    }
    return rc;
}

/* May stages drop more if a program takes more than the table estimated? */
static bool may_settle(const struct merak_candidate *c)
{
    return c->plan.recompute == MERAK_RECOMPUTE_AUTO &&
           merak_fixed_drop(c) == NULL;
}

/* Try it with its cut improved, or as it was if only that fits. */
static enum merak_status try_polished(struct merak_search *s,
                                      struct merak_candidate *c)
{
    int *bound = may_settle(c) ? NULL : copy_bound(s, c);
    bool better;
    enum merak_status rc;

    if (bound == NULL && !may_settle(c))
        return MERAK_ERR_NOMEM;
    rc =
        merak_search_polish(&s->cost, c, s->limit * MERAK_SEARCH_SLACK, s->err);
    if (rc == MERAK_OK)
        rc = try_one(s, c);
    if (rc == MERAK_OK && bound != NULL && !c->settled &&
        memcmp(bound, c->bound,
               (size_t)merak_plan_parts(&c->plan) * sizeof(*bound)) != 0)
        rc = try_cut(s, c, bound, &better);
    return rc;
}

/* Try the candidates with the best estimates. */
static enum merak_status run_best(struct merak_search *s)
{
    struct merak_candidate last = {0};
    double best_s = DBL_MAX; /* of those that fit */
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < s->n_cands && rc == MERAK_OK; i++) {
        struct merak_candidate *c = &s->cand[i];

        if (best_s < DBL_MAX && is_enough(s, c->rated_s, best_s))
            break;
        if (is_repeat(c, &last))
            continue;
        last = *c;
        rc = try_polished(s, c);
        if (c->settled && c->step_s < best_s)
            best_s = c->step_s;
    }
    return rc;
}

/* Does it need only a little too much memory?  A given cut has no alternative,
 * and the table may be far off. */
static bool is_tight(const struct merak_search *s,
                     const struct merak_candidate *c)
{
    return merak_fixed_cut(c) || c->bytes <= s->limit * TIGHT;
}

/* Try those that need a little too much memory by the table: their programs may
 * pack better, or fit with other cuts. */
static enum merak_status run_tight(struct merak_search *s)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < s->n_bigs && rc == MERAK_OK && s->effort < EFFORT;
         i++) {
        struct merak_candidate c = s->big[i];

        if (!is_tight(s, &c))
            continue;
        rc = try_one(s, &c);
        if (rc == MERAK_OK)
            rc = merak_search_keep(s, &s->cand, &s->n_cands, &c);
    }
    return rc;
}

/* Try to move one boundary to `to`. */
static enum merak_status move(struct merak_search *s, struct merak_candidate *c,
                              int part, int to, bool *moved_p)
{
    int at = c->bound[part];
    int *bound;

    if (to <= c->bound[part - 1] || to >= c->bound[part + 1] || to == at)
        return MERAK_OK;
    bound = copy_bound(s, c);
    if (bound == NULL)
        return MERAK_ERR_NOMEM;
    bound[part] = to;
    return try_cut(s, c, bound, moved_p);
}

/* Try every way to cut it. */
static enum merak_status sweep(struct merak_search *s,
                               struct merak_candidate *c)
{
    int *bound = copy_bound(s, c), parts = merak_candidate_parts(c);
    enum merak_status rc = MERAK_OK;
    bool better;

    if (bound == NULL)
        return MERAK_ERR_NOMEM;
    merak_cuts_first(bound, parts, merak_candidate_segments(c));
    do
        rc = try_cut(s, c, bound, &better);
    while (rc == MERAK_OK &&
           merak_cuts_next(bound, parts, merak_candidate_segments(c)));
    return rc;
}

/* Try a boundary everywhere between its neighbours, the nearest first. */
static enum merak_status move_about(struct merak_search *s,
                                    struct merak_candidate *c, int part,
                                    bool *moved_p)
{
    int at = c->bound[part];
    enum merak_status rc = MERAK_OK;

    for (int by = 1; by < merak_candidate_segments(c) && rc == MERAK_OK; by++) {
        for (int side = -1; side <= 1 && rc == MERAK_OK; side += 2) {
            if (s->effort > s->most_effort)
                return MERAK_OK;
            rc = move(s, c, part, at + side * by, moved_p);
        }
    }
    return rc;
}

/* Hill climbing from a good plan: simulate other cuts of it, while there is
 * effort left. */
static enum merak_status climb(struct merak_search *s,
                               struct merak_candidate *c)
{
    int parts = merak_candidate_parts(c);
    enum merak_status rc = MERAK_OK;
    bool moved = true;

    if (merak_cuts_count(parts, merak_candidate_segments(c)) *
            merak_search_effort(c) <
        (s->most_effort - s->effort) / MAX_CLIMBS)
        return sweep(s, c);
    while (moved) {
        moved = false;
        for (int part = 1; part < parts && rc == MERAK_OK; part++)
            rc = move_about(s, c, part, &moved);
        if (rc != MERAK_OK || s->effort > s->most_effort)
            break;
    }
    return rc;
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
 * only one; the others get what is left. */
static enum merak_status climb_all(struct merak_search *s)
{
    int n = s->n_cands < MAX_CLIMBS ? s->n_cands : MAX_CLIMBS;
    double left = EFFORT - s->effort;
    enum merak_status rc = MERAK_OK;

    if (s->in->pin.list.cut != NULL)
        return MERAK_OK;

    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        if (s->cand[i].step_s <= 0 || !is_first(s, i))
            continue;
        s->most_effort = s->effort + left;
        rc = climb(s, &s->cand[i]);
    }
    s->most_effort = EFFORT;
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        if (s->cand[i].step_s > 0 && !is_first(s, i))
            rc = climb(s, &s->cand[i]);
    }
    return rc;
}

enum merak_status merak_search_finals(struct merak_search *s)
{
    enum merak_status rc;

    sort(s->cand, s->n_cands);
    sort(s->big, s->n_bigs);
    rc = run_best(s);
    if (rc == MERAK_OK)
        rc = run_tight(s);
    sort(s->cand, s->n_cands);
    if (rc == MERAK_OK)
        rc = climb_all(s);
    sort(s->cand, s->n_cands);
    return rc;
}
