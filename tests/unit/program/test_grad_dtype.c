/* SPDX-License-Identifier: Apache-2.0 */
/* test_grad_dtype.c - gradients that are kept and summed in bf16
 *
 * The same bits where those in f32 have the same, and no further from them than
 * their rounding; half the memory, and half the words.
 */
#include "config.h"

#include "unit/parity.h"

#include <stdio.h>
#include <string.h>

static const struct small_model model = {
    .layers = 3, .vocab = 13, .hidden = 8, .heads = 4, .dtype = MERAK_BF16};

static struct merak_plan narrow_plan(const struct parity_variant *v)
{
    struct merak_plan plan = parity_plan(v);

    plan.grad_dtype = MERAK_BF16;
    return plan;
}

static void pipelines_and_schedules_change_no_bit(void **state)
{
    static const struct parity_variant rows[] = {
        {1, 2, 1, "1f1b", 0, MERAK_SP_OFF},
        {1, 3, 1, "gpipe", 0, MERAK_SP_OFF},
        {1, 3, 1, "zb-h1", 0, MERAK_SP_OFF},
        {1, 2, 2, "1f1b", 1, MERAK_SP_OFF},
        {1, 2, 2, "1f1b", 2, MERAK_SP_OFF},
        {1, 3, 2, "1f1b", 3, MERAK_SP_OFF},
        {2, 2, 1, "1f1b", 0, MERAK_SP_ON},
        {2, 2, 2, "1f1b", 1, MERAK_SP_ON},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct parity_variant one = rows[i];
        struct merak_plan a, b = narrow_plan(&rows[i]), again;

        one.pp = 1;
        one.schedule = "gpipe";
        a = narrow_plan(&one);
        parity_plans(&model, &a, &b, true);
        again = b;
        again.recompute = MERAK_RECOMPUTE_FULL;
        parity_plans(&model, &b, &again, true);
    }
}

/* A table that two stages use has a sum of its own for each, in order. */
static void tied_weights_change_no_bit(void **state)
{
    const struct parity_variant one = {1, 1, 1, "gpipe", 0, MERAK_SP_OFF};
    const struct parity_variant four = {1, 4, 1, "1f1b", 0, MERAK_SP_OFF};
    struct merak_plan a = narrow_plan(&one), b = narrow_plan(&four);
    struct small_model tied = model;

    (void)state;
    tied.shared_proj = true;
    parity_plans(&tied, &a, &b, true);
}

/* Halves of micro-batches, state in the host's memory, and experts. */
static void other_choices_change_no_bit(void **state)
{
    static const struct {
        struct parity_variant v;
        bool halves;
        enum merak_offload offload;
        size_t experts;
    } rows[] = {
        {{2, 2, 1, "1f1b", 0, MERAK_SP_ON}, true, MERAK_OFFLOAD_NONE, 0},
        {{2, 1, 2, "gpipe", 2, MERAK_SP_OFF}, true, MERAK_OFFLOAD_NONE, 0},
        {{1, 2, 2, "1f1b", 1, MERAK_SP_OFF}, false, MERAK_OFFLOAD_STATE, 0},
        {{1, 3, 1, "1f1b", 0, MERAK_SP_OFF}, false, MERAK_OFFLOAD_NONE, 4},
        {{2, 2, 2, "1f1b", 3, MERAK_SP_OFF}, false, MERAK_OFFLOAD_NONE, 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan b = narrow_plan(&rows[i].v), a;
        struct small_model with = model;

        with.experts = rows[i].experts;
        with.chosen = rows[i].experts / 2;
        b.microbatches = 8;
        a = b;
        a.pp = 1;
        snprintf(a.schedule, sizeof(a.schedule), "gpipe");
        b.sub_pipeline = rows[i].halves;
        b.offload = rows[i].offload;
        parity_plans(&with, &a, &b, true);
    }
}

/* Each of m micro-batches' sums and that over replicas is rounded to 8 bits:
 * relative errors of 2^-9 of the sum so far at most. */
static void sums_are_as_far_as_their_roundings(void **state)
{
    static const struct parity_variant rows[] = {
        {1, 1, 1, "gpipe", 0, MERAK_SP_OFF},
        {1, 1, 2, "gpipe", 0, MERAK_SP_OFF},
        {2, 1, 2, "gpipe", 1, MERAK_SP_OFF},
        {1, 2, 4, "1f1b", 2, MERAK_SP_OFF},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_plan wide = parity_plan(&rows[i]);
        struct merak_plan narrow = narrow_plan(&rows[i]);
        double a[PARITY_STEPS], b[PARITY_STEPS];
        struct executed *x = parity_trained(&model, &wide, a);
        struct executed *y = parity_trained(&model, &narrow, b);

        assert_near(&b[0], &a[0], 1, 0, 0); /* before any gradient */
        assert_near(&b[1], &a[1], 1, 2e-3, 0);
        assert_true(memcmp(&a[1], &b[1], sizeof(a[1])) != 0);
        executed_destroy(x);
        executed_destroy(y);
    }
}

/* A table that two stages have: its gradients cross from two replicas to two
 * tensor ranks, and the sums back. */
static void stages_of_unlike_ranks_agree_with_one_rank(void **state)
{
    static const struct merak_stage_degrees stage[] = {{2, 1}, {1, 2}};
    const struct parity_variant v = {1, 1, 1, "1f1b", 1, MERAK_SP_OFF};
    struct merak_plan one = narrow_plan(&v), two;
    struct small_model tied = model;
    double a[PARITY_STEPS], b[PARITY_STEPS];
    struct executed *x, *y;
    struct merak_error err = {0};
    float norms[2];

    (void)state;
    tied.shared_proj = true;
    one.micro_batch = 2;
    two = one;
    assert_int_equal(merak_plan_set_stages(&two, stage, 2, &err), MERAK_OK);
    x = parity_trained(&tied, &one, a);
    y = parity_trained(&tied, &two, b);
    planned_assert_sound(y->planned);
    norms[0] = executed_norm(x, 0);
    norms[1] = executed_norm(y, 0);
    assert_near(b, a, PARITY_STEPS, 2e-3, 0);
    assert_near(&norms[1], &norms[0], 1, 2e-2, 0);
    executed_destroy(x);
    executed_destroy(y);
}

static size_t bytes_of(const struct merak_program *prog,
                       enum merak_category category, enum merak_dtype dtype)
{
    size_t bytes = 0;

    for (int s = 0; s < prog->n_slots; s++)
        if (prog->slot[s].whole == s && prog->slot[s].category == category &&
            prog->slot[s].dtype == dtype)
            bytes += (prog->slot[s].flat_hi - prog->slot[s].flat_lo) *
                     merak_dtype_bytes(dtype);
    return bytes;
}

static double words_over_dp(const struct merak_program *prog)
{
    double bytes = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_EXCHANGE && in->n_in > 0 &&
            prog->slot[in->slot[0]].category == MERAK_CAT_GRAD)
            bytes += (double)in->bytes;
    }
    return bytes;
}

/* Gradients of matrices take half of what they took, those of vectors as much;
 * so do their exchanges. */
static void halves_memory_and_words(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 3; zero++) {
        const struct parity_variant v = {2, 1, 2, "1f1b", zero, MERAK_SP_OFF};
        struct merak_plan wide = parity_plan(&v), narrow = narrow_plan(&v);
        struct merak_planned *a = planned_build(&model, &wide, NULL);
        struct merak_planned *b = planned_build(&model, &narrow, NULL);
        const struct merak_program *x = a->program[0], *y = b->program[0];
        size_t vectors = bytes_of(y, MERAK_CAT_GRAD, MERAK_F32);
        size_t was = bytes_of(x, MERAK_CAT_GRAD, MERAK_F32);

        assert_true(vectors < was);
        assert_int_equal(2 * bytes_of(y, MERAK_CAT_GRAD, MERAK_BF16),
                         was - vectors);
        assert_true(words_over_dp(y) < 0.75 * words_over_dp(x));
        planned_assert_sound(b);
        merak_planned_destroy(a);
        merak_planned_destroy(b);
    }
}

static void is_of_models_in_bf16(void **state)
{
    const struct parity_variant v = {1, 1, 1, "1f1b", 0, MERAK_SP_OFF};
    struct merak_plan plan = narrow_plan(&v);
    struct small_model wide = model;
    struct merak_error err = {0};

    (void)state;
    wide.dtype = MERAK_F32;
    assert_int_not_equal(planned_try(&wide, &plan, &err), MERAK_OK);
    assert_non_null(strstr(err.text, "gradients of fp32 weights are fp32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_and_schedules_change_no_bit),
        cmocka_unit_test(tied_weights_change_no_bit),
        cmocka_unit_test(other_choices_change_no_bit),
        cmocka_unit_test(sums_are_as_far_as_their_roundings),
        cmocka_unit_test(stages_of_unlike_ranks_agree_with_one_rank),
        cmocka_unit_test(halves_memory_and_words),
        cmocka_unit_test(is_of_models_in_bf16),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
