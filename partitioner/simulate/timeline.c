/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c - a step as bars, and as text for a terminal */
#include "config.h"

#include "partitioner/simulate/timeline.h"
#include "partitioner/simulate/simulate.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum merak_bar_kind merak_bar_kind(enum merak_queue queue,
                                   enum merak_phase phase, int microbatch)
{
    if (queue == MERAK_QUEUE_COLLECTIVE)
        return MERAK_BAR_EXCHANGE;
    if (queue == MERAK_QUEUE_P2P)
        return MERAK_BAR_TRANSFER;
    if (microbatch < 0)
        return MERAK_BAR_STEP;
    return phase == MERAK_PHASE_F ? MERAK_BAR_FORWARD : MERAK_BAR_BACKWARD;
}

/* Compute, exchanges and transfers run side by side: a lane for each. */
static int lane_of(const struct merak_bar *bar)
{
    if (bar->kind == MERAK_BAR_EXCHANGE)
        return 1;
    return bar->kind == MERAK_BAR_TRANSFER ? 2 : 0;
}

static int compare_bars(const void *a, const void *b)
{
    const struct merak_bar *x = a, *y = b;

    if (x->row != y->row)
        return x->row < y->row ? -1 : 1;
    if (lane_of(x) != lane_of(y))
        return lane_of(x) < lane_of(y) ? -1 : 1;
    if (x->start_s != y->start_s)
        return x->start_s < y->start_s ? -1 : 1;
    return x->end_s < y->end_s ? -1 : x->end_s > y->end_s;
}

int merak_bars_join(struct merak_bar *bars, int n, double gap_s)
{
    int kept = 0;

    qsort(bars, (size_t)n, sizeof(*bars), compare_bars);
    for (int i = 0; i < n; i++) {
        struct merak_bar *last = kept > 0 ? &bars[kept - 1] : NULL;

        if (last != NULL && last->row == bars[i].row &&
            last->kind == bars[i].kind &&
            last->microbatch == bars[i].microbatch &&
            bars[i].start_s <= last->end_s + gap_s) {
            if (bars[i].end_s > last->end_s)
                last->end_s = bars[i].end_s;
        } else {
            bars[kept++] = bars[i];
        }
    }
    return kept;
}

static enum merak_bar_kind bar_kind(const struct merak_instr *in)
{
    if (in->recompute && in->queue == MERAK_QUEUE_COMPUTE)
        return MERAK_BAR_RECOMPUTE;
    return merak_bar_kind(in->queue, in->phase, in->microbatch);
}

enum merak_status merak_timeline_bars(struct merak_program *const *programs,
                                      const struct merak_timeline *timeline,
                                      struct merak_bar **bars_p, int *n_p,
                                      struct merak_error *err)
{
    struct merak_bar *bars;
    size_t count = 1;
    int n = 0;

    for (int p = 0; p < timeline->n; p++)
        count += (size_t)programs[p]->n_instrs;
    bars = calloc(count, sizeof(*bars));
    if (bars == NULL)
        return merak_fail_nomem(err, count * sizeof(*bars));
    for (int p = 0; p < timeline->n; p++) {
        for (int i = 0; i < programs[p]->n_instrs; i++) {
            const struct merak_instr *in = &programs[p]->instr[i];

            bars[n++] = (struct merak_bar){.row = p,
                                           .kind = bar_kind(in),
                                           .microbatch = in->microbatch,
                                           .start_s = timeline->start[p][i],
                                           .end_s = timeline->end[p][i]};
        }
    }
    /* Finer than a picture shows. */
    *n_p = merak_bars_join(bars, n, timeline->step_s / 4000);
    *bars_p = bars;
    return MERAK_OK;
}

/* --- text ----------------------------------------------------------------- */

static char letter_of(const struct merak_bar *bar)
{
    switch (bar->kind) {
    case MERAK_BAR_FORWARD:
        return (char)('0' + bar->microbatch % 10);
    case MERAK_BAR_RECOMPUTE:
        return 'R';
    case MERAK_BAR_BACKWARD:
        return (char)('a' + bar->microbatch % 26);
    case MERAK_BAR_STEP:
        return '=';
    default:
        return '-';
    }
}

/* Seconds of bar inside column c of a line. */
static double overlap(const struct merak_bar *bar, int c, double column_s)
{
    double lo = c * column_s, hi = lo + column_s;

    if (bar->start_s > lo)
        lo = bar->start_s;
    if (bar->end_s < hi)
        hi = bar->end_s;
    return hi > lo ? hi - lo : 0.0;
}

/* Give each column to the bar that fills most of it, if that is more than
 * what the column shows so far (`best`, at first idle time's share). */
static void draw_bar(const struct merak_bar *bar, int width, double column_s,
                     double *best, char *line)
{
    int c = (int)(bar->start_s / column_s);

    for (; c < width && c * column_s < bar->end_s; c++) {
        double fill = overlap(bar, c, column_s);

        if (fill > best[c]) {
            best[c] = fill;
            line[c] = letter_of(bar);
        }
    }
}

/* Compute first; communication shows only where there is none. */
static void draw_row(const struct merak_picture *p, int row, int width,
                     double *best, char *line)
{
    double column_s = p->end_s / width;

    memset(line, '.', (size_t)width);
    line[width] = '\0';
    for (int lane = 0; lane < 3; lane++) {
        for (int c = 0; c < width; c++)
            best[c] = line[c] == '.' ? column_s * 0.3 : column_s;
        for (int i = 0; i < p->n_bars; i++) {
            if (p->bars[i].row == row && lane_of(&p->bars[i]) == lane)
                draw_bar(&p->bars[i], width, column_s, best, line);
        }
    }
}

enum merak_status merak_picture_text(const struct merak_picture *picture,
                                     int width, char **text_p,
                                     struct merak_error *err)
{
    size_t size = 0, n = (size_t)picture->n_bars + 1;
    char *text = NULL, *line = malloc((size_t)width + 1);
    double *best = calloc((size_t)width, sizeof(*best));
    struct merak_bar *bars = calloc(n, sizeof(*bars));
    struct merak_picture joined = *picture;
    FILE *out = open_memstream(&text, &size);
    enum merak_status rc = MERAK_OK;

    if (line == NULL || best == NULL || bars == NULL || out == NULL) {
        rc = merak_fail_nomem(err, n * sizeof(*bars));
        goto out;
    }
    /* An action interrupted by short waits is one thing at this size. */
    memcpy(bars, picture->bars, (n - 1) * sizeof(*bars));
    joined.n_bars =
        merak_bars_join(bars, picture->n_bars, picture->end_s / width);
    joined.bars = bars;
    for (int r = 0; r < picture->n_rows; r++) {
        draw_row(&joined, r, width, best, line);
        fprintf(out, "%-8s %s\n", picture->row_name[r], line);
    }
out:
    free(line);
    free(best);
    free(bars);
    if (out != NULL && fclose(out) != 0 && rc == MERAK_OK)
        rc = merak_fail_nomem(err, size);
    if (rc == MERAK_OK)
        *text_p = text;
    else
        free(text);
    return rc;
}
