/* SPDX-License-Identifier: Apache-2.0 */
/* explain.c - what a search found, why the others lost, and what to
 * change where nothing fits
 */
#include "config.h"

#include "partitioner/search/impl.h"

#include "base/error.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- why a plan lost ------------------------------------------------------ */

static bool drops_any(const struct merak_candidate *c)
{
    bool any = false;

    for (int p = 0; p < merak_plan_parts(&c->plan); p++)
        any = any || c->drop[p].attention || c->drop[p].blocks > 0;
    return any;
}

/* A part of a step; what is below 1e-9 of it is rounding. */
static double part_seconds(double s, double step_s)
{
    return s > 1e-9 * step_s ? s : 0;
}

/* What one that was not simulated would take if the table were as far off as
 * it is of the chosen one. */
static double seconds_of(const struct merak_search *s,
                         const struct merak_candidate *c)
{
    const struct merak_candidate *best = &s->cand[0];

    return c->step_s > 0 ? c->step_s
                         : c->rated_s * (best->step_s / best->rated_s);
}

static void copy_choice(const struct merak_search *s,
                        const struct merak_candidate *c,
                        struct merak_search_choice *to)
{
    double step_s = seconds_of(s, c), scale = step_s / c->rated_s;

    *to = (struct merak_search_choice){.plan = c->plan,
                                       .step_s = step_s,
                                       .simulated = c->step_s > 0,
                                       .memory_stage = c->stage};
    to->memory_bytes = (size_t)(c->arena > 0 ? c->arena : c->bytes);
    to->fits = (double)to->memory_bytes <= s->limit;
    if (c->plan.recompute == MERAK_RECOMPUTE_AUTO && !drops_any(c))
        to->plan.recompute = MERAK_RECOMPUTE_NONE;
    for (int i = 0; i < MERAK_PART_COUNT; i++)
        to->part_s[i] = part_seconds(c->part_s[i] * scale, to->step_s);
}

/* "12.3 ms" */
static const char *time_text(double s, char text[16])
{
    if (s >= 1)
        snprintf(text, 16, "%.4g s", s);
    else if (s >= 1e-3)
        snprintf(text, 16, "%.4g ms", 1e3 * s);
    else
        snprintf(text, 16, "%.3g us", 1e6 * s);
    return text;
}

static void explain_memory(const struct merak_search *s,
                           struct merak_search_choice *lost)
{
    double need = (double)lost->memory_bytes;
    char all[MERAK_BYTES_TEXT], above[MERAK_BYTES_TEXT];

    merak_bytes_text(need, all);
    merak_bytes_text(need - s->limit, above);
    snprintf(lost->why, sizeof(lost->why),
             "memory: stage %d needs %s, %s above the limit",
             lost->memory_stage, all, above);
}

/* What it loses most by, and what it gains most by if that matters. */
static void explain_time(const struct merak_search_choice *best,
                         struct merak_search_choice *lost)
{
    int more = 0, less = 0, n;
    double by[MERAK_PART_COUNT];
    char part[16], change[16];

    for (int i = 0; i < MERAK_PART_COUNT; i++) {
        by[i] = lost->part_s[i] - best->part_s[i];
        more = by[i] > by[more] ? i : more;
        less = by[i] < by[less] ? i : less;
    }
    n = snprintf(lost->why, sizeof(lost->why), "%s: %s, %s more",
                 merak_search_part_name((enum merak_search_part)more),
                 time_text(lost->part_s[more], part),
                 time_text(by[more], change));
    if (-by[less] > 0.2 * by[more])
        snprintf(lost->why + n, sizeof(lost->why) - (size_t)n, "; %s %s less",
                 merak_search_part_name((enum merak_search_part)less),
                 time_text(-by[less], change));
}

/* Memory, of one that would be faster; else time. */
static void explain(const struct merak_search *s,
                    const struct merak_search_choice *best,
                    struct merak_search_choice *lost)
{
    if (lost->step_s >= best->step_s)
        explain_time(best, lost);
    else if (!lost->fits)
        explain_memory(s, lost);
    else
        snprintf(lost->why, sizeof(lost->why),
                 "rated too near to the chosen one to be simulated: fix it "
                 "to see");
}

static bool is_alike(const struct merak_plan *a, const struct merak_plan *b)
{
    return a->tp == b->tp && a->pp == b->pp && a->dp == b->dp &&
           a->micro_batch == b->micro_batch;
}

static int by_time(const void *a, const void *b)
{
    const struct merak_search_choice *x = a, *y = b;

    return x->step_s < y->step_s ? -1 : x->step_s > y->step_s;
}

/* The next best of other degrees or micro-batch size: those that fit, and
 * those that would be faster had they the memory. */
static void choose_runners(const struct merak_search *s,
                           struct merak_search_result *r)
{
    int fit = 1, big = 0;

    while (r->n_choices < MERAK_SEARCH_CHOICES) {
        const struct merak_candidate *c;
        bool seen = false;

        if (big < s->n_bigs &&
            seconds_of(s, &s->big[big]) < r->choice[0].step_s)
            c = &s->big[big++];
        else if (fit < s->n_cands)
            c = &s->cand[fit++];
        else
            break;
        seen = c->arena == DBL_MAX; /* it cannot run */
        for (int i = 0; i < r->n_choices; i++)
            seen = seen || is_alike(&c->plan, &r->choice[i].plan);
        if (seen)
            continue;
        copy_choice(s, c, &r->choice[r->n_choices]);
        explain(s, &r->choice[0], &r->choice[r->n_choices]);
        r->n_choices++;
    }
    qsort(&r->choice[1], (size_t)r->n_choices - 1, sizeof(r->choice[1]),
          by_time);
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
        rc = merak_search_report(s->in, &s->cost, s->graphs, best, r, s->err);
    if (rc != MERAK_OK) {
        merak_search_destroy(r);
        return rc;
    }
    for (int i = 1; i < parts; i++)
        cut[i - 1] = best->bound[i] - 1;
    copy_choice(s, best, &r->choice[0]);
    r->choice[0].plan.cut = cut;
    r->choice[0].plan.drop = best->drop;
    r->n_choices = 1;
    choose_runners(s, r);
    r->params = (size_t)best->table->n_elements;
    r->flop_utilisation = r->flops_per_step / r->choice[0].step_s / s->tasks /
                          s->in->device->peak_flops_per_s[s->in->dtype];
    r->memory_limit = (size_t)s->limit;
    r->n_rated = s->n_rated;
    r->n_simulated = s->n_simulated;
    r->pool = s->pool; /* holds the cut and drops */
    s->pool = NULL;
    *result_p = r;
    return MERAK_OK;
}

/* --- when nothing fits ---------------------------------------------------- */

/* NULL: none could run, whatever the memory. */
static const struct merak_candidate *least(const struct merak_search *s)
{
    const struct merak_candidate *c = NULL;

    for (int i = 0; i < s->n_bigs; i++) {
        if (c == NULL || s->big[i].bytes < c->bytes)
            c = &s->big[i];
    }
    for (int i = 0; i < s->n_cands; i++) {
        if (s->cand[i].arena < (c == NULL ? DBL_MAX : c->bytes))
            c = &s->cand[i];
    }
    return c;
}

/* Would the same request fit on more nodes?  0: not on 16 times as many. */
static int enough_nodes(const struct merak_search_input *in)
{
    struct merak_search_input more = *in;
    struct merak_search s;

    for (int by = 2; by <= 16; by *= 2) {
        int found = 0;

        if (in->nodes > INT32_MAX / by / in->ranks_per_node)
            break;
        more.nodes = in->nodes * by;
        more.pin.dp = more.pin.pp = 0;
        if (merak_search_init(&s, &more, NULL) == MERAK_OK &&
            merak_search_rate_all(&s) == MERAK_OK)
            found = s.n_cands;
        merak_search_fini(&s);
        if (found > 0)
            return more.nodes;
    }
    return 0;
}

enum merak_status merak_search_no_memory(const struct merak_search *s)
{
    const struct merak_candidate *c = least(s);
    char limit[MERAK_BYTES_TEXT], need_text[MERAK_BYTES_TEXT], more[32] = "";
    double need;
    int nodes;

    if (c == NULL) {
        if (s->err != NULL)
            *s->err = s->run_error;
        return s->run_error.status;
    }
    need = c->arena > c->bytes ? c->arena : c->bytes;
    nodes = enough_nodes(s->in);
    if (nodes > 0)
        snprintf(more, sizeof(more), ", or %d nodes", nodes);
    merak_bytes_text(need, need_text);
    merak_bytes_text(s->limit, limit);
    return merak_fail(
        s->err, MERAK_ERR_CONFIG,
        "memory: no plan fits in %s a rank; the smallest (tp %d, pp %d, dp %d, "
        "micro-batch %zu, %s) needs %s on stage %d; nearest: %s a rank%s",
        limit, c->plan.tp, c->plan.pp, c->plan.dp, c->plan.micro_batch,
        c->plan.schedule, need_text, c->stage, need_text, more);
}

/* How far a degree is from the wanted one, if any is. */
static double degree_distance(int wanted, int degree)
{
    return wanted > 0 ? fabs(log2((double)wanted / degree)) : 0;
}

/* The pinned degrees, changed by the least factor so that they fit. */
static struct merak_plan nearest_degrees(const struct merak_search *s)
{
    const struct merak_search_pins *pin = &s->in->pin;
    struct merak_plan near = {.tp = 1, .pp = 1, .dp = s->tasks};
    double best = DBL_MAX;

    for (int t = 1; t <= s->in->ranks_per_node; t++) {
        for (int p = 1; p <= s->tasks / t; p++) {
            double far = degree_distance(pin->tp, t) +
                         degree_distance(pin->pp, p) +
                         degree_distance(pin->dp, s->tasks / t / p);

            if (s->in->ranks_per_node % t != 0 || s->tasks % (t * p) != 0 ||
                far >= best)
                continue;
            best = far;
            near =
                (struct merak_plan){.tp = t, .pp = p, .dp = s->tasks / t / p};
        }
    }
    return near;
}

static enum merak_status no_degrees(const struct merak_search *s)
{
    const struct merak_search_pins *pin = &s->in->pin;
    struct merak_plan near = nearest_degrees(s);
    const struct {
        const char *name;
        int given, nearest;
    } degree[] = {{"tp", pin->tp, near.tp},
                  {"pp", pin->pp, near.pp},
                  {"dp", pin->dp, near.dp}};
    char given[64] = "", nearest[64] = "";

    for (size_t i = 0; i < 3; i++) {
        size_t g = strlen(given), n = strlen(nearest);

        if (degree[i].given == 0)
            continue;
        snprintf(given + g, sizeof(given) - g, "%s%s %d", g > 0 ? ", " : "",
                 degree[i].name, degree[i].given);
        snprintf(nearest + n, sizeof(nearest) - n, "%s%s %d", n > 0 ? ", " : "",
                 degree[i].name, degree[i].nearest);
    }
    return merak_fail(s->err, MERAK_ERR_CONFIG,
                      "degrees: %s: tp x pp x dp must be the %d ranks, tp "
                      "must divide the %d of a node; nearest: %s",
                      given, s->tasks, s->in->ranks_per_node, nearest);
}

/* Sequences that a micro-batch has a multiple of, where tensor ranks are to
 * share them out and there is one tp only. */
static size_t samples_unit(const struct merak_search *s)
{
    const struct merak_search_pins *pin = &s->in->pin;
    size_t tp = pin->tp > 0 ? (size_t)pin->tp
                : pin->pp > 0 && pin->dp > 0
                    ? (size_t)(s->tasks / pin->pp / pin->dp)
                    : 1;

    if (pin->batch == 0)
        return 1;
    return tp > 1 && pin->sub_pipeline == MERAK_PIN_YES ? 2 * tp : tp;
}

static bool is_sliced(const struct merak_search_pins *pin)
{
    return pin->schedule != NULL && merak_schedule_slices(pin->schedule) > 1;
}

static bool is_micro_batch_fixed(const struct merak_search_pins *pin)
{
    return pin->micro_batch > 0 || is_sliced(pin);
}

static enum merak_status no_samples(const struct merak_search *s, size_t b,
                                    size_t unit)
{
    const struct merak_search_pins *pin = &s->in->pin;

    if (is_sliced(pin))
        return merak_fail(s->err, MERAK_ERR_CONFIG,
                          "schedule %s runs micro-batches of 1, which tensor "
                          "ranks cannot share out: leave --tp-batch %d out, or "
                          "use another schedule",
                          pin->schedule, pin->batch);
    return merak_fail(s->err, MERAK_ERR_CONFIG,
                      "micro-batch: tensor ranks cannot share out %zu, as "
                      "--tp-batch %d asks; nearest: %zu",
                      b, pin->batch, (b / unit + 1) * unit);
}

/* The batch sizes near the wanted one that some plan divides: a multiple of
 * dp * micro-batch for the smallest dp there can be. */
enum merak_status merak_search_no_division(const struct merak_search *s)
{
    const struct merak_search_pins *pin = &s->in->pin;
    size_t dp = pin->dp > 0 ? (size_t)pin->dp : 1;
    size_t b = pin->micro_batch > 0 ? pin->micro_batch : 1;
    size_t tp = pin->tp > 0 ? (size_t)pin->tp : 1;
    size_t pp = pin->pp > 0 ? (size_t)pin->pp : 1;
    size_t fixed = tp * pp * dp, unit, batch;

    if (s->n_tp_refused > 0) {
        if (s->err != NULL)
            *s->err = s->tp_error;
        return MERAK_ERR_CONFIG;
    }
    if ((size_t)s->tasks % fixed != 0 || s->in->ranks_per_node % (int)tp != 0 ||
        (pin->tp > 0 && pin->pp > 0 && pin->dp > 0 &&
         fixed != (size_t)s->tasks))
        return no_degrees(s);
    if (pin->dp == 0 && pin->tp > 0 && pin->pp > 0)
        dp = (size_t)s->tasks / tp / pp;
    unit = samples_unit(s);
    if (is_micro_batch_fixed(pin) && b % unit != 0)
        return no_samples(s, b, unit);
    if (!is_micro_batch_fixed(pin))
        b = unit;
    batch = (s->in->global_batch / (dp * b) + 1) * dp * b;
    if (s->in->global_batch % (dp * b) != 0)
        return merak_fail(s->err, MERAK_ERR_CONFIG,
                          "global batch: %zu sequences are no multiple of dp "
                          "%zu x micro-batch %zu; nearest: %zu",
                          s->in->global_batch, dp, b, batch);
    if (pin->schedule != NULL && s->schedule_error.status != MERAK_OK) {
        if (s->err != NULL)
            *s->err = s->schedule_error;
        return MERAK_ERR_CONFIG;
    }
    return merak_fail(
        s->err, MERAK_ERR_CONFIG,
        "degrees: %d ranks and a global batch of %zu have no tp x pp x dp "
        "that the model can be cut to and dp divides the batch; nearest: a "
        "global batch of %zu",
        s->tasks, s->in->global_batch,
        (s->in->global_batch / (size_t)s->tasks + 1) * (size_t)s->tasks);
}
