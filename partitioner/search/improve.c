/* SPDX-License-Identifier: Apache-2.0 */
/* improve.c - a candidate is built, simulated and cut otherwise
 *
 * Effort is counted in instructions, so that all machines make the same plans.
 */
#include "config.h"

#include "partitioner/search/cut.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/improve.h"
#include "partitioner/search/tried.h"

#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REFITS 3
#define MAX_FEWEST 3 /* corrections of how few blocks are fetched */
#define TIGHT 1.25   /* memory by the table, over the limit */

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

void merak_candidates_sort(struct merak_candidate *list, int n)
{
    if (n > 0)
        qsort(list, (size_t)n, sizeof(*list), sooner);
}

void merak_candidates_correct(struct merak_candidate *list, int n,
                              const struct merak_candidate *built,
                              double rated_s, double least)
{
    double error = built->step_s / rated_s;

    if (!built->settled || error < least)
        return;
    for (int i = 0; i < n; i++) {
        if (list[i].step_s == 0 && list[i].table == built->table &&
            list[i].plan.zero == built->plan.zero)
            list[i].error = fmax(list[i].error, error);
    }
    merak_candidates_sort(list, n);
}

bool merak_search_is_useless(const struct merak_search *s, double seconds)
{
    return seconds >= MERAK_SEARCH_ERROR * merak_search_worth_s(s->in) ||
           (s->in->most_s > 0 && s->found && s->effort.done > MERAK_EFFORT);
}

bool merak_candidate_is_tight(const struct merak_search *s,
                              const struct merak_candidate *c)
{
    return c->given.cut != NULL || c->bytes <= merak_search_limit(s, c) * TIGHT;
}

/* It takes more time than there is. */
static void leave(struct merak_search *s, struct merak_candidate *c)
{
    c->settled = false;
    c->step_s = 0;
    c->arena = DBL_MAX;
    s->cut_short = true;
}

void merak_candidate_try(struct merak_search *s, struct merak_candidate *c)
{
    struct merak_error why = {.status = MERAK_OK};
    enum merak_status rc;

    if (s->rc != MERAK_OK)
        return;
    merak_progress_note(s->in->progress, "building plan %d",
                        s->n_simulated + 1);
    c->step_s = 0;
    merak_search_limit_trial(s);
    s->trials.leaves =
        s->found && s->effort.done >= fmax(MERAK_EFFORT, s->effort.whole);
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
    c->settled = c->step_s > 0 && c->arena <= merak_search_limit(s, c);
    if (rc == MERAK_OK && c->settled)
        merak_search_limit_found(s, merak_search_effort(c));
    if (rc != MERAK_OK)
        merak_search_fail(s, rc, &why);
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
    s->rc = merak_search_rate(&s->cost, &next,
                              merak_search_limit(s, &next) * MERAK_SEARCH_SLACK,
                              s->err);
    merak_candidate_try(s, &next);
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
            !merak_search_fewest(s, c, merak_search_limit(s, c) - more,
                                 &next) ||
            next.plan.fetch == c->plan.fetch)
            return;
        merak_candidate_try(s, &next);
        if (s->rc != MERAK_OK || !is_better(&next, c))
            return;
        *c = next;
    }
}

void merak_candidate_try_polished(struct merak_search *s,
                                  struct merak_candidate *c)
{
    int *bound = may_settle(c) ? NULL : copy_bound(s, c);

    if (!merak_search_limit_allows(s, merak_search_effort(c))) {
        leave(s, c);
        return;
    }
    merak_search_limit_trial(s);
    merak_search_polish(s, c);
    merak_candidate_try(s, c);
    if (bound != NULL && !c->settled &&
        memcmp(bound, c->bound,
               (size_t)merak_plan_parts(&c->plan) * sizeof(*bound)) != 0)
        try_cut(s, c, bound);
    try_fewest(s, c);
}

void merak_candidate_refit(struct merak_search *s, struct merak_candidate *c)
{
    double limit = c->bytes;
    struct merak_candidate last = *c;

    for (int i = 0; i < MAX_REFITS && s->rc == MERAK_OK && !c->settled; i++) {
        struct merak_candidate next = last;

        limit *= merak_search_limit(s, &last) / last.arena;
        if (last.step_s <= 0 || last.step_s == DBL_MAX ||
            !merak_search_room(s, &next))
            return;
        merak_search_cut(s, &next, NULL, limit, false);
        if (next.rated_s == 0) {
            int *bound = copy_bound(s, &last);

            if (bound == NULL)
                return;
            merak_search_lighten(s, &next, bound, limit);
        }
        if (next.rated_s == 0)
            return;
        merak_candidate_try(s, &next);
        last = next;
        if (s->rc == MERAK_OK && is_better(&next, c))
            *c = next;
    }
}

void merak_candidate_lessen(struct merak_search *s, struct merak_candidate *c)
{
    struct merak_candidate less;

    if (!may_settle(c) || !c->settled || !merak_search_copy(s, c, &less))
        return;
    s->rc = merak_search_rate(&s->cost, &less, c->bytes - 1, s->err);
    if (s->rc != MERAK_OK || less.bytes >= c->bytes)
        return;
    less.limit = c->arena - 1;
    merak_candidate_try(s, &less);
    less.limit = c->limit;
    if (s->rc == MERAK_OK && is_better(&less, c))
        *c = less;
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

void merak_candidate_climb(struct merak_search *s, struct merak_candidate *c,
                           double effort)
{
    int parts = merak_candidate_parts(c);
    bool moved;

    s->effort.most = s->effort.done + effort;
    if (merak_cuts_count(parts, merak_candidate_segments(c)) *
            merak_search_effort(c) <
        MERAK_EFFORT / MERAK_MAX_CLIMBS) {
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
