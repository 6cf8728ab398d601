/* SPDX-License-Identifier: Apache-2.0 */
/* unlike.c - the search for stages of unlike ranks
 *
 * It is entered where stages of equal ranks lose time to the longest of them,
 * do not fit, do not exist since numbers do not divide, or run on unlike kinds
 * of nodes.  Elsewhere it could win nothing, and costs nothing.
 */
#include "config.h"

#include "partitioner/plan/comms.h"
#include "partitioner/search/unlike.h"

#include "base/error.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 512
#define MOST_SAMPLES 8 /* numbers of sequences that are tried */
#define FINALISTS 10
#define CLIMBERS 3
#define EFFORT 100000 /* instructions of lists that are simulated, about */
/* Of a step, what equal stages lose to the longest of them at least. */
#define LOST 0.03
/* An unlike plan is to be so much faster than one that every trainer can run.
 */
#define WORTH 0.99
/* Steps of a search that finds stages of this many micro-batches at once. */
#define MOST_WORK 4e6

/* --- when ------------------------------------------------------------------ */

/* Do options leave stages free, and can unlike ones do what they ask for?  All
 * may have the same given tp, and there may be a given number of them; of what
 * is not in this list, only the usual values. */
static bool is_free(const struct merak_search_input *in)
{
    static const bool obeyed[MERAK_CHOICE_COUNT] = {
        [MERAK_CHOICE_TP] = true,       [MERAK_CHOICE_PP] = true,
        [MERAK_CHOICE_STAGES] = true,   [MERAK_CHOICE_SCHEDULE] = true,
        [MERAK_CHOICE_ZERO] = true,     [MERAK_CHOICE_SP] = true,
        [MERAK_CHOICE_BOUNDARY] = true, [MERAK_CHOICE_RECOMPUTE] = true,
        [MERAK_CHOICE_BRANCHES] = true, [MERAK_CHOICE_EXPERT_ROOM] = true,
        [MERAK_CHOICE_CUT] = true};
    const struct merak_choices *pin = &in->pin;
    const struct merak_schedule *schedule;

    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        if (!obeyed[i] && pin->given[i] &&
            merak_choice_get(c, pin) != c->usual)
            return false;
    }
    if (pin->pp == 1 || pin->dp > 0 || pin->micro_batch > 0 || pin->cp > 1 ||
        pin->ep > 1 || pin->chunks > 1 || pin->sub_pipeline ||
        pin->given[MERAK_CHOICE_ORDER] || pin->list.cut != NULL ||
        pin->list.drop != NULL || in->insists_direct ||
        merak_lossy_any(&pin->lossy) ||
        (pin->given[MERAK_CHOICE_BRANCHES] &&
         pin->branches != MERAK_BRANCHES_DESCRIBED &&
         pin->branches != MERAK_BRANCHES_AUTO))
        return false;
    return pin->schedule == NULL ||
           (merak_schedule_find(pin->schedule, &schedule, NULL) == MERAK_OK &&
            merak_unlike_has(schedule));
}

/* Does a prime factor of the ranks not divide the batch?  Replicas cannot have
 * it then. */
static bool is_odd(int ranks, size_t batch)
{
    for (int f = 2; ranks > 1; f++) {
        if (ranks % f == 0 && batch % (size_t)f != 0)
            return true;
        while (ranks % f == 0)
            ranks /= f;
    }
    return false;
}

/* Of a step, what is lost since one stage takes longer than the mean. */
static double lost_to_longest(const struct merak_search_result *r)
{
    const struct merak_search_choice *c = &r->choice[0];
    double most = 0, all = 0;

    for (int s = 0; s < c->plan.pp; s++) {
        const struct merak_search_stage *st = &r->stage[s];
        double work = st->forward_s + st->backward_s + st->recompute_s;

        most = fmax(most, work);
        all += work;
    }
    return c->plan.microbatches * (most - all / c->plan.pp) / c->step_s;
}

static bool may_pay(const struct merak_search_input *in,
                    enum merak_status found,
                    const struct merak_search_result *r)
{
    int ranks = in->nodes * in->ranks_per_node;

    if (!in->unlike || ranks < 2 || ranks > MOST_RANKS || !is_free(in))
        return false;
    if (in->n_kinds > 1)
        return true;
    if (found != MERAK_OK)
        return found == MERAK_ERR_CONFIG;
    /* Unlike ones would send through host memory, which may be slower than the
     * device's links. */
    if (in->direct && !in->pin.list.auto_stages)
        return false;
    return lost_to_longest(r) > LOST || is_odd(ranks, in->global_batch);
}

/* --- how many sequences ---------------------------------------------------- */

static double distance(size_t a, double b)
{
    return fabs(log((double)a / b));
}

/* The numbers of sequences of a micro-batch, all replicas together, that divide
 * the batch and are nearest to those of the plan of equal stages, or to half
 * the ranks. */
static int choose_samples(const struct merak_search_input *in,
                          const struct merak_search_result *r,
                          size_t samples[MOST_SAMPLES])
{
    double like = fmax(1, in->nodes * in->ranks_per_node / 2.0);
    int n = 0;

    if (r != NULL)
        like = (double)merak_plan_samples(&r->choice[0].plan);
    for (size_t g = 1; g <= in->global_batch; g++) {
        int at = n;

        if (in->global_batch % g != 0)
            continue;
        while (at > 0 && distance(g, like) < distance(samples[at - 1], like)) {
            if (at < MOST_SAMPLES)
                samples[at] = samples[at - 1];
            at--;
        }
        if (at < MOST_SAMPLES)
            samples[at] = g;
        n += n < MOST_SAMPLES;
    }
    return n;
}

/* --- lists ----------------------------------------------------------------- */

/* The best so far, by the tables. */
struct finalists {
    struct merak_unlike_list list[FINALISTS];
    int n;
    bool equal;  /* lists of equal stages count, too */
    double most; /* seconds of a step: others are hopeless */
};

static bool is_same(const struct merak_unlike_list *a,
                    const struct merak_unlike_list *b)
{
    size_t n = (size_t)a->pp;

    return a->pp == b->pp && a->samples == b->samples && a->zero == b->zero &&
           memcmp(a->stage, b->stage, n * sizeof(*a->stage)) == 0 &&
           memcmp(a->kind, b->kind, n * sizeof(*a->kind)) == 0 &&
           memcmp(a->bound, b->bound, (n + 1) * sizeof(*a->bound)) == 0;
}

static bool is_equal(const struct merak_unlike_list *list)
{
    for (int s = 1; s < list->pp; s++) {
        if (memcmp(&list->stage[s], &list->stage[0], sizeof(*list->stage)) != 0)
            return false;
    }
    return true;
}

static void consider(struct finalists *f, const struct merak_unlike_list *list)
{
    int at = f->n;

    if (list->rated_s > f->most || (!f->equal && is_equal(list)))
        return;
    for (int i = 0; i < f->n; i++) {
        if (is_same(&f->list[i], list))
            return;
    }
    while (at > 0 && list->rated_s < f->list[at - 1].rated_s) {
        if (at < FINALISTS)
            f->list[at] = f->list[at - 1];
        at--;
    }
    if (at < FINALISTS)
        f->list[at] = *list;
    f->n += f->n < FINALISTS;
}

static void fill_list(struct merak_unlike_types *types,
                      const struct merak_reach_stage *stage, int pp,
                      struct merak_unlike_list *list)
{
    *list = (struct merak_unlike_list){
        .pp = pp, .zero = types->zero, .samples = types->samples};
    for (int s = 0; s < pp; s++) {
        const struct merak_unlike_type *t = &types->type[stage[s].type];

        list->stage[s] = t->degrees;
        list->kind[s] = t->kind;
        list->table[s] = t->cand.table;
        list->bound[s] = stage[s].from;
    }
    list->schedule = types->u->schedule;
    list->bound[pp] = types->u->segments;
    list->rated_s = merak_unlike_rate(types, stage, pp);
}

/* Move bounds while the estimate gets shorter. */
static void polish(struct merak_unlike_types *types,
                   struct merak_reach_stage *stage, int pp)
{
    double best = merak_unlike_rate(types, stage, pp);
    bool moved = true;

    while (moved) {
        moved = false;
        for (int s = 1; s < pp; s++) {
            for (int by = -1; by <= 1; by += 2) {
                int from = stage[s].from + by, before = stage[s].from;
                int end =
                    s + 1 < pp ? stage[s + 1].from : types->u->last + 1;
                double took;

                if (from <= stage[s - 1].from || from >= end)
                    continue;
                stage[s].from = from;
                took = merak_unlike_rate(types, stage, pp);
                if (took < best * (1 - 1e-9)) {
                    best = took;
                    moved = true;
                } else {
                    stage[s].from = before;
                }
            }
        }
    }
}

static struct merak_reach_input reach_of(struct merak_unlike_types *types)
{
    const struct merak_unlike *u = types->u;
    double each = (double)u->s.tasks * (u->segments + 1) * types->n;
    int most = (int)fmin(types->most_stages, fmax(2, MOST_WORK / each));

    return (struct merak_reach_input){.n = u->segments,
                                      .last = u->last,
                                      .ranks = u->s.tasks,
                                      .most_stages = most,
                                      .n_types = types->n,
                                      .type_ranks = types->ranks,
                                      .may_be = merak_unlike_may_be,
                                      .seconds = merak_unlike_seconds,
                                      .arg = types};
}

/* Lists of every number of stages, until more of them no longer pay. */
static enum merak_status find_lists(struct merak_unlike_types *types,
                                    struct finalists *f)
{
    const struct merak_reach_input in = reach_of(types);
    struct merak_reach_stage stage[MERAK_UNLIKE_STAGES];
    struct merak_search *s = &types->u->s;
    struct merak_reach *reach = NULL;
    struct merak_unlike_list list;

    s->rc = merak_reach_create(&in, &reach, s->err);
    for (int pp = 2; pp <= in.most_stages && merak_search_goes_on(s); pp++) {
        if ((s->in->pin.pp > 0 && s->in->pin.pp != pp) ||
            !merak_unlike_set_stages(types, pp))
            continue;
        s->n_rated++;
        merak_progress_note(s->in->progress, "%d unlike stages, batch %zu", pp,
                            types->samples);
        merak_progress_add(s->in->progress, 1);
        if (merak_reach_least(reach, pp, stage) == DBL_MAX)
            continue;
        fill_list(types, stage, pp, &list);
        consider(f, &list);
        polish(types, stage, pp);
        fill_list(types, stage, pp, &list);
        consider(f, &list);
    }
    merak_reach_destroy(reach);
    return s->rc;
}

/* --- of all kinds ---------------------------------------------------------- */

/* Find lists with the ranks of kinds in every order. */
static enum merak_status find_orders(struct merak_unlike_types *types,
                                     struct finalists *f)
{
    enum merak_status rc = MERAK_OK;

    do {
        if (rc == MERAK_OK && types->n > 0)
            rc = find_lists(types, f);
    } while (merak_unlike_reorder(types->u));
    return rc;
}

static enum merak_status rate_samples(struct merak_unlike *u, size_t samples,
                                      int zero, struct finalists *f)
{
    struct merak_unlike_types *types = calloc(1, sizeof(*types));
    enum merak_status rc;

    if (types == NULL)
        return merak_fail_nomem(u->s.err, sizeof(*types));
    rc = merak_unlike_types_init(types, u, samples, zero);
    if (rc == MERAK_OK)
        rc = find_orders(types, f);
    merak_unlike_types_fini(types);
    free(types);
    return rc;
}

static int zero_of(const struct merak_search_input *in)
{
    return in->pin.given[MERAK_CHOICE_ZERO] && in->pin.zero >= 0
               ? in->pin.zero
               : MERAK_ZERO_STATE;
}

static enum merak_status rate_all(struct merak_unlike *u,
                                  const size_t *samples, int n, int zero,
                                  struct finalists *f)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < n && rc == MERAK_OK; i++)
        rc = rate_samples(u, samples[i], zero, f);
    return rc;
}

/* Simulate the finalists, and improve the best few of them. */
static enum merak_status choose(struct merak_unlike *u, struct finalists *f,
                                struct merak_unlike_list *best)
{
    struct merak_unlike_list *at[CLIMBERS] = {NULL};

    *best = (struct merak_unlike_list){.fits = false};
    for (int i = 0; i < f->n && (i == 0 || merak_search_goes_on(&u->s)); i++) {
        if (at[0] != NULL && at[0]->fits && u->s.effort.done > EFFORT)
            break;
        if (merak_unlike_try(u, &f->list[i]) != MERAK_OK)
            return u->s.rc;
        for (int c = 0; c < CLIMBERS; c++) {
            struct merak_unlike_list *lost = at[c];

            if (lost != NULL && !merak_unlike_is_better(&f->list[i], lost))
                continue;
            memmove(&at[c + 1], &at[c],
                    (size_t)(CLIMBERS - 1 - c) * sizeof(*at));
            at[c] = &f->list[i];
            break;
        }
    }
    for (int c = 0; c < CLIMBERS && at[c] != NULL && at[c]->fits; c++) {
        if (at[c]->step_s < f->most && merak_unlike_climb(u, at[c]) != MERAK_OK)
            return u->s.rc;
        if (c == 0 || merak_unlike_is_better(at[c], best))
            *best = *at[c];
    }
    return MERAK_OK;
}

/* --- nothing --------------------------------------------------------------- */

/* With how many times the memory there would be stages: by the table, of the
 * sequences that are nearest; 0: with none. */
static double find_need(struct merak_unlike *u, size_t samples, int zero)
{
    struct merak_unlike_types *types = calloc(1, sizeof(*types));
    struct finalists f = {.equal = true, .most = DBL_MAX};
    double more = 1.1;

    if (types == NULL)
        return 0;
    if (merak_unlike_types_init(types, u, samples, zero) == MERAK_OK) {
        for (; f.n == 0 && more < 100 && merak_search_goes_on(&u->s);
             more *= 1.1) {
            merak_unlike_set_memory(types, more);
            if (find_orders(types, &f) != MERAK_OK)
                break;
        }
    }
    merak_unlike_types_fini(types);
    free(types);
    return f.n > 0 ? more / 1.1 : 0;
}

/* Add to the refusal of equal stages why unlike ones would not do either. */
static void add_refusal(struct merak_unlike *u, const size_t *samples, int n,
                        struct merak_error *err)
{
    char tried[64] = "", bytes[MERAK_BYTES_TEXT], need[80] = "";
    size_t at = strlen(err->text);
    double more = n > 0 ? find_need(u, samples[0], zero_of(u->s.in)) : 0;

    for (int i = 0, len = 0; i < n && len + 24 < (int)sizeof(tried); i++)
        len += snprintf(tried + len, sizeof(tried) - (size_t)len, "%s%zu",
                        i > 0 ? ", " : "", samples[i]);
    if (more > 0 && u->n_kinds > 1) {
        snprintf(need, sizeof(need),
                 ": one would with about %.2f times the memory of every kind",
                 more);
    } else if (more > 0) {
        merak_bytes_text(u->limit[0] * more, bytes);
        snprintf(need, sizeof(need), ": a stage needs about %s", bytes);
    }
    snprintf(err->text + at, sizeof(err->text) - at,
             "; and no division of %d ranks into unlike stages with %s "
             "sequences a micro-batch fits%s",
             u->s.tasks, tried, need);
}

/* --- together -------------------------------------------------------------- */

enum merak_status merak_search_unlike(const struct merak_search_input *input,
                                      enum merak_status found,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err)
{
    struct merak_search_result *equal = found == MERAK_OK ? *result_p : NULL;
    struct merak_search_input in = *input;
    size_t samples[MOST_SAMPLES];
    struct finalists *f;
    struct merak_unlike_list best;
    struct merak_unlike u;
    struct merak_error why;
    enum merak_status rc;
    int n;

    /* Plans of equal stages do not fail for want of what those of unlike ones
     * do without. */
    static const struct merak_comms equal_stages = {.groups = 3, .pairs = 6};

    if (!may_pay(input, found, equal))
        return found;
    if (in.direct)
        in.spare_bytes += merak_comms_bytes(equal_stages, &in.comms);
    in.direct = in.fast_sums = false; /* a rank has too many peers for that */
    in.refusal = NULL;
    f = calloc(1, sizeof(*f));
    if (f == NULL)
        return found;
    f->equal = equal == NULL || in.n_kinds > 1;
    f->most = equal == NULL ? DBL_MAX
                            : equal->choice[0].step_s * MERAK_SEARCH_ERROR;
    n = choose_samples(&in, equal, samples);
    rc = merak_unlike_init(&u, &in, &why);
    if (rc == MERAK_OK)
        rc = rate_all(&u, samples, n, zero_of(&in), f);
    if (rc == MERAK_OK && f->n == 0 && equal == NULL &&
        !in.pin.given[MERAK_CHOICE_ZERO])
        rc = rate_all(&u, samples, n, MERAK_ZERO_PARAMS, f);
    if (rc == MERAK_OK)
        rc = choose(&u, f, &best);
    free(f);
    if (rc == MERAK_OK && best.fits &&
        (equal == NULL || best.step_s < WORTH * equal->choice[0].step_s)) {
        found = merak_unlike_report(&u, &best, &equal, err);
        *result_p = equal;
    } else if (rc == MERAK_OK && equal == NULL && err != NULL) {
        add_refusal(&u, samples, n, err);
    }
    merak_unlike_fini(&u);
    return found;
}
