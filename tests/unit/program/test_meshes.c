/* SPDX-License-Identifier: Apache-2.0 */
/* test_meshes.c - stages of unlike ranks: their numbers, and what is refused */
#include "config.h"

#include "unit/near.h"

#include "partitioner/plan/plan.h"

#include <string.h>

/* dp x tp */
#define LIST(...) ((const struct merak_stage_degrees[]){__VA_ARGS__})

static struct merak_plan plan_of(const struct merak_stage_degrees *stage, int n,
                                 size_t samples)
{
    struct merak_plan plan = {.micro_batch = samples};
    struct merak_error err = {0};

    if (merak_plan_set_stages(&plan, stage, n, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return plan;
}

static void ranks_follow_stage_by_stage(void **state)
{
    const struct merak_plan plan = plan_of(LIST({2, 4}, {8, 1}, {4, 2}), 3, 8);
    static const size_t batch[] = {4, 1, 2};
    int rank = 0;

    (void)state;
    assert_int_equal(merak_plan_ranks(&plan), 24);
    assert_int_equal(merak_plan_samples(&plan), 8);
    for (int s = 0; s < 3; s++) {
        const struct merak_stage_mesh mesh = merak_plan_mesh(&plan, s);

        assert_int_equal(mesh.first, rank);
        assert_int_equal(mesh.batch, batch[s]);
        for (int d = 0; d < mesh.dp; d++) {
            for (int t = 0; t < mesh.tp; t++, rank++) {
                int tp, dp, stage;

                assert_int_equal(merak_plan_rank(&plan, t, d, s), rank);
                merak_plan_coords(&plan, rank, &tp, &dp, &stage);
                assert_int_equal(tp, t);
                assert_int_equal(dp, d);
                assert_int_equal(stage, s);
            }
        }
    }
    assert_true(merak_plan_is_unlike(&plan, 0, 2));
    assert_false(merak_plan_is_unlike(&plan, 1, 1));
}

/* A micro-batch of 12 sequences, the sixth of a step from sample 1000 on. */
static void replicas_divide_the_same_samples(void **state)
{
    const struct merak_plan plan = plan_of(LIST({3, 1}, {2, 1}), 2, 12);
    const struct merak_stage_mesh three = merak_plan_mesh(&plan, 0);
    const struct merak_stage_mesh two = merak_plan_mesh(&plan, 1);

    (void)state;
    for (int d = 0; d < 3; d++)
        assert_int_equal(1000 + merak_stage_sample(&three, 5, d), 1060 + 4 * d);
    for (int d = 0; d < 2; d++)
        assert_int_equal(1000 + merak_stage_sample(&two, 5, d), 1060 + 6 * d);
}

static void a_list_of_equal_stages_is_no_list(void **state)
{
    const struct merak_plan plan = plan_of(LIST({2, 4}, {2, 4}), 2, 6);

    (void)state;
    assert_null(plan.stage);
    assert_int_equal(plan.tp, 4);
    assert_int_equal(plan.dp, 2);
    assert_int_equal(plan.pp, 2);
    assert_int_equal(plan.micro_batch, 3);
    assert_int_equal(merak_plan_samples(&plan), 6);
}

static void least_micro_batches(void **state)
{
    (void)state;
    assert_int_equal(
        merak_stages_least_samples(LIST({1, 1}, {2, 1}, {4, 1}), 3), 4);
    assert_int_equal(merak_stages_least_samples(LIST({3, 1}, {2, 1}), 2), 6);
    assert_int_equal(merak_stages_least_samples(LIST({4, 1}, {6, 1}), 2), 12);
    assert_int_equal(merak_stages_least_samples(LIST({7, 1}, {1, 1}), 2), 7);
    assert_int_equal(
        merak_stages_least_samples(LIST({65521, 1}, {65519, 1}), 2), 0);
}

static void what_does_not_divide_is_refused(void **state)
{
    static const struct {
        struct merak_stage_degrees stage[2];
        size_t samples;
        const char *text;
    } rows[] = {
        {{{2, 1}, {4, 1}},
         6,
         "a micro-batch of 6 cannot be divided among 4 replicas of stage 1 "
         "(nearest: 4 or 8; all stages: a multiple of 4)"},
        {{{3, 1}, {4, 2}},
         3,
         "a micro-batch of 3 cannot be divided among 4 replicas of stage 1 "
         "(nearest: 4; all stages: a multiple of 12)"},
        {{{1, 1}, {0, 4}},
         4,
         "stage 1 of 0 x 4 ranks: expected at least 1 replica of 1 rank"},
        {{{1, 65535}, {65535, 65535}},
         65535,
         "2 stages of together more than 2147483647 ranks"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = {.micro_batch = rows[i].samples};
        struct merak_error err = {0};

        assert_int_equal(merak_plan_set_stages(&plan, rows[i].stage, 2, &err),
                         MERAK_ERR_CONFIG);
        assert_string_equal(err.text, rows[i].text);
        assert_int_equal(plan.pp, 0);
    }
}

static void ranks_are_countable(void **state)
{
    const struct merak_plan rows[] = {
        {.tp = 65535, .cp = 4, .pp = 65535, .dp = 1, .microbatches = 1},
        {.tp = 1, .ep = 65535, .pp = 65535, .dp = 65535, .microbatches = 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_error err = {0};

        assert_int_equal(merak_plan_check_degrees(&rows[i], &err),
                         MERAK_ERR_CONFIG);
        assert_non_null(strstr(err.text, "more than 2147483647 ranks"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_follow_stage_by_stage),
        cmocka_unit_test(replicas_divide_the_same_samples),
        cmocka_unit_test(a_list_of_equal_stages_is_no_list),
        cmocka_unit_test(least_micro_batches),
        cmocka_unit_test(what_does_not_divide_is_refused),
        cmocka_unit_test(ranks_are_countable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
