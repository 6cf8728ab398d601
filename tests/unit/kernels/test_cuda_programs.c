/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_programs.c - whole programs run by the bodies of the CUDA kernels
 *
 * They train as the reference does; and logits whose rows are padded for matrix
 * products, as on GPUs, change no bit.
 */
#include "config.h"

#include "unit/all_rows.h"
#include "unit/kernels/cuda_case.h"
#include "unit/execute.h"
#include "unit/near.h"
#include "unit/parity.h"
#include "unit/test_box.h"

#include "base/rng.h"
#include "partitioner/graph/padding.h"
#include "partitioner/simulate/check.h"

#include <string.h>

#define STEPS 2

static int seen;

static void compare(const struct kc *c)
{
    seen += kc_check_padding(&cuda_suite, c);
}

static void kernels_skip_padding(void **state)
{
    (void)state;
    for (int size = 0; size < KC_SIZES; size++) {
        seen = 0;
        kc_visit_all(size, MERAK_F32, compare);
        kc_visit_all(size, MERAK_BF16, compare);
        /* linear, its two gradients, maximum, sum; both logits of dlogits */
        assert_true(seen >= 2 * 7);
    }
}

/* Odd vocabularies on odd numbers of ranks, at once and in slices. */
static const struct row {
    int tp, pp, dp;
    size_t vocab, micro_batch;
    const char *schedule;
    bool untied;
    int padded; /* slots of a rank with logits, at least */
    bool night; /* takes long, and others stand for it */
} rows[] = {
    {1, 1, 1, 61, 2, "1f1b", false, 1, false},
    {2, 1, 1, 61, 2, "1f1b", false, 1, true},
    {3, 1, 1, 61, 2, "1f1b", true, 1, false},
    {1, 2, 2, 61, 2, "1f1b", false, 1, true},
    {1, 2, 1, 61, 1, "sliced:4", true, 1, false},
    {1, 1, 1, 64, 2, "1f1b", false, 0, false},
    {2, 1, 1, 64, 2, "1f1b", true, 0, true},
};

static struct merak_planned *build(const struct row *row, size_t row_bytes)
{
    const struct small_model model = {.layers = 2,
                                      .vocab = row->vocab,
                                      .hidden = 24,
                                      .heads = 6,
                                      .untied = row->untied,
                                      .dtype = MERAK_BF16};
    const struct merak_program_options opt = {
        .memory = {.row_bytes = row_bytes}};
    struct merak_plan plan =
        planned_plan(row->tp, row->pp, row->dp, 2, row->schedule, false);

    plan.micro_batch = row->micro_batch;
    return planned_build(&model, &plan, &opt);
}

static int count_padded(const struct merak_program *prog, size_t *bytes_p)
{
    int n = 0;

    for (int s = 0; s < prog->n_slots; s++) {
        const struct merak_slot *slot = &prog->slot[s];

        if (slot->ld == 0)
            continue;
        n++;
        *bytes_p += slot->bytes;
        assert_int_equal(slot->ld % 8, 0);
        assert_true(slot->ld > slot->box.len[slot->box.ndim - 1]);
        assert_true(strstr(slot->name, "linear") != NULL ||
                    strstr(slot->name, "xent") != NULL);
        assert_int_equal(slot->offset % 64, 0);
    }
    return n;
}

/* Parameters in f32, and the copies that kernels read: executed_create() is for
 * models in f32. */
static void fill_params(const struct executed *ex, int r)
{
    const struct merak_program *prog = ex->planned->program[r];

    memset(ex->arena[r], 0, prog->arena_bytes);
    for (int i = 0; i < prog->n_params; i++) {
        const struct merak_param_slots *p = &prog->param[i];
        const struct merak_slot *low = &prog->slot[p->home];
        const struct merak_slot *master = &prog->slot[p->master];
        uint16_t *to = (uint16_t *)(ex->arena[r] + low->offset);
        float *from = (float *)(ex->arena[r] + master->offset);
        uint64_t key = merak_rng_key(7, p->name);

        for (size_t k = 0; k < merak_box_count(&master->box); k++) {
            from[k] =
                p->init.kind == MERAK_INIT_ONES
                    ? 1
                    : 0.2f * merak_rng_normal(key, box_place(&low->box, k));
            if (low != master)
                to[k] = merak_f32_to_bf16(from[k]);
        }
    }
}

static void use_bodies(struct executed *ex)
{
    ex->backend = &cuda_host;
    ex->device = (void *)(uintptr_t)&cuda_context;
}

/* Models and layouts that reach every kind of kernel. */
static const struct {
    struct small_model model;
    int tp, pp, dp;
    const char *schedule;
    int zero;
    bool recompute;
} runs[] = {
    {.model = {.layers = 2, .vocab = 61, .hidden = 24, .heads = 6},
     .tp = 1,
     .pp = 1,
     .dp = 1,
     .schedule = "1f1b"},
    {.model =
         {.layers = 2, .vocab = 61, .hidden = 32, .heads = 4, .dropout = 0.1f},
     .tp = 2,
     .pp = 2,
     .dp = 1,
     .schedule = "1f1b",
     .recompute = true},
    {.model = {.layers = 2,
               .vocab = 61,
               .hidden = 32,
               .heads = 4,
               .kv_heads = 2,
               .untied = true},
     .tp = 2,
     .pp = 1,
     .dp = 2,
     .schedule = "1f1b",
     .zero = 1},
    {.model =
         {.layers = 4, .vocab = 64, .hidden = 24, .heads = 6, .dropout = 0.2f},
     .tp = 1,
     .pp = 2,
     .dp = 1,
     .schedule = "zb-h1"},
};

/* Losses, norms and weights.  AdamW moves an element by about lr whatever its
 * gradient's size, so a gradient of next to nothing may go either way. */
static void bodies_train_as_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
        struct merak_plan plan =
            planned_plan(runs[i].tp, runs[i].pp, runs[i].dp, 2,
                         runs[i].schedule, runs[i].zero);
        struct executed *want, *got;

        plan.recompute = runs[i].recompute;
        want = executed_create(planned_build(&runs[i].model, &plan, NULL));
        got = executed_create(planned_build(&runs[i].model, &plan, NULL));
        use_bodies(got);
        for (int k = 0; k < 4; k++) {
            double w, g;
            float wn, gn;

            executed_step(want, 11 + (uint64_t)k);
            executed_step(got, 12 + (uint64_t)k);
            w = executed_loss(want), g = executed_loss(got);
            wn = executed_norm(want, 0), gn = executed_norm(got, 0);
            if (!(fabs(g - w) <= 1e-5 * w && fabsf(gn - wn) <= 1e-4f * wn))
                fail_msg("run %zu step %d: loss %.9g, norm %.7g; reference "
                         "%.9g, %.7g",
                         i, k, g, (double)gn, w, (double)wn);
        }
        parity_params(want, got, 2e-3);
        executed_destroy(want);
        executed_destroy(got);
    }
}

static void train(struct merak_planned *planned, double *loss)
{
    struct executed *ex = executed_create(planned);

    for (int r = 0; r < planned->n_programs; r++)
        fill_params(ex, r);
    use_bodies(ex);
    for (int k = 0; k < STEPS; k++) {
        ex->step.step = (uint64_t)k;
        executed_step(ex, 3 + (uint64_t)k);
        loss[k] = executed_loss(ex);
    }
    executed_destroy(ex);
}

static void training_has_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_planned *dense, *padded;
        double want[STEPS], got[STEPS];
        size_t bytes = 0;
        int n = 0;

        if (rows[i].night && !test_all_rows())
            continue;
        dense = build(&rows[i], 0);
        padded = build(&rows[i], 16);
        for (int r = 0; r < dense->n_programs; r++) {
            assert_int_equal(count_padded(dense->program[r], &bytes), 0);
            n += count_padded(padded->program[r], &bytes);
        }
        assert_true(n >= rows[i].padded * rows[i].tp * rows[i].dp);
        assert_true(rows[i].padded > 0 || n == 0);
        planned_assert_sound(padded);
        train(dense, want);
        train(padded, got);
        for (int k = 0; k < STEPS; k++) {
            if (!(isfinite(want[k]) && want[k] > 1))
                fail_msg("row %zu step %d: loss %g", i, k, want[k]);
            assert_true(got[k] == want[k]);
        }
    }
}

/* Where the kernel cannot, the checker says so. */
static void other_ops_are_refused(void **state)
{
    struct merak_planned *planned = build(&rows[0], 16);
    struct merak_program *prog = planned->program[0];
    struct merak_error err;

    (void)state;
    for (int i = 0; i < prog->n_instrs; i++) {
        struct merak_slot *slot = &prog->slot[prog->instr[i].slot[0]];

        if (prog->instr[i].kind != MERAK_INSTR_KERNEL ||
            strcmp(prog->instr[i].op->name, "layer_norm") != 0)
            continue;
        slot->ld = slot->box.len[slot->box.ndim - 1];
        assert_int_equal(
            merak_program_check(planned->program, planned->n_programs, &err),
            MERAK_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "padded rows"));
        slot->ld = 0;
        break;
    }
    assert_int_equal(
        merak_program_check(planned->program, planned->n_programs, &err),
        MERAK_OK);
    merak_planned_destroy(planned);
}

static void odd_rows_get_the_next_multiple(void **state)
{
    const struct merak_shape odd = {2, {4, 50257}}, even = {2, {4, 50304}};
    const struct merak_shape vector = {1, {50257}};

    (void)state;
    assert_int_equal(merak_padded_ld(odd.ndim, odd.dim, MERAK_BF16, 16), 50264);
    assert_int_equal(merak_padded_ld(even.ndim, even.dim, MERAK_BF16, 16), 0);
    assert_int_equal(merak_padded_ld(odd.ndim, odd.dim, MERAK_F32, 16), 0);
    assert_int_equal(merak_padded_ld(odd.ndim, odd.dim, MERAK_BF16, 0), 0);
    assert_int_equal(merak_padded_ld(vector.ndim, vector.dim, MERAK_BF16, 16),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_rows_get_the_next_multiple),
        cmocka_unit_test(bodies_train_as_the_reference),
        cmocka_unit_test(kernels_skip_padding),
        cmocka_unit_test(training_has_the_same_bits),
        cmocka_unit_test(other_ops_are_refused),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("cuda_programs", tests, NULL, NULL);
}
