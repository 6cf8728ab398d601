/* SPDX-License-Identifier: Apache-2.0 */
/* test_passes.c - models that run several forward passes: descriptions,
 * programs, time
 */
#include "config.h"

#include "unit/execute.h"

#include "partitioner/search/search.h"
#include "partitioner/simulate/simulate.h"

#include <stdio.h>
#include <string.h>

static const struct small_model recycler = {.layers = 3,
                                            .vocab = 13,
                                            .hidden = 8,
                                            .heads = 4,
                                            .passes = 3,
                                            .leaves = 2};

static struct merak_plan plan_of(int pp, int m, const char *schedule)
{
    struct merak_plan plan = {
        .tp = 1, .pp = pp, .dp = 1, .microbatches = m, .micro_batch = 1};

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule);
    return plan;
}

/* --- descriptions --------------------------------------------------------- */

enum mistake {
    NO_MISTAKE,
    NO_PASSES,
    NO_PASS,
    OTHER_PASSES,
    NOTHING_RECYCLED,
    NOTHING_LEFT,
    NOTHING_READ,
    LEFT_TWICE,
    OTHER_SHAPE,
    OTHER_DTYPE,
    NOT_MADE,
    NOT_RECYCLED,
    NO_DIMS,
    TOO_MANY
};

struct mistake_row {
    enum mistake mistake;
    const char *text;
};

static void describe_left(struct merak_model *m, enum mistake mistake,
                          struct merak_value *old, struct merak_value *x,
                          struct merak_value *table)
{
    struct merak_value *norm[2] = {NULL};
    struct merak_value *gamma = MERAK_PARAM(m, "g", MERAK_ONES, 4);

    if (mistake == NO_DIMS)
        merak_recycled(m, 0, NULL);
    for (int i = 0; i < 9 && mistake == TOO_MANY; i++)
        MERAK_RECYCLED(m, 2, 3, 4);
    if (merak_apply(m, "rmsnorm", &(struct merak_attrs){.f = {1e-6}}, 2,
                    (struct merak_value *[]){x, gamma}, norm) != MERAK_OK)
        return;
    if (mistake == OTHER_DTYPE) /* f32 of a bf16 model */
        merak_recycle(m, MERAK_RECYCLED(m, 2, 3), norm[1]);
    else if (mistake == OTHER_SHAPE)
        merak_recycle(m, old, norm[1]);
    else if (mistake == NOT_MADE)
        merak_recycle(m, old, table);
    else if (mistake == NOT_RECYCLED)
        merak_recycle(m, table, x);
    else if (mistake != NOTHING_LEFT && mistake != NOTHING_RECYCLED)
        merak_recycle(m, old, norm[0]);
    if (mistake == LEFT_TWICE)
        merak_recycle(m, old, x);
    merak_cross_entropy(m, merak_linear(m, norm[0], table, NULL, 1),
                        merak_targets(m));
}

static void describe_mistake(struct merak_model *m, enum mistake mistake)
{
    struct merak_value *table, *x, *old = NULL;

    table = MERAK_PARAM(m, "table", MERAK_NORMAL(1), 5, 4);
    x = merak_embedding(m, merak_tokens(m), table);
    if (mistake != NO_PASSES)
        merak_passes(m, mistake == NO_PASS ? 0 : 2);
    if (mistake == OTHER_PASSES)
        merak_passes(m, 3);
    if (mistake != NOTHING_RECYCLED)
        old = MERAK_RECYCLED(m, 2, 3, 4);
    if (old != NULL && mistake != NOTHING_READ)
        x = merak_add(m, x, old);
    describe_left(m, mistake, old, x, table);
}

static void descriptions_are_checked(void **state)
{
    static const struct mistake_row rows[] = {
        {NO_MISTAKE, NULL},
        {NO_PASSES, "the model recycles recycled.0 and does not set the number "
                    "of its passes: call merak_passes()"},
        {NO_PASS, "merak_passes: 0 passes, expected 1 to 64"},
        {OTHER_PASSES, "merak_passes: 3 passes, after 2 were asked for"},
        {NOTHING_RECYCLED, "2 passes of a model that recycles nothing are all "
                           "the same: use merak_recycled(), or 1 pass"},
        {NOTHING_LEFT, "nothing is passed on for recycled.0: give it with "
                       "merak_recycle()"},
        {NOTHING_READ, "nothing reads recycled.0: use it or leave it out"},
        {LEFT_TWICE, "merak_recycle: rmsnorm.2 is already passed on for "
                     "recycled.0, and now add.1"},
        {OTHER_SHAPE, "merak_recycle: rmsnorm.2:1 is f32[2,3] and recycled.0 "
                      "expects bf16[2,3,4]"},
        {OTHER_DTYPE, "merak_recycle: rmsnorm.2:1 is f32[2,3] and recycled.1 "
                      "expects bf16[2,3]"},
        {NOT_MADE, "merak_recycle: table cannot be passed on for recycled.0: "
                   "expected an output of an op of this model"},
        {NOT_RECYCLED, "merak_recycle: table is not from merak_recycled()"},
        {NO_DIMS, "merak_recycled: 0 dims, expected 1 to 6"},
        {TOO_MANY, "more than 8 recycled values"},
    };
    const struct merak_model_options opt = {
        .micro_batch = 2, .seq = 3, .dtype = MERAK_BF16};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_model *m = NULL;
        struct merak_graph *graph;
        struct merak_error err = {0};
        enum merak_status rc;

        assert_int_equal(merak_model_create(&opt, &m, &err), MERAK_OK);
        describe_mistake(m, rows[i].mistake);
        rc = merak_model_graph(m, &graph, &err);
        assert_int_equal(rc == MERAK_OK, rows[i].text == NULL);
        if (rc != MERAK_OK)
            assert_string_equal(err.text, rows[i].text);
        merak_model_destroy(m);
    }
}

/* --- programs ------------------------------------------------------------- */

/* Wherever in the model a value is read and left. */
static void recycling_is_sound_wherever_values_are_read_and_left(void **state)
{
    static const struct {
        int pp, m;
    } at[] = {{1, 1}, {1, 3}, {2, 2}, {2, 9}, {3, 4}, {4, 4}, {4, 13}, {8, 16}};
    struct merak_program_options eval = {.forward_only = true};
    struct small_model model = recycler;

    (void)state;
    model.layers = 4;
    for (size_t i = 0; i < 3 * sizeof(at) / sizeof(*at); i++) {
        for (int way = 0; way < 16; way++) {
            struct merak_plan plan = plan_of(at[i / 3].pp, at[i / 3].m, "3f1b");
            struct merak_planned *p;

            model.passes = 2 + (int)(i % 3);
            model.reads = way % 4;
            model.leaves = way / 4;
            model.also = (way + (int)i) % 4;
            plan.recompute =
                i % 2 ? MERAK_RECOMPUTE_FULL : MERAK_RECOMPUTE_NONE;
            for (int e = 0; e < 2; e++) {
                p = planned_build(&model, &plan, e == 1 ? &eval : NULL);
                planned_assert_sound(p);
                merak_planned_destroy(p);
            }
        }
    }
}

static bool loads_targets(const struct merak_program *prog,
                          const struct merak_instr *in)
{
    return in->input != MERAK_NO_INPUT &&
           prog->sharded->graph->input[in->input].class == MERAK_INPUT_TARGETS;
}

static int count_kernels(const struct merak_program *prog, int pass,
                         const char *op)
{
    int n = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        n += in->kind == MERAK_INSTR_KERNEL && in->microbatch >= 0 &&
             in->pass == pass && in->phase == MERAK_PHASE_F &&
             strcmp(in->op->name, op) == 0;
    }
    return n;
}

/* All but the last pass stop at what they leave, and leave nothing else. */
static void early_passes_run_what_is_recycled(void **state)
{
    struct merak_plan plan = plan_of(1, 4, "1f1b"), none;
    struct small_model model = recycler, single = recycler;
    struct merak_planned *p, *one;
    const struct merak_program *prog;

    (void)state;
    model.leaves = 1;
    p = planned_build(&model, &plan, NULL);
    prog = p->program[0];
    for (int pass = 0; pass < 3; pass++) {
        assert_int_equal(count_kernels(prog, pass, "attention_packed"),
                         4 * (pass < 2 ? 2 : 3));
        assert_int_equal(count_kernels(prog, pass, "xent_loss"),
                         pass < 2 ? 0 : 4);
    }
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].kind == MERAK_INSTR_LOAD)
            assert_true(!loads_targets(prog, &prog->instr[i]) ||
                        prog->instr[i].pass == 2);
        if (prog->instr[i].microbatch >= 0 &&
            prog->instr[i].phase != MERAK_PHASE_F)
            assert_int_equal(prog->instr[i].pass, 2);
    }
    /* what stands between passes is small beside a pass's activations */
    single.passes = 0;
    none = plan;
    one = planned_build(&single, &none, NULL);
    assert_in_range(prog->arena_bytes, one->program[0]->arena_bytes,
                    one->program[0]->arena_bytes * 115 / 100);
    merak_planned_destroy(one);
    merak_planned_destroy(p);
}

static void what_cannot_run_is_refused(void **state)
{
    static const struct {
        const char *schedule, *text;
        int pp, chunks, passes;
        bool sub;
    } rows[] = {
        {"1f1b",
         "schedule 1f1b: a model of 3 forward passes on 2 stages given, it "
         "runs several passes on one stage only: use 3f1b",
         2, 1, 3, false},
        {"interleaved",
         "schedule interleaved: a model of 3 forward passes on 2 stages given, "
         "it runs several passes on one stage only: use 3f1b",
         2, 2, 3, false},
        {"3f1b",
         "schedule 3f1b: a model of 1 forward pass given, it is for those with "
         "2 or more (merak_passes()): use 1f1b",
         2, 1, 0, false},
        {"3f1b",
         "a model of 3 forward passes does not run with --sub-pipeline yes: "
         "leave it out",
         2, 1, 3, true},
        {"3f1b",
         "schedule 3f1b: 4 micro-batches on 8 stages given, it needs at least "
         "one per stage: run 8",
         8, 1, 3, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(rows[i].pp, 4, rows[i].schedule);
        struct small_model model = recycler;
        struct merak_error err = {0};

        model.passes = rows[i].passes;
        model.layers = 6;
        plan.chunks = rows[i].chunks;
        plan.sub_pipeline = rows[i].sub;
        assert_int_not_equal(planned_try(&model, &plan, &err), MERAK_OK);
        assert_string_equal(err.text, rows[i].text);
    }
}

/* m (n f + b) + (p - 1)(f + b) at f = 1, b = 2.  The form knows actions as a
 * whole; an input's gradient leaves before the last weights' are computed,
 * which saves each hop a little, and transfers take microseconds. */
static void steps_take_the_closed_form(void **state)
{
    static const int at[][3] = {{2, 2, 2}, {2, 8, 3}, {4, 8, 3},
                                {4, 8, 2}, {4, 4, 5}, {8, 16, 3}};
    struct merak_program_options opt = {.unit_s = 1.0};
    struct small_model model = recycler;

    (void)state;
    for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
        int p = at[i][0], m = at[i][1], n = at[i][2];
        double want = m * (n + 2) + 3 * (p - 1);
        struct merak_plan plan = plan_of(p, m, "3f1b");
        struct merak_timeline *timeline = NULL;
        struct merak_planned *planned;

        model.passes = n;
        model.layers = p;
        model.leaves = p - 1;
        planned = planned_build(&model, &plan, &opt);
        assert_int_equal(
            merak_simulate(planned->program, p, NULL, NULL, &timeline, NULL),
            MERAK_OK);
        if (timeline->step_s > want + 0.01 ||
            timeline->step_s < want - 0.2 * (p - 1))
            fail_msg("p %d, m %d, n %d: %g units, expected %g", p, m, n,
                     timeline->step_s, want);
        merak_timeline_destroy(timeline);
        merak_planned_destroy(planned);
    }
}

/* --- the planner -----------------------------------------------------------
 */

struct deep {
    int passes;
};

/* Layers enough for four stages. */
static void describe_deep(struct merak_model *m, void *arg)
{
    const struct deep *d = arg;
    const size_t C = 16;
    struct merak_value *w, *old = NULL;
    struct merak_value *table = MERAK_PARAM(m, "w", MERAK_NORMAL(1), 64, C);
    struct merak_value *x = merak_embedding(m, merak_tokens(m), table);

    if (d->passes > 1) {
        merak_passes(m, d->passes);
        old = MERAK_RECYCLED(m, merak_model_micro_batch(m), 8, C);
        x = merak_add(m, x, old);
    }
    for (int l = 0; l < 6; l++) {
        w = MERAK_PARAM(m, merak_name(m, "w.%d", l), MERAK_NORMAL(1), C, C);
        x = merak_add(m, x,
                      merak_gelu(m, merak_linear(m, x, w, NULL, 1), false));
    }
    if (old != NULL)
        merak_recycle(m, old, x);
    merak_cross_entropy(m, merak_linear(m, x, table, NULL, 1),
                        merak_targets(m));
}

static enum merak_status planned_for(int passes, int pp, const char *schedule,
                                     struct merak_search_result **result_p,
                                     struct merak_error *err)
{
    struct merak_device device = {.links.level[0].ranks = 4,
                                  .memory_bytes = (size_t)1 << 30,
                                  .bytes_per_s = 1e10,
                                  .kernel_s = 1e-6,
                                  .links.level[0].bytes_per_s = 1e9,
                                  .links.level[0].latency_s = 1e-6,
                                  .links.level[1].bytes_per_s = 1e9,
                                  .links.level[1].latency_s = 1e-6};
    struct deep deep = {passes};
    struct merak_search_input in = {.describe = describe_deep,
                                    .arg = &deep,
                                    .seq = 8,
                                    .dtype = MERAK_F32,
                                    .global_batch = 16,
                                    .nodes = 1,
                                    .ranks_per_node = 4,
                                    .threads = 1,
                                    .device = &device};

    device.flops_per_s[MERAK_F32] = device.peak_flops_per_s[MERAK_F32] = 1e10;
    in.pin.pp = pp;
    in.pin.schedule = schedule;
    return merak_search(&in, result_p, err);
}

static void the_planner_takes_several_passes(void **state)
{
    struct merak_error err = {0};

    (void)state;
    for (int pp = 1; pp <= 4; pp *= 2) {
        struct merak_search_result *one = NULL, *three = NULL;
        const struct merak_plan *plan;

        assert_int_equal(planned_for(1, pp, NULL, &one, &err), MERAK_OK);
        assert_int_equal(planned_for(3, pp, NULL, &three, &err), MERAK_OK);
        plan = &three->choice[0].plan;
        assert_int_equal(plan->pp, pp);
        assert_int_equal(plan->passes, 3);
        assert_true(three->choice[0].simulated);
        assert_int_equal(strcmp(plan->schedule, "3f1b") == 0, pp > 1);
        /* two forwards more: from 1 + 2 units to 3 + 2, about */
        assert_true(three->choice[0].step_s > 1.3 * one->choice[0].step_s);
        assert_true(three->choice[0].step_s < 2.0 * one->choice[0].step_s);
        merak_search_destroy(one);
        merak_search_destroy(three);
    }
}

static void the_planner_says_why_not(void **state)
{
    static const struct {
        int passes;
        const char *schedule, *text, *change;
    } rows[] = {
        {1, "3f1b",
         "schedule 3f1b: a model of 1 forward pass given, it is for those with "
         "2 or more (merak_passes()); nearest: ",
         "schedule 1f1b"},
        {3, "1f1b",
         "schedule 1f1b: a model of 3 forward passes on 2 stages given, it "
         "runs several passes on one stage only; nearest: ",
         "schedule 3f1b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_search_result *result = NULL;
        struct merak_error err = {0};

        assert_int_equal(
            planned_for(rows[i].passes, 2, rows[i].schedule, &result, &err),
            MERAK_ERR_CONFIG);
        assert_memory_equal(err.text, rows[i].text, strlen(rows[i].text));
        assert_non_null(strstr(err.text, rows[i].change));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptions_are_checked),
        cmocka_unit_test(recycling_is_sound_wherever_values_are_read_and_left),
        cmocka_unit_test(early_passes_run_what_is_recycled),
        cmocka_unit_test(what_cannot_run_is_refused),
        cmocka_unit_test(steps_take_the_closed_form),
        cmocka_unit_test(the_planner_takes_several_passes),
        cmocka_unit_test(the_planner_says_why_not),
    };

    return cmocka_run_group_tests_name("passes", tests, NULL, NULL);
}
