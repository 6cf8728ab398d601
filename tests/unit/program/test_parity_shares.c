/* SPDX-License-Identifier: Apache-2.0 */
/* test_parity_shares.c - samples, state, boundaries and blocks that ranks share
 * out: every plan computes what one rank computes */
#include "config.h"

#include "unit/parity.h"

#include "base/factors.h"

#include <stdio.h>
#include <string.h>

/* What plans have of two things that few have. */
struct tally {
    int differ;  /* neighbouring stages hold weights in different ways */
    int columns; /* the table is cut by columns */
};

/* Tensor ranks of this plan share out samples somewhere; what else? */
static void look_at(const struct small_model *model,
                    const struct merak_plan *plan, struct tally *tally)
{
    struct merak_planned *p = planned_build(model, plan, NULL);
    bool whole[8] = {false}, differ = false;

    assert_true(p->sharded->saved > 0);
    for (int n = 0; n < p->sharded->graph->n_forward; n++) {
        const struct merak_node *node = p->sharded->graph->node[n];

        if (strcmp(node->op->name, "gelu") == 0)
            whole[p->stages->of_node[n]] =
                p->sharded->layout[node->out[0]->id].at[0].dim == 0;
        if (strcmp(node->op->name, "embedding") == 0)
            tally->columns +=
                p->sharded->layout[node->in[1]->id].at[0].dim == 1;
    }
    for (int k = 1; k < p->stages->n; k++)
        differ = differ || whole[k] != whole[k - 1];
    tally->differ += differ;
    merak_planned_destroy(p);
}

/* Layers whose tensor ranks share out samples, beside a vocabulary that is
 * cut, a table cut by columns, or after layers that are cut: the same to
 * rounding as on one rank, and to the bit on any number of stages. */
static void shared_out_samples_change_no_bit_by_stages(void **state)
{
    static const struct {
        struct parity_variant v;
        int batch, chunks, kv_heads;
        bool sub, untied;
    } rows[] = {
        {{2, 1, 1, "1f1b", false, MERAK_SP_OFF}, 100, 1, 0, false, false},
        {{2, 2, 1, "1f1b", false, MERAK_SP_OFF}, 100, 1, 0, false, false},
        {{2, 2, 1, "1f1b", false, MERAK_SP_OFF}, 50, 1, 0, false, true},
        {{4, 2, 1, "1f1b", false, MERAK_SP_OFF}, 100, 1, 0, false, true},
        {{2, 2, 2, "1f1b", true, MERAK_SP_AUTO}, 100, 1, 0, false, true},
        {{2, 2, 2, "1f1b", true, MERAK_SP_ON}, 50, 1, 0, false, true},
        {{4, 2, 1, "gpipe", false, MERAK_SP_AUTO}, 50, 1, 2, false, true},
        {{2, 2, 2, "zb-v", true, MERAK_SP_OFF}, 60, 2, 0, true, false},
        {{2, 2, 1, "interleaved", false, MERAK_SP_AUTO}, 40, 2, 2, false, true},
        {{2, 4, 1, "scp", false, MERAK_SP_OFF}, 50, 1, 0, true, true},
    };
    struct small_model model = parity_gpt;
    struct tally tally = {0};

    (void)state;
    model.dropout = 0.1f;
    model.vocab = 509;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct parity_variant *v = &rows[i].v;
        struct merak_plan plan = parity_plan(v), flat, one;

        model.kv_heads = rows[i].kv_heads;
        model.untied = rows[i].untied;
        plan.micro_batch = 4;
        plan.tp_batch_percent = rows[i].batch;
        plan.chunks = rows[i].chunks;
        plan.sub_pipeline = rows[i].sub;
        plan.microbatches = rows[i].sub ? 8 / v->dp : 4 / v->dp;
        flat = plan;
        flat.pp = flat.chunks = 1;
        flat.sub_pipeline = false;
        snprintf(flat.schedule, sizeof(flat.schedule), "gpipe");
        one = flat;
        one.tp = one.dp = 1;
        one.tp_batch_percent = 0;
        one.microbatches *= v->dp;
        look_at(&model, &plan, &tally);
        parity_plans(&model, &one, &flat, false);
        parity_plans(&model, &flat, &plan, true);
        plan.recompute = MERAK_RECOMPUTE_FULL;
        plan.scatter = 1;
        parity_plans(&model, &flat, &plan, true);
    }
    assert_true(tally.differ >= 4);
    assert_true(tally.columns >= 2);
}

/* Of weights of 4 * 64^2 elements and more, which tensor ranks hold alike, they
 * share out the state: later steps read what was gathered of it. */
static void shared_out_state_changes_no_bit_by_stages(void **state)
{
    static const struct {
        struct parity_variant v;
        int batch;
        bool untied;
    } rows[] = {
        {{2, 2, 1, "1f1b", true, MERAK_SP_OFF}, 100, false},
        {{2, 2, 2, "zb-h1", true, MERAK_SP_ON}, 60, true},
    };
    struct small_model model = parity_gpt;

    (void)state;
    model.hidden = 64;
    model.layers = 2;
    model.vocab = 509;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = parity_plan(&rows[i].v), flat, one;

        model.untied = rows[i].untied;
        plan.micro_batch = 4;
        plan.tp_batch_percent = rows[i].batch;
        flat = plan;
        flat.pp = 1;
        snprintf(flat.schedule, sizeof(flat.schedule), "gpipe");
        one = flat;
        one.tp = one.dp = 1;
        one.tp_batch_percent = 0;
        one.microbatches *= plan.dp;
        parity_plans(&model, &one, &flat, false);
        parity_plans(&model, &flat, &plan, true);
    }
}

/* What crosses in parts and is gathered is what crosses whole: tensor ranks
 * in one group or two, halves, slices, chunks, recomputation. */
static void scattered_boundaries_change_no_bit(void **state)
{
    static const struct {
        struct parity_variant v;
        int chunks, kv_heads;
        bool sub;
    } rows[] = {
        {{2, 2, 1, "1f1b", false, MERAK_SP_OFF}, 1, 0, false},
        {{4, 2, 1, "gpipe", false, MERAK_SP_OFF}, 1, 2, false},
        {{4, 4, 1, "scp", false, MERAK_SP_OFF}, 1, 0, true},
        {{2, 2, 2, "zb-v", true, MERAK_SP_OFF}, 2, 0, true},
        {{2, 2, 1, "interleaved", false, MERAK_SP_ON}, 2, 0, false},
        {{2, 2, 1, "sliced:4", false, MERAK_SP_OFF}, 1, 2, false},
    };
    struct small_model model = parity_gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan whole = parity_plan(&rows[i].v), parts;

        model.kv_heads = rows[i].kv_heads;
        whole.chunks = rows[i].chunks;
        whole.sub_pipeline = rows[i].sub;
        whole.microbatches = rows[i].sub ? 8 : 4;
        whole.micro_batch = 1;
        parts = whole;
        parts.scatter = 1;
        parity_plans(&model, &whole, &parts, true);
        parts.recompute = MERAK_RECOMPUTE_FULL;
        parity_plans(&model, &whole, &parts, true);
    }
}

static void assert_sound(const struct small_model *model,
                         const struct merak_plan *plan)
{
    struct merak_planned *p = planned_build(model, plan, NULL);

    planned_assert_sound(p);
    merak_planned_destroy(p);
}

/* The head's input gradient is summed over stages, in another order than one
 * product sums it.  Recomputation changes no bit of that. */
static void shared_blocks_agree_to_rounding(void **state)
{
    static const struct {
        struct parity_variant v;
        int chunks, kv_heads;
        bool untied;
    } rows[] = {
        {{1, 2, 1, "interlaced", false, MERAK_SP_OFF}, 0, 0, false},
        {{1, 2, 1, "interlaced", false, MERAK_SP_OFF}, 2, 0, true},
        {{1, 3, 1, "interlaced", false, MERAK_SP_OFF}, 3, 2, true},
        {{1, 4, 1, "interlaced", false, MERAK_SP_OFF}, 3, 0, false},
        {{1, 4, 1, "interlaced", false, MERAK_SP_OFF}, 2, 0, true},
        {{1, 5, 1, "interlaced", false, MERAK_SP_OFF}, 0, 0, false},
        {{2, 2, 1, "interlaced", false, MERAK_SP_OFF}, 0, 0, false},
        {{2, 2, 1, "interlaced", false, MERAK_SP_ON}, 0, 0, true},
        {{2, 3, 1, "interlaced", false, MERAK_SP_ON}, 2, 0, true},
        {{4, 2, 1, "interlaced", false, MERAK_SP_OFF}, 0, 2, false},
        {{1, 2, 2, "interlaced", false, MERAK_SP_OFF}, 0, 0, true},
        {{1, 2, 2, "interlaced", true, MERAK_SP_OFF}, 0, 0, false},
        {{2, 2, 2, "interlaced", true, MERAK_SP_ON}, 0, 0, false},
        {{2, 4, 1, "interlaced", false, MERAK_SP_OFF}, 3, 0, false},
    };
    const struct parity_variant serial = {1,       1,     1,
                                          "gpipe", false, MERAK_SP_OFF};
    struct merak_plan one = parity_plan(&serial);
    struct small_model model = parity_gpt;

    (void)state;
    model.dropout = 0.1f;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = parity_plan(&rows[i].v), again;

        plan.chunks = rows[i].chunks;
        model.kv_heads = rows[i].kv_heads;
        model.untied = rows[i].untied;
        assert_sound(&model, &plan);
        parity_plans(&model, &one, &plan, false);
        again = plan;
        again.recompute =
            i % 2 ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
        for (int node = plan.tp; node > 0; node /= 2) { /* ranks of one */
            again.scatter = 2 * node;
            assert_sound(&model, &again);
        }
        again.scatter = 1;
        assert_sound(&model, &again);
        parity_plans(&model, &plan, &again, true);
    }
}

/* Some layers have whole weights, others not. */
static void layers_agree_however_they_are_split(void **state)
{
    static const struct {
        struct parity_variant v;
        const char *split;
    } rows[] = {
        {{2, 1, 1, "1f1b", 0, MERAK_SP_OFF}, "b1"},
        {{2, 1, 2, "1f1b", 1, MERAK_SP_ON}, "b0b2"},
        {{2, 2, 1, "zb-h1", 0, MERAK_SP_AUTO}, "b2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct parity_variant one = {1,      1, rows[i].v.dp,
                                           "1f1b", 0, MERAK_SP_OFF};
        struct merak_plan want = parity_plan(&one);
        struct merak_plan got = parity_plan(&rows[i].v), whole;
        struct small_model model = parity_gpt;

        assert_int_equal(merak_split_parse(rows[i].split, &got.split, NULL),
                         MERAK_OK);
        model.dropout = 0.1f;
        parity_plans(&model, &want, &got, false);
        whole = got;
        whole.pp = 1;
        snprintf(whole.schedule, sizeof(whole.schedule), "gpipe");
        got.recompute = MERAK_RECOMPUTE_FULL;
        parity_plans(&model, &whole, &got, true);
    }
}

/* Parameters that are named are cut so, and what is computed stays. */
static void named_parameters_agree_to_rounding(void **state)
{
    static const struct {
        struct parity_variant v;
        const char *told;
    } rows[] = {
        {{2, 1, 2, "1f1b", 1, MERAK_SP_AUTO}, "*.qkv.*:replicate,h.?.proj.w:replicate"},
        {{2, 2, 1, "zb-h1", 0, MERAK_SP_OFF},
         "*.fc.w:rowwise,*.out.w:colwise,h.1.proj.w:0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct parity_variant one = {1,      1, rows[i].v.dp,
                                           "1f1b", 0, MERAK_SP_OFF};
        struct merak_plan want = parity_plan(&one);
        struct merak_plan got = parity_plan(&rows[i].v);

        assert_int_equal(merak_tp_plan_parse(rows[i].told, &got.tp_plan, NULL),
                         MERAK_OK);
        parity_plans(&parity_gpt, &want, &got, false);
    }
}

/* Tensor ranks as a grid, which may cut weights on both sides: packed heads,
 * grouped ones, and fewer of them than an axis has ranks. */
static void grids_agree_to_rounding(void **state)
{
    static const struct {
        struct parity_variant v;
        const char *axes;
        size_t kv_heads;
        int cp;
        float dropout;
    } rows[] = {
        {{4, 1, 1, "1f1b", 0, MERAK_SP_OFF}, "2x2", 0, 1, 0.1f},
        {{8, 1, 1, "1f1b", 0, MERAK_SP_OFF}, "2x4", 0, 1, 0},
        {{8, 1, 1, "1f1b", 0, MERAK_SP_ON}, "2x2x2", 2, 1, 0.1f},
        {{4, 1, 2, "1f1b", MERAK_ZERO_PARAMS, MERAK_SP_OFF}, "2x2", 2, 1, 0},
        {{4, 2, 1, "zb-h1", 0, MERAK_SP_AUTO}, "2x2", 4, 1, 0.1f},
        {{4, 1, 2, "1f1b", 1, MERAK_SP_ON}, "2x2", 0, 2, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct parity_variant one = {1,      1, rows[i].v.dp,
                                           "1f1b", 0, MERAK_SP_OFF};
        struct merak_plan want = parity_plan(&one);
        struct merak_plan got = parity_plan(&rows[i].v);
        struct small_model model = parity_gpt;

        assert_true(merak_factors_parse(rows[i].axes, &got.tp_axes));
        got.cp = rows[i].cp;
        model.hidden = 64;
        model.heads = 8;
        model.kv_heads = rows[i].kv_heads;
        model.dropout = rows[i].dropout;
        parity_plans(&model, &want, &got, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_out_samples_change_no_bit_by_stages),
        cmocka_unit_test(shared_out_state_changes_no_bit_by_stages),
        cmocka_unit_test(scattered_boundaries_change_no_bit),
        cmocka_unit_test(shared_blocks_agree_to_rounding),
        cmocka_unit_test(layers_agree_however_they_are_split),
        cmocka_unit_test(named_parameters_agree_to_rounding),
        cmocka_unit_test(grids_agree_to_rounding),
    };

    return cmocka_run_group_tests_name("parity_shares", tests, NULL, NULL);
}
