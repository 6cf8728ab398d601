/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/svg.h - common parts of SVG pictures */
#ifndef MERAK_PARTITIONER_SIMULATE_SVG_H
#define MERAK_PARTITIONER_SIMULATE_SVG_H

#include <stdio.h>

/* Width of all pictures, and of the names of rows on the left. */
#define MERAK_SVG_WIDTH 1200.0
#define MERAK_SVG_LEFT 110.0

/* Write a document's start: size, style, background, title. */
void merak_svg_begin(FILE *out, double height, const char *title);
void merak_svg_end(FILE *out);
/* Write text, escaped for XML. */
void merak_svg_text(FILE *out, const char *text);
/* anchor is start, middle or end. */
void merak_svg_label(FILE *out, double x, double y, const char *anchor,
                     const char *text);
/* A round number, 1, 2 or 5 times a power of ten, that a span above 0 has at
 * most n of: what is between an axis' labels. */
double merak_svg_tick(double span, int n);

#endif
