/* SPDX-License-Identifier: Apache-2.0 */
/* test_parity_masks.c - attention with masks that are not causal, biases or
 * sinks, in every plan: bit by bit where only the pipeline differs, to rounding where tp,
 * dp or cp do
 */
#include "config.h"

#include "unit/parity.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

#define FULL .attention.mask = MERAK_MASK_FULL
#define SMALL .layers = 3, .vocab = 13, .hidden = 8, .heads = 4, .untied = true
static const struct small_model models[] = {
    {SMALL, FULL},
    {SMALL, FULL, .lengths = true, .kv_heads = 2, .dropout = 0.1f},
    {SMALL, FULL, .attention.window = 3, .attention.window_after = 5,
     .attention.dropout = 0.2f, .lengths = true},
    {SMALL, .attention.mask = MERAK_MASK_PREFIX, .prefix = true, .kv_heads = 2},
    {SMALL, .lengths = true, .kv_heads = 4},
    {SMALL, FULL, .lengths = true, .kv_heads = 2, .crossed = true,
     .attention.dropout = 0.2f},
    {SMALL, FULL, .lengths = true, .kv_heads = 2, .biases = 8,
     .attention.bias = {.farthest = 5, .both_ways = true}},
    {SMALL, .kv_heads = 4, .biases = 4, .attention.scale = 1,
     .attention.bias = {.farthest = 6}, .attention.dropout = 0.2f},
    {SMALL, .kv_heads = 2, .sinks = true, .attention.window = 5,
     .attention.dropout = 0.2f},
};
enum { MODELS = sizeof(models) / sizeof(*models) };

static void pipelines_change_no_bit(void **state)
{
    static const struct parity_variant rows[] = {
        {1, 2, 1, "1f1b", false, MERAK_SP_OFF},
        {1, 4, 1, "zb-h1", false, MERAK_SP_OFF},
        {1, 3, 1, "gpipe", false, MERAK_SP_OFF}};
    const struct parity_variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};

    (void)state;
    for (int m = 0; m < MODELS; m++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
            parity_variants(&models[m], &one, &rows[i], true);
    }
}

static void recomputation_changes_no_bit(void **state)
{
    const struct parity_variant v = {2, 2, 1, "1f1b", false, MERAK_SP_ON};

    (void)state;
    for (int m = 0; m < MODELS; m++) {
        struct merak_plan kept = parity_plan(&v), again = kept;

        again.recompute = MERAK_RECOMPUTE_FULL;
        parity_plans(&models[m], &kept, &again, true);
        again.recompute = MERAK_RECOMPUTE_SELECTIVE;
        parity_plans(&models[m], &kept, &again, true);
    }
}

static void tensor_and_data_parallel_agree_to_rounding(void **state)
{
    static const struct parity_variant rows[] = {
        {2, 1, 1, "1f1b", false, MERAK_SP_OFF},
        {4, 1, 1, "1f1b", false, MERAK_SP_ON},
        {1, 1, 2, "1f1b", false, MERAK_SP_OFF},
        {2, 2, 2, "1f1b", true, MERAK_SP_ON}};
    const struct parity_variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};

    (void)state;
    for (int m = 0; m < MODELS; m++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
            parity_variants(&models[m], &one, &rows[i], false);
    }
}

/* Keys are gathered, or heads exchanged; positions are in pieces, or in order.
 */
static void sequences_cut_agree_to_rounding(void **state)
{
    const struct parity_variant one = {1, 1, 1, "1f1b", false, MERAK_SP_OFF};

    (void)state;
    for (int m = 0; m < MODELS; m++) {
        for (int k = 0; k < 4 && !models[m].crossed; k++) {
            struct merak_plan want = parity_plan(&one), got = want;

            got.cp = 2;
            got.cp_form = k < 2 && models[m].kv_heads > 0 ? MERAK_CP_GATHER
                                                          : MERAK_CP_HEADS;
            got.cp_order = k % 2 ? MERAK_CP_CONTIGUOUS : MERAK_CP_HEAD_TAIL;
            parity_plans(&models[m], &want, &got, false);
        }
    }
}

static void others_are_refused(void **state)
{
    static const struct {
        int model, cp;
        const char *schedule, *text;
    } rows[] = {
        {0, 1, "sliced:2",
         "schedule sliced:2 cuts sequences, and attention_packed.4 needs whole "
         "ones: use --schedule 1f1b"},
        {4, 1, "sliced:2",
         "schedule sliced:2 cuts sequences, and attention.8 needs whole ones: "
         "use --schedule 1f1b"},
        {5, 1, "sliced:2",
         "schedule sliced:2 cuts sequences, and attention.8 needs whole ones: "
         "use --schedule 1f1b"},
        {7, 1, "sliced:2",
         "schedule sliced:2 cuts sequences, and attention_biased.8 needs whole "
         "ones: use --schedule 1f1b"},
        {5, 2, "1f1b",
         "cp=2 cuts one sequence, and this model has a second one (other): use "
         "--cp 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct parity_variant v = {
            1, 1, 1, rows[i].schedule, false, MERAK_SP_OFF};
        struct merak_plan plan = parity_plan(&v);
        struct merak_error err = {0};

        plan.cp = rows[i].cp;
        plan.micro_batch = 1;
        assert_int_not_equal(planned_try(&models[rows[i].model], &plan, &err),
                             MERAK_OK);
        assert_string_equal(err.text, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_change_no_bit),
        cmocka_unit_test(recomputation_changes_no_bit),
        cmocka_unit_test(tensor_and_data_parallel_agree_to_rounding),
        cmocka_unit_test(sequences_cut_agree_to_rounding),
        cmocka_unit_test(others_are_refused),
    };

    return cmocka_run_group_tests_name("parity_masks", tests, NULL, NULL);
}
