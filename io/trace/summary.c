/* SPDX-License-Identifier: Apache-2.0 */
/* summary.c - where the time of a traced step went */
#include "config.h"

#include "io/trace/summary.h"

#include "base/error.h"
#include "partitioner/program/program.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- steps -----------------------------------------------------------------
 */

/* The records of a step; they stand in order of their steps. */
struct range {
    const struct merak_trace_record *first, *end;
};

static size_t first_of(const struct merak_trace_rank *rank, int64_t step)
{
    size_t lo = 0, hi = rank->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (rank->records[mid].step < step)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct range records_of(const struct merak_trace_rank *rank,
                               int32_t step)
{
    return (struct range){rank->records + first_of(rank, step),
                          rank->records + first_of(rank, (int64_t)step + 1)};
}

static bool has_step(const struct merak_trace_rank *rank, int32_t step)
{
    struct range range = records_of(rank, step);

    return range.first < range.end;
}

enum merak_status merak_trace_steps(const struct merak_trace_rank *ranks, int n,
                                    int32_t **steps_p, int *n_p,
                                    struct merak_error *err)
{
    int32_t *steps = calloc(ranks[0].n + 1, sizeof(*steps));
    int count = 0;

    if (steps == NULL)
        return merak_fail_nomem(err, (ranks[0].n + 1) * sizeof(*steps));
    for (size_t i = 0; i < ranks[0].n; i++) {
        int32_t step = ranks[0].records[i].step;
        bool everywhere = count == 0 || steps[count - 1] != step;

        for (int r = 1; r < n && everywhere; r++)
            everywhere = has_step(&ranks[r], step);
        if (everywhere)
            steps[count++] = step;
    }
    *steps_p = steps;
    *n_p = count;
    return MERAK_OK;
}

void merak_trace_bounds(const struct merak_trace_rank *ranks, int n,
                        int32_t step, int64_t *start_ns, int64_t *end_ns)
{
    *start_ns = INT64_MAX;
    *end_ns = INT64_MIN;
    for (int r = 0; r < n; r++) {
        struct range range = records_of(&ranks[r], step);

        for (const struct merak_trace_record *rec = range.first;
             rec < range.end; rec++) {
            if (rec->start_ns < *start_ns)
                *start_ns = rec->start_ns;
            if (rec->end_ns > *end_ns)
                *end_ns = rec->end_ns;
        }
    }
}

/* --- spans -------------------------------------------------------------------
 */

static bool same_transfer(const struct merak_trace_record *a,
                          const struct merak_trace_record *b)
{
    return a->microbatch == b->microbatch && a->phase == b->phase &&
           a->chunk == b->chunk;
}

/* The send that a receive got its data from: of those alike between the two
 * ranks, the one as far down the peer's list as the receive is down its own.
 * NULL if the trace does not have it. */
static const struct merak_trace_record *
find_send(const struct merak_trace_rank *me,
          const struct merak_trace_rank *peer,
          const struct merak_trace_record *recv)
{
    struct range mine = records_of(me, recv->step);
    struct range theirs = records_of(peer, recv->step);
    int ahead = 0;

    for (const struct merak_trace_record *r = mine.first; r < recv; r++)
        ahead += r->kind == MERAK_INSTR_RECV && r->peer == recv->peer &&
                 same_transfer(r, recv);
    for (const struct merak_trace_record *send = theirs.first;
         send < theirs.end; send++) {
        if (send->kind == MERAK_INSTR_SEND && send->peer == me->info.rank &&
            same_transfer(send, recv) && ahead-- == 0)
            return send;
    }
    return NULL;
}

static const struct merak_trace_rank *
find_rank(const struct merak_trace_rank *ranks, int n, int logical)
{
    for (int r = 0; r < n; r++) {
        if (ranks[r].info.rank == logical)
            return &ranks[r];
    }
    return NULL;
}

static int64_t busy_from(const struct merak_trace_rank *ranks, int n, int r,
                         const struct merak_trace_record *rec)
{
    const struct merak_trace_rank *peer;
    const struct merak_trace_record *send = NULL;

    if (rec->kind != MERAK_INSTR_RECV)
        return rec->start_ns;
    peer = find_rank(ranks, n, rec->peer);
    if (peer != NULL)
        send = find_send(&ranks[r], peer, rec);
    if (send == NULL || send->start_ns <= rec->start_ns)
        return rec->start_ns;
    /* Clocks of two nodes agree to microseconds only. */
    return send->start_ns < rec->end_ns ? send->start_ns : rec->end_ns;
}

enum merak_status merak_trace_spans(const struct merak_trace_rank *ranks, int n,
                                    int r, int32_t step,
                                    struct merak_trace_span **spans_p,
                                    size_t *n_p, struct merak_error *err)
{
    struct range range = records_of(&ranks[r], step);
    size_t most = (size_t)(range.end - range.first) + 1, count = 0;
    struct merak_trace_span *spans = calloc(most, sizeof(*spans));

    if (spans == NULL)
        return merak_fail_nomem(err, most * sizeof(*spans));
    for (const struct merak_trace_record *rec = range.first; rec < range.end;
         rec++)
        spans[count++] = (struct merak_trace_span){
            rec, busy_from(ranks, n, r, rec), rec->end_ns};
    *spans_p = spans;
    *n_p = count;
    return MERAK_OK;
}

/* --- where the time went
 * --------------------------------------------------------- */

static int compare_starts(const void *a, const void *b)
{
    const struct merak_trace_span *x = a, *y = b;

    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static bool is_compute(const struct merak_trace_span *span)
{
    return span->record->queue == MERAK_QUEUE_COMPUTE;
}

enum which { COMPUTE, COMMUNICATION, BOTH };

/* Time covered by the spans chosen; they are sorted by start. */
static double covered_s(const struct merak_trace_span *spans, size_t n,
                        enum which which)
{
    int64_t total = 0, end = INT64_MIN;

    for (size_t i = 0; i < n; i++) {
        int64_t from = spans[i].start_ns;

        if (which != BOTH && is_compute(&spans[i]) != (which == COMPUTE))
            continue;
        if (from < end)
            from = end;
        if (spans[i].end_ns > from) {
            total += spans[i].end_ns - from;
            end = spans[i].end_ns;
        }
    }
    return (double)total * 1e-9;
}

enum merak_status merak_trace_split(const struct merak_trace_rank *ranks, int n,
                                    int32_t step,
                                    struct merak_trace_split *split,
                                    struct merak_error *err)
{
    int64_t start, end;

    merak_trace_bounds(ranks, n, step, &start, &end);
    if (end < start)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "step %d is not in the trace", step);
    for (int r = 0; r < n; r++) {
        struct merak_trace_span *spans = NULL;
        double both;
        size_t count;
        enum merak_status rc =
            merak_trace_spans(ranks, n, r, step, &spans, &count, err);

        if (rc != MERAK_OK)
            return rc;
        qsort(spans, count, sizeof(*spans), compare_starts);
        both = covered_s(spans, count, BOTH);
        split[r].step_s = (double)(end - start) * 1e-9;
        split[r].compute_s = covered_s(spans, count, COMPUTE);
        split[r].exposed_s = both - split[r].compute_s;
        split[r].hidden_s =
            covered_s(spans, count, COMMUNICATION) - split[r].exposed_s;
        split[r].idle_s = split[r].step_s - both;
        free(spans);
    }
    return MERAK_OK;
}

/* --- the busiest instructions
 * ------------------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
    const struct merak_trace_busy *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int longest_first(const void *a, const void *b)
{
    const struct merak_trace_busy *x = a, *y = b;

    if (x->total_s != y->total_s)
        return x->total_s > y->total_s ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* A rank's instructions in busy[0 .. n_instrs). */
static void add_rank(const struct merak_trace_rank *ranks, int n, int r,
                     const int32_t *steps, int n_steps,
                     struct merak_trace_busy *busy)
{
    const struct merak_trace_rank *rank = &ranks[r];

    for (int i = 0; i < rank->info.n_instrs; i++)
        busy[i] = (struct merak_trace_busy){.name = rank->names[i]};
    for (int i = 0; i < n_steps; i++) {
        struct range range = records_of(rank, steps[i]);

        for (const struct merak_trace_record *rec = range.first;
             rec < range.end; rec++) {
            busy[rec->instr].calls++;
            busy[rec->instr].total_s +=
                (double)(rec->end_ns - busy_from(ranks, n, r, rec)) * 1e-9;
        }
    }
}

enum merak_status merak_trace_busiest(const struct merak_trace_rank *ranks,
                                      int n, const int32_t *steps, int n_steps,
                                      struct merak_trace_busy **busy_p,
                                      size_t *n_p, struct merak_error *err)
{
    struct merak_trace_busy *busy;
    size_t count = 0, kept = 0;

    for (int r = 0; r < n; r++)
        count += (size_t)ranks[r].info.n_instrs;
    busy = calloc(count + 1, sizeof(*busy));
    if (busy == NULL)
        return merak_fail_nomem(err, (count + 1) * sizeof(*busy));
    count = 0;
    for (int r = 0; r < n; r++) {
        add_rank(ranks, n, r, steps, n_steps, busy + count);
        count += (size_t)ranks[r].info.n_instrs;
    }
    qsort(busy, count, sizeof(*busy), compare_names);
    for (size_t i = 0; i < count; i++) {
        if (busy[i].calls == 0)
            continue;
        if (kept > 0 && strcmp(busy[kept - 1].name, busy[i].name) == 0) {
            busy[kept - 1].total_s += busy[i].total_s;
            busy[kept - 1].calls += busy[i].calls;
        } else {
            busy[kept++] = busy[i];
        }
    }
    qsort(busy, kept, sizeof(*busy), longest_first);
    *busy_p = busy;
    *n_p = kept;
    return MERAK_OK;
}
