/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_svg.c - a step as an SVG document
 *
 * A row has a tall lane for compute and two thin ones below it for exchanges
 * and transfers, so that overlap is seen.
 */
#include "config.h"

#include "partitioner/simulate/timeline.h"

#include "base/error.h"
#include "base/text_writer.h"
#include "partitioner/simulate/svg.h"

#include <math.h>
#include <stdio.h>

#define TOP 56.0
#define ROW 44.0
#define LANE 26.0 /* compute */
#define THIN 4.0  /* an exchange or a transfer */
#define FOOT 46.0

static const struct {
    const char *fill, *name;
} style[MERAK_BAR_COUNT] = {
    [MERAK_BAR_FORWARD] = {"#4e79a7", "forward"},
    [MERAK_BAR_RECOMPUTE] = {"#a0cbe8", "recompute"},
    [MERAK_BAR_BACKWARD] = {"#59a14f", "backward"},
    [MERAK_BAR_STEP] = {"#b07aa1", "end of step"},
    [MERAK_BAR_EXCHANGE] = {"#e15759", "collective"},
    [MERAK_BAR_TRANSFER] = {"#f28e2b", "point to point"},
};

static double x_of(const struct merak_picture *p, double seconds)
{
    return MERAK_SVG_LEFT +
           (MERAK_SVG_WIDTH - MERAK_SVG_LEFT - 20.0) * seconds / p->end_s;
}

static void put_bar(FILE *out, const struct merak_picture *p,
                    const struct merak_bar *bar)
{
    double x = x_of(p, bar->start_s), w = x_of(p, bar->end_s) - x;
    double y = TOP + ROW * bar->row, h = LANE;

    if (bar->kind == MERAK_BAR_EXCHANGE || bar->kind == MERAK_BAR_TRANSFER) {
        y += LANE + 2.0 + (bar->kind == MERAK_BAR_TRANSFER ? THIN + 1.0 : 0.0);
        h = THIN;
    }
    fprintf(out,
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
            "fill=\"%s\"><title>%s",
            x, y, w > 0.3 ? w : 0.3, h, style[bar->kind].fill,
            style[bar->kind].name);
    if (bar->microbatch >= 0)
        fprintf(out, " %d", bar->microbatch);
    fprintf(out, ": %.3f ms from %.3f ms</title></rect>\n",
            (bar->end_s - bar->start_s) * 1e3, bar->start_s * 1e3);
    if (h == LANE && bar->microbatch >= 0 && w > 14.0)
        fprintf(out,
                "<text class=\"n\" x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"middle\">%d</text>\n",
                x + w / 2, y + 17.0, bar->microbatch);
}

/* A round number of seconds between ticks: 1, 2 or 5 times a power of ten,
 * at most ten of them. */
static double tick_seconds(double end_s)
{
    double unit = pow(10.0, floor(log10(end_s / 10.0)));
    double ratio = end_s / 10.0 / unit;

    return unit * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}

static void put_axis(FILE *out, const struct merak_picture *p)
{
    double y = TOP + ROW * p->n_rows, step = tick_seconds(p->end_s);
    char label[32];

    for (int i = 0; i * step <= p->end_s; i++) {
        double x = x_of(p, i * step);

        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                "stroke=\"#ccc\"/>\n",
                x, TOP - 4.0, x, y + 4.0);
        snprintf(label, sizeof(label), "%g ms", i * step * 1e3);
        merak_svg_label(out, x, y + 18.0, "middle", label);
    }
}

static void put_legend(FILE *out, double y)
{
    double x = MERAK_SVG_LEFT;

    for (int k = 0; k < MERAK_BAR_COUNT; k++) {
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" "
                "fill=\"%s\"/>\n",
                x, y, style[k].fill);
        merak_svg_label(out, x + 18.0, y + 10.0, "start", style[k].name);
        x += 120.0;
    }
}

static void put_picture(FILE *out, const struct merak_picture *p)
{
    double height = TOP + ROW * p->n_rows + FOOT;

    merak_svg_begin(out, height, p->title);
    put_axis(out, p);
    for (int r = 0; r < p->n_rows; r++)
        merak_svg_label(out, MERAK_SVG_LEFT - 10.0, TOP + ROW * r + 18.0, "end",
                        p->row_name[r]);
    for (int i = 0; i < p->n_bars; i++)
        put_bar(out, p, &p->bars[i]);
    put_legend(out, height - 20.0);
    merak_svg_end(out);
}

enum merak_status merak_picture_svg(const struct merak_picture *picture,
                                    char **text_p, struct merak_error *err)
{
    struct merak_text_writer writer;
    FILE *out;

    if (!(picture->end_s > 0.0))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a picture of no time: nothing ran");
    out = merak_text_open(&writer);
    if (out != NULL)
        put_picture(out, picture);
    return merak_text_close(&writer, text_p, err);
}
