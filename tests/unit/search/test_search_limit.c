/* SPDX-License-Identifier: Apache-2.0 */
/* test_search_limit.c - a search that is cut short has an answer
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/search/search_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const volatile sig_atomic_t asked = 1;

struct row {
    const char *name;
    double seconds;
    bool stop;
    struct merak_choices pin;
    int nodes;
    bool cut_short;
};

static const struct row rows[] = {
    {"without a limit", 0, false, {0}, 2, false},
    {"with time enough", 1e6, false, {0}, 2, false},
    {"no time at all", 1e-9, false, {0}, 2, true},
    {"stopped at once", 0, true, {0}, 2, true},
    {"stopped, with a limit", 1e6, true, {0}, 2, true},
    {"no time, tp given", 1e-9, false, {.tp = 4}, 2, true},
    {"no time, all degrees given",
     1e-9,
     false,
     {.tp = 2, .pp = 4, .dp = 2, .micro_batch = 2},
     2,
     true},
    {"no time, a schedule given",
     1e-9,
     false,
     {.pp = 4, .schedule = "gpipe"},
     2,
     true},
    {"no time, one node", 1e-9, false, {0}, 1, true},
};

static enum merak_status plan(const struct row *row, double memory_gib,
                              double most_s,
                              struct merak_search_result **result_p,
                              struct merak_error *err)
{
    struct merak_hf_config config = gpt2_config(8, 1024, 16, 50257);
    struct merak_device device;
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 512,
                                    .dtype = MERAK_BF16,
                                    .global_batch = 64,
                                    .nodes = row->nodes,
                                    .ranks_per_node = 8,
                                    .threads = 1,
                                    .memory_bytes =
                                        (size_t)(memory_gib * 0x1p30),
                                    .device = &device,
                                    .pin = row->pin,
                                    .seconds = row->seconds,
                                    .stop = row->stop ? &asked : NULL,
                                    .most_s = most_s};

    assert_int_equal(merak_device_find("h100", &device, NULL), MERAK_OK);
    return merak_search(&in, result_p, err);
}

static double best_s; /* of the first row, without a limit; 0: not searched */

static double find_best_s(void)
{
    struct merak_search_result *result = NULL;
    struct merak_error err;

    if (best_s > 0)
        return best_s;
    if (plan(&rows[0], 0, 0, &result, &err) != MERAK_OK)
        fail_msg("%s: %s", rows[0].name, err.text);
    best_s = result->choice[0].step_s;
    merak_search_destroy(result);
    return best_s;
}

/* Both kinds of limit, whatever is pinned: a plan that was simulated and fits,
 * no better than that of the whole search, which no bound exceeds. */
static void a_search_that_is_cut_short_has_a_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *row = &rows[i];
        struct merak_search_result *result = NULL;
        struct merak_error err;
        const struct merak_search_choice *c;

        if (plan(row, 0, 0, &result, &err) != MERAK_OK)
            fail_msg("%s: %s", row->name, err.text);
        c = &result->choice[0];
        if (result->cut_short != row->cut_short)
            fail_msg("%s: cut short: %d", row->name, result->cut_short);
        if (!c->simulated || !c->fits)
            fail_msg("%s: not simulated, or it does not fit", row->name);
        if (i == 0)
            best_s = c->step_s;
        if (row->nodes == 2 && !row->cut_short && c->step_s != best_s)
            fail_msg("%s: %g s, not %g", row->name, c->step_s, best_s);
        if (row->nodes == 2 &&
            (result->least_s > best_s || result->least_s < 0.2 * best_s))
            fail_msg("%s: a bound of %g s, a step of %g, the best %g",
                     row->name, result->least_s, c->step_s, best_s);
        merak_search_destroy(result);
    }
}

/* That no plan fits is not said if not all were looked at, but what is likely
 * to: the memory that the smallest takes by the table, with which there is a
 * plan. */
static void a_search_that_is_cut_short_does_not_say_that_none_fits(void **state)
{
    struct merak_search_result *result = NULL;
    struct merak_error err;
    const char *likely;
    double gib;

    (void)state;
    assert_int_equal(plan(&rows[3], 0.1, 0, &result, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "the search was cut short after"));
    assert_non_null(strstr(err.text, "--search-seconds"));
    likely = strstr(err.text, "; likely, but not verified: --memory-gib ");
    if (likely == NULL)
        fail_msg("%s", err.text);
    gib = strtod(strrchr(likely, ' '), NULL);
    assert_true(gib > 0.1 && gib < 2);
    assert_int_equal(plan(&rows[0], 1.05 * gib, 0, &result, &err), MERAK_OK);
    merak_search_destroy(result);
    result = NULL;
    assert_int_equal(plan(&rows[0], 0.05, 0, &result, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "no plan fits in 51.2 MiB"));
}

/* Where only the seconds of a step are asked for, they are those of a whole
 * search, or there is no answer. */
static void a_search_for_a_shorter_step_knows_that_there_is_none(void **state)
{
    struct merak_search_result *result = NULL;
    const struct row *row = &rows[0];
    struct merak_error err;

    (void)state;
    assert_true(find_best_s() > 0);
    assert_int_equal(plan(row, 0, 1.01 * best_s, &result, &err), MERAK_OK);
    assert_true(result->choice[0].step_s == best_s);
    assert_null(result->stage);
    merak_search_destroy(result);
    assert_int_equal(plan(row, 0, best_s, &result, &err), MERAK_ERR_CONFIG);
    assert_int_equal(plan(row, 0, best_s / 2, &result, &err), MERAK_ERR_CONFIG);
}

/* 128 stages of 64 micro-batches in slices: to build such a plan alone takes
 * many times the seconds that are given, of which a trial has a part. */
static void a_plan_that_takes_too_long_to_build_is_left(void **state)
{
    struct merak_hf_config config = gpt2_config(80, 8192, 64, 128256);
    struct merak_device device;
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 131072,
                                    .dtype = MERAK_BF16,
                                    .global_batch = 128,
                                    .nodes = 32,
                                    .ranks_per_node = 8,
                                    .threads = 1,
                                    .device = &device,
                                    .pin = {.cp = 1},
                                    .seconds = 0.5};
    struct merak_search_result *result = NULL;
    struct merak_error err = {0};
    double took_s;
    clock_t start;

    (void)state;
    config.positions = in.seq;
    assert_int_equal(merak_device_find("h100", &device, NULL), MERAK_OK);
    start = clock(); /* of this process: others do not matter */
    if (merak_search(&in, &result, &err) != MERAK_OK) {
        assert_non_null(strstr(err.text, "the search was cut short after"));
    } else {
        assert_true(result->cut_short);
        merak_search_destroy(result);
    }
    took_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (took_s > 4)
        fail_msg("%.1f s", took_s);
}

/* The search over layouts ends at a deadline: within an estimate nothing is
 * left out but that estimate, and the search is then cut short, not failed. */
static void layouts_are_not_searched_for_after_a_deadline(void **state)
{
    const struct merak_plan key = {.tp = 2, .micro_batch = 1};
    const struct merak_deadline past = {.at_ns = 1};
    struct merak_hf_config config = gpt2_config(8, 1024, 16, 50257);
    const struct merak_sharded *sharded = NULL;
    struct merak_device device;
    struct merak_search_input in = {.describe = merak_hf_describe,
                                    .arg = &config,
                                    .seq = 512,
                                    .dtype = MERAK_BF16,
                                    .global_batch = 64,
                                    .nodes = 2,
                                    .ranks_per_node = 8,
                                    .threads = 1,
                                    .device = &device,
                                    .seconds = 1e6};
    struct merak_candidate known = {.plan = {.tp = 1}};
    struct merak_search s;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_device_find("h100", &device, NULL), MERAK_OK);
    assert_int_equal(merak_search_init(&s, &in, &err), MERAK_OK);
    assert_int_equal(merak_graphs_shard(s.graphs, &key, &past, &sharded, &err),
                     MERAK_ERR_TIMEOUT);
    merak_search_keep(&s, &s.cand, &s.n_cands, &known);
    s.until_ns = 1;
    assert_int_equal(merak_search_shard(&s, &key, &sharded, &err),
                     MERAK_ERR_TIMEOUT);
    assert_null(sharded);
    assert_true(s.cut_short && s.rc == MERAK_OK);
    s.n_cands = 0; /* none is known: all of the time may be taken */
    assert_int_equal(merak_search_shard(&s, &key, &sharded, &err), MERAK_OK);
    assert_non_null(sharded);
    merak_search_fini(&s);
}

/* Where all plans that fit were built and cannot run, that is what is said:
 * more memory would not help. */
static void time_that_ends_among_plans_that_hang_is_not_memory(void **state)
{
    const struct merak_search_input in = {.nodes = 1, .ranks_per_node = 8};
    struct merak_candidate hangs[] = {
        {.plan = {.tp = 8}, .step_s = DBL_MAX, .arena = DBL_MAX},
        {.plan = {.tp = 4}, .step_s = DBL_MAX, .arena = DBL_MAX}};
    struct merak_candidate big = {.plan = {.tp = 2}, .bytes = 1e12};
    struct merak_error err;
    struct merak_search s = {
        .in = &in,
        .cand = hangs,
        .n_cands = 2,
        .big = &big,
        .n_bigs = 1,
        .n_rated = 3,
        .most = 1e9,
        .run_error = {.status = MERAK_ERR_CORRUPT, .text = "the programs hang"},
        .err = &err};

    (void)state;
    assert_int_equal(merak_search_no_time(&s), MERAK_ERR_CONFIG);
    if (strstr(err.text, "the 2 of 3 plans that fit cannot run") == NULL ||
        strstr(err.text, "the programs hang") == NULL ||
        strstr(err.text, "memory") != NULL)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_search_that_is_cut_short_has_a_plan),
        cmocka_unit_test(
            a_search_that_is_cut_short_does_not_say_that_none_fits),
        cmocka_unit_test(a_search_for_a_shorter_step_knows_that_there_is_none),
        cmocka_unit_test(a_plan_that_takes_too_long_to_build_is_left),
        cmocka_unit_test(layouts_are_not_searched_for_after_a_deadline),
        cmocka_unit_test(time_that_ends_among_plans_that_hang_is_not_memory),
    };

    return cmocka_run_group_tests_name("search_limit", tests, NULL, NULL);
}
