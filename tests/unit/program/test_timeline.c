/* SPDX-License-Identifier: Apache-2.0 */
/* test_timeline.c - pictures of a step, and what precedes what in it */
#include "config.h"

#include "unit/near.h"

#include "base/rng.h"
#include "base/size.h"
#include "partitioner/program/instr_order.h"
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
        {0, MERAK_BAR_BACKWARD, 0, 3, 4, 0},
        {0, MERAK_BAR_FORWARD, 0, 0, 1, 0},
        {0, MERAK_BAR_FORWARD, 0, 1, 2, 0},
        {0, MERAK_BAR_TRANSFER, 0, 1, 2, 0},
        {0, MERAK_BAR_FORWARD, 1, 2, 3, 0},
        {1, MERAK_BAR_FORWARD, 1, 3, 4, 0},
    };

    (void)state;
    assert_int_equal(merak_bars_join(bars, 6, 0.0), 5);
    assert_near(&bars[0].end_s, &(double){2}, 1, 0, 0);
    assert_int_equal(bars[1].microbatch, 1);
    assert_int_equal(bars[2].kind, MERAK_BAR_BACKWARD);
    assert_int_equal(bars[3].kind, MERAK_BAR_TRANSFER);
    assert_int_equal(bars[4].row, 1);
}

/* A pause for a message does not cut an action; another chunk, and an idle time
 * longer than the work around it, do. */
static void an_action_is_one_box(void **state)
{
    struct merak_bar bars[] = {
        {0, MERAK_BAR_FORWARD, 0, 0, 2, 0},
        {0, MERAK_BAR_FORWARD, 0, 3, 4, 0},
        {0, MERAK_BAR_FORWARD, 0, 4, 5, 1},
        {0, MERAK_BAR_FORWARD, 0, 9, 10, 1},
        {0, MERAK_BAR_EXCHANGE, 1, 2, 2.5, 0},
        {0, MERAK_BAR_EXCHANGE, 2, 2.6, 3, 1},
    };
    const double want[] = {0, 4, 4, 5, 9, 10, 2, 3};

    (void)state;
    assert_int_equal(merak_bars_join(bars, 6, 0.2), 4);
    for (int i = 0; i < 4; i++) {
        assert_near(&bars[i].start_s, &want[2 * i], 1, 0, 0);
        assert_near(&bars[i].end_s, &want[2 * i + 1], 1, 0, 0);
    }
}

static void weight_gradients_have_boxes_where_they_are_actions(void **state)
{
    (void)state;
    assert_false(merak_bars_splits_w("1f1b"));
    assert_true(merak_bars_splits_w("zb-h1"));
    assert_false(merak_bars_splits_w("of a later merak"));
    for (int parts = 0; parts < 2; parts++) {
        assert_int_equal(
            merak_bar_kind(MERAK_QUEUE_COMPUTE, MERAK_PHASE_W, 3, parts == 1),
            parts ? MERAK_BAR_WEIGHT : MERAK_BAR_BACKWARD);
        assert_int_equal(
            merak_bar_kind(MERAK_QUEUE_COMPUTE, MERAK_PHASE_B, 3, parts == 1),
            MERAK_BAR_BACKWARD);
        assert_int_equal(
            merak_bar_kind(MERAK_QUEUE_COMPUTE, MERAK_PHASE_W, -1, parts == 1),
            MERAK_BAR_STEP);
    }
}

static void hairlines_become_one(void **state)
{
    struct merak_bar bars[] = {
        {0, MERAK_BAR_FORWARD, 0, 0, 1, 0},  /* with the next two */
        {0, MERAK_BAR_BACKWARD, 1, 1, 3, 0}, /* of the longest's kind */
        {0, MERAK_BAR_FORWARD, 2, 3, 4, 0},
        {0, MERAK_BAR_FORWARD, 3, 4, 14, 0},  /* long enough */
        {0, MERAK_BAR_FORWARD, 4, 14, 15, 0}, /* beside that alone */
        {1, MERAK_BAR_FORWARD, 5, 15, 16, 0}, /* another row */
        {1, MERAK_BAR_FORWARD, 6, 30, 31, 0}, /* far away */
    };

    (void)state;
    assert_int_equal(merak_bars_merge(bars, 7, 5), 5);
    assert_int_equal(bars[0].kind, MERAK_BAR_BACKWARD);
    assert_int_equal(bars[0].microbatch, -1);
    assert_near(&bars[0].end_s, &(double){4}, 1, 0, 0);
    for (int i = 1; i < 5; i++)
        assert_int_equal(bars[i].microbatch, i + 2);
}

static void idle_is_what_bars_leave(void **state)
{
    const struct merak_bar bars[] = {
        {0, MERAK_BAR_FORWARD, 0, 0, 4, 0},
        {0, MERAK_BAR_TRANSFER, 0, 3, 6, 0},
        {0, MERAK_BAR_BACKWARD, 0, 8, 10, 0},
        {1, MERAK_BAR_FORWARD, 0, 5, 10, 0},
        {1, MERAK_BAR_EXCHANGE, 0, 5, 7, 0},
    };
    const double idle[] = {0.4, 0.5, 0.45}, waiting[] = {0.2, 0.5, 0.35};
    struct merak_bar_share share[3];

    (void)state;
    assert_int_equal(merak_bars_share(bars, 5, 2, 10, share, NULL), MERAK_OK);
    for (int r = 0; r < 3; r++) {
        assert_near(&share[r].idle, &idle[r], 1, 0, 1e-12);
        assert_near(&share[r].waiting, &waiting[r], 1, 0, 1e-12);
    }
}

static void text_shows_what_fills_a_column(void **state)
{
    const struct merak_bar bars[] = {
        {0, MERAK_BAR_FORWARD, 0, 0, 1, 0},
        {0, MERAK_BAR_FORWARD, 11, 1, 2, 0},
        {0, MERAK_BAR_BACKWARD, 0, 5, 7, 0},
        {0, MERAK_BAR_STEP, -1, 9, 10, 0},
        {0, MERAK_BAR_TRANSFER, 0, 1, 3, 0},
        {1, MERAK_BAR_FORWARD, 0, 1, 2.6, 0},
        {1, MERAK_BAR_BACKWARD, 0, 2.6, 4, 0},
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
    const struct merak_bar bars[] = {{0, MERAK_BAR_FORWARD, 0, 0, 1, 0},
                                     {1, MERAK_BAR_EXCHANGE, 0, 1, 2, 0}};
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

/* 64 stages of 512 micro-batches; and of 4, where nothing has to be merged. */
static void a_large_picture_stays_small(void **state)
{
    enum { ROWS = 64, MOST = 512 };
    static struct merak_bar bars[ROWS * MOST * 4];
    static const char *name[ROWS];
    static struct merak_bar_share share[ROWS + 1];

    (void)state;
    for (int r = 0; r < ROWS; r++)
        name[r] = "stage 17";
    for (int mbs = 4; mbs <= MOST; mbs *= 128) {
        struct merak_picture p = {.title = "large",
                                  .share = share,
                                  .n_rows = ROWS,
                                  .row_name = name,
                                  .bars = bars,
                                  .end_s = 2 * mbs + 2 * ROWS};
        char *text = NULL;

        for (int r = 0; r < ROWS; r++) {
            for (int m = 0; m < 2 * mbs; m++) {
                struct merak_bar bar = {.row = r,
                                        .microbatch = m / 2,
                                        .start_s = r + m,
                                        .end_s = r + m + 1};

                bar.kind = m % 2 ? MERAK_BAR_BACKWARD : MERAK_BAR_FORWARD;
                bars[p.n_bars++] = bar;
                bar.kind = m % 2 ? MERAK_BAR_TRANSFER : MERAK_BAR_EXCHANGE;
                bars[p.n_bars++] = bar;
            }
        }
        p.n_bars = merak_bars_join(bars, p.n_bars, 0);
        assert_int_equal(merak_picture_svg(&p, &text, NULL), MERAK_OK);
        assert_true(strlen(text) < 500000);
        assert_int_equal(count_of(text, "stage 17"), ROWS);
        if (mbs == 4) /* every box with its number */
            assert_int_equal(count_of(text, "<text class=\"n"), ROWS * 2 * mbs);
        free(text);
    }
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
    const char *label;
    double x, width, most;

    (void)state;
    assert_int_equal(merak_memory_svg(&p, &text, NULL), MERAK_OK);
    assert_int_equal(count_of(text, "<title>"), 3); /* not of empty parts */
    assert_int_equal(count_of(text, "a&lt;b"), 1);
    assert_int_equal(count_of(text, "2 KiB"), 2);
    assert_int_equal(count_of(text, "limit of a rank: 4 KiB"), 1);
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
    /* a label that the limit's line would cut stands behind it */
    bytes[0][MERAK_CAT_PARAM] = 3900;
    assert_int_equal(merak_memory_svg(&p, &text, NULL), MERAK_OK);
    assert_int_equal(sscanf(strstr(text, "<line x1="), "<line x1=\"%lf", &most),
                     1);
    label = strstr(text, ">3.906 KiB<");
    assert_non_null(label);
    while (strncmp(label, "<text", 5) != 0)
        label--;
    assert_int_equal(sscanf(label, "<text x=\"%lf", &x), 1);
    assert_true(x > most);
    free(text);
    /* far away it is said, not drawn */
    p.limit_bytes = 1 << 20;
    assert_int_equal(merak_memory_svg(&p, &text, NULL), MERAK_OK);
    assert_int_equal(count_of(text, "stroke-dasharray"), 0);
    assert_int_equal(count_of(text, "limit of a rank: 1 MiB"), 1);
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
    assert_int_equal(merak_memplan(lives, 4, NULL, &bytes, NULL), MERAK_OK);
    /* 256 for the second and the fourth, 128 for the first and the third */
    assert_int_equal(bytes, 256 + 128);
    assert_int_equal(lives[1].offset, lives[3].offset);
    assert_int_equal(lives[0].offset, lives[2].offset);
    assert_true(lives[0].offset >= 256);
}

static void slots_are_not_placed_after_a_deadline(void **state)
{
    const struct merak_deadline past = {.at_ns = 0},
                                none = {.at_ns = INT64_MAX};
    struct merak_span span = {0, 1};
    struct merak_life life = {.bytes = 1, .span = &span, .n_spans = 1};
    size_t bytes = 0;

    (void)state;
    assert_int_equal(merak_memplan(&life, 1, &past, &bytes, NULL),
                     MERAK_ERR_TIMEOUT);
    assert_int_equal(merak_memplan(&life, 1, &none, &bytes, NULL), MERAK_OK);
}

/* As described in memplan.h, one pair at a time. */
static bool share_a_moment(const struct merak_life *a,
                           const struct merak_life *b)
{
    for (int i = 0; i < a->n_spans; i++) {
        for (int k = 0; k < b->n_spans; k++) {
            if (a->span[i].first <= b->span[k].last &&
                b->span[k].first <= a->span[i].last)
                return true;
        }
    }
    return false;
}

/* Programs of a few instructions and of so many that there is no bit for each:
 * what lives at one time is apart, and what does not shares memory. */
static void random_lives_are_placed_apart(void **state)
{
    enum { LIVES = 400, SPANS = 4 };
    static const int moments[] = {30, 3000, INT32_MAX - 8};
    static struct merak_span span[LIVES][SPANS];
    static struct merak_life lives[LIVES];

    (void)state;
    for (size_t row = 0; row < sizeof(moments) / sizeof(*moments); row++) {
        uint64_t key = merak_rng_key(row, "lives"), at = 0;
        size_t arena = 0, sum = 0;

        for (int i = 0; i < LIVES; i++) {
            int each = moments[row] / SPANS;

            lives[i] = (struct merak_life){
                .bytes = 1 + merak_rng_mix(key, at++) % 5000,
                .span = span[i],
                .n_spans = 1 + (int)(merak_rng_mix(key, at++) % SPANS)};
            for (int k = 0; k < lives[i].n_spans; k++) {
                int len = each / 4 + 1;
                int first = k * each + (int)(merak_rng_mix(key, at++) %
                                             (uint64_t)(each - len));

                span[i][k] = (struct merak_span){
                    first,
                    first + (int)(merak_rng_mix(key, at++) % (uint64_t)len)};
            }
            sum += merak_size_align(lives[i].bytes, MERAK_ALIGN);
        }
        assert_int_equal(merak_memplan(lives, LIVES, NULL, &arena, NULL),
                         MERAK_OK);
        for (int i = 0; i < LIVES; i++) {
            assert_true(lives[i].offset + lives[i].bytes <= arena);
            for (int k = 0; k < i; k++)
                assert_true(
                    !share_a_moment(&lives[i], &lives[k]) ||
                    lives[i].offset + lives[i].bytes <= lives[k].offset ||
                    lives[k].offset + lives[k].bytes <= lives[i].offset);
        }
        assert_true(arena < sum / 2);
    }
}

/* A chain of copies with as many ways through it as a Fibonacci number, asked
 * for one that it does not wait for. */
static void long_chains_are_followed_once(void **state)
{
    enum { N = 200 };
    struct merak_instr instr[N] = {{.queue = MERAK_QUEUE_COPY}};
    int wait[2 * N] = {0};
    const struct merak_program program = {
        .instr = instr, .n_instrs = N, .wait = wait};
    struct merak_instr_order order;

    (void)state;
    for (int i = 1; i < N; i++) {
        instr[i] = (struct merak_instr){.id = i,
                                        .queue = MERAK_QUEUE_COPY,
                                        .first_wait = 2 * i,
                                        .n_wait = i > 2 ? 2 : i - 1};
        wait[2 * i] = i - 1;
        wait[2 * i + 1] = i - 2;
    }
    assert_int_equal(merak_instr_order_init(&order, &program, NULL), MERAK_OK);
    for (int i = 0; i < N; i++)
        merak_instr_order_next(&order);
    assert_false(merak_instr_order_before(&order, 0, N - 1));
    assert_true(merak_instr_order_before(&order, 1, N - 1));
    assert_false(merak_instr_order_before(&order, 0, N - 2));
    merak_instr_order_fini(&order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_are_joined),
        cmocka_unit_test(an_action_is_one_box),
        cmocka_unit_test(weight_gradients_have_boxes_where_they_are_actions),
        cmocka_unit_test(hairlines_become_one),
        cmocka_unit_test(idle_is_what_bars_leave),
        cmocka_unit_test(text_shows_what_fills_a_column),
        cmocka_unit_test(svg_is_whole_and_escaped),
        cmocka_unit_test(a_large_picture_stays_small),
        cmocka_unit_test(memory_is_drawn_in_proportion),
        cmocka_unit_test(slots_alive_together_do_not_overlap),
        cmocka_unit_test(slots_are_not_placed_after_a_deadline),
        cmocka_unit_test(random_lives_are_placed_apart),
        cmocka_unit_test(long_chains_are_followed_once),
    };

    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
