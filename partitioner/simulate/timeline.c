/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c - a step as text for a terminal */
#include "config.h"

#include "partitioner/simulate/timeline.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char letter_of(const struct merak_bar *bar)
{
    switch (bar->kind) {
    case MERAK_BAR_FORWARD:
        return (char)('0' + bar->microbatch % 10);
    case MERAK_BAR_RECOMPUTE:
        return 'R';
    case MERAK_BAR_BACKWARD:
    case MERAK_BAR_WEIGHT:
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
    for (int lane = 0; lane < MERAK_BAR_TRACKS; lane++) {
        for (int c = 0; c < width; c++)
            best[c] = line[c] == '.' ? column_s * 0.3 : column_s;
        for (int i = 0; i < p->n_bars; i++) {
            if (p->bars[i].row == row && merak_bar_track(&p->bars[i]) == lane)
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
    int names = 8; /* the width of theirs */
    FILE *out = open_memstream(&text, &size);
    enum merak_status rc = MERAK_OK;

    if (line == NULL || best == NULL || bars == NULL || out == NULL) {
        rc = merak_fail_nomem(err, n * sizeof(*bars));
        goto out;
    }
    /* At this size, an action interrupted by short waits is one bar. */
    memcpy(bars, picture->bars, (n - 1) * sizeof(*bars));
    joined.n_bars =
        merak_bars_join(bars, picture->n_bars, picture->end_s / width);
    joined.bars = bars;
    for (int r = 0; r < picture->n_rows; r++)
        names = (int)strlen(picture->row_name[r]) > names
                    ? (int)strlen(picture->row_name[r])
                    : names;
    for (int r = 0; r < picture->n_rows; r++) {
        draw_row(&joined, r, width, best, line);
        fprintf(out, "%-*s %s\n", names, picture->row_name[r], line);
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
