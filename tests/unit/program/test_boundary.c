/* SPDX-License-Identifier: Apache-2.0 */
/* test_boundary.c - values that cross between stages, whole and in parts: what
 * is sent, and when which is chosen; that no bit changes is test_parity.c's
 */
#include "config.h"

#include "unit/small_plans.h"

#include "partitioner/layout/layout_code.h"
#include "partitioner/program/boundary.h"

#include <stdio.h>

static const struct small_model gpt = {
    .layers = 4, .vocab = 61, .hidden = 32, .heads = 4};

static struct merak_plan plan_of(int tp, int pp, int dp)
{
    return (struct merak_plan){.tp = tp,
                               .pp = pp,
                               .dp = dp,
                               .microbatches = 5,
                               .zero = 1,
                               .schedule = "1f1b"};
}

/* Bytes that a rank sends to other stages in a step. */
static size_t sent_to_stages(const struct merak_program *prog)
{
    size_t bytes = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].kind == MERAK_INSTR_SEND &&
            prog->instr[i].microbatch >= 0)
            bytes += prog->instr[i].bytes;
    }
    return bytes;
}

/* Every rank of every stage sends 1/tp of what it sent, there and back; with
 * the sequence cut it sends as much as it did. */
static void scattered_boundaries_are_a_tpth(void **state)
{
    struct small_model model = gpt;

    (void)state;
    model.untied = true; /* tied weights' sums are no boundaries */
    for (int kind = 0; kind < 12; kind++) {
        int tp = kind & 1 ? 4 : 2, pp = kind & 2 ? 4 : 2;
        struct merak_plan plan = plan_of(tp, pp, 2);
        struct merak_planned *whole, *parts;

        model.kv_heads = kind / 4 == 1 ? 2 : 0;
        plan.sp = kind / 4 == 2 ? MERAK_SP_ON : MERAK_SP_OFF;
        whole = planned_build(&model, &plan, NULL);
        plan.scatter = 1;
        parts = planned_build(&model, &plan, NULL);
        planned_assert_sound(parts);
        for (int r = 0; r < whole->n_programs; r++) {
            size_t all = sent_to_stages(whole->program[r]);

            assert_true(all > 0);
            assert_int_equal(sent_to_stages(parts->program[r]),
                             plan.sp == MERAK_SP_ON ? all : all / (size_t)tp);
            assert_true(parts->program[r]->arena_bytes <=
                        whole->program[r]->arena_bytes);
        }
        merak_planned_destroy(whole);
        merak_planned_destroy(parts);
    }
}

/* Only what leaves a node: with four stages on two nodes, the middle. */
static void boundaries_inside_a_node_stay_whole(void **state)
{
    struct merak_plan plan = plan_of(2, 4, 1);
    struct merak_planned *whole, *parts;

    (void)state;
    plan.sp = MERAK_SP_OFF;
    whole = planned_build(&gpt, &plan, NULL);
    plan.scatter = 4;
    parts = planned_build(&gpt, &plan, NULL);
    planned_assert_sound(parts);
    for (int r = 0; r < 8; r++) {
        size_t all = sent_to_stages(whole->program[r]);
        bool ends = r / 2 == 0 || r / 2 == 3; /* the stage */

        assert_int_equal(sent_to_stages(parts->program[r]),
                         ends ? all : all * 3 / 4);
    }
    merak_planned_destroy(whole);
    merak_planned_destroy(parts);
}

/* --- SuperScaler's search between stages ---------------------------------- */

#define CROSS 24 /* words inside a node that one between nodes counts as */

/* Words of the cheapest way from a layout on one stage's tensor ranks to one
 * on another's: conversions before, one message of each rank to its peer,
 * conversions behind.  What was partial is summed before, as every stage sends
 * what others have part in. */
static double inter_rvd(int tp, const struct merak_shape *shape,
                        struct merak_place from, struct merak_place to)
{
    static const struct merak_place way[] = {
        {.kind = MERAK_REPLICATED, .dim = -1},
        {.kind = MERAK_SPLIT, .dim = 0},
        {.kind = MERAK_SPLIT, .dim = 1}};
    const struct merak_mesh mesh = {.n_axes = 1, .axis[0].size = tp};
    const struct merak_layout a = {{from}}, b = {{to}};
    struct merak_hop hops[MERAK_MAX_HOPS];
    double best = INFINITY;

    for (size_t i = 0; i < sizeof(way) / sizeof(*way); i++) {
        const struct merak_layout at = {{way[i]}};
        double words = CROSS * merak_layout_words(&mesh, &at, shape), cost;
        int n = merak_layout_path(&mesh, shape, &a, &at, hops, &cost);

        assert_true(n >= 0);
        words += cost - n;
        n = merak_layout_path(&mesh, shape, &at, &b, hops, &cost);
        assert_true(n >= 0);
        words += cost - n;
        best = words < best ? words : best;
    }
    return best;
}

/* Words of a rank's boundaries likewise, of one micro-batch. */
static double boundary_words(const struct merak_program *prog)
{
    double bytes = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->microbatch != 0)
            continue;
        if (in->kind == MERAK_INSTR_SEND)
            bytes += CROSS * (double)in->bytes;
        else if (in->kind == MERAK_INSTR_EXCHANGE && in->node < 0)
            bytes += (double)in->bytes;
    }
    return bytes / sizeof(float);
}

/* What tensor ranks hold alike goes in parts and is gathered, what they have
 * cut goes as it is: no other way moves less.  Of two stages each is at one
 * end of one boundary, whose value goes up and whose gradient comes down. */
static void boundaries_cost_what_inter_rvd_finds(void **state)
{
    static const struct merak_place whole = {.kind = MERAK_REPLICATED,
                                             .dim = -1},
                                    cut = {.kind = MERAK_SPLIT, .dim = 1};
    /* golden: a quarter of 1024 x 4096 across, three quarters gathered */
    const struct merak_shape large = {2, {1024, 4096}}, crosses = {2, {32, 32}};

    (void)state;
    assert_true(inter_rvd(4, &large, whole, whole) == 24 * 1048576 + 3145728);
    assert_true(inter_rvd(4, &large, cut, cut) == 24 * 1048576);
    assert_true(inter_rvd(4, &large, cut, whole) == 24 * 1048576 + 3145728);
    for (int kind = 0; kind < 4; kind++) {
        struct merak_plan plan = plan_of(kind & 1 ? 4 : 2, 2, 1);
        struct small_model model = gpt; /* 2 x 16 tokens of 32 */
        const bool sp = (kind & 2) != 0;
        const struct merak_place at = sp ? cut : whole;
        double want = inter_rvd(plan.tp, &crosses, at, at);
        struct merak_planned *p;

        plan.sp = sp ? MERAK_SP_ON : MERAK_SP_OFF;
        plan.scatter = 1;
        model.untied = true;
        p = planned_build(&model, &plan, NULL);
        for (int r = 0; r < p->n_programs; r++)
            assert_true(boundary_words(p->program[r]) == want);
        merak_planned_destroy(p);
    }
}

/* By what is there sooner, over links of a node and between nodes. */
static void scattering_is_chosen_by_links(void **state)
{
    static const struct {
        int tp, pp, dp, node;
        double link, net, bytes;
        enum merak_boundary asked;
        int scatter;
        const char *schedule; /* or NULL */
    } rows[] = {
        {4, 2, 1, 4, 1e10, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 4, NULL},
        {2, 4, 1, 4, 1e10, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 4, NULL},
        /* as fast; latency; one node; likewise; tp over two */
        {4, 2, 1, 4, 1e9, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 0, NULL},
        {4, 2, 1, 4, 1e10, 1e9, 1e3, MERAK_BOUNDARY_AUTO, 0, NULL},
        {4, 2, 1, 8, 1e10, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 0, NULL},
        {4, 2, 1, 0, 1e10, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 0, NULL},
        {4, 2, 1, 2, 1e10, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 0, NULL},
        {1, 4, 1, 1, 1e10, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 0, NULL},
        {4, 2, 1, 4, 1e10, 1e9, 1e6, MERAK_BOUNDARY_WHOLE, 0, NULL},
        {4, 2, 1, 0, 1e9, 1e9, 1e3, MERAK_BOUNDARY_SCATTER, 1, NULL},
        {4, 1, 2, 4, 1e10, 1e9, 1e6, MERAK_BOUNDARY_SCATTER, 0, NULL},
        /* of slices, each: latency again */
        {4, 2, 1, 4, 1e10, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 4, "sliced:16"},
        {4, 2, 1, 4, 1e10, 1e9, 1e6, MERAK_BOUNDARY_AUTO, 0, "sliced:64"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan plan = plan_of(rows[i].tp, rows[i].pp, rows[i].dp);
        struct merak_cost_model cost = {
            .links.level[0].ranks = rows[i].node,
            .links.level[0].bytes_per_s = rows[i].link,
            .links.level[0].latency_s = 5e-6,
            .links.level[1].bytes_per_s = rows[i].net,
            .links.level[1].latency_s = 1e-5};

        if (rows[i].schedule != NULL)
            snprintf(plan.schedule, sizeof(plan.schedule), "%s",
                     rows[i].schedule);
        assert_int_equal(
            merak_boundary_choose(rows[i].asked, &cost, &plan, rows[i].bytes),
            rows[i].scatter);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scattered_boundaries_are_a_tpth),
        cmocka_unit_test(boundaries_inside_a_node_stay_whole),
        cmocka_unit_test(boundaries_cost_what_inter_rvd_finds),
        cmocka_unit_test(scattering_is_chosen_by_links),
    };

    return cmocka_run_group_tests_name("boundary", tests, NULL, NULL);
}
