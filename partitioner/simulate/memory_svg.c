/* SPDX-License-Identifier: Apache-2.0 */
/* memory_svg.c - the memory of each stage's ranks as an SVG document
 *
 * A row is a bar split by category, in the order of enum merak_category; a
 * line marks the memory limit of a rank.
 */
#include "config.h"

#include "partitioner/simulate/timeline.h"

#include "base/size.h"
#include "base/text_writer.h"
#include "partitioner/simulate/svg.h"

#include <stdio.h>

#define TOP 48.0
#define ROW 30.0
#define BAR 20.0
#define FOOT 44.0
#define RIGHT 110.0 /* for the numbers right of the bars */

/* None of these is a color of the step's picture. */
static const char *const fill[MERAK_CAT_COUNT] = {
    [MERAK_CAT_PARAM] = "#3f3a7a",     [MERAK_CAT_GRAD] = "#c65b9b",
    [MERAK_CAT_OPTIMIZER] = "#8a6a55", [MERAK_CAT_ACTIVATION] = "#3aa6a0",
    [MERAK_CAT_TRANSIENT] = "#a9d9d5", [MERAK_CAT_COMM] = "#f2b8d4",
    [MERAK_CAT_SCRATCH] = "#b5b0aa",   [MERAK_CAT_FETCHED] = "#7f78c2",
};

static double total(const struct merak_memory_picture *p, int row)
{
    double sum = 0;

    for (int c = 0; c < MERAK_CAT_COUNT; c++)
        sum += (double)p->bytes[row][c];
    return sum;
}

/* Bytes at the right end of the bars. */
static double scale_of(const struct merak_memory_picture *p)
{
    double most = 1;

    for (int r = 0; r < p->n_rows; r++)
        most = total(p, r) > most ? total(p, r) : most;
    /* With a limit far above, the bars would be too short to see. */
    if ((double)p->limit_bytes > most && (double)p->limit_bytes < 8 * most)
        most = (double)p->limit_bytes;
    return most;
}

static double x_of(double bytes, double scale)
{
    return MERAK_SVG_LEFT +
           (MERAK_SVG_WIDTH - MERAK_SVG_LEFT - RIGHT) * bytes / scale;
}

/* Where the label right of a bar begins: beyond the line of the limit if that
 * would cross it. */
static double label_x(const struct merak_memory_picture *p, double at,
                      double scale)
{
    const double width = 70.0; /* of "1023.99 GiB" */
    double x = x_of(at, scale) + 6.0;
    double limit = x_of((double)p->limit_bytes, scale);

    if (p->limit_bytes > 0 && (double)p->limit_bytes <= scale &&
        limit > x - 6.0 && limit < x + width)
        return limit + 6.0;
    return x;
}

static void put_row(FILE *out, const struct merak_memory_picture *p, int row,
                    double scale)
{
    double y = TOP + ROW * row, at = 0;
    char text[MERAK_BYTES_TEXT];

    merak_svg_label(out, MERAK_SVG_LEFT - 10.0, y + 14.0, "end",
                    p->row_name[row]);
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        double bytes = (double)p->bytes[row][c], x = x_of(at, scale);

        if (bytes <= 0)
            continue;
        merak_bytes_text(bytes, text);
        fprintf(out,
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
                "fill=\"%s\"><title>%s: %s</title></rect>\n",
                x, y, x_of(at + bytes, scale) - x, BAR, fill[c],
                merak_category_name((enum merak_category)c), text);
        at += bytes;
    }
    merak_bytes_text(at, text);
    merak_svg_label(out, label_x(p, at, scale), y + 14.0, "start", text);
}

static void put_limit(FILE *out, const struct merak_memory_picture *p,
                      double scale)
{
    double x = x_of((double)p->limit_bytes, scale);
    char bytes[MERAK_BYTES_TEXT], text[MERAK_BYTES_TEXT + 32];

    merak_bytes_text((double)p->limit_bytes, bytes);
    snprintf(text, sizeof(text), "limit of a rank: %s", bytes);
    if ((double)p->limit_bytes <= scale)
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                "stroke=\"#c00\" stroke-dasharray=\"4 3\"/>\n",
                x, TOP - 6.0, x, TOP + ROW * p->n_rows);
    merak_svg_label(out, MERAK_SVG_WIDTH - 20.0, 26.0, "end", text);
}

static void put_legend(FILE *out, double y)
{
    for (int c = 0; c < MERAK_CAT_COUNT; c++) {
        double x = MERAK_SVG_LEFT + 130.0 * c;

        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" "
                "fill=\"%s\"/>\n",
                x, y, fill[c]);
        merak_svg_label(out, x + 18.0, y + 10.0, "start",
                        merak_category_name((enum merak_category)c));
    }
}

enum merak_status merak_memory_svg(const struct merak_memory_picture *picture,
                                   char **text_p, struct merak_error *err)
{
    double height = TOP + ROW * picture->n_rows + FOOT;
    double scale = scale_of(picture);
    struct merak_text_writer writer;
    FILE *out = merak_text_open(&writer);

    if (out == NULL)
        return merak_text_close(&writer, text_p, err);
    merak_svg_begin(out, height, picture->title);
    for (int r = 0; r < picture->n_rows; r++)
        put_row(out, picture, r, scale);
    if (picture->limit_bytes > 0)
        put_limit(out, picture, scale);
    put_legend(out, height - 24.0);
    merak_svg_end(out);
    return merak_text_close(&writer, text_p, err);
}
