/* SPDX-License-Identifier: Apache-2.0 */
/* test_choice.c - the table of choices: what options say, plans have, and what
 * is tried in its place
 */
#include "config.h"

#include "unit/near.h"

#include "partitioner/plan/choice.h"

#include <stdlib.h>
#include <string.h>

#define TEXT 64

/* What an option is told is what the choice is printed as. */
static void check_text(const struct merak_choice *c, const char *told)
{
    struct merak_choices choices = {.tp = 0};
    struct merak_error err = {.text = ""};
    char text[TEXT];

    if (merak_options_set(&merak_choice_table, c->option.name, told, &choices,
                          &err) != MERAK_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++)
        assert_int_equal(choices.given[i], c == &merak_choice[i]);
    merak_choice_text(c, &choices, text, sizeof(text));
    assert_string_equal(text, told);
    merak_given_fini(&choices.list);
}

static void options_say_what_is_printed(void **state)
{
    (void)state;
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];
        char text[TEXT];

        if (c->kind == MERAK_OPTION_INT && c->option.words != NULL)
            check_text(c, c->option.words);
        if (c->kind == MERAK_OPTION_INT || c->kind == MERAK_OPTION_SIZE) {
            snprintf(text, sizeof(text), "%.0f", c->option.least);
            check_text(c, text);
            snprintf(text, sizeof(text), "%.0f", c->option.most);
            check_text(c, text);
        }
        for (int w = 0;
             (c->kind == MERAK_OPTION_BOOL || c->kind == MERAK_OPTION_WORD) &&
             w < merak_choice_words(c);
             w++) {
            assert_int_equal(
                merak_choice_find_word(c, merak_choice_word(c, w, text)), w);
            check_text(c, text);
        }
    }
    check_text(&merak_choice[MERAK_CHOICE_SCHEDULE], "zb-h1");
    check_text(&merak_choice[MERAK_CHOICE_CUT], "auto");
    check_text(&merak_choice[MERAK_CHOICE_STAGES], "2x4-8x1-65535x65535");
    check_text(&merak_choice[MERAK_CHOICE_SPLIT], "b0-3b8");
    check_text(&merak_choice[MERAK_CHOICE_LOSSY_HOPS], "none");
    check_text(&merak_choice[MERAK_CHOICE_LOSSY_HOPS], "8");
    check_text(&merak_choice[MERAK_CHOICE_LOSSY_HOPS], "auto:8");
    check_text(&merak_choice[MERAK_CHOICE_LOSSY_HOPS], "1:8-2:4");
    check_text(&merak_choice[MERAK_CHOICE_TP_AXES], "auto");
    check_text(&merak_choice[MERAK_CHOICE_TP_AXES], "2x4");
    check_text(&merak_choice[MERAK_CHOICE_TP_AXES], "2x3x65535");
    check_text(&merak_choice[MERAK_CHOICE_CUT], "1-3-5");
    check_text(&merak_choice[MERAK_CHOICE_RECOMPUTE], "a-2-0");
}

static const struct {
    const char *name, *told, *level; /* level NULL: refused */
} level_rows[] = {
    {"zero", "0", "0"},    {"zero", "1", "1"},   {"zero1", "no", "0"},
    {"zero1", "off", "0"}, {"zero1", "on", "1"}, {"zero1", "yes", "1"},
    {"zero", "yes", NULL}, {"zero1", "1", NULL}, {"zero", "-1", NULL},
    {"zero", "4", NULL},
};

static void levels_of_zero_have_older_names(void **state)
{
    const struct merak_choice *c = &merak_choice[MERAK_CHOICE_ZERO];

    (void)state;
    for (size_t r = 0; r < sizeof(level_rows) / sizeof(level_rows[0]); r++) {
        struct merak_choices to = {.zero = 3};
        struct merak_error err = {.text = ""};
        char text[TEXT];

        if (merak_options_set(&merak_choice_table, level_rows[r].name,
                              level_rows[r].told, &to, &err) != MERAK_OK) {
            assert_null(level_rows[r].level);
            assert_false(to.given[MERAK_CHOICE_ZERO]);
            continue;
        }
        assert_true(to.given[MERAK_CHOICE_ZERO]);
        merak_choice_text(c, &to, text, sizeof(text));
        assert_string_equal(text, level_rows[r].level);
    }
}

static void grids_are_products(void **state)
{
    static const struct {
        const char *told, *text; /* text NULL: refused */
    } rows[] = {
        {"2x4", "2x4"},  {"8", "8"},   {"auto", "auto"}, {"2x2x2", "2x2x2"},
        {"2x", NULL},    {"", NULL},   {"1x4", NULL},    {"2x2x2x2", NULL},
        {"65536", NULL}, {"-2", NULL}, {"2-4", NULL},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        struct merak_choices to = {.tp = 0};
        struct merak_error err = {.text = ""};
        bool is_bad = merak_options_set(&merak_choice_table, "tp-axes",
                                        rows[r].told, &to, &err) != MERAK_OK;
        char text[TEXT];

        if (is_bad)
            assert_non_null(strstr(err.text,
                                   "--tp-axes: expected up to 3 factors "
                                   "2..65535 with x between, as in 2x4, or "
                                   "auto, got"));
        assert_int_equal(is_bad, rows[r].text == NULL);
        if (is_bad)
            continue;
        merak_choice_text(&merak_choice[MERAK_CHOICE_TP_AXES], &to, text,
                          sizeof(text));
        assert_string_equal(text, rows[r].text);
        assert_int_equal(merak_choices_settle(&to, NULL), MERAK_OK);
        assert_int_equal(to.tp, strcmp(text, "auto") == 0 ? 0 : 8);
        assert_int_equal(to.given[MERAK_CHOICE_TP_AXES], to.tp == 8);
    }
}

/* A search finds it; without one it is the usual level. */
static void an_automatic_level_is_one_not_given(void **state)
{
    struct merak_choices to = {.zero = 0};
    struct merak_plan plan;

    (void)state;
    assert_int_equal(
        merak_options_set(&merak_choice_table, "zero", "auto", &to, NULL),
        MERAK_OK);
    assert_int_equal(merak_choices_settle(&to, NULL), MERAK_OK);
    assert_false(to.given[MERAK_CHOICE_ZERO]);
    merak_choices_take(&to, &plan);
    assert_int_equal(plan.zero, 1);
}

/* Beside these levels; NULL: none is given. */
static const struct {
    const char *name, *told, *zero;
    const char *refusal; /* NULL: it is taken, */
    int fetch;           /* and the plan has these */
    enum merak_grad_sum sum;
} beside_rows[] = {
    {"fetch", "5", "3", NULL, 5, MERAK_SUM_MICRO},
    {"fetch", "all", "3", NULL, 0, MERAK_SUM_MICRO},
    {"fetch", "5", "auto", NULL, 5, MERAK_SUM_MICRO},
    {"fetch", "5", "2", "--fetch 5 needs --zero 3, not 2", 0, MERAK_SUM_MICRO},
    {"fetch", "all", "1", "--fetch all needs --zero 3, not 1", 0,
     MERAK_SUM_MICRO},
    {"fetch", "5", NULL, NULL, 5, MERAK_SUM_MICRO},
    {"grad-sum", "step", "3", NULL, 0, MERAK_SUM_STEP},
    {"grad-sum", "micro", "2", NULL, 0, MERAK_SUM_MICRO},
    {"grad-sum", "step", "auto", NULL, 0, MERAK_SUM_STEP},
    {"grad-sum", "step", "2", "--grad-sum step needs --zero 3, not 2", 0,
     MERAK_SUM_MICRO},
    {"grad-sum", "micro", "1", NULL, 0, MERAK_SUM_MICRO},
    {"grad-sum", "step", NULL, NULL, 0, MERAK_SUM_STEP},
    {"zero-home", "in", "1", "--zero-home in needs --zero 2 or 3, not 1", 0,
     MERAK_SUM_MICRO},
    {"zero-home", "auto", "1", NULL, 0, MERAK_SUM_MICRO},
    {"zero-home", "in", NULL, NULL, 0, MERAK_SUM_MICRO},
};

static void what_levels_have_is_given_with_them(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof(beside_rows) / sizeof(beside_rows[0]); r++) {
        struct merak_choices to = {.tp = 0};
        struct merak_error err = {.text = ""};
        struct merak_plan plan;

        assert_int_equal(merak_options_set(&merak_choice_table,
                                           beside_rows[r].name,
                                           beside_rows[r].told, &to, &err),
                         MERAK_OK);
        if (beside_rows[r].zero != NULL)
            assert_int_equal(merak_options_set(&merak_choice_table, "zero",
                                               beside_rows[r].zero, &to, &err),
                             MERAK_OK);
        if (merak_choices_settle(&to, &err) != MERAK_OK) {
            assert_non_null(beside_rows[r].refusal);
            assert_non_null(strstr(err.text, beside_rows[r].refusal));
            continue;
        }
        assert_null(beside_rows[r].refusal);
        merak_choices_take(&to, &plan);
        assert_int_equal(plan.fetch, beside_rows[r].fetch);
        assert_int_equal(plan.grad_sum, beside_rows[r].sum);
    }
}

/* A name, a key and the value in a plan are one choice's alone. */
static void rows_are_of_one_choice_each(void **state)
{
    (void)state;
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *a = &merak_choice[i];

        assert_non_null(a->option.about);
        assert_true(a->option.given ==
                    offsetof(struct merak_choices, given) + (size_t)i);
        if (a->run.name != NULL)
            assert_string_equal(a->run.name, a->option.name);
        for (int k = 0; k < i; k++) {
            const struct merak_choice *b = &merak_choice[k];

            assert_string_not_equal(a->option.name, b->option.name);
            if (a->key != NULL && b->key != NULL)
                assert_string_not_equal(a->key, b->key);
            assert_false(a->in_plan && b->in_plan && a->plan_at == b->plan_at);
            assert_false(a->near_memory > 0 &&
                         a->near_memory == b->near_memory);
            assert_false(a->near_numbers > 0 &&
                         a->near_numbers == b->near_numbers);
        }
        assert_true((a->near != NULL) ==
                    (a->near_memory > 0 || a->near_numbers > 0));
    }
}

static void a_plan_is_its_choices(void **state)
{
    const struct merak_plan plan = {.tp = 2,
                                    .ep = 4,
                                    .expert_room = 150,
                                    .pp = 3,
                                    .dp = 4,
                                    .dp_in = 2,
                                    .cp = 2,
                                    .cp_axes = 2,
                                    .cp_form = MERAK_CP_GATHER,
                                    .cp_order = MERAK_CP_HEAD_TAIL,
                                    .tp_axes = 2,
                                    .micro_batch = 4,
                                    .microbatches = 6,
                                    .schedule = "interleaved",
                                    .chunks = 2,
                                    .sub_pipeline = true,
                                    .recompute = MERAK_RECOMPUTE_SELECTIVE,
                                    .order_tp_pp_dp = true,
                                    .branches = MERAK_BRANCHES_BLOCKS,
                                    .sp = MERAK_SP_ON,
                                    .tp_batch_percent = 75,
                                    .loss_pieces = 4,
                                    .split = {{0x6}},
                                    .tp_plan = {"a.*:0+b:rowwise"}};
    struct merak_plan back = {.tp = 0}, none = {.tp = 0};
    struct merak_choices choices;
    char *line = merak_choices_line(&plan);

    (void)state;
    assert_string_equal(
        line,
        "tp=2,ep=4,pp=3,dp=4,dp-in=2,cp=2,cp-axes=2,"
        "cp-form=gather,cp-order=head-tail,tp-axes=2,"
        "micro-batch=8,schedule=interleaved,chunks=2,"
        "sub-pipeline=yes,zero=0,order=tp-pp-dp,sp=on,"
        "recompute=selective,tp-batch=75,split=b1-2,"
        "tp-plan=a.*:0+b:rowwise,expert-room=150,loss-pieces=4,boundary=whole,"
        "branches=blocks");
    free(line);
    merak_choices_of(&plan, &choices);
    merak_choices_take(&choices, &back);
    assert_int_equal(back.micro_batch, 8); /* both halves: to be split */
    back.micro_batch = 4;
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++)
        assert_int_equal(merak_choice_compare(&merak_choice[i], &plan, &back),
                         0);
    assert_string_equal(back.schedule, plan.schedule);

    choices = (struct merak_choices){.tp = 0};
    merak_choices_take(&choices, &none);
    line = merak_choices_line(&none);
    assert_string_equal(line, "tp=1,pp=1,dp=1,cp=1,cp-form=auto,cp-order=auto,"
                              "micro-batch=1,schedule=1f1b,chunks=1,"
                              "sub-pipeline=no,zero=1,order=tp-dp-pp,sp=auto,"
                              "recompute=none,tp-batch=0,boundary=whole,"
                              "branches=described");
    free(line);
}

/* --- other values --------------------------------------------------------- */

static const struct {
    const char *name, *asked;
    bool memory;
    const char *near[6]; /* as many as there are, but for chunks */
} near_rows[] = {
    {"micro-batch", "5", false, {"6", "4", "3", "8", "2", "1"}},
    {"chunks", "3", false, {"4", "2", "5", "1"}},
    {"zero", "0", true, {"1", "2", "3"}},
    {"zero", "2", true, {"3"}},
    {"fetch", "5", true, {"all"}},
    {"grad-sum", "step", true, {"micro"}},
    {"sub-pipeline", "yes", true, {"no"}},
    {"sub-pipeline", "no", true, {NULL}},
    {"sp", "on", true, {"auto"}},
    {"tp-batch", "50", false, {"0"}},
    {"recompute", "full", true, {"auto"}},
    {"recompute", "full", false, {NULL}},
    {"recompute", "auto", true, {NULL}},
    {"recompute", "a-2", false, {"auto"}},
    {"cut", "1-3", false, {"auto"}},
    {"cut", "1-3", true, {"0-3", "2-3", "1-2", "1-4", "1-5", "1-6"}},
    {"schedule", "1f1b", false, {"gpipe", "early"}},
};

static void the_nearest_values_come_first(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof(near_rows) / sizeof(near_rows[0]); r++) {
        struct merak_choices asked = {.tp = 0};
        struct merak_near near = {.memory = near_rows[r].memory,
                                  .global_batch = 24};
        const struct merak_choice *c = merak_choice;
        int i = 0;

        while (strcmp(c->option.name, near_rows[r].name) != 0)
            c++;
        assert_int_equal(merak_options_set(&merak_choice_table,
                                           near_rows[r].name,
                                           near_rows[r].asked, &asked, NULL),
                         MERAK_OK);
        for (; i < 6 && near_rows[r].near[i] != NULL; i++) {
            struct merak_choices to = asked;
            char text[TEXT];

            assert_true(c->near(c, &near, i, &to));
            merak_choice_text(c, &to, text, sizeof(text));
            assert_string_equal(text, near_rows[r].near[i]);
        }
        for (struct merak_choices to = asked; i < 100; to = asked, i++) {
            char text[TEXT];

            if (!c->near(c, &near, i, &to))
                break;
            merak_choice_text(c, &to, text, sizeof(text));
            assert_string_not_equal(text, near_rows[r].asked);
        }
        assert_true(i < 20); /* it comes to an end */
        merak_given_fini(&asked.list);
    }
}

static const struct {
    const char *told, *text; /* text NULL: refused */
} stage_rows[] = {
    {"2x4,8x1,4x2", "2x4-8x1-4x2"},
    {"1x1", "1x1"},
    {"0x4", NULL},
    {"2x", NULL},
    {"x2", NULL},
    {"", NULL},
    {"2x4x1", NULL},
    {"1e9x1", NULL},
    {"2x4,", NULL},
    {"2x4--1x1", NULL},
    {"65536x1", NULL},
    {"-2x1", NULL},
};

static void lists_of_stages(void **state)
{
    const struct merak_choice *c = &merak_choice[MERAK_CHOICE_STAGES];

    (void)state;
    for (size_t i = 0; i < sizeof(stage_rows) / sizeof(*stage_rows); i++) {
        struct merak_choices choices = {.tp = 0};
        struct merak_error err = {.text = ""};
        enum merak_status rc = merak_options_set(
            &merak_choice_table, "stages", stage_rows[i].told, &choices, &err);
        char text[TEXT];

        assert_int_equal(rc, stage_rows[i].text != NULL ? MERAK_OK
                                                        : MERAK_ERR_CONFIG);
        if (rc == MERAK_OK) {
            merak_choice_text(c, &choices, text, sizeof(text));
            assert_string_equal(text, stage_rows[i].text);
        } else
            assert_non_null(strstr(err.text, "as in 2x4,8x1,4x2, got"));
        merak_given_fini(&choices.list);
    }
}

/* What has to divide a micro-batch decides the smallest, if none is given. */
static void a_micro_batch_can_be_divided(void **state)
{
    static const struct {
        struct merak_choices choices;
        size_t samples;
    } rows[] = {
        {{.ep = MERAK_OPTION_AUTO}, 1},
        {{.ep = 4, .tp = 2}, 4},
        {{.ep = 2, .sub_pipeline = true}, 4},
        {{.tp = 4, .tp_batch_percent = 50}, 4},
        {{.ep = 2, .tp = 4, .tp_batch_percent = 50}, 8},
        {{.ep = 2, .micro_batch = 6}, 6},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_choices choices = rows[i].choices;
        struct merak_plan plan = {.tp = 0};

        choices.given[MERAK_CHOICE_MICRO_BATCH] = choices.micro_batch > 0;
        merak_choices_take(&choices, &plan);
        assert_int_equal(plan.micro_batch, rows[i].samples);
    }
}

static void stages_settle(void **state)
{
    const int cp[] = {2, MERAK_OPTION_AUTO};
    struct merak_choices choices = {.micro_batch = 6};
    struct merak_error err = {.text = ""};
    struct merak_plan plan = {.tp = 0};
    char *line;

    (void)state;
    assert_int_equal(merak_options_set(&merak_choice_table, "stages", "3x2-3x2",
                                       &choices, &err),
                     MERAK_OK);
    choices.given[MERAK_CHOICE_MICRO_BATCH] = true;
    assert_int_equal(merak_choices_settle_stages(&choices, &err), MERAK_OK);
    assert_null(choices.list.stage);
    assert_int_equal(choices.tp, 2);
    assert_int_equal(choices.pp, 2);
    assert_int_equal(choices.dp, 3);
    assert_int_equal(choices.micro_batch, 2);

    choices = (struct merak_choices){.tp = 0};
    assert_int_equal(merak_options_set(&merak_choice_table, "stages", "3x1,2x2",
                                       &choices, &err),
                     MERAK_OK);
    assert_int_equal(merak_choices_settle_stages(&choices, &err), MERAK_OK);
    merak_choices_take(&choices, &plan);
    plan.microbatches = 1;
    assert_int_equal(plan.micro_batch, 6);
    assert_int_equal(merak_plan_ranks(&plan), 7);
    line = merak_choices_line(&plan);
    assert_non_null(strstr(line, "stages=3x1-2x2,micro-batch=6,"));
    assert_null(strstr(line, "tp=1,"));
    assert_null(strstr(line, ",order="));
    free(line);
    for (size_t i = 0; i < sizeof(cp) / sizeof(*cp); i++) {
        choices.cp = cp[i];
        choices.given[MERAK_CHOICE_CP] = true;
        assert_int_equal(merak_choices_settle(&choices, &err), MERAK_OK);
        assert_int_equal(merak_choices_settle_stages(&choices, &err),
                         MERAK_ERR_UNSUPPORTED);
        assert_string_equal(err.text, "--cp: stages of unlike ranks do not cut "
                                      "sequences; leave out --cp or --stages");
    }
    choices.cp = 1;
    choices.given[MERAK_CHOICE_DP] = true;
    assert_int_equal(merak_choices_settle_stages(&choices, &err),
                     MERAK_ERR_CONFIG);
    assert_string_equal(err.text, "--stages has the degrees of every stage: "
                                  "leave out --dp");
    merak_given_fini(&choices.list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_say_what_is_printed),
        cmocka_unit_test(levels_of_zero_have_older_names),
        cmocka_unit_test(grids_are_products),
        cmocka_unit_test(an_automatic_level_is_one_not_given),
        cmocka_unit_test(what_levels_have_is_given_with_them),
        cmocka_unit_test(rows_are_of_one_choice_each),
        cmocka_unit_test(lists_of_stages),
        cmocka_unit_test(a_micro_batch_can_be_divided),
        cmocka_unit_test(stages_settle),
        cmocka_unit_test(a_plan_is_its_choices),
        cmocka_unit_test(the_nearest_values_come_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
