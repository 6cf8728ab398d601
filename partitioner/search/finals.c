/* SPDX-License-Identifier: Apache-2.0 */
/* finals.c - which candidates are simulated
 *
 * The best rated first; then, while there is effort left, those that the
 * table says need a little too much memory, and other cuts of the best.
 * Effort is counted in instructions, so that plans do not depend on the
 * machine that makes them.
 */
#include "config.h"

#include "partitioner/search/impl.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FINALISTS 20
#define MIN_FINALISTS 3
#define EFFORT 150000 /* instructions */
#define MAX_CLIMBS 12
#define TIGHT 1.25 /* memory by the table, of the limit */

static int compare_plans(const struct merak_plan *a, const struct merak_plan *b)
{
    if (a->pp != b->pp)
        return a->pp - b->pp;
    if (a->tp != b->tp)
        return a->tp - b->tp;
    if (a->micro_batch != b->micro_batch)
        return a->micro_batch < b->micro_batch ? -1 : 1;
    if (a->zero1 != b->zero1)
        return a->zero1 ? -1 : 1;
    if (a->order_tp_pp_dp != b->order_tp_pp_dp)
        return a->order_tp_pp_dp ? 1 : -1;
    if (a->sp != b->sp)
        return a->sp < b->sp ? -1 : 1;
    return strcmp(a->schedule, b->schedule);
}

/* What was simulated and fits first, by time; then the rest by rating. */
static int sooner(const void *a, const void *b)
{
    const struct merak_candidate *x = a, *y = b;
    double tx = merak_search_time(x), ty = merak_search_time(y);

    if (x->settled != y->settled)
        return x->settled ? -1 : 1;
    if (tx != ty)
        return tx < ty ? -1 : 1;
    return compare_plans(&x->plan, &y->plan);
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
        merak_search_try(s->in, &s->cost, s->graphs, c, s->err);

    s->effort += merak_search_effort(c);
    s->n_simulated++;
    c->settled = c->arena <= s->limit;
    return rc;
}

/* Is it what was tried last, under another schedule's name? */
static bool is_repeat(const struct merak_candidate *c,
                      const struct merak_candidate *last)
{
    return c->rated_s == last->rated_s && c->bytes == last->bytes &&
           c->table == last->table && c->plan.pp == last->plan.pp;
}

static bool is_enough(const struct merak_search *s)
{
    return (s->n_simulated >= MAX_FINALISTS && s->effort > EFFORT / 4) ||
           (s->n_simulated >= MIN_FINALISTS && s->effort > EFFORT);
}

/* The best rated. */
static enum merak_status run_best(struct merak_search *s)
{
    struct merak_candidate last = {0};
    bool found = false;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < s->n_cands && rc == MERAK_OK; i++) {
        struct merak_candidate *c = &s->cand[i];

        if (found && is_enough(s))
            break;
        if (is_repeat(c, &last))
            continue;
        last = *c;
        rc = merak_search_polish(&s->cost, c, s->limit * MERAK_SEARCH_SLACK,
                                 s->err);
        if (rc == MERAK_OK)
            rc = try_one(s, c);
        found = found || c->settled;
    }
    return rc;
}

/* Those that need a little too much memory by the table: programs may pack
 * better, or with other cuts. */
static enum merak_status run_tight(struct merak_search *s)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < s->n_bigs && rc == MERAK_OK && s->effort < EFFORT;
         i++) {
        struct merak_candidate c = s->big[i];

        if (c.bytes > s->limit * TIGHT)
            continue;
        rc = try_one(s, &c);
        if (rc == MERAK_OK)
            rc = merak_search_keep(s, &s->cand, &s->n_cands, &c);
    }
    return rc;
}

/* Fits, and is faster; or needs less where neither fits. */
static bool is_better(const struct merak_candidate *a,
                      const struct merak_candidate *b)
{
    if (a->settled != b->settled)
        return a->settled;
    return a->settled ? a->step_s < b->step_s * (1 - 1e-9)
                      : a->arena < b->arena;
}

/* The same plan with other bounds; *better_p if it is better, and *c is it. */
static enum merak_status try_cut(struct merak_search *s,
                                 struct merak_candidate *c, const int *bound,
                                 bool *better_p)
{
    struct merak_candidate next = *c;
    size_t bytes = ((size_t)c->plan.pp + 1) * sizeof(int);
    enum merak_status rc;

    next.bound = merak_search_bound(s, c->plan.pp);
    if (next.bound == NULL)
        return merak_fail_nomem(s->err, bytes);
    memcpy(next.bound, bound, bytes);
    rc = merak_search_rate(&s->cost, &next, s->err);
    if (rc == MERAK_OK)
        rc = try_one(s, &next);
    if (rc == MERAK_OK && is_better(&next, c)) {
        *c = next;
        *better_p = true;
    }
    return rc;
}

/* Move one boundary there. */
static enum merak_status move(struct merak_search *s, struct merak_candidate *c,
                              int stage, int to, bool *moved_p)
{
    int at = c->bound[stage];
    int *bound;

    if (to <= c->bound[stage - 1] || to >= c->bound[stage + 1] || to == at)
        return MERAK_OK;
    bound = merak_search_bound(s, c->plan.pp);
    if (bound == NULL)
        return merak_fail_nomem(s->err, (size_t)c->plan.pp * sizeof(int));
    memcpy(bound, c->bound, ((size_t)c->plan.pp + 1) * sizeof(int));
    bound[stage] = to;
    return try_cut(s, c, bound, moved_p);
}

/* Every way to cut it. */
static enum merak_status sweep(struct merak_search *s,
                               struct merak_candidate *c)
{
    int *bound = merak_search_bound(s, c->plan.pp);
    enum merak_status rc = MERAK_OK;
    bool better;

    if (bound == NULL)
        return merak_fail_nomem(s->err, (size_t)c->plan.pp * sizeof(int));
    merak_cuts_first(bound, c->plan.pp, c->table->n);
    do
        rc = try_cut(s, c, bound, &better);
    while (rc == MERAK_OK && merak_cuts_next(bound, c->plan.pp, c->table->n));
    return rc;
}

/* Everywhere between its neighbours, what is near first. */
static enum merak_status move_about(struct merak_search *s,
                                    struct merak_candidate *c, int stage,
                                    bool *moved_p)
{
    int at = c->bound[stage];
    enum merak_status rc = MERAK_OK;

    for (int by = 1; by < c->table->n && rc == MERAK_OK; by++) {
        for (int side = -1; side <= 1 && rc == MERAK_OK; side += 2) {
            if (s->effort > EFFORT)
                return MERAK_OK;
            rc = move(s, c, stage, at + side * by, moved_p);
        }
    }
    return rc;
}

/* Other cuts for a good plan, by simulation, while there is effort left. */
static enum merak_status climb(struct merak_search *s,
                               struct merak_candidate *c)
{
    enum merak_status rc = MERAK_OK;
    bool moved = true;

    if (merak_cuts_count(c->plan.pp, c->table->n) * merak_search_effort(c) <
        (EFFORT - s->effort) / MAX_CLIMBS)
        return sweep(s, c);
    while (moved) {
        moved = false;
        for (int stage = 1; stage < c->plan.pp && rc == MERAK_OK; stage++)
            rc = move_about(s, c, stage, &moved);
        if (rc != MERAK_OK || s->effort > EFFORT)
            break;
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
    for (int i = 0; i < s->n_cands && i < MAX_CLIMBS && rc == MERAK_OK; i++) {
        if (s->cand[i].step_s > 0)
            rc = climb(s, &s->cand[i]);
    }
    sort(s->cand, s->n_cands);
    return rc;
}
