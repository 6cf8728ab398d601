/* SPDX-License-Identifier: Apache-2.0 */
/* test_parity.c - every plan computes what one rank computes
 *
 * Bit by bit where only the pipeline differs, to rounding where tp or dp do.
 */
#include "config.h"

#include "unit/parity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void pipelines_change_no_bit(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 2; tp++) {
        for (int dp = 1; dp <= 2; dp++) {
            const struct parity_variant one = {tp,      1,       dp,
                                               "gpipe", dp == 2, MERAK_SP_OFF};

            for (int pp = 2; pp <= 4; pp++) {
                struct parity_variant v = {tp,     pp,      dp,
                                           "1f1b", dp == 2, MERAK_SP_OFF};

                parity_variants(&parity_gpt, &one, &v, true);
                v.schedule = "gpipe";
                if (pp == 3)
                    parity_variants(&parity_gpt, &one, &v, true);
            }
        }
    }
}

static void ties_and_untied_heads_change_no_bit(void **state)
{
    const struct parity_variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};
    const struct parity_variant four = {1, 4, 1, "1f1b", false, MERAK_SP_OFF};
    const struct parity_variant both = {2, 3, 1, "1f1b", false, MERAK_SP_ON};
    const struct parity_variant both_one = {2,      1,     1,
                                            "1f1b", false, MERAK_SP_ON};
    struct small_model model = parity_gpt;

    (void)state;
    model.shared_proj = true;
    parity_variants(&model, &one, &four, true);
    parity_variants(&model, &both_one, &both, true);
    model.shared_proj = false;
    model.untied = true;
    parity_variants(&model, &one, &four, true);
}

static void zero1_agrees_with_whole_state(void **state)
{
    const struct parity_variant whole = {1, 2, 2, "1f1b", false, MERAK_SP_OFF};
    const struct parity_variant flat = {1, 2, 2, "1f1b", true, MERAK_SP_OFF};
    double a[PARITY_STEPS], b[PARITY_STEPS];
    struct merak_plan plan_a = parity_plan(&whole), plan_b = parity_plan(&flat);
    struct executed *x = parity_trained(&parity_gpt, &plan_a, a);
    struct executed *y = parity_trained(&parity_gpt, &plan_b, b);

    (void)state;
    /* The norm is summed over other blocks: only the first loss and the
     * sums of gradients are the same to the bit. */
    assert_near(&a[0], &b[0], 1, 0, 0);
    assert_near(&a[1], &b[1], 1, 1e-6, 0);
    parity_params(x, y, 1e-6);
    executed_destroy(x);
    executed_destroy(y);
}

static void tensor_and_data_parallel_agree_to_rounding(void **state)
{
    static const struct parity_variant rows[] = {
        {2, 1, 1, "1f1b", false, MERAK_SP_OFF},
        {2, 1, 1, "1f1b", false, MERAK_SP_ON},
        {4, 1, 1, "1f1b", false, MERAK_SP_AUTO},
        {4, 2, 1, "1f1b", false, MERAK_SP_ON},
        {1, 1, 2, "1f1b", false, MERAK_SP_OFF},
        {1, 1, 4, "1f1b", true, MERAK_SP_OFF},
        {2, 2, 2, "1f1b", true, MERAK_SP_OFF},
        {2, 2, 2, "gpipe", true, MERAK_SP_ON},
    };
    const struct parity_variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        parity_variants(&parity_gpt, &one, &rows[i], false);
}

static void grouped_heads_agree_to_rounding(void **state)
{
    const struct parity_variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};
    const struct parity_variant four = {4, 2, 1, "1f1b", false, MERAK_SP_OFF};
    const struct parity_variant seq = {4, 1, 2, "1f1b", true, MERAK_SP_ON};
    struct small_model model = parity_gpt;

    (void)state;
    model.kv_heads = 2;
    parity_variants(&model, &one, &four, false);
    parity_variants(&model, &one, &seq, false);
}

/* Also dropout's masks come back. */
static void recomputation_changes_no_bit(void **state)
{
    static const struct parity_variant rows[] = {
        {1, 1, 1, "gpipe", false, MERAK_SP_OFF},
        {1, 3, 1, "1f1b", false, MERAK_SP_OFF},
        {2, 1, 2, "1f1b", true, MERAK_SP_ON},
        {2, 2, 1, "1f1b", false, MERAK_SP_OFF},
    };
    struct small_model model = parity_gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan kept = parity_plan(&rows[i / 2]), again = kept;

        again.recompute =
            i % 2 ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
        parity_plans(&model, &kept, &again, true);
    }
    model.kv_heads = 2;
    model.untied = true;
    for (size_t i = 2; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan kept = parity_plan(&rows[i]), again = kept;

        again.recompute = MERAK_RECOMPUTE_FULL;
        parity_plans(&model, &kept, &again, true);
    }
}

/* The halves of a sub-pipeline are micro-batches of their own. */
static void sub_pipelines_change_no_bit(void **state)
{
    static const struct parity_variant rows[] = {
        {1, 2, 1, "1f1b", false, MERAK_SP_OFF},
        {2, 1, 2, "1f1b", true, MERAK_SP_ON},
        {2, 2, 1, "scp", false, MERAK_SP_OFF},
        {4, 1, 1, "gpipe", false, MERAK_SP_ON},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan whole = parity_plan(&rows[i]), zipped;

        whole.microbatches = 8;
        zipped = whole;
        zipped.sub_pipeline = true;
        zipped.recompute = i % 2 ? MERAK_RECOMPUTE_FULL : MERAK_RECOMPUTE_NONE;
        parity_plans(&parity_gpt, &whole, &zipped, true);
    }
}

/* With parts as the schedule wants them, and recomputing. */
static int assert_schedule(const struct merak_schedule *schedule, int pp,
                           const struct merak_plan *one)
{
    struct merak_plan plan = *one;

    plan.pp = pp;
    plan.chunks = schedule->min_chunks;
    snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule->name);
    if (schedule->forward_only || merak_plan_shared(&plan) > 0 ||
        merak_plan_schedule(&plan, &schedule, NULL) != MERAK_OK)
        return 0;
    parity_plans(&parity_gpt, one, &plan, true);
    plan.recompute = MERAK_RECOMPUTE_FULL;
    parity_plans(&parity_gpt, one, &plan, true);
    return 1;
}

static void schedules_change_no_bit(void **state)
{
    const struct parity_variant one = {1, 1, 1, "gpipe", false, MERAK_SP_OFF};
    const struct merak_schedule *const *all = merak_schedules();
    struct merak_plan plan = parity_plan(&one);
    int n = 0;

    (void)state;
    for (int s = 0; all[s] != NULL; s++) {
        n += assert_schedule(all[s], 2, &plan);
        n += assert_schedule(all[s], 4, &plan);
    }
    assert_true(n >= 2 * 9);
}

/* The ends of a model on one rank, over tensor ranks and replicas, split
 * backwards, recomputation and halves, all at once. */
static void everything_together_changes_no_bit(void **state)
{
    static const struct {
        struct parity_variant v;
        int chunks;
        bool sub;
    } rows[] = {
        {{2, 2, 2, "zb-v", true, MERAK_SP_ON}, 2, true},
        {{2, 2, 1, "interleaved", false, MERAK_SP_ON}, 2, false},
        {{1, 2, 2, "interleaved", true, MERAK_SP_OFF}, 3, false},
        {{2, 2, 1, "zb-h1", false, MERAK_SP_OFF}, 1, true},
        {{2, 3, 1, "eager:3-3-2", false, MERAK_SP_OFF}, 1, false},
        {{1, 4, 2, "eager:8", true, MERAK_SP_OFF}, 1, true},
    };
    struct small_model model = parity_gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = parity_plan(&rows[i].v), one;

        model.shared_proj = i % 2;
        plan.microbatches = rows[i].sub ? 8 : 4;
        one = plan;
        one.pp = 1;
        snprintf(one.schedule, sizeof(one.schedule), "gpipe");
        plan.chunks = rows[i].chunks;
        plan.sub_pipeline = rows[i].sub;
        parity_plans(&model, &one, &plan, true);
        plan.recompute = MERAK_RECOMPUTE_FULL;
        parity_plans(&model, &one, &plan, true);
    }
}

/* Gradients of keys and values are summed in other orders; recomputation
 * changes no bit of that. */
static void slices_agree_to_rounding(void **state)
{
    static const struct {
        struct parity_variant v;
        int kv_heads;
        bool untied;
    } rows[] = {
        {{1, 1, 1, "sliced:2", false, MERAK_SP_OFF}, 0, false},
        {{1, 2, 1, "sliced:4", false, MERAK_SP_OFF}, 0, true},
        {{1, 4, 1, "sliced:16", false, MERAK_SP_OFF}, 2, false},
        {{2, 2, 2, "sliced:2", true, MERAK_SP_OFF}, 0, false},
        {{2, 2, 1, "sliced:4", false, MERAK_SP_OFF}, 2, true},
        {{1, 2, 1, "sliced:5/60", false, MERAK_SP_OFF}, 0, false},
        {{2, 2, 2, "sliced:3/90", true, MERAK_SP_OFF}, 2, true},
    };
    struct small_model model = parity_gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan sliced = parity_plan(&rows[i].v), one;

        sliced.micro_batch = 1;
        one = sliced;
        one.pp = 1;
        snprintf(one.schedule, sizeof(one.schedule), "gpipe");
        model.kv_heads = rows[i].kv_heads;
        model.untied = rows[i].untied;
        parity_plans(&model, &one, &sliced, false);
        one = sliced;
        sliced.recompute =
            i % 2 ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
        parity_plans(&model, &one, &sliced, true);
    }
}

/* Of a model that recycles: read and left on one stage, up and down the
 * pipeline, read on two stages; on one stage and on several. */
static void recycling_changes_no_bit(void **state)
{
    static const struct {
        struct parity_variant v;
        int passes, reads, leaves, also;
    } rows[] = {
        {{1, 2, 1, "3f1b", false, MERAK_SP_OFF}, 3, 0, 2, 0},
        {{1, 4, 1, "3f1b", false, MERAK_SP_OFF}, 3, 0, 2, 1},
        {{1, 4, 1, "3f1b", false, MERAK_SP_OFF}, 2, 0, 1, 2},
        {{1, 4, 1, "3f1b", false, MERAK_SP_OFF}, 4, 1, 1, 0},
        {{1, 4, 1, "3f1b", false, MERAK_SP_OFF}, 3, 2, 0, 2},
        {{1, 1, 1, "3f1b", false, MERAK_SP_OFF}, 5, 0, 2, 1},
        {{1, 1, 1, "1f1b", false, MERAK_SP_OFF}, 2, 1, 2, 0},
        {{1, 1, 1, "zb-h1", false, MERAK_SP_OFF}, 3, 0, 2, 2},
        {{2, 4, 1, "3f1b", false, MERAK_SP_ON}, 2, 0, 2, 1},
        {{2, 2, 2, "3f1b", true, MERAK_SP_OFF}, 3, 1, 2, 0},
        {{1, 2, 2, "3f1b", true, MERAK_SP_OFF}, 2, 0, 1, 2},
        {{2, 4, 1, "3f1b", false, MERAK_SP_OFF}, 3, 0, 2, 1},
    };
    struct small_model model = parity_gpt;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = parity_plan(&rows[i].v), one;

        plan.microbatches = 5;
        plan.scatter = i % 2; /* boundaries in parts */
        one = plan;
        one.pp = 1;
        snprintf(one.schedule, sizeof(one.schedule), "gpipe");
        model.dropout = i % 2 ? 0.1f : 0;
        model.passes = rows[i].passes;
        model.reads = rows[i].reads;
        model.leaves = rows[i].leaves;
        model.also = rows[i].also;
        parity_plans(&model, &one, &plan, true);
        plan.recompute = MERAK_RECOMPUTE_FULL;
        parity_plans(&model, &one, &plan, true);
    }
}

/* Keys are gathered, or heads exchanged: the model's heads are packed, grouped
 * or too few to be cut.  Positions are in pieces, or in order. */
static void sequences_cut_agree_to_rounding(void **state)
{
    static const struct {
        struct parity_variant v;
        int cp;
        size_t kv_heads;
        float dropout;
        enum merak_cp_form form;
    } rows[] = {
        {{1, 1, 1, "1f1b", false, MERAK_SP_OFF}, 2, 0, 0, MERAK_CP_AUTO},
        {{1, 1, 1, "1f1b", false, MERAK_SP_OFF}, 2, 1, 0.1f, MERAK_CP_GATHER},
        {{1, 1, 1, "1f1b", false, MERAK_SP_OFF}, 4, 2, 0, MERAK_CP_GATHER},
        {{1, 1, 2, "1f1b", true, MERAK_SP_OFF}, 2, 2, 0.1f, MERAK_CP_HEADS},
        {{2, 1, 1, "1f1b", false, MERAK_SP_ON}, 2, 0, 0.1f, MERAK_CP_AUTO},
        {{2, 1, 1, "1f1b", false, MERAK_SP_OFF}, 2, 2, 0, MERAK_CP_GATHER},
        {{2, 1, 2, "1f1b", true, MERAK_SP_ON}, 2, 2, 0, MERAK_CP_GATHER},
        {{4, 1, 1, "1f1b", false, MERAK_SP_ON}, 2, 2, 0, MERAK_CP_GATHER},
        {{1, 2, 2, "1f1b", true, MERAK_SP_OFF}, 2, 2, 0, MERAK_CP_GATHER},
        {{1, 2, 2, "zb-h1", MERAK_ZERO_PARAMS, MERAK_SP_OFF},
         2,
         2,
         0,
         MERAK_CP_HEADS},
        {{2, 2, 1, "1f1b", false, MERAK_SP_ON}, 2, 0, 0, MERAK_CP_AUTO},
        /* more ranks than kv heads: heads among two, keys among pairs */
        {{1, 1, 1, "1f1b", false, MERAK_SP_OFF}, 4, 2, 0.1f, MERAK_CP_HEADS},
        {{1, 1, 1, "1f1b", false, MERAK_SP_OFF}, 8, 2, 0, MERAK_CP_HEADS},
        {{2, 1, 1, "1f1b", true, MERAK_SP_ON}, 4, 2, 0.1f, MERAK_CP_HEADS},
        {{1, 2, 2, "1f1b", true, MERAK_SP_OFF}, 4, 2, 0, MERAK_CP_HEADS},
    };

    (void)state;
    for (size_t k = 0; k < 2 * sizeof(rows) / sizeof(*rows); k++) {
        size_t i = k / 2;
        const struct parity_variant one = {1,      1,     rows[i].v.dp,
                                           "1f1b", false, MERAK_SP_OFF};
        struct merak_plan want = parity_plan(&one);
        struct merak_plan got = parity_plan(&rows[i].v);
        struct small_model model = parity_gpt;

        got.cp = rows[i].cp;
        got.cp_form = rows[i].form;
        got.cp_order = k % 2 ? MERAK_CP_CONTIGUOUS : MERAK_CP_HEAD_TAIL;
        model.kv_heads = rows[i].kv_heads;
        model.dropout = rows[i].dropout;
        parity_plans(&model, &want, &got, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_change_no_bit),
        cmocka_unit_test(ties_and_untied_heads_change_no_bit),
        cmocka_unit_test(zero1_agrees_with_whole_state),
        cmocka_unit_test(tensor_and_data_parallel_agree_to_rounding),
        cmocka_unit_test(grouped_heads_agree_to_rounding),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(sub_pipelines_change_no_bit),
        cmocka_unit_test(schedules_change_no_bit),
        cmocka_unit_test(slices_agree_to_rounding),
        cmocka_unit_test(everything_together_changes_no_bit),
        cmocka_unit_test(recycling_changes_no_bit),
        cmocka_unit_test(sequences_cut_agree_to_rounding),
    };

    return cmocka_run_group_tests_name("parity", tests, NULL, NULL);
}
