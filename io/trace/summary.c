/* SPDX-License-Identifier: Apache-2.0 */
/* summary.c - how traced steps spent their time */
#include "config.h"

#include "io/trace/summary.h"

#include "base/error.h"
#include "partitioner/program/program.h"

#include <stdlib.h>
#include <string.h>

/* --- what a rank did when --------------------------------------------------
 */

enum { COMPUTE = 1, COMMUNICATION = 2, WAIT = 4 };

struct interval {
    int64_t start_ns, end_ns;
    unsigned what; /* one of the above */
};

static int compare_starts(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;

    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Sorted by start; at[] holds two for each span. */
static size_t make_intervals(const struct merak_trace_lane *lane,
                             struct interval *at)
{
    size_t n = 0;

    for (size_t i = 0; i < lane->n; i++) {
        const struct merak_trace_span *span = &lane->span[i];
        bool local = span->record->queue == MERAK_QUEUE_COMPUTE;

        at[n++] = (struct interval){span->start_ns, span->end_ns,
                                    local ? COMPUTE : COMMUNICATION};
        if (span->record->kind == MERAK_INSTR_EXCHANGE)
            at[n++] =
                (struct interval){span->record->start_ns, span->start_ns, WAIT};
    }
    qsort(at, n, sizeof(*at), compare_starts);
    return n;
}

/* Time covered by any of the kinds in `what`. */
static double covered_s(const struct interval *at, size_t n, unsigned what)
{
    int64_t total = 0, end = INT64_MIN;

    for (size_t i = 0; i < n; i++) {
        int64_t from = at[i].start_ns;

        if ((at[i].what & what) == 0)
            continue;
        if (from < end)
            from = end;
        if (at[i].end_ns > from) {
            total += at[i].end_ns - from;
            end = at[i].end_ns;
        }
    }
    return (double)total * 1e-9;
}

static enum merak_status split_rank(const struct merak_trace_view *view, int r,
                                    struct merak_trace_split *split,
                                    struct merak_error *err)
{
    size_t most = 2 * view->rank[r].n + 1, n;
    struct interval *at = calloc(most, sizeof(*at));
    double busy, all;

    if (at == NULL)
        return merak_fail_nomem(err, most * sizeof(*at));
    n = make_intervals(&view->rank[r], at);
    busy = covered_s(at, n, COMPUTE | COMMUNICATION);
    all = covered_s(at, n, COMPUTE | COMMUNICATION | WAIT);
    split->step_s = (double)(view->end_ns - view->start_ns) * 1e-9;
    split->compute_s = covered_s(at, n, COMPUTE);
    split->exposed_s = busy - split->compute_s;
    split->hidden_s = covered_s(at, n, COMMUNICATION) - split->exposed_s;
    split->wait_s = all - busy;
    split->idle_s = split->step_s - all;
    free(at);
    return MERAK_OK;
}

static void add_share(struct merak_trace_split *sum,
                      const struct merak_trace_split *part, double of)
{
    sum->step_s += part->step_s / of;
    sum->compute_s += part->compute_s / of;
    sum->exposed_s += part->exposed_s / of;
    sum->hidden_s += part->hidden_s / of;
    sum->wait_s += part->wait_s / of;
    sum->idle_s += part->idle_s / of;
}

enum merak_status merak_trace_split(const struct merak_trace_rank *ranks, int n,
                                    const int32_t *steps, int n_steps,
                                    struct merak_trace_split *split,
                                    struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    memset(split, 0, (size_t)n * sizeof(*split));
    for (int i = 0; i < n_steps && rc == MERAK_OK; i++) {
        struct merak_trace_view *view = NULL;
        struct merak_trace_split part = {0};

        rc = merak_trace_view_create(ranks, n, steps[i], &view, err);
        for (int r = 0; r < n && rc == MERAK_OK; r++) {
            rc = split_rank(view, r, &part, err);
            if (rc == MERAK_OK)
                add_share(&split[r], &part, n_steps);
        }
        merak_trace_view_destroy(view);
    }
    return rc;
}

void merak_trace_split_mean(const struct merak_trace_split *split, int n,
                            struct merak_trace_split *mean)
{
    memset(mean, 0, sizeof(*mean));
    for (int r = 0; r < n; r++)
        add_share(mean, &split[r], n);
}

/* --- the busiest instructions ----------------------------------------------
 */

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

/* busy holds the instructions of rank 0, of rank 1, and so on. */
static enum merak_status add_step(const struct merak_trace_rank *ranks, int n,
                                  int32_t step, struct merak_trace_busy *busy,
                                  struct merak_error *err)
{
    struct merak_trace_view *view;
    enum merak_status rc = merak_trace_view_create(ranks, n, step, &view, err);

    if (rc != MERAK_OK)
        return rc;
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < view->rank[r].n; i++) {
            const struct merak_trace_span *span = &view->rank[r].span[i];
            struct merak_trace_busy *b = &busy[span->record->instr];

            b->calls++;
            b->total_s += (double)(span->end_ns - span->start_ns) * 1e-9;
        }
        busy += ranks[r].info.n_instrs;
    }
    merak_trace_view_destroy(view);
    return MERAK_OK;
}

/* Merge entries of the same name; returns how many are left. */
static size_t join_names(struct merak_trace_busy *busy, size_t n)
{
    size_t kept = 0;

    qsort(busy, n, sizeof(*busy), compare_names);
    for (size_t i = 0; i < n; i++) {
        if (busy[i].calls == 0)
            continue;
        if (kept > 0 && strcmp(busy[kept - 1].name, busy[i].name) == 0) {
            busy[kept - 1].total_s += busy[i].total_s;
            busy[kept - 1].calls += busy[i].calls;
        } else {
            busy[kept++] = busy[i];
        }
    }
    return kept;
}

enum merak_status merak_trace_busiest(const struct merak_trace_rank *ranks,
                                      int n, const int32_t *steps, int n_steps,
                                      struct merak_trace_busy **busy_p,
                                      size_t *n_p, struct merak_error *err)
{
    struct merak_trace_busy *busy;
    enum merak_status rc = MERAK_OK;
    size_t count = 0;

    for (int r = 0; r < n; r++)
        count += (size_t)ranks[r].info.n_instrs;
    busy = calloc(count + 1, sizeof(*busy));
    if (busy == NULL)
        return merak_fail_nomem(err, (count + 1) * sizeof(*busy));
    count = 0;
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < ranks[r].info.n_instrs; i++)
            busy[count++].name = ranks[r].names[i];
    }
    for (int i = 0; i < n_steps && rc == MERAK_OK; i++)
        rc = add_step(ranks, n, steps[i], busy, err);
    if (rc != MERAK_OK) {
        free(busy);
        return rc;
    }
    *n_p = join_names(busy, count);
    qsort(busy, *n_p, sizeof(*busy), longest_first);
    *busy_p = busy;
    return MERAK_OK;
}
