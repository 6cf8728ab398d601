/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_names.c - schedules by name, and with numbers that do not fit
 */
#include "config.h"

#include "unit/near.h"

#include "partitioner/schedule/schedule.h"

#include <string.h>

static const struct merak_schedule *find(const char *name)
{
    const struct merak_schedule *sched = NULL;
    struct merak_error err;

    if (merak_schedule_find(name, &sched, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return sched;
}

static void names_are_found_and_unknown_ones_list_the_known(void **state)
{
    const struct merak_schedule *sched = NULL;
    struct merak_error err;

    (void)state;
    assert_ptr_equal(find("scp:third,early,drop-last"), find("scp"));
    assert_ptr_equal(find("scp:early,drop-last"), find("last"));
    assert_ptr_equal(find("scp:early"), find("early"));
    assert_string_equal(find("scp:third,early")->name, "scp:early,third");
    assert_int_equal(merak_schedule_find("2f2b", &sched, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no schedule '2f2b'; there are: 1f1b, "));
    for (int i = 0; merak_schedules()[i] != NULL; i++)
        assert_non_null(strstr(err.text, merak_schedules()[i]->name));
    for (int i = 0; i < 5; i++) {
        static const char *const bad[] = {"scp:", "scp:early,", "scp:earl",
                                          "scp:fourth", "scp:early,early"};

        assert_int_equal(merak_schedule_find(bad[i], &sched, &err),
                         MERAK_ERR_NOT_FOUND);
        assert_non_null(strstr(err.text, "drop-last, early, third"));
    }
    assert_null(sched);
}

struct refusal_row {
    const char *name;
    struct merak_schedule_args args;
    const char *text;
};

static const struct refusal_row refusal_rows[] = {
    {"1f1b",
     {.stages = 4, .microbatches = 8, .chunks = 2},
     "schedule 1f1b: 2 model chunks per rank given, it runs 1: set chunks = "
     "1, or use interleaved"},
    {"scp",
     {.stages = 8, .microbatches = 7, .chunks = 1},
     "schedule scp: 7 micro-batches on 8 stages given, it needs max(4, "
     "stages) or more: run 8, or use last"},
    {"scp",
     {.stages = 2, .microbatches = 3, .chunks = 1},
     "schedule scp: 3 micro-batches on 2 stages given, it needs max(4, "
     "stages) or more: run 4, or use last"},
    {"last",
     {.stages = 1, .microbatches = 8, .chunks = 1},
     "schedule last: 1 stage given, it needs 2 or more: set pp = 2, or use "
     "1f1b"},
    {"eager",
     {.stages = 4, .microbatches = 8, .chunks = 1, .slices = 2},
     "schedule eager: 2 slices given, it runs whole sequences: set slices = "
     "1, or use sliced"},
    {"gpipe",
     {.stages = 4, .microbatches = 8, .chunks = 1, .passes = 3},
     "schedule gpipe: a model of 3 forward passes on 4 stages given, it runs "
     "several passes on one stage only: use 3f1b"},
    {"zb-v",
     {.stages = 1, .microbatches = 8, .chunks = 2, .passes = 3},
     "schedule zb-v: a model of 3 forward passes given, in 2 chunks and 1 "
     "slices: several passes run whole, set both to 1"},
    {"interleaved",
     {.stages = 4, .microbatches = 8, .chunks = 1},
     "schedule interleaved: it runs 2 or more model chunks per rank: "
     "set chunks = 2, or use 1f1b"},
    {"interleaved",
     {.stages = 1, .microbatches = 8, .chunks = 2},
     "schedule interleaved: 1 stage given, it needs 2 or more: set pp = 2, "
     "or use 1f1b"},
    {"interleaved",
     {.stages = 4, .microbatches = 10, .chunks = 2},
     "schedule interleaved: 10 micro-batches in groups of 4 leave a group of "
     "2, but each must have at least one per stage, 4: run 12 micro-batches"},
    {"zb-v",
     {.stages = 4, .microbatches = 8, .chunks = 3},
     "schedule zb-v: 3 model chunks per rank given, it runs at most 2: set "
     "chunks = 2"},
    {"3f1b",
     {.stages = 4, .microbatches = 3, .chunks = 1},
     "schedule 3f1b: 3 micro-batches on 4 stages given, it needs at least "
     "one per stage: run 4"},
    {"3f1b",
     {.stages = 4, .microbatches = 8, .chunks = 1, .passes = 1},
     "schedule 3f1b: a model of 1 forward pass given, it is for those with 2 "
     "or more (merak_passes()): use 1f1b"},
    {"interlaced",
     {.stages = 1, .microbatches = 8, .chunks = 2},
     "schedule interlaced: 1 stage given, it needs 2 or more: set pp = 2, "
     "or use 1f1b"},
    {"interlaced",
     {.stages = 4, .microbatches = 8, .chunks = 1},
     "schedule interlaced: it runs 2 or more model chunks per rank: "
     "set chunks = 2, or use 1f1b"},
    {"1f1b",
     {.stages = 0, .microbatches = 8, .chunks = 1},
     "schedule 1f1b: 0 stages, 8 micro-batches, 1 chunks per rank given: "
     "each must be 1 or more"},
    {"1f1b",
     {.stages = 4, .microbatches = 8, .chunks = 1, .slices = -2},
     "schedule 1f1b: -2 slices, 0 passes given: each must be 1 or more, or 0 "
     "for the default"},
};

static void numbers_that_do_not_fit_are_refused(void **state)
{
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(refusal_rows) / sizeof(refusal_rows[0]);
         i++) {
        const struct refusal_row *row = &refusal_rows[i];

        assert_int_equal(
            merak_schedule_check(find(row->name), &row->args, &err),
            MERAK_ERR_CONFIG);
        assert_string_equal(err.text, row->text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_and_unknown_ones_list_the_known),
        cmocka_unit_test(numbers_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests_name("schedule_names", tests, NULL, NULL);
}
