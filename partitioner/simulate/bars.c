/* SPDX-License-Identifier: Apache-2.0 */
/* bars.c - a step as bars: their kinds, how they are joined, idle time */
#include "config.h"

#include "partitioner/simulate/timeline.h"

#include "base/error.h"
#include "partitioner/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

bool merak_bars_splits_w(const char *schedule)
{
    const struct merak_schedule *s;

    return merak_schedule_find(schedule, &s, NULL) == MERAK_OK && s->splits_w;
}

enum merak_bar_kind merak_bar_kind(enum merak_queue queue,
                                   enum merak_phase phase, int microbatch,
                                   bool splits_w)
{
    if (queue == MERAK_QUEUE_COLLECTIVE)
        return MERAK_BAR_EXCHANGE;
    if (queue == MERAK_QUEUE_REPLICAS)
        return MERAK_BAR_REPLICAS;
    if (queue == MERAK_QUEUE_P2P)
        return MERAK_BAR_TRANSFER;
    if (queue == MERAK_QUEUE_COPY)
        return MERAK_BAR_COPY;
    if (microbatch < 0)
        return MERAK_BAR_STEP;
    if (phase == MERAK_PHASE_F)
        return MERAK_BAR_FORWARD;
    return phase == MERAK_PHASE_W && splits_w ? MERAK_BAR_WEIGHT
                                              : MERAK_BAR_BACKWARD;
}

/* --- one box an action ---------------------------------------------------- */

int merak_bar_track(const struct merak_bar *bar)
{
    if (bar->kind == MERAK_BAR_EXCHANGE)
        return 1;
    if (bar->kind == MERAK_BAR_REPLICAS)
        return 2;
    return bar->kind == MERAK_BAR_TRANSFER || bar->kind == MERAK_BAR_COPY ? 3
                                                                          : 0;
}

static int compare_starts(const struct merak_bar *x, const struct merak_bar *y)
{
    if (x->start_s != y->start_s)
        return x->start_s < y->start_s ? -1 : 1;
    return x->end_s < y->end_s ? -1 : x->end_s > y->end_s;
}

static int compare_bars(const void *a, const void *b)
{
    const struct merak_bar *x = a, *y = b;

    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    if (merak_bar_track(x) != merak_bar_track(y))
        return merak_bar_track(x) < merak_bar_track(y) ? -1 : 1;
    return compare_starts(x, y);
}

/* Nothing else is computed between an action's kernels, so that they are one
 * bar whatever they wait for; only a long pause marks its end. */
static bool is_one(const struct merak_bar *a, const struct merak_bar *b,
                   double gap_s)
{
    double gap = b->start_s - a->end_s;
    double busy = a->end_s - a->start_s + (b->end_s - b->start_s);

    if (a->row != b->row || a->kind != b->kind)
        return false;
    if (merak_bar_track(a) > 0)
        return gap <= gap_s; /* of any micro-batches: they show no number */
    if (a->microbatch != b->microbatch || a->part != b->part)
        return false;
    return gap <= gap_s || (a->microbatch >= 0 && gap <= busy / 2);
}

static void extend(struct merak_bar *last, const struct merak_bar *bar)
{
    if (bar->end_s > last->end_s)
        last->end_s = bar->end_s;
}

int merak_bars_join(struct merak_bar *bars, int n, double gap_s)
{
    int kept = 0;

    qsort(bars, (size_t)n, sizeof(*bars), compare_bars);
    for (int i = 0; i < n; i++) {
        if (kept > 0 && is_one(&bars[kept - 1], &bars[i], gap_s))
            extend(&bars[kept - 1], &bars[i]);
        else
            bars[kept++] = bars[i];
    }
    return kept;
}

int merak_bars_merge(struct merak_bar *bars, int n, double least_s)
{
    double longest = 0; /* bar merged into the last one kept */
    int kept = 0;

    for (int i = 0; i < n; i++) {
        struct merak_bar *last = kept > 0 ? &bars[kept - 1] : NULL;
        double length = bars[i].end_s - bars[i].start_s;

        if (last == NULL || last->row != bars[i].row ||
            merak_bar_track(last) != merak_bar_track(&bars[i]) ||
            length >= least_s || longest >= least_s ||
            bars[i].start_s - last->end_s >= least_s ||
            last->end_s - last->start_s >= 4 * least_s) {
            bars[kept++] = bars[i];
            longest = length;
            continue;
        }
        extend(last, &bars[i]);
        last->microbatch = -1;
        if (length > longest) {
            longest = length;
            last->kind = bars[i].kind;
        }
    }
    return kept;
}

/* --- what is idle --------------------------------------------------------- */

static int compare_rows(const void *a, const void *b)
{
    const struct merak_bar *x = a, *y = b;

    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    return compare_starts(x, y);
}

/* Seconds of a row that bars cover: all bars, or compute only. */
static double covered_s(const struct merak_bar *bars, int n, bool compute)
{
    double sum = 0, end = 0;

    for (int i = 0; i < n; i++) {
        double from = bars[i].start_s > end ? bars[i].start_s : end;

        if (compute && merak_bar_track(&bars[i]) > 0)
            continue;
        if (bars[i].end_s > from) {
            sum += bars[i].end_s - from;
            end = bars[i].end_s;
        }
    }
    return sum;
}

enum merak_status merak_bars_share(const struct merak_bar *bars, int n,
                                   int n_rows, double end_s,
                                   struct merak_bar_share *share,
                                   struct merak_error *err)
{
    struct merak_bar *sorted = malloc(((size_t)n + 1) * sizeof(*sorted));
    struct merak_bar_share *mean = &share[n_rows];

    if (sorted == NULL)
        return merak_fail_nomem(err, ((size_t)n + 1) * sizeof(*sorted));
    memcpy(sorted, bars, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_rows);
    *mean = (struct merak_bar_share){0, 0};
    for (int r = 0, i = 0; r < n_rows; r++) {
        int first = i;
        double any;

        while (i < n && sorted[i].row == r)
            i++;
        any = covered_s(sorted + first, i - first, false);
        share[r].idle = 1 - covered_s(sorted + first, i - first, true) / end_s;
        share[r].waiting = 1 - any / end_s;
        mean->idle += share[r].idle / n_rows;
        mean->waiting += share[r].waiting / n_rows;
    }
    free(sorted);
    return MERAK_OK;
}

/* --- of a simulation ------------------------------------------------------ */

static enum merak_bar_kind kind_of(const struct merak_instr *in, bool splits_w)
{
    if (in->recompute && in->queue == MERAK_QUEUE_COMPUTE)
        return MERAK_BAR_RECOMPUTE;
    return merak_bar_kind(in->queue, in->phase, in->microbatch, splits_w);
}

enum merak_status merak_timeline_bars(struct merak_program *const *programs,
                                      const struct merak_timeline *timeline,
                                      bool splits_w, struct merak_bar **bars_p,
                                      int *n_p, struct merak_bar_share *share,
                                      struct merak_error *err)
{
    struct merak_bar *bars;
    size_t count = 1;
    int n = 0;
    enum merak_status rc;

    for (int p = 0; p < timeline->n; p++)
        count += (size_t)programs[p]->n_instrs;
    bars = calloc(count, sizeof(*bars));
    if (bars == NULL)
        return merak_fail_nomem(err, count * sizeof(*bars));
    for (int p = 0; p < timeline->n; p++) {
        for (int i = 0; i < programs[p]->n_instrs; i++) {
            const struct merak_instr *in = &programs[p]->instr[i];

            bars[n++] = (struct merak_bar){.row = p,
                                           .kind = kind_of(in, splits_w),
                                           .microbatch = in->microbatch,
                                           .start_s = timeline->start[p][i],
                                           .end_s = timeline->end[p][i],
                                           .part = in->chunk | in->pass << 16};
        }
    }
    rc = merak_bars_share(bars, n, timeline->n, timeline->step_s, share, err);
    if (rc != MERAK_OK) {
        free(bars);
        return rc;
    }
    /* A gap this short does not show in a picture. */
    *n_p = merak_bars_join(bars, n, timeline->step_s / MERAK_BARS_FINEST);
    *bars_p = bars;
    return MERAK_OK;
}
