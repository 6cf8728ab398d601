/* SPDX-License-Identifier: Apache-2.0 */
/* refuse.c - find which constraint binds where a search found no plan
 *
 * The constraint is found as numbers, in a struct merak_refusal; nearest_plan.c
 * adds the changes that would work; only say() puts it into words.
 */
#include "config.h"

#include "partitioner/plan/held.h"
#include "partitioner/search/fixed.h"
#include "partitioner/search/search_impl.h"

#include "base/error.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory --------------------------------------------------------------- */

/* The fewest replicas that the request allows. */
static int least_dp(const struct merak_search *s)
{
    const struct merak_choices *pin = &s->in->pin;
    int dp = 1;

    if (pin->dp > 0)
        dp = pin->dp;
    else if (pin->tp > 0 && pin->pp > 0 && merak_search_ep(s) > 0)
        dp = s->spread / pin->tp / merak_search_ep(s) / pin->pp;
    return dp > 0 ? dp : 1;
}

static bool is_hopeless(const struct merak_search *s)
{
    return s->state > s->most * MERAK_SEARCH_SLACK;
}

/*
 * However a model is cut, its tensor ranks and stages together hold all of it.
 * Every replica has parameters and accumulators, or, where these are flat, all
 * replicas together have them once; ranks that a sequence is cut over are
 * replicas to it, without that.  Optimizer state exists at least once, or,
 * where nothing is shared out, once a replica; it may be the host's.  Some rank
 * takes at least the mean.
 */
bool merak_search_is_hopeless(struct merak_search *s)
{
    const struct merak_choices *pin = &s->in->pin;
    double dp = (merak_search_may_be_flat(pin) ? 1.0 : least_dp(s)) *
                merak_search_cp(s->in);
    struct merak_state of;

    if (merak_graphs_state(s->graphs, &of, NULL) != MERAK_OK)
        return false; /* the search says why */
    if (merak_offload_has_state(pin->offload))
        of.parted = 0;
    s->state = dp * of.whole + of.parted;
    if (pin->given[MERAK_CHOICE_ZERO] && pin->zero == 0)
        s->state += (dp - 1) * of.parted;
    s->state /= s->tasks;
    return is_hopeless(s);
}

void merak_search_rate_plain(struct merak_search *s)
{
    const struct merak_search_input *asked = s->in;
    struct merak_search_input plain = *asked;

    merak_search_narrow(&plain.pin);
    s->in = &plain;
    merak_search_rate_all(s);
    s->in = asked;
}

const struct merak_candidate *
merak_search_smallest(const struct merak_search *s)
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

/* A request that only this plan satisfies. */
static struct merak_search_input only(const struct merak_search *s,
                                      const struct merak_candidate *c)
{
    const struct merak_choices *asked = &s->in->pin;
    struct merak_search_input in = *s->in;
    static const enum merak_choice_id kept[] = {
        MERAK_CHOICE_RECOMPUTE, MERAK_CHOICE_BOUNDARY, MERAK_CHOICE_BRANCHES};

    merak_choices_of(&c->plan, &in.pin);
    in.pin.list = asked->list;
    in.pin.recompute = asked->recompute;
    in.pin.boundary = asked->boundary;
    in.pin.branches = asked->branches;
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        in.pin.given[kept[i]] = asked->given[kept[i]];
    return in;
}

/* Round bytes up to what that says. */
static size_t round_up(double bytes)
{
    char text[MERAK_NUMBER_TEXT];

    merak_search_gib_text(bytes, text);
    return (size_t)ceil(strtod(text, NULL) * 0x1p30);
}

/* Bytes that the smallest plan takes when built; 0: not found. */
static size_t enough_memory(const struct merak_search *s,
                            const struct merak_candidate *c)
{
    struct merak_search_input in = only(s, c);
    double need = c->arena > 0 && c->arena < DBL_MAX ? c->arena : c->bytes;

    need += merak_search_library_bytes(s, c);
    for (int i = 0; i < 40 && !merak_search_is_late(s); i++) {
        in.memory_bytes = round_up(need);
        if (merak_search_has_plan(s, &in))
            return in.memory_bytes;
        need *= 1.02;
    }
    return 0;
}

/* --- numbers that do not divide ------------------------------------------- */

/* Does the request have tensor ranks split a micro-batch that they cannot? */
static bool has_no_samples(const struct merak_search *s,
                           struct merak_refusal *r)
{
    const struct merak_choices *pin = &s->in->pin;
    bool sliced =
        pin->schedule != NULL && merak_schedule_slices(pin->schedule) > 1;
    size_t b = sliced ? 1 : pin->micro_batch;
    size_t ep = pin->ep > 1 ? (size_t)pin->ep : 1;
    size_t tp = pin->tp > 0 ? (size_t)pin->tp * ep
                : pin->pp > 0 && pin->dp > 0
                    ? (size_t)(s->spread / pin->pp / pin->dp)
                    : 1;
    size_t half = tp > 1 && pin->sub_pipeline ? 2 : 1;

    r->have = (double)b;
    r->need = (double)(half * tp);
    return merak_choices_share_samples(pin) && b > 0 && b % (half * tp) != 0;
}

/* Does no allowed dp, with the micro-batch, divide the batch? */
static bool has_no_batch(const struct merak_search *s, struct merak_refusal *r)
{
    const struct merak_choices *pin = &s->in->pin;
    size_t b = pin->micro_batch > 0 ? pin->micro_batch
                                    : merak_choices_least_samples(pin);

    r->plan.dp = least_dp(s);
    r->plan.micro_batch = b;
    r->have = (double)s->in->global_batch;
    r->need = (double)r->plan.dp * (double)b;
    return s->in->global_batch % ((size_t)r->plan.dp * b) != 0;
}

/* Is a sub-pipeline requested with an odd micro-batch? */
static bool has_no_halves(const struct merak_search *s, struct merak_refusal *r)
{
    const struct merak_choices *pin = &s->in->pin;

    r->have = (double)pin->micro_batch;
    return pin->sub_pipeline && pin->micro_batch % 2 != 0;
}

/* pp as requested, directly or by tp and dp; 0: it is free. */
static int pp_asked(const struct merak_search *s)
{
    const struct merak_choices *pin = &s->in->pin;

    if (pin->pp == 0 && pin->tp > 0 && pin->dp > 0 && merak_search_ep(s) > 0)
        return s->spread / pin->tp / merak_search_ep(s) / pin->dp;
    return pin->pp;
}

/* Can no allowed pp have this many parts? */
static bool has_no_pp(const struct merak_search *s, int parts)
{
    const struct merak_choices *pin = &s->in->pin;
    bool found = parts == 1;

    for (int pp = 2; pp <= parts && pp <= s->spread; pp++)
        found = found || (s->spread % pp == 0 && parts % pp == 0 &&
                          (pin->chunks == 0 || pin->chunks == parts / pp));
    return !found;
}

/* Do given lists not match degrees and chunks, or the model, are more blocks to
 * be fetched than it has, or are there no such pieces of logits? */
static bool has_no_lists(const struct merak_search *s, struct merak_refusal *r)
{
    const struct merak_choices *pin = &s->in->pin;
    int parts = merak_given_parts(&pin->list), pp = pp_asked(s);
    struct merak_plan plan = {.pp = pp};

    r->why = s->fixed_error;
    if (parts == 0)
        return (pin->fetch > 0 || (pin->loss_pieces > 1 && s->n_tables == 0)) &&
               r->why.status != MERAK_OK;
    snprintf(plan.schedule, sizeof(plan.schedule), "%s",
             pin->schedule != NULL ? pin->schedule : "1f1b");
    if (pp > 0)
        plan.chunks = merak_fixed_chunks(pin, pp);
    if (pp == 1 || plan.chunks == 0)
        plan.chunks = 1;
    if (r->why.status == MERAK_OK && pp > 0)
        (void)!merak_given_check(&pin->list, &plan, &r->why);
    else if (r->why.status == MERAK_OK && has_no_pp(s, parts))
        merak_fail(&r->why, MERAK_ERR_CONFIG,
                   "%s %d parts, but no pp that divides %d ranks gives pp x "
                   "chunks = %d",
                   pin->list.cut != NULL ? "--cut makes" : "--recompute lists",
                   parts, s->spread, parts);
    return r->why.status != MERAK_OK;
}

/* The requested number of a stage's own parts. */
static int own_chunks(const struct merak_choices *pin)
{
    const struct merak_schedule *schedule;

    if (pin->schedule != NULL &&
        merak_schedule_find(pin->schedule, &schedule, NULL) == MERAK_OK &&
        schedule->feeds != NULL)
        return 1;
    return pin->chunks > 1 ? pin->chunks : 1;
}

/* Are there more stages, or parts, than the model has cut points for? */
static bool has_no_parts(const struct merak_search *s, struct merak_refusal *r)
{
    const struct merak_choices *pin = &s->in->pin;
    int most = 0;

    for (int i = 0; i < s->n_tables; i++)
        most = s->table[i]->n - s->table[i]->n_shared > most
                   ? s->table[i]->n - s->table[i]->n_shared
                   : most;
    r->plan.pp = pin->pp;
    r->plan.chunks = own_chunks(pin);
    r->have = most;
    r->need = (double)pin->pp * r->plan.chunks;
    return most > 0 && pin->pp > most / r->plan.chunks;
}

/* Does the schedule not allow the slices, micro-batch or chunks? */
static bool has_no_schedule(const struct merak_search *s,
                            struct merak_refusal *r)
{
    const struct merak_choices *pin = &s->in->pin;
    struct merak_plan plan = {.tp = 1,
                              .dp = 1,
                              .pp = pin->pp > 0 ? pin->pp : 2,
                              .micro_batch = 1,
                              .passes = 1};
    const struct merak_schedule *found;
    int slices;

    if (pin->schedule == NULL)
        return false;
    plan.chunks = pin->pp > 0 ? merak_fixed_chunks(pin, pin->pp) : pin->chunks;
    slices = merak_schedule_slices(pin->schedule);
    if (slices > 1 && !merak_schedule_slice(pin->schedule, s->in->seq, NULL))
        merak_fail(&r->why, MERAK_ERR_CONFIG,
                   "schedule %s: a sequence of %zu tokens cannot be cut into "
                   "%d slices",
                   pin->schedule, s->in->seq, slices);
    else if (slices > 1 && pin->micro_batch > 1)
        merak_fail(&r->why, MERAK_ERR_CONFIG,
                   "schedule %s runs micro-batches of 1, not of %zu",
                   pin->schedule, pin->micro_batch);
    else if (s->schedule_error.status != MERAK_OK)
        r->why = s->schedule_error;
    else if (plan.chunks > 0) {
        plan.microbatches = plan.pp;
        snprintf(plan.schedule, sizeof(plan.schedule), "%s", pin->schedule);
        (void)!merak_plan_schedule(&plan, &found, &r->why);
    }
    return r->why.status != MERAK_OK;
}

static bool has_no_homes(const struct merak_search *s, struct merak_refusal *r)
{
    const bool *given = s->in->pin.given;

    r->why = s->home_error;
    return r->why.status != MERAK_OK &&
           (given[MERAK_CHOICE_DP_IN] || given[MERAK_CHOICE_ZERO_HOME]);
}

static bool has_no_tensor(const struct merak_search *s, struct merak_refusal *r)
{
    r->why = s->tp_error;
    return s->n_tp_refused > 0 &&
           (s->in->pin.tp > 0 || s->in->pin.ep > 1 ||
            (merak_search_cp(s->in) > 1 && s->n_tables == 0));
}

/* Do the degrees not multiply to the number of ranks? */
static bool has_no_degrees(const struct merak_search *s,
                           struct merak_refusal *r)
{
    r->have = s->spread;
    return !merak_search_has_degrees(s);
}

/* The first of these that holds is the one that binds. */
static const struct {
    enum merak_constraint constraint;
    bool (*binds)(const struct merak_search *s, struct merak_refusal *r);
} checks[] = {
    {MERAK_BINDS_DEGREES, has_no_degrees},
    {MERAK_BINDS_TENSOR, has_no_tensor},
    {MERAK_BINDS_LISTS, has_no_lists},
    {MERAK_BINDS_HALVES, has_no_halves},
    {MERAK_BINDS_SAMPLES, has_no_samples},
    {MERAK_BINDS_BATCH, has_no_batch},
    {MERAK_BINDS_PARTS, has_no_parts},
    {MERAK_BINDS_ISLANDS, merak_search_has_no_islands},
    {MERAK_BINDS_HOMES, has_no_homes},
    {MERAK_BINDS_SCHEDULE, has_no_schedule},
};

static void find_what_binds(const struct merak_search *s,
                            struct merak_refusal *r)
{
    for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
        *r = (struct merak_refusal){.constraint = checks[i].constraint,
                                    .stage = -1};
        if (checks[i].binds(s, r))
            return;
    }
    *r = (struct merak_refusal){.constraint = MERAK_BINDS_ALL, .stage = -1};
}

/* --- in words ------------------------------------------------------------- */

/* ", offload state": what it has of the choices that are tried where memory is
 * short, and that are not named apart. */
static const char *sparing_text(const struct merak_plan *p, char *text,
                                size_t bytes)
{
    struct merak_choices choices;
    size_t at = 0;

    merak_choices_of(p, &choices);
    text[0] = '\0';
    for (int i = 0; i < MERAK_CHOICE_COUNT && at < bytes; i++) {
        const struct merak_choice *c = &merak_choice[i];
        char value[MERAK_CHOICE_WORD];

        if (c->near_memory == 0 || !c->is_settled ||
            merak_choice_get(c, &choices) == c->usual)
            continue;
        merak_choice_text(c, &choices, value, sizeof(value));
        at += (size_t)snprintf(text + at, bytes - at, ", %s %s", c->option.name,
                               value);
    }
    return text;
}

static void say_memory(const struct merak_search *s,
                       const struct merak_refusal *r, struct merak_error *err)
{
    const struct merak_plan *p = &r->plan;
    char limit[MERAK_BYTES_TEXT], need[MERAK_BYTES_TEXT];
    char why[96] = "; the plan that needs least (", state[MERAK_BYTES_TEXT];
    char library[64] = "", text[MERAK_BYTES_TEXT];
    char degrees[MERAK_DEGREES_TEXT], sparing[96];

    merak_bytes_text(r->need, need);
    merak_bytes_text(r->have, limit);
    merak_bytes_text(r->library, text);
    if (r->library > 0)
        snprintf(library, sizeof(library), ", %s may take %s",
                 r->library < r->have ? "of which NCCL"
                                            : "and NCCL alone",
                 text);
    if (is_hopeless(s)) {
        merak_bytes_text(s->state, state);
        snprintf(why, sizeof(why),
                 ": weights%s alone need %s; the smallest plan (",
                 merak_plan_held(p, MERAK_HELD_STATE, false, false).host
                     ? " and gradients"
                     : ", gradients and optimizer",
                 state);
    }
    merak_fail(err, MERAK_ERR_CONFIG,
               "memory: no plan fits in %s per rank%s%s%s, micro-batch %zu, "
               "%s%s) needs %s on stage %d",
               limit, library, why, merak_plan_degrees_text(p, ", ", degrees),
               p->micro_batch * (p->sub_pipeline ? 2 : 1), p->schedule,
               sparing_text(p, sparing, sizeof(sparing)), need, r->stage);
}

static void say_samples(const struct merak_search *s,
                        const struct merak_refusal *r, struct merak_error *err)
{
    const struct merak_choices *pin = &s->in->pin;
    char asked[24] = "--split";

    if (pin->tp_batch_percent > 0)
        snprintf(asked, sizeof(asked), "--tp-batch %d", pin->tp_batch_percent);
    if (pin->schedule != NULL && merak_schedule_slices(pin->schedule) > 1)
        merak_fail(err, MERAK_ERR_CONFIG,
                   "schedule %s runs micro-batches of 1, which cannot be split "
                   "over tensor-parallel ranks, as %s requires",
                   pin->schedule, asked);
    else
        merak_fail(err, MERAK_ERR_CONFIG,
                   "micro-batch %.0f cannot be split over tensor-parallel "
                   "ranks, which %s requires",
                   r->have, asked);
}

static void say_parts(const struct merak_refusal *r, struct merak_error *err)
{
    char of[32] = "";

    if (r->plan.chunks > 1)
        snprintf(of, sizeof(of), " of %d chunks", r->plan.chunks);
    merak_fail(err, MERAK_ERR_CONFIG,
               "stages: the model cannot be cut for pp %d%s, only into %.0f "
               "parts",
               r->plan.pp, of, r->have);
}

static void say_reason(const struct merak_search *s,
                       const struct merak_refusal *r, struct merak_error *err)
{
    char given[MERAK_FIX_TEXT], left[48] = "";

    switch (r->constraint) {
    case MERAK_BINDS_MEMORY:
        say_memory(s, r, err);
        break;
    case MERAK_BINDS_DEGREES:
        merak_search_name_degrees(&s->in->pin, given);
        if (s->in->pin.cp > 1)
            snprintf(left, sizeof(left), " that cp %d leaves", s->in->pin.cp);
        merak_fail(
            err, MERAK_ERR_CONFIG,
            "degrees: %s: %s must be the %d rank%s%s, and %s must divide "
            "the %d of a %s",
            given, s->in->pin.ep > 1 ? "tp x ep x pp x dp" : "tp x pp x dp",
            s->spread, merak_plural(s->spread), left,
            s->in->pin.ep > 1 ? "tp x ep" : "tp", merak_search_in_node(s),
            merak_search_node_word(s->in));
        break;
    case MERAK_BINDS_TENSOR:
    case MERAK_BINDS_LISTS:
    case MERAK_BINDS_HOMES:
    case MERAK_BINDS_SCHEDULE:
        *err = r->why;
        err->status = MERAK_ERR_CONFIG;
        merak_error_drop_fix(err); /* the fixes were tried */
        break;
    case MERAK_BINDS_ISLANDS:
        *err = r->why;
        break;
    case MERAK_BINDS_HALVES:
        merak_fail(err, MERAK_ERR_CONFIG,
                   "--sub-pipeline yes halves the micro-batch: %.0f is odd",
                   r->have);
        break;
    case MERAK_BINDS_SAMPLES:
        say_samples(s, r, err);
        break;
    case MERAK_BINDS_BATCH:
        merak_fail(err, MERAK_ERR_CONFIG,
                   "global batch: %.0f sequences are not a multiple of dp %d x "
                   "micro-batch %zu",
                   r->have, r->plan.dp, r->plan.micro_batch);
        break;
    case MERAK_BINDS_PARTS:
        say_parts(r, err);
        break;
    default:
        merak_fail(err, MERAK_ERR_CONFIG,
                   "no tp x pp x dp of %d ranks suits this model with dp x "
                   "micro-batch dividing the global batch %zu",
                   s->spread, s->in->global_batch);
    }
}

/* "; nearest: --tp 4, or --micro-batch 1" */
void merak_search_say_fixes(const struct merak_search *s,
                            const struct merak_refusal *r,
                            struct merak_error *err)
{
    bool late = r->n_fixes == 0 && merak_search_is_late(s);

    if (late && r->constraint == MERAK_BINDS_MEMORY)
        merak_search_say_likely(s, r->need, err);
    else if (late)
        merak_error_fix(err, err->status,
                        "; no change of a single option was found to make it "
                        "fit in the time of --search-seconds");
    else if (r->n_fixes == 0)
        merak_error_fix(err, err->status,
                        "; no change of a single option makes it fit");
    for (int i = 0; i < r->n_fixes; i++) {
        size_t at = strlen(err->text);

        if (i == 0)
            merak_error_fix(err, err->status, "; nearest: %s", r->fix[i]);
        else
            snprintf(err->text + at, sizeof(err->text) - at, ", or %s",
                     r->fix[i]);
    }
}

/* --- together ------------------------------------------------------------- */

/* Add the changes that would work, and report to the caller. */
static enum merak_status refuse(const struct merak_search *s,
                                struct merak_refusal *r)
{
    if (s->err == NULL && s->in->refusal == NULL)
        return MERAK_ERR_CONFIG;
    if (!s->in->brief)
        merak_search_find_fixes(s, r);
    if (s->err != NULL) {
        say_reason(s, r, s->err);
        merak_search_say_fixes(s, r, s->err);
    }
    if (s->in->refusal != NULL)
        *s->in->refusal = *r;
    return MERAK_ERR_CONFIG;
}

enum merak_status merak_search_no_memory(const struct merak_search *s)
{
    const struct merak_candidate *c = merak_search_smallest(s);
    struct merak_refusal r = {.constraint = MERAK_BINDS_MEMORY,
                              .have = (double)merak_search_memory(s->in)};
    size_t bytes = 0;

    if (c == NULL) {
        if (s->err != NULL)
            *s->err = s->run_error;
        return s->run_error.status;
    }
    if (s->err == NULL && s->in->refusal == NULL)
        return MERAK_ERR_CONFIG;
    if (!s->in->brief)
        bytes = enough_memory(s, c);
    r.stage = c->stage;
    r.library = merak_search_library_bytes(s, c);
    r.need = bytes > 0 ? (double)bytes : c->bytes + r.library;
    r.plan = c->plan;
    r.plan.offload = merak_drops_offload(&c->plan, c->drop);
    r.plan.cut = NULL;
    r.plan.drop = NULL;
    if (bytes > 0) {
        char gib[MERAK_NUMBER_TEXT];

        merak_search_gib_text((double)bytes, gib);
        snprintf(r.fix[r.n_fixes++], sizeof(r.fix[0]), "--memory-gib %s", gib);
    }
    return refuse(s, &r);
}

enum merak_status merak_search_no_division(const struct merak_search *s)
{
    struct merak_refusal r;

    find_what_binds(s, &r);
    return refuse(s, &r);
}
