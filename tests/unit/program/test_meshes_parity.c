/* SPDX-License-Identifier: Apache-2.0 */
/* test_meshes_parity.c - stages of unlike ranks compute what one rank computes,
 * to rounding
 */
#include "config.h"

#include "unit/parity.h"

#include <stdio.h>
#include <string.h>

#define MOST 4

struct row {
    int n;
    struct merak_stage_degrees stage[MOST]; /* dp x tp */
    size_t samples;                         /* of a micro-batch of all */
    const char *schedule;
    int zero;
    enum merak_seq_parallel sp;
    int scatter; /* as in a plan */
    int chunks;
};

/* Micro-batches of 12 sequences in a step, so that a row's samples divide it.
 */
enum { SEQUENCES = 24 };

static struct merak_plan plan_of(const struct row *row)
{
    struct merak_plan plan = {.micro_batch = row->samples,
                              .microbatches = SEQUENCES / (int)row->samples,
                              .zero = row->zero,
                              .sp = row->sp,
                              .scatter = row->scatter,
                              .chunks = row->chunks};
    struct merak_error err = {0};

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", row->schedule);
    if (merak_plan_set_stages(&plan, row->stage, row->n, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return plan;
}

/* Mean losses, whatever divides a step's sequences. */
static struct executed *trained(const struct small_model *model,
                                const struct merak_plan *plan, double *loss)
{
    const struct merak_stage_mesh last = merak_plan_loss_mesh(plan);
    struct executed *ex = parity_trained(model, plan, loss);

    planned_assert_sound(ex->planned);
    for (int s = 0; s < PARITY_STEPS; s++)
        loss[s] /= plan->microbatches * last.dp;
    return ex;
}

static void compare(const struct small_model *model, const struct row *row)
{
    const struct row alone = {1, {{1, 1}}, 2, "1f1b", 0, MERAK_SP_OFF, 0, 0};
    const struct merak_plan one = plan_of(&alone), plan = plan_of(row);
    double want_loss[PARITY_STEPS], got_loss[PARITY_STEPS];
    struct executed *want = trained(model, &one, want_loss);
    struct executed *got = trained(model, &plan, got_loss);
    float norm = executed_norm(want, 0);

    assert_true(norm > want->step.clip); /* clipping is active */
    assert_near(got_loss, want_loss, PARITY_STEPS, 1e-5, 0);
    for (int r = 0; r < got->planned->n_programs; r++) {
        float n = executed_norm(got, r);

        assert_near(&n, &norm, 1, 1e-5, 0);
    }
    parity_params(want, got, 2e-3);
    executed_destroy(want);
    executed_destroy(got);
}

static void stages_of_unlike_dp_agree_with_one_rank(void **state)
{
    static const struct row rows[] = {
        {2, {{2, 1}, {1, 1}}, 2, "1f1b", 0, MERAK_SP_OFF, 0, 0},
        {2, {{1, 1}, {2, 1}}, 4, "gpipe", 1, MERAK_SP_OFF, 0, 0},
        {2, {{3, 1}, {1, 1}}, 6, "1f1b", 1, MERAK_SP_OFF, 0, 0},
        {3, {{2, 1}, {3, 1}, {1, 1}}, 6, "1f1b", 0, MERAK_SP_OFF, 0, 0},
        {3, {{1, 1}, {4, 1}, {2, 1}}, 4, "zb-h1", 1, MERAK_SP_OFF, 0, 0},
        {2, {{4, 2}, {2, 2}}, 4, "1f1b", 1, MERAK_SP_AUTO, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        compare(&parity_gpt, &rows[i]);
}

static void stages_of_unlike_tp_agree_with_one_rank(void **state)
{
    static const struct row rows[] = {
        {2, {{1, 2}, {1, 1}}, 2, "1f1b", 0, MERAK_SP_OFF, 0, 0},
        {2, {{1, 1}, {1, 2}}, 2, "1f1b", 1, MERAK_SP_ON, 0, 0},
        {2, {{1, 1}, {1, 4}}, 2, "1f1b", 1, MERAK_SP_OFF, 1, 0},
        {3, {{2, 1}, {1, 4}, {4, 1}}, 4, "1f1b", 1, MERAK_SP_AUTO, 0, 0},
        {3, {{2, 1}, {1, 4}, {4, 1}}, 4, "gpipe", 0, MERAK_SP_ON, 1, 0},
        {2, {{1, 2}, {4, 1}}, 4, "zb-h1", 1, MERAK_SP_ON, 1, 0},
        {3, {{2, 4}, {8, 1}, {4, 2}}, 8, "1f1b", 1, MERAK_SP_AUTO, 1, 0},
        {3, {{1, 1}, {1, 4}, {4, 1}}, 4, "1f1b", 1, MERAK_SP_AUTO, 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        compare(&parity_gpt, &rows[i]);
}

/* Tied tables, masks of dropout, grouped heads, several parts of a rank,
 * recomputation, ZeRO-2 and 3, a sub-pipeline. */
static void other_models_and_options_agree_with_one_rank(void **state)
{
    static const struct row tied = {
        3, {{2, 1}, {1, 4}, {3, 1}}, 6, "1f1b", 1, MERAK_SP_ON, 0, 0};
    static const struct row factored = {
        3, {{2, 1}, {1, 4}, {4, 1}}, 4, "1f1b", 1, MERAK_SP_ON, 1, 0};
    static const struct row parts = {2, {{1, 2}, {2, 1}}, 4, "interleaved",
                                     1, MERAK_SP_OFF,     0, 2};
    static const struct row sharing = {2, {{2, 2}, {4, 1}}, 4, "1f1b",
                                       3, MERAK_SP_AUTO,    1, 0};
    static const struct row eager = {
        3, {{1, 1}, {2, 2}, {1, 2}}, 2, "eager", 1, MERAK_SP_OFF, 0, 0};
    struct small_model model = parity_gpt;

    (void)state;
    model.shared_proj = true; /* every stage has it */
    compare(&model, &tied);
    model = parity_gpt;
    model.dropout = 0.1f;
    compare(&model, &tied);
    model.kv_heads = 2;
    compare(&model, &tied);
    compare(&model, &factored);
    compare(&parity_gpt, &parts);
    compare(&parity_gpt, &sharing);
    model = parity_gpt;
    model.untied = true;
    compare(&model, &eager);
}

/* Their losses are of each stage's own sequences. */
static void losses_of_routers_agree_with_one_rank(void **state)
{
    static const struct row rows[] = {
        {2, {{2, 1}, {1, 1}}, 2, "1f1b", 0, MERAK_SP_OFF, 0, 0},
        {2, {{1, 2}, {4, 1}}, 4, "1f1b", 1, MERAK_SP_OFF, 0, 0},
        {2, {{4, 1}, {2, 1}}, 4, "zb-v", 1, MERAK_SP_OFF, 0, 2},
    };
    struct small_model model = parity_gpt;

    (void)state;
    model.experts = 4;
    model.chosen = 2;
    model.balance = (struct merak_balance_options){.aux = 0.5f, .z = 0.02f};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        compare(&model, &rows[i]);
}

static void recycling_passes_agree_with_one_rank(void **state)
{
    static const struct row rows[] = {
        {2, {{1, 2}, {2, 1}}, 4, "3f1b", 1, MERAK_SP_OFF, 0, 0},
        {2, {{1, 2}, {2, 2}}, 4, "3f1b", 0, MERAK_SP_ON, 1, 0},
        {3, {{3, 1}, {1, 2}, {2, 1}}, 6, "3f1b", 1, MERAK_SP_AUTO, 1, 0},
    };
    struct small_model model = parity_gpt;

    (void)state;
    model.passes = 3;
    model.reads = 0;
    model.leaves = 2;
    model.also = 1;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        compare(&model, &rows[i]);
}

static void recomputation_and_halves_change_no_bit(void **state)
{
    static const struct row row = {
        3, {{2, 1}, {1, 2}, {4, 1}}, 8, "1f1b", 1, MERAK_SP_ON, 0, 0};
    struct merak_plan kept = plan_of(&row), again = kept;
    struct small_model model = parity_gpt;

    (void)state;
    model.dropout = 0.1f;
    again.recompute = MERAK_RECOMPUTE_FULL;
    parity_plans(&model, &kept, &again, true);
    again.recompute = MERAK_RECOMPUTE_SELECTIVE;
    parity_plans(&model, &kept, &again, true);
}

/* Each schedule with the fewest chunks that it takes, but for those of models
 * of several passes, which have rows of their own. */
static void every_schedule_agrees_or_is_refused_by_name(void **state)
{
    char refused[256] = "";

    (void)state;
    for (int i = 0; merak_schedules()[i] != NULL; i++) {
        const char *name = merak_schedules()[i]->name;
        struct row row = {2, {{1, 2}, {2, 1}}, 4, name, 1, MERAK_SP_OFF, 0, 1};
        struct merak_error err = {0};
        enum merak_status rc = MERAK_ERR_CONFIG;

        for (; row.chunks <= 2 && rc != MERAK_OK;
             row.chunks += rc != MERAK_OK) {
            const struct merak_plan plan = plan_of(&row);

            rc = planned_try(&parity_gpt, &plan, &err);
        }
        if (rc == MERAK_OK) {
            compare(&parity_gpt, &row);
            continue;
        }
        assert_non_null(strstr(err.text, name));
        snprintf(refused + strlen(refused), sizeof(refused) - strlen(refused),
                 " %s", name);
    }
    assert_string_equal(refused, " interlaced 3f1b forward");
}

static void what_unlike_stages_cannot_do(void **state)
{
    static const struct {
        struct row row;
        const char *text;
    } rows[] = {
        {{2, {{1, 2}, {2, 1}}, 2, "interlaced", 0, MERAK_SP_OFF, 0, 0},
         "schedule interlaced runs layers on all stages: they must be alike; "
         "use --schedule 1f1b"},
        {{2, {{1, 2}, {1, 1}}, 1, "sliced:2", 0, MERAK_SP_OFF, 0, 0},
         "schedule sliced:2 cuts sequences: stages must be alike; use "
         "--schedule "
         "1f1b"},
        {{2, {{1, 2}, {2, 1}}, 2, "1f1b", 2, MERAK_SP_OFF, 0, 0},
         "--zero 2 needs 2 replicas or more in every stage, and stage 0 has 1: "
         "use --zero 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct merak_plan plan = plan_of(&rows[i].row);
        struct merak_error err = {0};

        assert_int_equal(planned_try(&parity_gpt, &plan, &err),
                         MERAK_ERR_CONFIG);
        assert_string_equal(err.text, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_of_unlike_dp_agree_with_one_rank),
        cmocka_unit_test(stages_of_unlike_tp_agree_with_one_rank),
        cmocka_unit_test(other_models_and_options_agree_with_one_rank),
        cmocka_unit_test(losses_of_routers_agree_with_one_rank),
        cmocka_unit_test(recycling_passes_agree_with_one_rank),
        cmocka_unit_test(recomputation_and_halves_change_no_bit),
        cmocka_unit_test(every_schedule_agrees_or_is_refused_by_name),
        cmocka_unit_test(what_unlike_stages_cannot_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
