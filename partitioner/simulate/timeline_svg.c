/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_svg.c - a step as an SVG document
 *
 * A row has a tall lane for compute and two thin ones below it for exchanges
 * and transfers, so that overlap is visible.
 */
#include "config.h"

#include "partitioner/simulate/timeline.h"

#include "base/error.h"
#include "base/text_writer.h"
#include "partitioner/simulate/svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP 86.0 /* room for title, note and the step's length */
#define ROW 48.0
#define LANE 26.0 /* compute */
#define THIN 4.0  /* an exchange or a transfer */
#define FOOT 46.0
#define RIGHT 84.0 /* for a row's idle time */

static const struct {
    const char *fill, *name;
} style[MERAK_BAR_COUNT] = {
    [MERAK_BAR_FORWARD] = {"#4e79a7", "forward"},
    [MERAK_BAR_RECOMPUTE] = {"#86b4d9", "recompute"},
    [MERAK_BAR_BACKWARD] = {"#4d9141", "backward"},
    [MERAK_BAR_WEIGHT] = {"#b07a00", "weight gradient"},
    [MERAK_BAR_STEP] = {"#8d5b8c", "end of step"},
    [MERAK_BAR_EXCHANGE] = {"#e15759", "collective"},
    [MERAK_BAR_REPLICAS] = {"#59a8a1", "over replicas"},
    [MERAK_BAR_TRANSFER] = {"#f28e2b", "point to point"},
    [MERAK_BAR_COPY] = {"#9c755f", "host copy"},
};

static double x_of(const struct merak_picture *p, double seconds)
{
    return MERAK_SVG_LEFT +
           (MERAK_SVG_WIDTH - MERAK_SVG_LEFT - RIGHT) * seconds / p->end_s;
}

/* Digits as wide as the box are made smaller, or left out if they would be
 * unreadable. */
static void put_number(FILE *out, int number, double x, double width, double y)
{
    int digits = number < 10 ? 1 : number < 100 ? 2 : number < 1000 ? 3 : 4;

    if (width < 4.4 * digits + 1.0)
        return;
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.0f\">%d</text>\n",
            width < 6.6 * digits + 3.0 ? "n s" : "n", x + width / 2, y + 17.0,
            number);
}

static void put_about(FILE *out, const struct merak_bar *bar)
{
    fprintf(out, "><title>%s", style[bar->kind].name);
    if (bar->microbatch >= 0 && merak_bar_track(bar) == 0)
        fprintf(out, " %d", bar->microbatch);
    fprintf(out, ": %.3f ms from %.3f ms</title></rect>\n",
            (bar->end_s - bar->start_s) * 1e3, bar->start_s * 1e3);
}

static void put_bar(FILE *out, const struct merak_picture *p,
                    const struct merak_bar *bar, bool about)
{
    double x = x_of(p, bar->start_s), w = x_of(p, bar->end_s) - x;
    double y = TOP + ROW * bar->row, h = LANE;
    int lane = merak_bar_track(bar);

    if (lane > 0) {
        y += LANE + 2.0 + (lane - 1) * (THIN + 1.0);
        h = THIN;
    }
    fprintf(out,
            "<rect class=\"k%d%s\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" "
            "height=\"%.0f\"",
            bar->kind, lane == 0 && w > 3.0 ? " e" : "", x, y,
            w > 0.3 ? w : 0.3, h);
    if (about)
        put_about(out, bar);
    else
        fputs("/>\n", out);
    if (lane == 0 && bar->microbatch >= 0)
        put_number(out, bar->microbatch, x, w, y);
}

static void put_line(FILE *out, double x1, double y1, double x2, double y2,
                     const char *stroke)
{
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
            "stroke=\"%s\"/>\n",
            x1, y1, x2, y2, stroke);
}

static void put_axis(FILE *out, const struct merak_picture *p)
{
    double y = TOP + ROW * p->n_rows, step = merak_svg_tick(p->end_s, 10);
    char label[32];

    for (int i = 0; i * step <= p->end_s; i++) {
        double x = x_of(p, i * step);

        put_line(out, x, TOP - 4.0, x, y + 4.0, "#ccc");
        snprintf(label, sizeof(label), "%g ms", i * step * 1e3);
        merak_svg_label(out, x, y + 18.0, "middle", label);
    }
}

/* Draw a line from the step's start to its end, with its length. */
static void put_total(FILE *out, const struct merak_picture *p)
{
    double from = x_of(p, 0), to = x_of(p, p->end_s), y = TOP - 18.0;
    double middle = (from + to) / 2;
    char label[48];

    snprintf(label, sizeof(label), "step %.2f ms", p->end_s * 1e3);
    put_line(out, from, y - 5.0, from, y + 5.0, "#333");
    put_line(out, from, y, middle - 60.0, y, "#333");
    merak_svg_label(out, middle, y + 4.0, "middle", label);
    put_line(out, middle + 60.0, y, to, y, "#333");
    put_line(out, to, y - 5.0, to, y + 5.0, "#333");
}

/* Write a row's name and idle time, and draw its background as idle. */
static void put_row(FILE *out, const struct merak_picture *p, int row)
{
    double y = TOP + ROW * row, from = x_of(p, 0), to = x_of(p, p->end_s);
    char text[48];

    merak_svg_label(out, MERAK_SVG_LEFT - 10.0, y + 18.0, "end",
                    p->row_name[row]);
    fprintf(out,
            "<rect class=\"i\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" "
            "height=\"%.0f\"/>\n",
            from, y, to - from, LANE);
    if (p->share == NULL)
        return;
    snprintf(text, sizeof(text), "idle %.1f %%", 100 * p->share[row].idle);
    merak_svg_label(out, to + 8.0, y + 18.0, "start", text);
}

static void put_shares(FILE *out, const struct merak_picture *p)
{
    const struct merak_bar_share *mean = &p->share[p->n_rows];
    char text[256];

    snprintf(text, sizeof(text),
             "idle %.1f %% of the mean row: waiting %.1f %%, exposed "
             "communication %.1f %%%s%s",
             100 * mean->idle, 100 * mean->waiting,
             100 * (mean->idle - mean->waiting), p->note != NULL ? "; " : "",
             p->note != NULL ? p->note : "");
    merak_svg_label(out, MERAK_SVG_LEFT, 46.0, "start", text);
}

static void put_key(FILE *out, double *x, double y, const char *class,
                    const char *name)
{
    fprintf(out,
            "<rect class=\"%s\" x=\"%.0f\" y=\"%.0f\" width=\"12\" "
            "height=\"12\"/>\n",
            class, *x, y);
    merak_svg_label(out, *x + 18.0, y + 10.0, "start", name);
    *x += 124.0;
}

/* Only kinds that occur in the picture. */
static void put_legend(FILE *out, const struct merak_picture *p, double y)
{
    bool has[MERAK_BAR_COUNT] = {false};
    double x = MERAK_SVG_LEFT;
    char class[8];

    for (int i = 0; i < p->n_bars; i++)
        has[p->bars[i].kind] = true;
    for (int k = 0; k < MERAK_BAR_COUNT; k++) {
        snprintf(class, sizeof(class), "k%d", k);
        if (has[k])
            put_key(out, &x, y, class, style[k].name);
    }
    put_key(out, &x, y, "i", "idle");
}

static void put_style(FILE *out)
{
    fputs("<style>.i{fill:#eee}.e{stroke:#fff;stroke-width:.6}"
          ".n{text-anchor:middle}.n.s{font-size:7px}",
          out);
    for (int k = 0; k < MERAK_BAR_COUNT; k++)
        fprintf(out, ".k%d{fill:%s}", k, style[k].fill);
    fputs("</style>\n", out);
}

static void put_picture(FILE *out, const struct merak_picture *p, bool about)
{
    double height = TOP + ROW * p->n_rows + FOOT;

    merak_svg_begin(out, height, p->title);
    put_style(out);
    if (p->share != NULL)
        put_shares(out, p);
    else if (p->note != NULL)
        merak_svg_label(out, MERAK_SVG_LEFT, 46.0, "start", p->note);
    put_total(out, p);
    for (int r = 0; r < p->n_rows; r++)
        put_row(out, p, r);
    put_axis(out, p);
    for (int i = 0; i < p->n_bars; i++)
        put_bar(out, p, &p->bars[i], about);
    put_legend(out, p, height - 20.0);
    merak_svg_end(out);
}

/* Make the document, with bars shorter than least_s merged and without their
 * descriptions; 0: in full. */
static enum merak_status make_text(const struct merak_picture *picture,
                                   double least_s, char **text_p,
                                   struct merak_error *err)
{
    size_t size = ((size_t)picture->n_bars + 1) * sizeof(struct merak_bar);
    struct merak_bar *bars = malloc(size);
    struct merak_picture p = *picture;
    struct merak_text_writer writer;
    FILE *out;

    if (bars == NULL)
        return merak_fail_nomem(err, size);
    memcpy(bars, p.bars, size - sizeof(*bars));
    p.bars = bars;
    if (least_s > 0)
        p.n_bars = merak_bars_merge(bars, p.n_bars, least_s);
    out = merak_text_open(&writer);
    if (out != NULL)
        put_picture(out, &p, least_s <= 0);
    free(bars);
    return merak_text_close(&writer, text_p, err);
}

enum merak_status merak_picture_svg(const struct merak_picture *picture,
                                    char **text_p, struct merak_error *err)
{
    char *text = NULL;
    double least_s = 0;
    enum merak_status rc;

    if (!(picture->end_s > 0.0))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a picture of no time: nothing ran");
    rc = make_text(picture, least_s, &text, err);
    while (rc == MERAK_OK && strlen(text) > MERAK_PICTURE_BYTES &&
           least_s < picture->end_s) {
        free(text);
        least_s =
            least_s > 0 ? 2 * least_s : picture->end_s / MERAK_BARS_FINEST;
        rc = make_text(picture, least_s, &text, err);
    }
    if (rc == MERAK_OK)
        *text_p = text;
    return rc;
}
