/* SPDX-License-Identifier: Apache-2.0 */
/* test_offload.c - optimizer state in the host's memory: the same bits, and
 * bytes by closed form
 */
#include "config.h"

#include "unit/parity.h"

#include "base/size.h"
#include "partitioner/program/memplan.h"
#include "partitioner/program/offload.h"
#include "partitioner/simulate/check_streams.h"
#include "partitioner/simulate/fetches.h"
#include "partitioner/simulate/simulate.h"

#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static const struct merak_plan rows[] = {
    {.tp = 1, .pp = 1, .dp = 1, .schedule = "1f1b"},
    {.tp = 2, .pp = 2, .dp = 1, .schedule = "1f1b", .sp = MERAK_SP_ON},
    {.tp = 1, .pp = 2, .dp = 2, .schedule = "zb-h1", .zero = 1},
    {.tp = 2, .pp = 1, .dp = 2, .schedule = "1f1b", .zero = 2},
    {.tp = 1, .pp = 2, .dp = 2, .schedule = "gpipe", .zero = 3, .fetch = 1},
    {.tp = 1,
     .pp = 1,
     .dp = 4,
     .dp_in = 2,
     .zero_home = MERAK_HOME_IN,
     .schedule = "1f1b",
     .zero = 3},
    {.tp = 1,
     .pp = 1,
     .dp = 2,
     .schedule = "1f1b",
     .zero = 3,
     .grad_sum = MERAK_SUM_STEP},
    {.tp = 1, .pp = 2, .dp = 2, .schedule = "interlaced", .zero = 1},
};

static struct merak_plan with(const struct merak_plan *row,
                              enum merak_offload offload)
{
    struct merak_plan plan = *row;

    plan.microbatches = 4 / plan.dp;
    plan.offload = offload;
    return plan;
}

static void bits_are_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct merak_plan here = with(&rows[i], MERAK_OFFLOAD_NONE);
        struct merak_plan away = with(&rows[i], MERAK_OFFLOAD_STATE);
        struct small_model model = parity_gpt;

        model.untied = i % 2 == 0;
        parity_plans(&model, &here, &away, true);
    }
}

/* --- activations ---------------------------------------------------------- */

static const struct merak_plan act_rows[] = {
    {.tp = 1, .pp = 1, .dp = 1, .schedule = "1f1b"},
    {.tp = 2, .pp = 2, .dp = 1, .schedule = "1f1b", .sp = MERAK_SP_ON},
    {.tp = 1, .pp = 2, .dp = 2, .schedule = "zb-h1", .zero = 1},
    {.tp = 2, .pp = 1, .dp = 2, .schedule = "1f1b", .zero = 3},
    {.tp = 1, .pp = 2, .dp = 1, .cp = 2, .schedule = "gpipe"},
    {.tp = 1, .pp = 2, .dp = 1, .chunks = 2, .schedule = "interleaved"},
    {.tp = 1, .pp = 2, .dp = 1, .chunks = 2, .schedule = "zb-v"},
    {.tp = 1, .pp = 2, .dp = 1, .schedule = "interlaced"},
    {.tp = 2, .pp = 1, .dp = 1, .schedule = "1f1b", .sub_pipeline = true},
    {.tp = 1, .pp = 2, .dp = 1, .schedule = "sliced"},
};

/* What is brought back is what was there; nothing but exchanges runs again. */
static void activations_come_back_as_they_were(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(act_rows); i++) {
        struct merak_plan here = with(&act_rows[i / 2], MERAK_OFFLOAD_NONE);
        struct merak_plan away = with(&act_rows[i / 2], MERAK_OFFLOAD_ACTS);
        struct small_model model = parity_gpt;
        struct merak_error err = {.text = ""};
        struct merak_planned *p;

        away.recompute =
            i % 2 ? MERAK_RECOMPUTE_SELECTIVE : MERAK_RECOMPUTE_FULL;
        model.dropout = 0.1f;
        model.untied = i % 2 == 0;
        p = planned_build(&model, &away, NULL);
        planned_assert_sound(p);
        if (merak_program_check_streams(p->program, p->n_programs, &err) !=
                MERAK_OK &&
            !(away.sub_pipeline && away.pp > 1))
            fail_msg("row %zu: %s", i, err.text);
        for (int r = 0; r < p->n_programs; r++) {
            const struct merak_program *prog = p->program[r];

            for (int k = 0; k < prog->n_instrs; k++) {
                if (prog->instr[k].recompute &&
                    prog->instr[k].kind == MERAK_INSTR_KERNEL)
                    fail_msg("row %zu: %s", i, prog->instr[k].name);
            }
            assert_true(prog->host_bytes > 0);
        }
        merak_planned_destroy(p);
        parity_plans(&model, &here, &away, true);
    }
}

/* Of the blocks that are dropped some are recomputed all the same. */
static void some_blocks_run_again(void **state)
{
    static const struct merak_drop drop[] = {{.blocks = 6, .again = 3},
                                             {.blocks = 4, .again = 2},
                                             {.attention = true, .again = 1},
                                             {.attention = true}};

    (void)state;
    for (size_t i = 0; i < COUNT(act_rows); i++) {
        struct merak_plan here = with(&act_rows[i], MERAK_OFFLOAD_NONE);
        struct merak_plan away = with(&act_rows[i], MERAK_OFFLOAD_ACTS);
        struct small_model model = parity_gpt;
        struct merak_drop of[MERAK_MAX_SHARED + COUNT(drop)] = {{0}};
        struct merak_planned *p;
        int kernels = 0, copies = 0;

        memcpy(of, drop, sizeof(drop));
        away.drop = of;
        away.recompute = MERAK_RECOMPUTE_AUTO;
        model.layers = 9;
        model.dropout = 0.1f;
        p = planned_build(&model, &away, NULL);
        planned_assert_sound(p);
        for (int k = 0; k < p->program[0]->n_instrs; k++) {
            const struct merak_instr *in = &p->program[0]->instr[k];

            kernels += in->kind == MERAK_INSTR_KERNEL && in->recompute;
            copies += in->kind == MERAK_INSTR_COPY;
        }
        if (kernels == 0 || copies == 0)
            fail_msg("row %zu: %d kernels, %d copies", i, kernels, copies);
        merak_planned_destroy(p);
        parity_plans(&model, &here, &away, true);
    }
}

/* Each micro-batch takes all that the host has there, and brings it back; the
 * arena is less by most of it. */
static void one_micro_batch_is_away_at_a_time(void **state)
{
    const struct merak_plan row = {
        .tp = 1, .pp = 1, .dp = 1, .schedule = "1f1b"};
    struct merak_plan here = with(&row, MERAK_OFFLOAD_NONE);
    struct merak_plan away = with(&row, MERAK_OFFLOAD_ACTS);
    struct small_model model = parity_gpt;
    struct merak_planned *a, *b;
    size_t sum = 0;

    (void)state;
    model.layers = 8;
    away.recompute = MERAK_RECOMPUTE_FULL;
    a = planned_build(&model, &here, NULL);
    b = planned_build(&model, &away, NULL);
    for (int s = 0; s < b->program[0]->n_slots; s++) {
        if (b->program[0]->slot[s].host)
            sum += b->program[0]->slot[s].bytes;
    }
    assert_int_equal((size_t)merak_offload_bytes(b->program[0], 1),
                     2 * (size_t)away.microbatches * sum);
    assert_true(a->program[0]->arena_bytes - b->program[0]->arena_bytes >
                b->program[0]->host_bytes / 2);
    assert_int_equal(a->program[0]->persistent_bytes,
                     b->program[0]->persistent_bytes);
    merak_planned_destroy(a);
    merak_planned_destroy(b);
}

/* A parameter that is larger than a piece. */
static const struct small_model large = {
    .layers = 1, .vocab = 70000, .hidden = 64, .heads = 4};

static void pieces_change_no_bit(void **state)
{
    struct merak_plan plan = {
        .tp = 1, .pp = 1, .dp = 1, .microbatches = 1, .schedule = "1f1b"};
    struct merak_plan away = plan;

    (void)state;
    away.offload = MERAK_OFFLOAD_STATE;
    assert_true(large.vocab * large.hidden > MERAK_OFFLOAD_PIECE);
    parity_plans(&large, &plan, &away, true);
}

static size_t kept(size_t elements)
{
    return merak_size_align(4 * elements, MERAK_ALIGN);
}

/* What moves to the host is what the arena no longer keeps; a step copies all
 * of it there and back. */
static void check_bytes(const struct merak_program *here,
                        const struct merak_program *away)
{
    size_t state = 0, elements = 0;

    for (int i = 0; i < away->n_params; i++) {
        const struct merak_param_slots *p = &away->param[i];
        const struct merak_slot *m = &away->slot[p->m];
        int copies = away->slot[p->param].dtype == MERAK_F32
                         ? 2
                         : 3; /* its own master */

        assert_true(m->host && away->slot[p->v].host);
        assert_true(away->slot[p->master].host == (copies == 3));
        state += (size_t)copies * kept(m->flat_hi - m->flat_lo);
        elements += (size_t)copies * (m->flat_hi - m->flat_lo);
    }
    assert_int_equal(away->host_bytes, state);
    assert_int_equal(away->persistent_bytes + state, here->persistent_bytes);
    assert_int_equal((size_t)merak_offload_bytes(away, 1), 2 * 4 * elements);
    assert_true(merak_offload_bytes(here, 1) == 0 && here->host_bytes == 0);
}

static void programs_are_sound_and_keep_state_away(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(rows); i++) {
        struct merak_plan here = with(&rows[i / 2], MERAK_OFFLOAD_NONE);
        struct merak_plan away = with(&rows[i / 2], MERAK_OFFLOAD_STATE);
        struct small_model model = parity_gpt;
        struct merak_error err = {.text = ""};
        struct merak_planned *a, *b;

        model.dtype = i % 2 != 0 ? MERAK_BF16 : MERAK_F32;
        a = planned_build(&model, &here, NULL);
        b = planned_build(&model, &away, NULL);
        planned_assert_sound(b);
        if (merak_program_check_streams(b->program, b->n_programs, &err) !=
            MERAK_OK)
            fail_msg("%s: %s", away.schedule, err.text);
        for (int r = 0; r < b->n_programs; r++)
            check_bytes(a->program[r], b->program[r]);
        merak_planned_destroy(a);
        merak_planned_destroy(b);
    }
}

/* Two pieces are in the arena at a time, and the link is never idle. */
static void two_pieces_are_here_and_the_link_is_busy(void **state)
{
    struct merak_plan plan = {.tp = 1,
                              .pp = 1,
                              .dp = 1,
                              .microbatches = 1,
                              .schedule = "1f1b",
                              .offload = MERAK_OFFLOAD_STATE};
    struct small_model model = large;
    struct merak_cost_model cost = *merak_cost_default();
    struct merak_program_options opt = {.cost = &cost};
    struct merak_timeline *timeline = NULL;
    struct merak_error err = {.text = ""};
    struct merak_planned *p;
    double exposed, copies;

    (void)state;
    model.dtype = MERAK_BF16;
    cost.host = (struct merak_host){1 << 30, 1e9, 0};
    p = planned_build(&model, &plan, &opt);
    assert_true(p->program[0]->category_bytes[MERAK_CAT_OPTIMIZER] <=
                2 * 3 * 4 * MERAK_OFFLOAD_PIECE);
    assert_int_equal(
        merak_simulate(p->program, 1, &cost, NULL, &timeline, &err), MERAK_OK);
    exposed = merak_offload_exposed(p->program, timeline);
    copies = merak_offload_bytes(p->program[0], 1) / 1e9;
    /* updates of 30 bytes an element at 10 times the link's rate run beside 24
     * bytes on it, but for the first piece's, which is not waited with */
    if (exposed > copies || exposed < 0.85 * copies)
        fail_msg("%.4f s of %.4f s are waited for", exposed, copies);
    merak_timeline_destroy(timeline);
    merak_planned_destroy(p);
}

static void no_host_is_refused(void **state)
{
    struct merak_plan plan = with(&rows[0], MERAK_OFFLOAD_STATE);
    struct merak_cost_model none = *merak_cost_default();
    struct merak_error err = {.text = ""};

    (void)state;
    assert_int_equal(merak_offload_check(&plan, &none, &err), MERAK_ERR_CONFIG);
    assert_string_equal(
        err.text, "--offload state needs \"host\" in the device file, and "
                  "device cpu has none: add its memory_bytes, bytes_per_s and "
                  "latency_s (merak calibrate measures an accelerator's), or "
                  "leave out --offload");
    plan.offload = MERAK_OFFLOAD_NONE;
    assert_int_equal(merak_offload_check(&plan, &none, &err), MERAK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_same),
        cmocka_unit_test(activations_come_back_as_they_were),
        cmocka_unit_test(some_blocks_run_again),
        cmocka_unit_test(one_micro_batch_is_away_at_a_time),
        cmocka_unit_test(pieces_change_no_bit),
        cmocka_unit_test(programs_are_sound_and_keep_state_away),
        cmocka_unit_test(two_pieces_are_here_and_the_link_is_busy),
        cmocka_unit_test(no_host_is_refused),
    };

    return cmocka_run_group_tests_name("offload", tests, NULL, NULL);
}
