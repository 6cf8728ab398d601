/* SPDX-License-Identifier: Apache-2.0 */
/* trace_make.c - writes the trace of a made-up pipeline for tests/t
 *
 * trace_make DIR SCHEDULE STAGES MICROBATCHES [BACKWARD [DP]]: forwards take 10
 * ms, backwards BACKWARD (20 if it is not given), a transfer 1, and the step
 * ends with a collective of all stages of 4 and an optimizer of 6; steps 0, 5
 * and 7 are kept.  Predicted are backwards of 20.  DP replicas (1) do the same.
 */
#include "config.h"

#include "io/trace/trace.h"
#include "partitioner/program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES 16
#define MAX_MB 64
#define MS 1000000ll

static const char *const names[] = {"blocks", "blocks_dx",        "send",
                                    "recv",   "all-reduce grads", "adamw"};
enum { FORWARD, BACKWARD, SEND, RECV, REDUCE, ADAMW };

static struct merak_trace_record record[MAX_STAGES][8 * MAX_MB];
static struct merak_trace_planned planned[MAX_STAGES][8 * MAX_MB];
static const char *name[MAX_STAGES][8 * MAX_MB];
static int n_records[MAX_STAGES];
static int backward_ms = 20;
/* When an action's result is there, -1: not yet; by phase. */
static int64_t done[2][MAX_STAGES][MAX_MB];

static void add(int stage, int what, enum merak_instr_kind kind,
                enum merak_queue queue, int phase, int mb, int peer,
                int64_t start, int64_t end)
{
    int instr = n_records[stage]++;
    struct merak_trace_record *r = &record[stage][instr];

    name[stage][instr] = names[what];
    memset(r, 0, sizeof(*r));
    r->start_ns = start;
    r->end_ns = end;
    r->instr = instr;
    r->microbatch = (int16_t)mb;
    r->peer = (int16_t)peer;
    r->kind = (uint8_t)kind;
    r->queue = (uint8_t)queue;
    r->phase = (uint8_t)phase;
    r->bytes = queue == MERAK_QUEUE_COMPUTE ? 0 : 1 << 20;
}

/* Run one action if its input is there; false if not. */
static bool act(int stages, int stage, const struct merak_action *a,
                int64_t *now)
{
    int phase = a->kind != MERAK_ACT_F, mb = a->microbatch;
    int from = phase ? stage + 1 : stage - 1,
        to = phase ? stage - 1 : stage + 1;
    int64_t start = *now, posted = *now;

    if (from >= 0 && from < stages) {
        if (done[phase][from][mb] < 0)
            return false;
        if (done[phase][from][mb] + MS > start)
            start = done[phase][from][mb] + MS;
        add(stage, RECV, MERAK_INSTR_RECV, MERAK_QUEUE_P2P, phase, mb, from,
            posted, start);
    }
    *now = start + (phase ? backward_ms : 10) * MS;
    add(stage, phase ? BACKWARD : FORWARD, MERAK_INSTR_KERNEL,
        MERAK_QUEUE_COMPUTE, phase, mb, -1, start, *now);
    done[phase][stage][mb] = *now;
    if (to >= 0 && to < stages)
        add(stage, SEND, MERAK_INSTR_SEND, MERAK_QUEUE_P2P, phase, mb, to, *now,
            *now + MS);
    return true;
}

static void run(const struct merak_schedule *schedule, int stages, int mbs)
{
    static struct merak_action action[MAX_STAGES][4 * MAX_MB];
    int next[MAX_STAGES] = {0}, n[MAX_STAGES];
    int64_t now[MAX_STAGES] = {0}, last = 0;
    bool moved = true;

    memset(done, 0xff, sizeof(done));
    memset(n_records, 0, sizeof(n_records));
    for (int s = 0; s < stages; s++) {
        struct merak_schedule_args args = {
            .stages = stages, .microbatches = mbs, .chunks = 1, .stage = s};

        n[s] = merak_schedule_count(schedule, &args);
        merak_schedule_fill(schedule, &args, action[s]);
    }
    while (moved) {
        moved = false;
        for (int s = 0; s < stages; s++) {
            while (next[s] < n[s] &&
                   act(stages, s, &action[s][next[s]], &now[s])) {
                next[s]++;
                moved = true;
            }
        }
    }
    for (int s = 0; s < stages; s++)
        last = now[s] > last ? now[s] : last;
    for (int s = 0; s < stages; s++) {
        add(s, REDUCE, MERAK_INSTR_EXCHANGE, MERAK_QUEUE_COLLECTIVE, 2, -1, -1,
            now[s], last + 4 * MS);
        add(s, ADAMW, MERAK_INSTR_KERNEL, MERAK_QUEUE_COMPUTE, 2, -1, -1,
            last + 4 * MS, last + 10 * MS);
    }
}

/* What is recorded becomes the plan.  A prediction has no waits in it: a
 * receive begins when its peer sends, the collective when all have come. */
static void keep_plan(int stages)
{
    for (int s = 0; s < stages; s++) {
        for (int i = 0; i < n_records[s]; i++) {
            const struct merak_trace_record *r = &record[s][i];
            struct merak_trace_planned *p = &planned[s][i];

            snprintf(p->op, sizeof(p->op), "%s", name[s][i]);
            p->start_ns = r->start_ns;
            p->end_ns = r->end_ns;
            p->first = p->second = -1;
            p->tag = 0;
            if (r->kind == MERAK_INSTR_EXCHANGE) {
                p->first = 0;
                p->second = -stages;
                p->start_ns = p->end_ns - 4 * MS;
            } else if (r->peer >= 0) {
                p->tag = (uint64_t)r->microbatch << 8 | r->phase;
                p->first = r->kind == MERAK_INSTR_SEND ? s : r->peer;
                p->second = r->kind == MERAK_INSTR_SEND ? r->peer : s;
                p->start_ns = p->end_ns - MS;
            }
        }
    }
}

/* Stages as ranks of a replica. */
static void number_ranks(int stages, int dp, int dp_index)
{
    for (int s = 0; s < stages; s++) {
        for (int i = 0; i < n_records[s]; i++) {
            struct merak_trace_planned *p = &planned[s][i];
            struct merak_trace_record *r = &record[s][i];

            if (r->peer >= 0)
                r->peer = (int16_t)(dp_index + dp * r->peer);
            if (p->second != -1)
                p->tag += (uint64_t)dp_index << 32;
            p->first = p->first < 0 ? p->first : dp_index + dp * p->first;
            p->second = p->second < 0 ? p->second : dp_index + dp * p->second;
        }
    }
}

static int write_rank(const char *dir, const char *schedule, int stages,
                      int mbs, int stage, int dp, int dp_index)
{
    struct merak_trace_info info = {.rank = dp_index + dp * stage,
                                    .ranks = stages * dp,
                                    .stage = stage,
                                    .stages = stages,
                                    .tp = 1,
                                    .dp = dp,
                                    .dp_index = dp_index,
                                    .microbatches = mbs,
                                    .transport = "made up",
                                    .n_instrs = n_records[stage],
                                    .instr_name = name[stage],
                                    .planned = planned[stage]};
    struct merak_trace *trace;
    struct merak_error err;

    snprintf(info.schedule, sizeof(info.schedule), "%s", schedule);
    if (merak_trace_create(dir, &info, 5, &trace, &err) != MERAK_OK)
        goto fail;
    for (int step = 0; step < 8; step++) {
        for (int i = 0; i < n_records[stage]; i++) {
            struct merak_trace_record *r = &record[stage][i];

            r->step = step;
            r->start_ns += step > 0 ? 1000 * MS : 0;
            r->end_ns += step > 0 ? 1000 * MS : 0;
        }
        if (merak_trace_step(trace, record[stage], n_records[stage], &err) !=
            MERAK_OK)
            goto fail;
    }
    if (merak_trace_close(trace, &err) == MERAK_OK)
        return 0;
fail:
    fprintf(stderr, "%s\n", err.text);
    return 1;
}

int main(int argc, char **argv)
{
    const struct merak_schedule *schedule;
    struct merak_error err;
    int stages, mbs, dp, forecast = backward_ms;

    if (argc < 5 || argc > 7)
        return 66;
    stages = atoi(argv[3]);
    mbs = atoi(argv[4]);
    dp = argc > 6 ? atoi(argv[6]) : 1;
    if (merak_schedule_find(argv[2], &schedule, &err) != MERAK_OK ||
        stages < 1 || stages > MAX_STAGES || mbs < 1 || mbs > MAX_MB)
        return 66;
    for (int d = dp - 1; d >= 0; d--) {
        backward_ms = forecast;
        run(schedule, stages, mbs);
        keep_plan(stages);
        backward_ms = argc > 5 ? atoi(argv[5]) : forecast;
        run(schedule, stages, mbs);
        number_ranks(stages, dp, d);
        for (int s = stages - 1; s >= 0; s--) {
            if (write_rank(argv[1], argv[2], stages, mbs, s, dp, d) != 0)
                return 1;
        }
    }
    return 0;
}
