/* SPDX-License-Identifier: Apache-2.0 */
/* test_options.c - the trainer's options and learning rates */
#include "config.h"

#include "unit/near.h"

#include "runtime/train/train_options.h"
#include "runtime/train/phases.h"

#include <string.h>

#define MAX_ARGS 9

struct bad_row {
    const char *args[MAX_ARGS];
    const char *text; /* what the one line must say */
};

static const struct bad_row bad_rows[] = {
    {{"--steps", "3"}, "no data: give --data PREFIX"},
    {{"--data", "x", "--seq", "0"},
     "--seq: expected an integer 1..2147483647, got \"0\""},
    {{"--data", "x", "--seq", "-1"}, "got \"-1\""},
    {{"--data", "x", "--seq", "12x"}, "got \"12x\""},
    {{"--data", "x", "--seq", "99999999999999999999"}, "1..2147483647"},
    {{"--data", "x", "--micro-batch", "4611686018427387904"}, "1..2147483647"},
    {{"--data", "x", "--global-batch", "4294967304"}, "1..2147483647"},
    {{"--data", "x", "--memory-gib", "1e300"}, "to 1e+06, got \"1e300\""},
    {{"--data", "x", "--deadline", "1e300"}, "a number above 0 to 1e+09"},
    {{"--data", "x", "--emu-unit-ms", "1e300"}, "a number from 0 to 1e+09"},
    {{"--data", "x", "--lr", "1e39"}, "a number from 0, got \"1e39\""},
    {{"--data", "x", "--tp", "65536"}, "1..65535 or auto, got \"65536\""},
    {{"--data", "x", "--lr", "nan"}, "a number from 0, got \"nan\""},
    {{"--data", "x", "--lr", "-1"}, "a number from 0"},
    {{"--data", "x", "--beta1", "1"}, "--beta1: expected a number below 1"},
    {{"--data", "x", "--beta2", "1.5"}, "--beta2: expected a number below 1"},
    {{"--data", "x", "--beta2", "0.99999999999"}, "below 1, got 1"},
    {{"--data", "x", "--eps", "0"}, "--eps: expected a positive number"},
    {{"--data", "x", "--eps", "1e-60"}, "positive number, got \"1e-60\""},
    {{"--data", "x", "--deadline", "0"}, "a number above 0 to 1e+09"},
    {{"--data", "x", "--expert-room", "1.1"},
     "an integer 1..100000 (percent of an even share), got \"1.1\""},
    {{"--data", "x", "--threads", "1000000"}, "1..65535, got \"1000000\""},
    {{"--data", "x", "--dtype", "fp16"}, "expected fp32|bf16, got \"fp16\""},
    {{"--data", "x", "--zero1", "maybe"}, "expected no|yes"},
    {{"--data", "x", "--print", "stages,layers"},
     "no phase \"layers\"; there are graph, layouts, blocks, stages"},
    {{"--data", "x", "--branches", "sideways"},
     "expected described|gathered|blocks|auto, got \"sideways\""},
    {{"--data", "x", "--stepz", "1"}, "unknown option \"--stepz\""},
    {{"--data", "x", "extra"}, "unknown option \"extra\""},
    {{"--data", "x", "--steps"}, "--steps needs a value"},
    {{"--data", "x", "--keep", "1"}, "at least 2, got 1"},
    {{"--data", "x", "--valid-fraction", "1"}, "below 1"},
    {{"--data", "x", "--resume", "must"}, "needs --ckpt DIR"},
    {{"--data", "x", "--schedule", "a-name-that-is-longer-than-the-field"},
     "a short name"},
};

static int parse(const char *const *args, struct merak_train_options *opt,
                 struct merak_error *err)
{
    char *argv[MAX_ARGS + 1] = {(char *)(uintptr_t) "train"};
    int argc = 1;

    while (argc <= MAX_ARGS && args[argc - 1] != NULL) {
        argv[argc] = (char *)(uintptr_t)args[argc - 1];
        argc++;
    }
    return merak_train_options_parse(argc, argv, 0, opt, err);
}

static void bad_options_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(bad_rows[0]); i++) {
        struct merak_train_options opt;
        struct merak_error err = {.text = ""};

        assert_int_equal(parse(bad_rows[i].args, &opt, &err), MERAK_ERR_CONFIG);
        if (strstr(err.text, bad_rows[i].text) == NULL)
            fail_msg("row %zu says \"%s\", not \"%s\"", i, err.text,
                     bad_rows[i].text);
    }
}

static void good_options_are_stored(void **state)
{
    const char *const args[MAX_ARGS] = {
        "--data=a b", "--seq",         "17",
        "--dtype",    "bf16",          "--zero1=no",
        "--sp=on",    "--tp-batch=50", "--branches=blocks"};
    struct merak_train_options opt;
    struct merak_error err;

    (void)state;
    assert_int_equal(parse(args, &opt, &err), MERAK_OK);
    assert_string_equal(opt.data.files, "a b");
    assert_int_equal(opt.seq, 17);
    assert_int_equal(opt.dtype, MERAK_BF16);
    assert_int_equal(opt.choice.zero, 0);
    assert_int_equal(opt.choice.sp, MERAK_SP_ON);
    assert_int_equal(opt.choice.tp_batch_percent, 50);
    assert_int_equal(opt.choice.branches, MERAK_BRANCHES_BLOCKS);
    assert_true(fabsf(opt.optimizer.min_lr - opt.optimizer.lr / 10) < 1e-12f);
}

/* For a planner to choose, or by the model. */
static void an_automatic_schedule_is_one_not_given(void **state)
{
    const char *const named[MAX_ARGS] = {"--data=x", "--schedule", "gpipe",
                                         "--print=graph,program"};
    const char *const automatic[MAX_ARGS] = {"--data=x", "--schedule", "auto"};
    struct merak_train_options opt;
    struct merak_error err;

    (void)state;
    assert_int_equal(parse(named, &opt, &err), MERAK_OK);
    assert_true(opt.choice.given[MERAK_CHOICE_SCHEDULE]);
    assert_string_equal(opt.choice.schedule, "gpipe");
    assert_int_equal(opt.choice.branches, MERAK_BRANCHES_AUTO);
    assert_int_equal(opt.output.phases, 1U | MERAK_PHASES_PROGRAM);
    assert_int_equal(parse(automatic, &opt, &err), MERAK_OK);
    assert_false(opt.choice.given[MERAK_CHOICE_SCHEDULE]);
    assert_null(opt.choice.schedule);
}

static void learning_rates_follow_their_shapes(void **state)
{
    struct merak_train_options opt = {.optimizer.lr = 1.0f,
                                      .optimizer.min_lr = 0.1f,
                                      .optimizer.warmup = 4,
                                      .steps = 14,
                                      .optimizer.lr_shape = MERAK_LR_COSINE};
    /* step, and the rate by the closed forms */
    const struct {
        enum merak_lr_shape shape;
        uint64_t step;
        float want;
    } rows[] = {
        {MERAK_LR_COSINE, 0, 0.25f},   {MERAK_LR_COSINE, 3, 1.0f},
        {MERAK_LR_COSINE, 8, 0.55f},   {MERAK_LR_COSINE, 13, 0.1f},
        {MERAK_LR_LINEAR, 3, 1.0f},    {MERAK_LR_LINEAR, 8, 0.55f},
        {MERAK_LR_LINEAR, 5, 0.82f},   {MERAK_LR_LINEAR, 13, 0.1f},
        {MERAK_LR_CONSTANT, 1, 0.5f},  {MERAK_LR_CONSTANT, 13, 1.0f},
        {MERAK_LR_COSINE, 1000, 0.1f},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        float got;

        opt.optimizer.lr_shape = rows[i].shape;
        got = merak_learning_rate(&opt.optimizer, opt.steps, rows[i].step);
        assert_near(&got, &rows[i].want, 1, 1e-6, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(good_options_are_stored),
        cmocka_unit_test(an_automatic_schedule_is_one_not_given),
        cmocka_unit_test(learning_rates_follow_their_shapes),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
