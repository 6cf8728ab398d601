/* SPDX-License-Identifier: Apache-2.0 */
/* test_metrics.c - what others' programs read of a run: OpenMetrics pages */
#include "config.h"

#include "unit/near.h"

#include "io/openmetrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- OpenMetrics ---------------------------------------------------------- */

static const struct {
    const char *before, *key, *value, *labels;
    size_t size;
} labels[] = {
    {"", "job_id", "7", "job_id=\"7\"", 64},
    {"a=\"1\"", "job_id", "7", "a=\"1\",job_id=\"7\"", 64},
    {"", "job_name", NULL, "", 64},
    {"a=\"1\"", "job_name", "", "a=\"1\"", 64},
    {"", "k", "say \"x\" \\ y", "k=\"say \\\"x\\\" \\\\ y\"", 64},
    {"", "k", "two\nlines", "k=\"two lines\"", 64},
    {"", "k", "caf\xc3\xa9", "k=\"caf\xc3\xa9\"", 64},
    /* neither UTF-8 nor printable: a reader would refuse the whole page */
    {"", "k", "caf\xe9\x1b", "k=\"caf??\"", 64},
    /* the whole label or none of it */
    {"", "k", "value", "k=\"value\"", 10},
    {"", "k", "value", "", 9},
    {"a=\"1\"", "k", "value", "a=\"1\",k=\"value\"", 16},
    {"a=\"1\"", "k", "value", "a=\"1\"", 15},
    {"", "k", "\"\"\"\"", "k=\"\\\"\\\"\\\"\\\"\"", 13},
    {"", "k", "\"\"\"\"", "", 12},
};

static void labels_are_escaped_or_left_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(labels) / sizeof(*labels); i++) {
        /* of that size, so that a sanitizer sees a byte too many */
        size_t size = labels[i].size;
        char *text = malloc(size);

        assert_non_null(text);
        snprintf(text, size, "%s", labels[i].before);
        merak_openmetrics_label(text, size, labels[i].key, labels[i].value);
        assert_string_equal(text, labels[i].labels);
        free(text);
    }
}

static const struct {
    double value;
    const char *text;
} numbers[] = {
    {0, "0"},
    {-1.5, "-1.5"},
    {0.1, "0.1"},
    {1e6, "1e+06"},
    {1234567, "1234567"},
    {1795708895.2963035, "1795708895.2963035"},
    {9007199254740993.0, "9007199254740992"},
    {5.2068592412397265, "5.2068592412397265"},
    {INFINITY, "+Inf"},
    {-INFINITY, "-Inf"},
};

static void numbers_keep_every_bit(void **state)
{
    const struct merak_openmetric m = {"m", .help = "H."};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        char want[64], *text = NULL;
        size_t n;
        FILE *out = open_memstream(&text, &n);

        assert_non_null(out);
        merak_openmetrics_sample(out, &m, "", NULL, numbers[i].value);
        assert_int_equal(fclose(out), 0);
        snprintf(want, sizeof(want), "m %s\n", numbers[i].text);
        assert_string_equal(text, want);
        free(text);
    }
}

static void a_page_is_as_the_format_has_it(void **state)
{
    const struct merak_openmetric seconds = {"step_seconds", .unit = "seconds",
                                             .help = "Time of a step."};
    const struct merak_openmetric count = {"incidents", .type = "counter",
                                           .help = "Incidents."};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    (void)state;
    assert_non_null(out);
    merak_openmetrics_one(out, &seconds, "job=\"7\"", 0.25);
    merak_openmetrics_one(out, &seconds, "job=\"7\"", NAN); /* nothing */
    merak_openmetrics_family(out, &count);
    merak_openmetrics_sample(out, &count, "job=\"7\"", "kind=\"hang\"", 2);
    merak_openmetrics_sample(out, &count, "", "kind=\"hang\"", 0);
    merak_openmetrics_end(out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "# TYPE step_seconds gauge\n"
                              "# UNIT step_seconds seconds\n"
                              "# HELP step_seconds Time of a step.\n"
                              "step_seconds{job=\"7\"} 0.25\n"
                              "# TYPE incidents counter\n"
                              "# HELP incidents Incidents.\n"
                              "incidents_total{job=\"7\",kind=\"hang\"} 2\n"
                              "incidents_total{kind=\"hang\"} 0\n"
                              "# EOF\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_escaped_or_left_out),
        cmocka_unit_test(numbers_keep_every_bit),
        cmocka_unit_test(a_page_is_as_the_format_has_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
