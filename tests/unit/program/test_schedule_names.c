/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_names.c - schedules by name, and with numbers that do not fit
 */
#include "config.h"

#include "unit/near.h"

#include "partitioner/schedule/schedule.h"

#include <stdio.h>
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

/* Multiples of 16 where the mean slice is four of these. */
static void slices_are_cut_where_they_take_equal_times(void **state)
{
    static const struct {
        const char *name;
        size_t seq, len[6];
    } rows[] = {
        {"sliced:4", 2048, {512, 512, 512, 512}},
        {"sliced:4/0", 2048, {512, 512, 512, 512}},
        {"sliced:4/67", 2048, {848, 480, 400, 320}},
        {"sliced:4/100", 2048, {1024, 432, 320, 272}},
        {"sliced:4/40", 32768, {11136, 8400, 7040, 6192}},
        {"sliced:3/50", 13, {6, 4, 3}},
        {"sliced:5/100", 6, {2, 1, 1, 1, 1}},
        {"sliced:3/100", 48, {28, 11, 9}}, /* of 16 they would be equal */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t at[7];
        int n = merak_schedule_slices(rows[i].name);

        assert_true(merak_schedule_slice(rows[i].name, rows[i].seq, at));
        assert_int_equal(at[0], 0);
        assert_int_equal(at[n], rows[i].seq);
        for (int k = 0; k < n; k++)
            assert_int_equal(at[k + 1] - at[k], rows[i].len[k]);
    }
}

/* No slice takes longer than the mean by more than its last unit does. */
static void times_of_slices_are_equal(void **state)
{
    (void)state;
    for (int percent = 0; percent <= 100; percent += 7) {
        for (int n = 2; n <= 1024; n *= 4) {
            const size_t t = (size_t)1 << 17;
            const double b = 1 - percent / 100.0, c = percent / 100.0 / t;
            size_t at[1025];
            char name[32];

            snprintf(name, sizeof(name), "sliced:%d/%d", n, percent);
            assert_true(merak_schedule_slice(name, t, at));
            for (int k = 0; k < n; k++) {
                double len = (double)(at[k + 1] - at[k]);
                double s = len * (b + c * (double)(at[k + 1] + at[k]));
                double unit = 16 * (b + c * 2 * (double)at[k + 1]);

                assert_true(at[k + 1] > at[k]);
                assert_true(s - (double)t / n <= unit);
            }
        }
    }
}

static void sequences_that_cannot_be_sliced_are_known(void **state)
{
    static const char *const bad[] = {
        "sliced:2/101", "sliced:2/",    "sliced:/2",    "sliced:2/-1",
        "sliced:2/5x",  "sliced:2/5/5", "sliced:1025/5"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(merak_schedule_slices(bad[i]), 0);
    assert_true(merak_schedule_slice("sliced:5/30", 5, NULL));
    assert_false(merak_schedule_slice("sliced:5/30", 4, NULL));
    assert_false(merak_schedule_slice("sliced:3", 16, NULL));
    assert_true(merak_schedule_slice("sliced:3/0", 16, NULL));
    assert_false(merak_schedule_slice("1f1b", 16, NULL));
}

/* eager:p is 1F1B, eager:2p-1 is eager; of one number what is between stages is
 * on a line. */
static void warmups_are_named(void **state)
{
    static const struct {
        const char *name;
        int stages, held[5];
    } rows[] = {
        {"eager:4", 4, {4, 3, 2, 1}},
        {"eager:7", 4, {7, 5, 3, 1}},
        {"eager:10", 4, {10, 7, 4, 1}},
        {"eager:6", 4, {6, 5, 3, 1}},
        {"eager:2", 4, {2, 2, 2, 1}},
        {"eager:9-9-2-2", 4, {9, 9, 2, 2}},
        {"eager:5", 1, {5}},
        {"eager:3", 2, {3, 1}},
        {"eager:40-20", 2, {12, 12}},
    };
    static const char *const bad[] = {"eager:",    "eager:0",    "eager:4-",
                                      "eager:-4",  "eager:x",    "eager:4-0",
                                      "eager:4,3", "eager:99999"};
    static const struct {
        const char *name, *text;
    } refused[] = {
        {"eager:4-3-1", "schedule eager: 3 numbers of micro-batches in flight, "
                        "4-3-1, for 4 stages: give one for each stage, or one "
                        "alone"},
        {"eager:4-3-5-1", "schedule eager: 4-3-5-1: stage 2 would have more "
                          "micro-batches in flight than stage 1, which feeds "
                          "it: give 3 or fewer"},
    };
    struct merak_action actions[24];
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_schedule_args args = {
            .stages = rows[i].stages,
            .microbatches = 12,
            .chunks = 1,
            .warmups = merak_schedule_warmups(rows[i].name)};
        const struct merak_schedule *sched = find(rows[i].name);

        assert_int_equal(merak_schedule_check(sched, &args, NULL), MERAK_OK);
        for (; args.stage < args.stages; args.stage++) {
            int open, most;

            merak_schedule_fill(sched, &args, actions);
            merak_actions_in_flight_each(actions, 24, 1, &open, &most);
            assert_int_equal(most, rows[i].held[args.stage]);
        }
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const struct merak_schedule *sched = NULL;

        assert_int_equal(merak_schedule_find(bad[i], &sched, &err),
                         MERAK_ERR_NOT_FOUND);
        assert_non_null(strstr(err.text, "as in eager:7-4-1"));
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        const struct merak_schedule_args args = {
            .stages = 4,
            .microbatches = 8,
            .chunks = 1,
            .warmups = merak_schedule_warmups(refused[i].name)};

        assert_int_equal(
            merak_schedule_check(find(refused[i].name), &args, &err),
            MERAK_ERR_CONFIG);
        assert_string_equal(err.text, refused[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_and_unknown_ones_list_the_known),
        cmocka_unit_test(numbers_that_do_not_fit_are_refused),
        cmocka_unit_test(slices_are_cut_where_they_take_equal_times),
        cmocka_unit_test(times_of_slices_are_equal),
        cmocka_unit_test(sequences_that_cannot_be_sliced_are_known),
        cmocka_unit_test(warmups_are_named),
    };

    return cmocka_run_group_tests_name("schedule_names", tests, NULL, NULL);
}
