/* SPDX-License-Identifier: Apache-2.0 */
/* test_list_check.c - lists of actions that are wrong are named */
#include "config.h"

#include "unit/near.h"

#include "partitioner/schedule/list_check.h"

static struct merak_timetable *create(const char *name,
                                      const struct merak_schedule_args *args)
{
    const struct merak_schedule *sched;
    struct merak_timetable *table = NULL;
    struct merak_error err;

    if (merak_schedule_find(name, &sched, &err) != MERAK_OK ||
        merak_timetable_create(sched, args, &table, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return table;
}

/* One action of stage 1 of 2 (1F1B, m = 4: F0 B0 F1 B1 ...) put wrong. */
struct fault_row {
    int at;
    struct merak_action action;
    const char *text;
};

static const struct fault_row fault_rows[] = {
    {2,
     {.kind = MERAK_ACT_F},
     "F0 of part 1 (stage 1) is listed 2 times, "
     "not 1"},
    {3,
     {.kind = MERAK_ACT_B, .microbatch = 2},
     "B1 of part 1 (stage 1) is listed 0 times, not 1"},
    {3,
     {.kind = MERAK_ACT_W, .microbatch = 1},
     "B1 of part 1 (stage 1) is listed 0 times, not 1"},
    {3,
     {.kind = MERAK_ACT_B, .microbatch = 4},
     "stage 1, action 3: micro-batch 4, chunk 0, slice 0, pass 0 do not "
     "exist"},
    {3,
     {.kind = MERAK_ACT_B, .microbatch = 1, .chunk = 1},
     "stage 1, action 3: micro-batch 1, chunk 1, slice 0, pass 0 do not "
     "exist"},
};

static void wrong_lists_are_named(void **state)
{
    struct merak_schedule_args args = {
        .stages = 2, .microbatches = 4, .chunks = 1};
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(fault_rows) / sizeof(fault_rows[0]); i++) {
        struct merak_timetable *table = create("1f1b", &args);

        table->row[1].action[fault_rows[i].at] = fault_rows[i].action;
        assert_int_equal(merak_timetable_check(table, &err), MERAK_ERR_CONFIG);
        assert_string_equal(err.text, fault_rows[i].text);
        merak_timetable_destroy(table);
    }
}

/* Two actions of a list, the other way round. */
static const struct {
    const char *schedule;
    int slices, stage, at, with;
    const char *text;
} swap_rows[] = {
    {"1f1b", 0, 1, 0, 1, "stage 1, action 0: B0 comes before F0"},
    {"zb-h1", 0, 0, 2, 3, "stage 0, action 2: W0 comes before B0"},
    {"scp", 0, 0, 3, 4, "stage 0, action 3: B0 comes before R0"},
    {"sliced", 4, 1, 0, 1,
     "stage 1, action 0: F0 slice 1 comes before F0 slice 0"},
    {"sliced", 4, 1, 4, 6,
     "stage 1, action 4: B0 slice 2 comes before B0 slice 3"},
};

static void lists_out_of_order_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(swap_rows) / sizeof(swap_rows[0]); i++) {
        struct merak_schedule_args args = {.stages = 2,
                                           .microbatches = 4,
                                           .chunks = 1,
                                           .slices = swap_rows[i].slices};
        struct merak_timetable *table = create(swap_rows[i].schedule, &args);
        struct merak_action *action = table->row[swap_rows[i].stage].action;
        struct merak_action first = action[swap_rows[i].at];
        struct merak_error err = {.text = ""};

        assert_int_equal(merak_timetable_check(table, &err), MERAK_OK);
        action[swap_rows[i].at] = action[swap_rows[i].with];
        action[swap_rows[i].with] = first;
        assert_int_equal(merak_timetable_check(table, &err), MERAK_ERR_CONFIG);
        assert_string_equal(err.text, swap_rows[i].text);
        merak_timetable_destroy(table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_lists_are_named),
        cmocka_unit_test(lists_out_of_order_are_named),
    };

    return cmocka_run_group_tests_name("list_check", tests, NULL, NULL);
}
