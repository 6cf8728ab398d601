/* SPDX-License-Identifier: Apache-2.0 */
/* limit.c - the end of a search's time
 *
 * The clock enters a search only here, and where the deadline of a trial, which
 * is set here, is past: a search that is not cut short is the same on any
 * machine.  Time is shared out so that there is
 * an answer when all of it has passed: most of it for estimates, in the order
 * of enumerate.c, of which each tensor degree gets an equal part, and then, one
 * after the other, what all of them left over; some for the plainest plans of
 * tensor degrees for which none was found; the rest for building the best.  If
 * nothing fits after half of the time for estimates, the other half is for
 * plans that share out more, or move state to the host.
 */
#include "config.h"

#include "partitioner/search/search_impl.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/size.h"

#include <float.h>
#include <math.h>

/* Shares of the time: for estimates; for the plainest plans, too; until a plan
 * is built that fits: then, what would fit is looked for. */
#define FULL_SHARE 0.6
#define PLAIN_SHARE 0.8
#define BUILD_SHARE 0.9
/* Building the programs of a plan takes a time of its own, for which estimates
 * leave that of so many instructions, as long as these shares are left for
 * them. */
#define BUILD_EFFORT 430000
#define LEAST_FULL 0.4
#define LEAST_PLAIN 0.6
#define TRIAL_SHARE 0.8 /* of what is left, for one of several trials */
#define LITTLE 0.05     /* not worth another search */
/* Until the first plan was built: an instruction of it takes as long as so many
 * steps of a hash, as where both were measured.  Each search measures a step
 * anew, the least of some times. */
#define EFFORT_STEPS 2000
#define MEASURED_STEPS 6000
#define MEASUREMENTS 5
/* .. and how long it is built though the time is over. */
#define FIRST_NS 2000000000

/* Of the time that was left when estimates began. */
static int64_t at_share(const struct merak_search *s, double share)
{
    int64_t end_ns = s->start_ns + (int64_t)(s->in->seconds * 1e9);

    return s->turn.from_ns +
           (int64_t)(share * (double)(end_ns - s->turn.from_ns));
}

void merak_search_limit_share(struct merak_search *s, double share)
{
    s->over = false;
    s->until_ns = s->in->seconds > 0 ? at_share(s, share) : INT64_MAX;
}

/* The same for estimates, which leave some for building. */
static void set_estimates(struct merak_search *s, double share, double least)
{
    double all_s = (double)(at_share(s, 1) - s->turn.from_ns) * 1e-9;

    if (s->in->seconds > 0 && all_s > 0)
        share = fmin(share, fmax(least, 1 - BUILD_EFFORT * 1e-9 *
                                                s->trials.effort_ns / all_s));
    merak_search_limit_share(s, share);
}

void merak_search_limit_begin(struct merak_search *s)
{
    s->turn.from_ns = merak_clock_ns();
}

/* What an instruction of a program takes to be built and simulated, about. */
static double measure_effort_ns(void)
{
    int64_t least_ns = INT64_MAX;
    volatile uint64_t hash = 0;

    for (int i = 0; i < MEASUREMENTS; i++) {
        int64_t start_ns = merak_clock_ns(), took_ns;

        for (uint64_t step = 0; step < MEASURED_STEPS; step++)
            hash = merak_rng_mix(hash, step);
        took_ns = merak_clock_ns() - start_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    return (double)least_ns * EFFORT_STEPS / MEASURED_STEPS;
}

void merak_search_limit_init(struct merak_search *s)
{
    if (s->in->seconds > 0)
        s->trials.effort_ns = measure_effort_ns();
    merak_search_limit_begin(s);
    s->start_ns = s->turn.from_ns;
    merak_search_limit_share(s, 1);
}

/* When building has to end; not if there is no limit. */
static int64_t built_by(const struct merak_search *s)
{
    if (s->found) /* the report takes as long */
        return s->until_ns - s->trials.last_ns;
    if (s->in->most_s == 0 && !s->in->any_cp &&
        s->until_ns < s->start_ns + FIRST_NS)
        return s->start_ns + FIRST_NS;
    return s->until_ns;
}

bool merak_search_limit_allows(const struct merak_search *s, double effort)
{
    return s->until_ns == INT64_MAX ||
           (effort <= s->trials.too_much &&
            effort * s->trials.effort_ns <=
                (double)(built_by(s) - merak_clock_ns()));
}

void merak_search_limit_trial(struct merak_search *s)
{
    int64_t now = merak_clock_ns(), end;

    s->trials.start_ns = now;
    s->trials.deadline =
        (struct merak_deadline){INT64_MAX, s->found ? s->in->stop : NULL};
    if (s->until_ns == INT64_MAX)
        return;
    end = built_by(s);
    s->trials.deadline.at_ns =
        s->found ? end : now + (int64_t)(TRIAL_SHARE * (double)(end - now));
}

static int64_t sharded_by(const struct merak_search *s)
{
    int64_t end_ns;

    if (s->n_cands > 0 || s->in->seconds <= 0)
        return s->until_ns;
    end_ns = at_share(s, 1);
    return end_ns > s->start_ns + FIRST_NS ? end_ns : s->start_ns + FIRST_NS;
}

enum merak_status merak_search_shard(struct merak_search *s,
                                     const struct merak_plan *plan,
                                     const struct merak_sharded **sharded_p,
                                     struct merak_error *err)
{
    const struct merak_deadline deadline = {
        sharded_by(s), s->n_cands > 0 ? s->in->stop : NULL};
    enum merak_status rc =
        merak_graphs_shard(s->graphs, plan, &deadline, sharded_p, err);

    if (rc == MERAK_ERR_TIMEOUT)
        s->over = s->cut_short = true;
    return rc;
}

void merak_search_limit_found(struct merak_search *s, double effort)
{
    s->trials.last_ns = merak_clock_ns() - s->trials.start_ns;
    s->trials.effort_ns = (double)s->trials.last_ns / fmax(effort, 1);
    s->trials.too_much = DBL_MAX;
    if (!s->found)
        merak_search_limit_share(s, 1);
    s->found = true;
}

bool merak_search_is_past(int64_t end_ns)
{
    return end_ns < INT64_MAX && merak_clock_ns() > end_ns;
}

bool merak_search_is_late(const struct merak_search *s)
{
    if (s->n_cands == 0 && merak_search_is_past(s->turn.none_ns))
        return true;
    if (s->turn.insists && s->n_cands == 0)
        return merak_search_is_past(s->start_ns + FIRST_NS) &&
               merak_search_is_past(at_share(s, 1));
    return s->over || merak_stop_is_set(s->in->stop) ||
           merak_search_is_past(s->until_ns);
}

bool merak_search_is_over(struct merak_search *s)
{
    s->over = merak_search_is_late(s);
    s->cut_short = s->cut_short || s->over;
    return s->over;
}

bool merak_search_goes_on(struct merak_search *s)
{
    return s->rc == MERAK_OK && !merak_search_is_over(s);
}

bool merak_search_time_left(struct merak_search_input *in, int64_t start_ns)
{
    double left = in->seconds - merak_clock_since_s(start_ns);
    bool some = left > LITTLE * in->seconds;

    if (in->seconds == 0)
        return true;
    in->seconds = some ? left : LITTLE * in->seconds;
    return some;
}

double merak_search_seconds(const struct merak_search *s)
{
    return merak_clock_since_s(s->start_ns);
}

int64_t merak_search_share_ns(const struct merak_search *s, int parts)
{
    int64_t now = merak_clock_ns(), until_ns = s->until_ns;

    if (s->n_cands == 0 && s->turn.none_ns < until_ns)
        until_ns = s->turn.none_ns;
    return until_ns < INT64_MAX && now < until_ns
               ? now + (until_ns - now) / parts
               : until_ns;
}

bool merak_search_has_spare_time(const struct merak_search *s)
{
    int64_t little_ns = (int64_t)(LITTLE * s->in->seconds * 1e9);

    return !s->cut_short ||
           (s->in->seconds > 0 &&
            !merak_search_is_past(at_share(s, 1) - little_ns) &&
            (s->in->stop == NULL || *s->in->stop == 0));
}

/* Is there a plan of this tensor degree that may fit? */
static bool has_tp(const struct merak_search *s, int tp)
{
    for (int i = 0; i < s->n_cands; i++) {
        if (s->cand[i].plan.tp == tp)
            return true;
    }
    return false;
}

/* Tensor degrees from tp down that have no plan. */
static int n_rest(const struct merak_search *s, const struct merak_choices *pin,
                  int tp)
{
    int n = 0;

    for (; tp >= 1; tp--)
        n += (pin->tp == 0 || pin->tp == tp) && !has_tp(s, tp) &&
             merak_search_in_node(s) % tp == 0;
    return n;
}

/* Rate the plainest plans of each tensor degree that has none: without them a
 * search might only know plans of small degrees, or none at all.  The largest
 * degree, which takes least memory, comes first; each gets an equal part. */
static void rate_rest(struct merak_search *s)
{
    const struct merak_search_input *asked = s->in;
    struct merak_search_input plain = *asked;
    int64_t until_ns = s->until_ns;

    merak_search_narrow(&plain.pin);
    s->in = &plain;
    for (int tp = merak_search_in_node(s); tp >= 1; tp--) {
        int n = n_rest(s, &asked->pin, tp);

        if (n == n_rest(s, &asked->pin, tp - 1))
            continue;
        s->over = false;
        s->until_ns = until_ns;
        if (merak_search_is_over(s))
            break;
        s->until_ns = merak_search_share_ns(s, n);
        plain.pin.tp = tp;
        merak_search_rate_all(s);
    }
    s->in = asked;
}

void merak_search_rate_in_time(struct merak_search *s)
{
    s->turn.none_ns = INT64_MAX;
    set_estimates(s, FULL_SHARE, LEAST_FULL);
    if (s->turn.spare)
        s->turn.none_ns = merak_search_share_ns(s, 2);
    merak_search_rate_all(s);
    s->turn.none_ns = INT64_MAX;
    if (s->turn.spare && s->n_cands == 0 && merak_search_has_spare_time(s))
        return;
    if (s->rc == MERAK_OK && s->cut_short) {
        set_estimates(s, PLAIN_SHARE, LEAST_PLAIN);
        s->turn.insists = true;
        rate_rest(s);
        s->turn.insists = false;
    }
    merak_search_limit_share(s, s->found ? 1 : BUILD_SHARE);
}

/* Was it built, and cannot run? */
static bool cannot_run(const struct merak_candidate *c)
{
    return c->step_s == DBL_MAX;
}

/* The best by its estimate, of those that may run; NULL: none fits, by the
 * table or as built. */
static const struct merak_candidate *find_best(const struct merak_search *s)
{
    const struct merak_candidate *best = NULL;

    for (int i = 0; i < s->n_cands; i++) {
        const struct merak_candidate *c = &s->cand[i];

        if (cannot_run(c))
            continue;
        if (c->step_s > 0) /* built, and too big */
            return NULL;
        if (best == NULL || c->rated_s < best->rated_s)
            best = c;
    }
    return best;
}

static enum merak_status say_estimate(const struct merak_search *s,
                                      const struct merak_candidate *best)
{
    char degrees[MERAK_DEGREES_TEXT], step[MERAK_SECONDS_TEXT];
    char bound[MERAK_SECONDS_TEXT], choices[MERAK_FIX_TEXT];

    merak_seconds_text(best->rated_s, step);
    merak_seconds_text(merak_search_least_step(s), bound);
    merak_search_name_plan(s, &best->plan, choices);
    merak_fail(
        s->err, MERAK_ERR_CONFIG,
        "the search was cut short after %.1f s: of %d plans the best by its "
        "estimate (%s, micro-batch %zu, %s) takes %s a step, and none less "
        "than %s, but there was no time to build it and see that it fits; give "
        "it longer with --search-seconds",
        merak_search_seconds(s), s->n_rated,
        merak_plan_degrees_text(&best->plan, ", ", degrees),
        best->plan.micro_batch * (best->plan.sub_pipeline ? 2 : 1),
        best->plan.schedule, step, bound);
    return merak_error_fix(s->err, MERAK_ERR_CONFIG,
                           "; likely, but not verified: %s", choices);
}

static enum merak_status say_none_fits(const struct merak_search *s,
                                       const struct merak_candidate *least)
{
    bool built = least->arena > 0 && least->arena < DBL_MAX;
    struct merak_refusal r = {.constraint = MERAK_BINDS_MEMORY,
                              .stage = least->stage,
                              .have = merak_search_limit(s, least),
                              .need = built ? least->arena : least->bytes,
                              .plan = least->plan};
    char need[MERAK_BYTES_TEXT], have[MERAK_BYTES_TEXT];
    char degrees[MERAK_DEGREES_TEXT];

    if (!s->in->brief && s->err != NULL)
        merak_search_find_fixes(s, &r);
    if (s->in->refusal != NULL)
        *s->in->refusal = r;
    if (s->err == NULL)
        return MERAK_ERR_CONFIG;
    merak_bytes_text(r.need, need);
    merak_bytes_text(r.have, have);
    merak_fail(s->err, MERAK_ERR_CONFIG,
               "the search was cut short after %.1f s: of %d plans none fits "
               "in %s per rank, and the smallest (%s) needs %s; give it longer "
               "with --search-seconds, or more memory or ranks",
               merak_search_seconds(s), s->n_rated, have,
               merak_plan_degrees_text(&least->plan, ", ", degrees), need);
    if (r.n_fixes > 0)
        merak_search_say_fixes(s, &r, s->err);
    else
        merak_search_say_likely(
            s, r.need + merak_search_library_bytes(s, least), s->err);
    return MERAK_ERR_CONFIG;
}

/* Were all that fit built, and none can run? */
static bool none_runs(const struct merak_search *s)
{
    for (int i = 0; i < s->n_cands; i++) {
        if (!cannot_run(&s->cand[i]))
            return false;
    }
    return s->n_cands > 0;
}

static enum merak_status say_none_runs(const struct merak_search *s)
{
    return merak_fail(s->err, MERAK_ERR_CONFIG,
                      "the search was cut short after %.1f s: the %d of %d "
                      "plans that fit cannot run; give it longer with "
                      "--search-seconds (of the last: %s)",
                      merak_search_seconds(s), s->n_cands, s->n_rated,
                      s->run_error.text);
}

enum merak_status merak_search_no_time(const struct merak_search *s)
{
    const struct merak_candidate *best = find_best(s);
    const struct merak_candidate *least = merak_search_smallest(s);

    if (best != NULL)
        return say_estimate(s, best);
    if (none_runs(s))
        return say_none_runs(s);
    if (least != NULL)
        return say_none_fits(s, least);
    return merak_fail(s->err, MERAK_ERR_CONFIG,
                      "the search was cut short after %.1f s, before it found "
                      "a plan; give it longer with --search-seconds",
                      merak_search_seconds(s));
}
