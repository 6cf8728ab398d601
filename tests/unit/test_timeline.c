/* SPDX-License-Identifier: Apache-2.0 */
/* test_timeline.c - pictures of a step */
#include "config.h"

#include "unit/near.h"

#include "partitioner/program/memplan.h"
#include "partitioner/simulate/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"stage 0", "stage 1"};

static struct merak_picture picture_of(const struct merak_bar *bars, int n,
                                       double end_s)
{
    return (struct merak_picture){.title = "2 < 3 & 4",
                                  .n_rows = 2,
                                  .row_name = names,
                                  .bars = bars,
                                  .n_bars = n,
                                  .end_s = end_s};
}

static void neighbours_are_joined(void **state)
{
    struct merak_bar bars[] = {
        {0, MERAK_BAR_BACKWARD, 0, 3, 4}, {0, MERAK_BAR_FORWARD, 0, 0, 1},
        {0, MERAK_BAR_FORWARD, 0, 1, 2},  {0, MERAK_BAR_TRANSFER, 0, 1, 2},
        {0, MERAK_BAR_FORWARD, 1, 2, 3},  {1, MERAK_BAR_FORWARD, 1, 3, 4},
    };

    (void)state;
    assert_int_equal(merak_bars_join(bars, 6, 0.0), 5);
    assert_near(&bars[0].end_s, &(double){2}, 1, 0, 0);
    assert_int_equal(bars[1].microbatch, 1);
    assert_int_equal(bars[2].kind, MERAK_BAR_BACKWARD);
    assert_int_equal(bars[3].kind, MERAK_BAR_TRANSFER);
    assert_int_equal(bars[4].row, 1);
}

static void text_shows_what_fills_a_column(void **state)
{
    const struct merak_bar bars[] = {
        {0, MERAK_BAR_FORWARD, 0, 0, 1},    {0, MERAK_BAR_FORWARD, 11, 1, 2},
        {0, MERAK_BAR_BACKWARD, 0, 5, 7},   {0, MERAK_BAR_STEP, -1, 9, 10},
        {0, MERAK_BAR_TRANSFER, 0, 1, 3},   {1, MERAK_BAR_FORWARD, 0, 1, 2.6},
        {1, MERAK_BAR_BACKWARD, 0, 2.6, 4},
    };
    struct merak_picture p = picture_of(bars, 7, 10);
    char *text = NULL;

    (void)state;
    assert_int_equal(merak_picture_text(&p, 10, &text, NULL), MERAK_OK);
    assert_string_equal(text, "stage 0  01-..aa..=\n"
                              "stage 1  .00a......\n");
    free(text);
}

static int count_of(const char *text, const char *what)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

static void svg_is_whole_and_escaped(void **state)
{
    const struct merak_bar bars[] = {{0, MERAK_BAR_FORWARD, 0, 0, 1},
                                     {1, MERAK_BAR_EXCHANGE, 0, 1, 2}};
    struct merak_picture p = picture_of(bars, 2, 2);
    char *text = NULL;

    (void)state;
    assert_int_equal(merak_picture_svg(&p, &text, NULL), MERAK_OK);
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_int_equal(count_of(text, "</svg>"), 1);
    assert_int_equal(count_of(text, "2 &lt; 3 &amp; 4"), 1);
    assert_int_equal(count_of(text, "<title>"), 2);
    assert_int_equal(count_of(text, "<text"), count_of(text, "</text>"));
    free(text);
    p.end_s = 0;
    assert_int_equal(merak_picture_svg(&p, &text, NULL), MERAK_ERR_PARAM);
}

static void memory_is_drawn_in_proportion(void **state)
{
    static const char *const name[] = {"stage 0", "a<b"};
    size_t bytes[2][MERAK_CAT_COUNT] = {
        {[MERAK_CAT_PARAM] = 300, [MERAK_CAT_ACTIVATION] = 100},
        {[MERAK_CAT_SCRATCH] = 2048}};
    struct merak_memory_picture p = {
        .title = "memory",
        .n_rows = 2,
        .row_name = name,
        .bytes = (const size_t(*)[MERAK_CAT_COUNT])bytes,
        .limit_bytes = 4096};
    char *text = NULL, *both = NULL;
    double x, width, most;

    (void)state;
    assert_int_equal(merak_memory_svg(&p, &text, NULL), MERAK_OK);
    assert_int_equal(count_of(text, "<title>"), 3); /* not of empty parts */
    assert_int_equal(count_of(text, "a&lt;b"), 1);
    assert_int_equal(count_of(text, "2 KiB"), 2);
    assert_int_equal(count_of(text, "a rank may take 4 KiB"), 1);
    assert_int_equal(count_of(text, "stroke-dasharray"), 1);
    /* the limit is the right end: the scratch is half as wide as that */
    assert_int_equal(sscanf(strstr(text, "<line x1="), "<line x1=\"%lf", &most),
                     1);
    assert_int_equal(sscanf(strstr(strstr(text, "a&lt;b"), "<rect"),
                            "<rect x=\"%lf\" y=\"%*f\" width=\"%lf", &x,
                            &width),
                     2);
    assert_true(fabs(2 * width - (most - x)) < 0.2);
    assert_int_equal(merak_svg_stack(text, text, &both, NULL), MERAK_OK);
    assert_int_equal(count_of(both, "</svg>"), 3);
    free(both);
    free(text);
    /* far away it is said, not drawn */
    p.limit_bytes = 1 << 20;
    assert_int_equal(merak_memory_svg(&p, &text, NULL), MERAK_OK);
    assert_int_equal(count_of(text, "stroke-dasharray"), 0);
    assert_int_equal(count_of(text, "a rank may take 1 MiB"), 1);
    free(text);
}

/* --- the memory planner, on plain numbers --------------------------------- */

static void slots_alive_together_do_not_overlap(void **state)
{
    struct merak_span span[] = {{0, 3}, {2, 5}, {4, 9}, {0, 1}, {6, 9}};
    struct merak_life lives[] = {
        {.bytes = 100, .span = &span[0], .n_spans = 1},
        {.bytes = 200, .span = &span[1], .n_spans = 1},
        {.bytes = 100, .span = &span[2], .n_spans = 1},
        {.bytes = 190, .span = &span[3], .n_spans = 2}, /* [0,1] and [6,9] */
    };
    size_t bytes = 0;

    (void)state;
    assert_int_equal(merak_memplan(lives, 4, &bytes, NULL), MERAK_OK);
    /* 256 for the second and the fourth, 128 for the first and the third */
    assert_int_equal(bytes, 256 + 128);
    assert_int_equal(lives[1].offset, lives[3].offset);
    assert_int_equal(lives[0].offset, lives[2].offset);
    assert_true(lives[0].offset >= 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_joined),
        cmocka_unit_test(text_shows_what_fills_a_column),
        cmocka_unit_test(svg_is_whole_and_escaped),
        cmocka_unit_test(memory_is_drawn_in_proportion),
        cmocka_unit_test(slots_alive_together_do_not_overlap),
    };

    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
