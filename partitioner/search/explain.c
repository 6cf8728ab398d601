/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - the result of a search, and why the runners-up lost */
#include "config.h"

#include "partitioner/search/finalist.h"
#include "partitioner/search/search_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- why a plan lost ------------------------------------------------------ */

/* Seconds of a part of a step; less than 1e-9 of the step is rounding. */
static double part_seconds(double s, double step_s)
{
    return s > 1e-9 * step_s ? s : 0;
}

/* Seconds as simulated, or else as estimated, corrected by the ratio of
 * simulation to estimate of the chosen plan, or of one of its kind. */
static double seconds_of(const struct merak_search *s,
                         const struct merak_candidate *c)
{
    const struct merak_candidate *best = &s->cand[0];

    return c->step_s > 0 ? c->step_s
                         : c->rated_s * fmax(best->step_s / best->rated_s,
                                             c->error);
}

/* What its largest rank takes, by its programs or else by the table. */
static double bytes_of(const struct merak_candidate *c)
{
    return c->arena > 0 ? c->arena : c->bytes;
}

static void copy_choice(const struct merak_search *s,
                        const struct merak_candidate *c,
                        struct merak_search_choice *to)
{
    double step_s = seconds_of(s, c), scale = step_s / c->rated_s;

    *to = (struct merak_search_choice){.plan = c->plan,
                                       .step_s = step_s,
                                       .cuts = c->table->cuts,
                                       .simulated = c->step_s > 0,
                                       .fetch_s = c->fetch_s,
                                       .offload_s = c->offload_s,
                                       .memory_stage = c->stage};
    to->memory_bytes = (size_t)bytes_of(c);
    to->fits = (double)to->memory_bytes <= merak_search_limit(s, c);
    if (c->plan.recompute == MERAK_RECOMPUTE_AUTO &&
        !merak_drops_any(c->drop, merak_plan_parts(&c->plan)))
        to->plan.recompute = MERAK_RECOMPUTE_NONE;
    to->plan.offload = merak_drops_offload(&c->plan, c->drop);
    for (int i = 0; i < MERAK_PART_COUNT; i++)
        to->part_s[i] = part_seconds(c->part_s[i] * scale, to->step_s);
}

static void explain_memory(double limit, struct merak_search_choice *lost)
{
    double need = (double)lost->memory_bytes;
    char all[MERAK_BYTES_TEXT], above[MERAK_BYTES_TEXT];

    merak_bytes_text(need, all);
    merak_bytes_text(need - limit, above);
    snprintf(lost->why, sizeof(lost->why),
             "memory: stage %d needs %s, %s above the limit",
             lost->memory_stage, all, above);
}

void merak_search_explain_time(const struct merak_search_choice *best,
                               struct merak_search_choice *lost)
{
    int more = 0, less = 0, n;
    double by[MERAK_PART_COUNT];
    char part[MERAK_SECONDS_TEXT], change[MERAK_SECONDS_TEXT];

    for (int i = 0; i < MERAK_PART_COUNT; i++) {
        by[i] = lost->part_s[i] - best->part_s[i];
        more = by[i] > by[more] ? i : more;
        less = by[i] < by[less] ? i : less;
    }
    n = snprintf(lost->why, sizeof(lost->why), "%s: %s, %s more",
                 merak_search_part_name((enum merak_search_part)more),
                 merak_seconds_text(lost->part_s[more], part),
                 merak_seconds_text(by[more], change));
    if (-by[less] > 0.2 * by[more])
        snprintf(lost->why + n, sizeof(lost->why) - (size_t)n, "; %s %s less",
                 merak_search_part_name((enum merak_search_part)less),
                 merak_seconds_text(-by[less], change));
}

/* A plan that would be faster lost by memory, any other by time, among which a
 * faster one that fits is not named in the end. */
static void explain(double limit, const struct merak_search_choice *best,
                    struct merak_search_choice *lost)
{
    if (lost->step_s >= best->step_s || lost->fits)
        merak_search_explain_time(best, lost);
    else
        explain_memory(limit, lost);
}

/* --- which are named ------------------------------------------------------ */

/* Most runners-up that need more memory, if enough others fit. */
#define MAX_BIG 2
/* .. and the most that they need, of the limit: there are cards with twice the
 * memory, but not with six times. */
#define MOST_BIG 2

int merak_search_compare_plans(const struct merak_plan *a,
                               const struct merak_plan *b)
{
    bool more = true;
    int by = 0;

    for (int turn = 1; by == 0 && more; turn++) {
        more = false;
        for (int i = 0; by == 0 && i < MERAK_CHOICE_COUNT; i++) {
            if (merak_choice[i].tie != turn)
                continue;
            more = true;
            by = merak_choice_compare(&merak_choice[i], a, b);
        }
    }
    for (int i = 0; by == 0 && i < MERAK_CHOICE_COUNT; i++) {
        if (merak_choice[i].tie >= 0)
            by = merak_choice_compare(&merak_choice[i], a, b);
    }
    return by != 0 ? by : strcmp(a->schedule, b->schedule);
}

/* Do they differ in nothing that counts as much as `by`? */
static bool is_alike(const struct merak_plan *a, const struct merak_plan *b,
                     enum merak_differs by)
{
    if (by == MERAK_DIFFERS_BY_REST)
        return merak_search_compare_plans(a, b) == 0;
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *choice = &merak_choice[i];

        if (choice->differs >= by && merak_choice_compare(choice, a, b) != 0)
            return false;
    }
    return by == MERAK_DIFFERS_BY_DEGREES ||
           strcmp(a->schedule, b->schedule) == 0;
}

/* Does it need too much memory, by its programs or else by the table? */
static bool is_big(const struct merak_search *s,
                   const struct merak_candidate *c)
{
    double limit = merak_search_limit(s, c);

    return c->arena > 0 ? c->arena > limit
                        : c->bytes > limit * MERAK_SEARCH_SLACK;
}

struct runners {
    const struct merak_search *s;
    struct merak_search_result *r;
    struct merak_candidate *cand[MERAK_SEARCH_CHOICES]; /* by choice */
    bool big[MERAK_SEARCH_CHOICES];                     /* is_big() */
    bool doubtful; /* also those that may be faster than the chosen plan, as
                      far as their estimates tell */
};

/* Was it simulated, or is it slower, whatever the error of its estimate? */
static bool is_sure(const struct merak_search *s,
                    const struct merak_candidate *c)
{
    return c->step_s > 0 ||
           seconds_of(s, c) >= MERAK_SEARCH_ERROR * seconds_of(s, &s->cand[0]);
}

/* Is a similar one already named?  Plans that fit are only compared with those
 * that fit, and those that do not fit with the others. */
static bool is_named(const struct runners *n, const struct merak_candidate *c,
                     enum merak_differs by)
{
    for (int i = 0; i < n->r->n_choices; i++) {
        bool same = i == 0 || n->big[i] == is_big(n->s, c);

        if (is_alike(&c->plan, &n->r->choice[i].plan,
                     same ? by : MERAK_DIFFERS_BY_REST))
            return true;
    }
    return false;
}

/* Name those of a list that fit, or with `big` do not, up to `most` choices. */
static void name_some(struct runners *n, struct merak_candidate *list,
                      int n_list, bool big, enum merak_differs by, int most)
{
    struct merak_search_result *r = n->r;

    for (int i = 0; i < n_list && r->n_choices < most; i++) {
        struct merak_candidate *c = &list[i];
        struct merak_search_choice *lost = &r->choice[r->n_choices];

        if (c->arena == DBL_MAX /* it cannot run */ || is_big(n->s, c) != big ||
            is_named(n, c, by) || (!big && !n->doubtful && !is_sure(n->s, c)) ||
            (big && (seconds_of(n->s, c) >= r->choice[0].step_s ||
                     bytes_of(c) > MOST_BIG * merak_search_limit(n->s, c))))
            continue;
        copy_choice(n->s, c, lost);
        explain(merak_search_limit(n->s, c), &r->choice[0], lost);
        n->cand[r->n_choices] = c;
        n->big[r->n_choices++] = big;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct merak_search_choice *x = a, *y = b;

    return x->step_s < y->step_s ? -1 : x->step_s > y->step_s;
}

/* Name the chosen plan, then the runners-up with other degrees or micro-batch
 * size: those that fit, and a few that would be faster if they fit in memory.
 * If these are not enough, those with other schedules, then those that differ
 * in anything else.  Unless doubtful ones are asked for, those that fit were
 * simulated or are slower for sure. */
static void name_all(const struct merak_search *s,
                     struct merak_search_result *r, bool doubtful,
                     struct runners *runners)
{
    const int all = MERAK_SEARCH_CHOICES;
    struct runners n = {.s = s, .r = r, .doubtful = doubtful};
    int most;

    copy_choice(s, &s->cand[0], &r->choice[0]);
    r->n_choices = 1;
    name_some(&n, s->cand, s->n_cands, false, MERAK_DIFFERS_BY_DEGREES,
              all - MAX_BIG);
    most = r->n_choices + MAX_BIG;
    name_some(&n, s->cand, s->n_cands, true, MERAK_DIFFERS_BY_DEGREES, most);
    name_some(&n, s->big, s->n_bigs, true, MERAK_DIFFERS_BY_DEGREES, most);
    for (int by = MERAK_DIFFERS_BY_DEGREES; by >= MERAK_DIFFERS_BY_REST; by--)
        name_some(&n, s->cand, s->n_cands, false, (enum merak_differs)by, all);
    name_some(&n, s->big, s->n_bigs, true, MERAK_DIFFERS_BY_DEGREES, all);
    *runners = n;
}

int merak_search_near(const struct merak_search *s, bool simulated,
                      double error,
                      struct merak_candidate *near[MERAK_SEARCH_CHOICES])
{
    struct merak_search_result r = {.n_choices = 0};
    struct runners named;
    int n = 0;

    name_all(s, &r, true, &named);
    for (int i = 1; i < r.n_choices; i++) {
        const struct merak_search_choice *c = &r.choice[i];

        if (c->simulated == simulated && !named.big[i] &&
            c->step_s < error * r.choice[0].step_s)
            near[n++] = named.cand[i];
    }
    return n;
}

int merak_search_near_big(const struct merak_search *s,
                          struct merak_candidate *near[MERAK_SEARCH_CHOICES])
{
    struct merak_search_result r = {.n_choices = 0};
    struct runners named;
    int n = 0;

    name_all(s, &r, false, &named);
    for (int i = 1; i < r.n_choices; i++) {
        if (named.big[i] && !named.cand[i]->retried)
            near[n++] = named.cand[i];
    }
    return n;
}

static void choose_runners(const struct merak_search *s,
                           struct merak_search_result *r)
{
    struct runners named;

    name_all(s, r, false, &named);
    qsort(&r->choice[1], (size_t)r->n_choices - 1, sizeof(r->choice[1]),
          by_time);
}

void merak_search_set_utilisation(const struct merak_search *s,
                                  struct merak_search_result *r)
{
    double peak = s->in->device->peak_flops_per_s[s->in->dtype];

    r->of_peak = peak > 0;
    if (!r->of_peak)
        peak = s->in->device->flops_per_s[s->in->dtype];
    r->flop_utilisation =
        r->flops_per_step / r->choice[0].step_s / s->tasks / peak;
}

enum merak_status merak_search_choose(struct merak_search *s,
                                      struct merak_search_result **result_p)
{
    const struct merak_candidate *best = &s->cand[0];
    struct merak_search_result *r = calloc(1, sizeof(*r));
    int parts = merak_plan_parts(&best->plan), *cut;
    enum merak_status rc = MERAK_OK;

    if (r == NULL)
        return merak_fail_nomem(s->err, sizeof(*r));
    r->stage = calloc((size_t)best->plan.pp, sizeof(*r->stage));
    cut = merak_pool_alloc(s->pool, (size_t)parts * sizeof(*cut));
    if (r->stage == NULL || cut == NULL)
        rc = merak_fail_nomem(s->err, sizeof(*r->stage));
    if (rc == MERAK_OK)
        rc = merak_search_report(s, best, r);
    if (rc != MERAK_OK) {
        merak_search_destroy(r);
        return rc;
    }
    for (int i = 1; i < parts; i++)
        cut[i - 1] = best->bound[i] - 1;
    for (int i = 0; i < s->n_cands; i++)
        r->drops =
            r->drops || merak_drops_any(s->cand[i].drop,
                                        merak_plan_parts(&s->cand[i].plan));
    choose_runners(s, r);
    for (int i = 0; i < parts; i++) {
        if (!merak_plan_offloads_acts(&r->choice[0].plan))
            best->drop[i].again = 0;
    }
    r->choice[0].plan.cut = cut;
    r->choice[0].plan.drop = best->drop;
    r->params = (size_t)best->table->n_elements;
    merak_search_set_utilisation(s, r);
    r->memory_limit = (size_t)merak_search_limit(s, best);
    r->direct_bytes = (size_t)merak_search_library_bytes(s, best);
    r->n_rated = s->n_rated;
    r->n_simulated = s->n_simulated;
    r->cut_short = s->cut_short;
    r->took_s = merak_search_seconds(s);
    r->least_s = merak_search_least_step(s);
    r->bound_s =
        s->bound_s < DBL_MAX ? fmax(s->bound_s, r->least_s) : r->least_s;
    r->tally = s->tally;
    merak_graphs_count(s->graphs, &r->tally);
    r->pool = s->pool; /* holds the cut and drops */
    s->pool = NULL;
    *result_p = r;
    return MERAK_OK;
}
