/* SPDX-License-Identifier: Apache-2.0 */
/* svg.c - common parts of SVG pictures */
#include "config.h"

#include "partitioner/simulate/svg.h"

#include "partitioner/simulate/timeline.h"

#include "base/printable.h"
#include "base/text_writer.h"

#include <math.h>
#include <string.h>

#define HEAD "<svg xmlns=\"http://www.w3.org/2000/svg\" "

void merak_svg_text(FILE *out, const char *text)
{
    size_t n = strlen(text), bytes;

    for (const char *c = text; n > 0; c += bytes, n -= bytes) {
        bytes = merak_printable(c, n);
        if (*c == '<')
            fputs("&lt;", out);
        else if (*c == '&')
            fputs("&amp;", out);
        else if (*c == '>')
            fputs("&gt;", out);
        else if (bytes > 0 || *c == '\n' || *c == '\t')
            fwrite(c, 1, bytes > 0 ? bytes : 1, out);
        else
            fputs("\ufffd", out); /* the replacement character */
        bytes = bytes > 0 ? bytes : 1;
    }
}

void merak_svg_label(FILE *out, double x, double y, const char *anchor,
                     const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y,
            anchor);
    merak_svg_text(out, text);
    fputs("</text>\n", out);
}

static void put_size(FILE *out, double height)
{
    fprintf(out,
            HEAD "width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n",
            MERAK_SVG_WIDTH, height, MERAK_SVG_WIDTH, height);
}

void merak_svg_begin(FILE *out, double height, const char *title)
{
    put_size(out, height);
    fprintf(out,
            "<style>text{font:12px sans-serif;fill:#333}"
            ".n{fill:#fff;font-size:11px}.t{font-size:15px}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text class=\"t\" x=\"%.0f\" y=\"26\">",
            MERAK_SVG_LEFT);
    merak_svg_text(out, title);
    fputs("</text>\n", out);
}

void merak_svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

static double height_of(const char *document)
{
    double width = 0, height = 0;

    if (sscanf(document, HEAD "width=\"%lf\" height=\"%lf\"", &width,
               &height) != 2)
        return 0;
    return height;
}

enum merak_status merak_svg_stack(const char *above, const char *below,
                                  char **text_p, struct merak_error *err)
{
    double height = height_of(above);
    struct merak_text_writer writer;
    FILE *out = merak_text_open(&writer);

    if (out == NULL)
        return merak_text_close(&writer, text_p, err);
    put_size(out, height + height_of(below));
    fprintf(out, "%s<g transform=\"translate(0,%.0f)\">\n%s</g>\n", above,
            height, below);
    merak_svg_end(out);
    return merak_text_close(&writer, text_p, err);
}

double merak_svg_tick(double span, int n)
{
    double unit = pow(10.0, floor(log10(span / n)));
    double ratio = span / n / unit;

    return unit * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}
