/* SPDX-License-Identifier: Apache-2.0 */
/* openmetrics.c - the text format that Prometheus and node exporter read
 *
 * A page is families, each with lines of what it is and then its samples:
 *
 *   # TYPE merak_step_duration_seconds gauge
 *   # UNIT merak_step_duration_seconds seconds
 *   # HELP merak_step_duration_seconds Time of the last step.
 *   merak_step_duration_seconds{job_id="7"} 0.25
 *
 * and "# EOF" as its last line, by which a reader knows that it is whole.  The
 * format is OpenMetrics 1.0.  Node exporter's textfile collector reads
 * Prometheus' older text format: for it UNIT and EOF are comments, and a
 * counter, whose samples end in _total while its family's name does not, is of
 * no type.
 */
#include "config.h"

#include "io/openmetrics.h"

#include "base/printable.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Escape what a label's value may not have; false: it does not fit. */
static bool escape(const char *value, char *text, size_t size)
{
    size_t n = 0;

    for (; *value != '\0'; value++) {
        if (n + 3 > size)
            return false;
        if (*value == '"' || *value == '\\')
            text[n++] = '\\';
        text[n++] = *value;
    }
    text[n] = '\0';
    return true;
}

void merak_openmetrics_label(char *text, size_t size, const char *key,
                             const char *value)
{
    size_t used = strlen(text), room;
    char *line, *escaped;

    if (value == NULL || *value == '\0')
        return;
    room = 2 * strlen(value) + 3;
    line = strdup(value);
    escaped = malloc(room);
    if (line != NULL && escaped != NULL) {
        merak_keep_to_a_line(line);
        if (escape(line, escaped, room) && used + (used > 0) + strlen(key) +
                                                   strlen(escaped) +
                                                   sizeof("=\"\"") <=
                                               size)
            snprintf(text + used, size - used, "%s%s=\"%s\"",
                     used > 0 ? "," : "", key, escaped);
    }
    free(escaped);
    free(line);
}

static const char *type_of(const struct merak_openmetric *m)
{
    return m->type != NULL ? m->type : "gauge";
}

void merak_openmetrics_family(FILE *out, const struct merak_openmetric *m)
{
    fprintf(out, "# TYPE %s %s\n", m->name, type_of(m));
    if (m->unit != NULL)
        fprintf(out, "# UNIT %s %s\n", m->name, m->unit);
    fprintf(out, "# HELP %s %s\n", m->name, m->help);
}

/* The shortest of these notations that has every bit. */
static void print_number(FILE *out, double value)
{
    char text[32];

    if (!isfinite(value)) {
        fputs(isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf", out);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, out);
}

void merak_openmetrics_sample(FILE *out, const struct merak_openmetric *m,
                              const char *labels, const char *more,
                              double value)
{
    bool both = labels[0] != '\0' && more != NULL;

    fprintf(out, "%s%s", m->name,
            strcmp(type_of(m), "counter") == 0 ? "_total" : "");
    if (labels[0] != '\0' || more != NULL)
        fprintf(out, "{%s%s%s}", labels, both ? "," : "",
                more != NULL ? more : "");
    fputc(' ', out);
    print_number(out, value);
    fputc('\n', out);
}

void merak_openmetrics_one(FILE *out, const struct merak_openmetric *m,
                           const char *labels, double value)
{
    if (isnan(value))
        return;
    merak_openmetrics_family(out, m);
    merak_openmetrics_sample(out, m, labels, NULL, value);
}

void merak_openmetrics_end(FILE *out)
{
    fputs("# EOF\n", out);
}
