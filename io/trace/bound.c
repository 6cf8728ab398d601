/* SPDX-License-Identifier: Apache-2.0 */
/* bound.c - in a sentence: what bounds a step, and what changes it
 *
 * What a step loses is the part of it in which the mean rank does not compute.
 * As much of that as the busiest stage computes more than the mean stage is
 * lost to the balance of stages, and no schedule brings it back: it is taken
 * off the idle time, then off the waits.  The largest of the losses is named;
 * if none is a tenth of the step, kernels bound it.
 */
#include "config.h"

#include "io/trace/bound.h"

#include "base/error.h"
#include "partitioner/program/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of the step: a loss that is worth a word, and a rank that computes longer
 * than its peers by more than noise. */
#define LEAST 0.1
#define SLOW 0.05

/* Shares of the step. */
struct shares {
    double compute, load, exposed, wait, idle; /* of the mean rank */
    double balance;                            /* lost to unbalanced stages */
    int stage;                                 /* the busiest */
    double busiest, others; /* compute of it, and of the mean other stage */
    int rank;               /* that computes longest beside its peers */
    double slow, peers;     /* compute of it and of the ranks of its stage */
};

/* Mean compute of a stage's ranks, without one of them (-1: with all). */
static double stage_compute(const struct merak_bound_step *s, int stage,
                            int without)
{
    double sum = 0;
    int n = 0;

    for (int r = 0; r < s->n; r++) {
        if (s->rank[r].stage != stage || r == without)
            continue;
        sum += s->rank[r].compute_s / s->step_s;
        n++;
    }
    return n > 0 ? sum / n : -1;
}

static void share_of_stages(const struct merak_bound_step *s, struct shares *of)
{
    double sum = 0, mine;
    int n = 0;

    for (int stage = 0; stage < s->stages; stage++) {
        mine = stage_compute(s, stage, -1);
        if (mine < 0)
            continue;
        sum += mine;
        n++;
        if (mine > of->busiest) {
            of->busiest = mine;
            of->stage = stage;
        }
    }
    if (n < 2)
        return;
    of->others = (sum - of->busiest) / (n - 1);
    of->balance = of->busiest - sum / n;
}

static void find_slow(const struct merak_bound_step *s, struct shares *of)
{
    of->rank = -1;
    for (int r = 0; r < s->n; r++) {
        double mine = s->rank[r].compute_s / s->step_s;
        double peers = stage_compute(s, s->rank[r].stage, r);

        if (peers < 0 || mine - peers < SLOW ||
            (of->rank >= 0 && mine - peers <= of->slow - of->peers))
            continue;
        of->rank = s->rank[r].rank;
        of->slow = mine;
        of->peers = peers;
    }
}

static void take_shares(const struct merak_bound_step *s, struct shares *of)
{
    double by = s->step_s * s->n, rest;

    *of = (struct shares){.rank = -1};
    for (int r = 0; r < s->n; r++) {
        of->compute += s->rank[r].compute_s / by;
        of->load += s->rank[r].load_s / by;
        of->exposed += s->rank[r].exposed_s / by;
        of->wait += s->rank[r].wait_s / by;
        of->idle += s->rank[r].idle_s / by;
    }
    if (!s->split)
        of->idle = fmax(0, 1 - of->compute);
    share_of_stages(s, of);
    find_slow(s, of);
    rest = fmax(0, of->balance - of->idle);
    of->idle = fmax(0, of->idle - of->balance);
    of->wait = fmax(0, of->wait - rest);
}

/* A writer gives the figures, then what changes them. */
static int say_balance(const struct merak_bound_step *s,
                       const struct shares *of, char *text)
{
    bool end = !s->unlike && (of->stage == 0 || of->stage == s->stages - 1);

    return snprintf(
        text, MERAK_BOUND_BYTES,
        "bound by unbalanced stages: stage %d computes for %.0f %% of the "
        "step, the other%s for %.0f %%; %s%s",
        of->stage, 100 * of->busiest, s->stages == 2 ? "" : "s",
        100 * of->others,
        end ? "if that is due to the vocabulary's layers, --schedule "
              "interlaced spreads them over all stages; "
            : "",
        s->unlike ? "--stages auto compares lists that give it more ranks"
                  : "another --pp cuts elsewhere (auto compares them)");
}

static int say_slow(const struct shares *of, char *text)
{
    return snprintf(text, MERAK_BOUND_BYTES,
                    "bound by rank %d: it computes for %.0f %% of the step and "
                    "its peers, which have the same work and wait for it, for "
                    "%.0f %%; see `merak doctor` for its node and cores, and "
                    "--straggler-percent",
                    of->rank, 100 * of->slow, 100 * of->peers);
}

/* Given in its place, by stages: dp x tp. */
static const char *smaller_tp(const struct merak_bound_step *s)
{
    return s->unlike ? "a list of --stages with a smaller tp"
                     : "a smaller --tp";
}

static const char *smaller_pp(const struct merak_bound_step *s)
{
    return s->unlike ? "a shorter list of --stages" : "a smaller --pp";
}

static int say_wait(const struct merak_bound_step *s, const struct shares *of,
                    char *text)
{
    return snprintf(text, MERAK_BOUND_BYTES,
                    "bound by waits: for %.0f %% of the step a rank waits for "
                    "the last member of a collective, each time for another; "
                    "tasks that share cores do that (srun -c N "
                    "--cpu-bind=cores), and %s waits less often",
                    100 * of->wait, smaller_tp(s));
}

static int say_idle(const struct merak_bound_step *s, const struct shares *of,
                    char *text)
{
    double percent = 100 * of->idle;

    if (!s->split)
        return snprintf(text, MERAK_BOUND_BYTES,
                        "bound by what is not computing: %.0f %% of the step "
                        "of the mean rank; a run with --trace DIR and `merak "
                        "trace summary DIR` tell bubble, waits and "
                        "communication apart",
                        percent);
    if (s->stages < 2)
        return snprintf(text, MERAK_BOUND_BYTES,
                        "bound by stalls: for %.0f %% of the step nothing is "
                        "computed or sent; more cores for a task (srun -c N, "
                        "--threads N) if it has too few",
                        percent);
    return snprintf(text, MERAK_BOUND_BYTES,
                    "bound by the pipeline's bubble: %.0f %% of the step of "
                    "the mean rank, with %d stages and %d micro-batches; more "
                    "micro-batches (a larger --global-batch, a smaller "
                    "--micro-batch), %s or another --schedule (auto compares "
                    "them) make it smaller",
                    percent, s->stages, s->microbatches, smaller_pp(s));
}

static int say_exposed(const struct merak_bound_step *s,
                       const struct shares *of, char *text)
{
    char fix[128];

    if (s->collectives && s->tp > 1)
        snprintf(fix, sizeof(fix), "%s has fewer of them", smaller_tp(s));
    else if (s->collectives)
        snprintf(fix, sizeof(fix),
                 "a larger --global-batch has fewer of them for each token, "
                 "and --reduce fast makes them shorter");
    else
        snprintf(fix, sizeof(fix), "%s sends less often", smaller_pp(s));
    return snprintf(text, MERAK_BOUND_BYTES,
                    "bound by communication: for %.0f %% of the step nothing "
                    "is computed meanwhile, mostly in %s; %s",
                    100 * of->exposed,
                    s->collectives ? "collectives" : "sends between stages",
                    fix);
}

static int say_load(const struct shares *of, char *text)
{
    return snprintf(text, MERAK_BOUND_BYTES,
                    "bound by input: for %.0f %% of the step samples are read; "
                    "copy --data to the node's own disk, or to one with less "
                    "latency",
                    100 * of->load);
}

static int say_compute(const struct merak_bound_step *s,
                       const struct shares *of, char *text)
{
    return snprintf(text, MERAK_BOUND_BYTES,
                    "bound by kernels: %s computes for %.0f %% of the step; "
                    "more ranks, --dtype bf16 or --recompute none, as far as "
                    "they are not used yet, make it shorter",
                    s->n > 1 ? "the mean rank" : "the rank", 100 * of->compute);
}

void merak_bound_text(const struct merak_bound_step *s,
                      char text[MERAK_BOUND_BYTES])
{
    struct shares of;
    double most;

    text[0] = '\0';
    if (s->n < 1 || !(s->step_s > 0))
        return;
    take_shares(s, &of);
    most = fmax(fmax(fmax(of.balance, of.wait), fmax(of.idle, of.exposed)),
                of.load);
    if (most < LEAST)
        say_compute(s, &of, text);
    else if (most == of.balance)
        say_balance(s, &of, text);
    else if (of.rank >= 0 && (most == of.wait || !s->split))
        say_slow(&of, text);
    else if (most == of.wait)
        say_wait(s, &of, text);
    else if (most == of.idle)
        say_idle(s, &of, text);
    else if (most == of.exposed)
        say_exposed(s, &of, text);
    else
        say_load(&of, text);
}

/* Add a step's seconds of loads, and of both kinds of communication, to those
 * of all steps. */
static enum merak_status add_step(const struct merak_trace_rank *ranks, int n,
                                  int32_t step, double share,
                                  struct merak_bound_rank *rank,
                                  double *collectives_s, double *sends_s,
                                  struct merak_error *err)
{
    struct merak_trace_view *view;
    enum merak_status rc = merak_trace_view_create(ranks, n, step, &view, err);

    if (rc != MERAK_OK)
        return rc;
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < view->rank[r].n; i++) {
            const struct merak_trace_span *span = &view->rank[r].span[i];
            double s = (double)(span->end_ns - span->start_ns) * 1e-9 * share;

            if (span->record->kind == MERAK_INSTR_LOAD)
                rank[r].load_s += s;
            else if (span->record->kind == MERAK_INSTR_EXCHANGE)
                *collectives_s += s;
            else if (span->record->kind == MERAK_INSTR_SEND)
                *sends_s += s;
        }
    }
    merak_trace_view_destroy(view);
    return MERAK_OK;
}

enum merak_status merak_trace_bound(const struct merak_trace_rank *ranks, int n,
                                    const int32_t *steps, int n_steps,
                                    const struct merak_trace_split *split,
                                    char text[MERAK_BOUND_BYTES],
                                    struct merak_error *err)
{
    const struct merak_trace_info *info = &ranks[0].info;
    struct merak_bound_rank *rank = calloc((size_t)n, sizeof(*rank));
    struct merak_bound_step s = {.rank = rank,
                                 .n = n,
                                 .step_s = split[0].step_s,
                                 .stages = info->stages,
                                 .unlike = info->degrees != NULL,
                                 .microbatches = info->microbatches,
                                 .split = true};
    double collectives_s = 0, sends_s = 0;
    enum merak_status rc = MERAK_OK;

    if (rank == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*rank));
    for (int r = 0; r < n; r++) {
        rank[r] = (struct merak_bound_rank){.rank = ranks[r].info.rank,
                                            .stage = ranks[r].info.stage,
                                            .compute_s = split[r].compute_s,
                                            .exposed_s = split[r].exposed_s,
                                            .wait_s = split[r].wait_s,
                                            .idle_s = split[r].idle_s};
        s.tp = ranks[r].info.tp > s.tp ? ranks[r].info.tp : s.tp;
    }
    for (int i = 0; i < n_steps && rc == MERAK_OK; i++)
        rc = add_step(ranks, n, steps[i], 1.0 / n_steps, rank, &collectives_s,
                      &sends_s, err);
    s.collectives = collectives_s >= sends_s;
    if (rc == MERAK_OK)
        merak_bound_text(&s, text);
    free(rank);
    return rc;
}
