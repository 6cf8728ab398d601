/* SPDX-License-Identifier: Apache-2.0 */
/* io/openmetrics.h - the text format that Prometheus and node exporter read */
#ifndef MERAK_IO_OPENMETRICS_H
#define MERAK_IO_OPENMETRICS_H

#include <stddef.h>
#include <stdio.h>

/* A family of metrics.  As OpenMetrics has it, the name of one with a unit ends
 * in the unit, and a counter's name is that of its samples without _total. */
struct merak_openmetric {
    const char *name;
    const char *type; /* NULL: gauge */
    const char *unit; /* NULL: none */
    const char *help;
};

/* Append key="value" to the labels in text[size], a comma before it if needed;
 * bytes that no label may have are escaped or become "?".  One that does not
 * fit is left out; so is one without a value: NULL or "". */
void merak_openmetrics_label(char *text, size_t size, const char *key,
                             const char *value);
/* The lines that precede the samples of a family. */
void merak_openmetrics_family(FILE *out, const struct merak_openmetric *m);
/*
 * A sample of it: its labels are `labels`, and `more` unless NULL.  Numbers are
 * printed so that they can be read back exactly, and in a notation that
 * OpenMetrics and the older text format have in common.
 */
void merak_openmetrics_sample(FILE *out, const struct merak_openmetric *m,
                              const char *labels, const char *more,
                              double value);
/* Both, for a family of one sample; none of it if the value is NAN. */
void merak_openmetrics_one(FILE *out, const struct merak_openmetric *m,
                           const char *labels, double value);
/* The line that ends a page. */
void merak_openmetrics_end(FILE *out);

#endif
