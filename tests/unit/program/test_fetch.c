/* SPDX-License-Identifier: Apache-2.0 */
/* test_fetch.c - ZeRO-2 and ZeRO-3: matrices that are whole only while they are
 * used: the same bits, less memory
 */
#include "config.h"

#include "unit/parity.h"

#include "base/size.h"
#include "partitioner/program/memplan.h"
#include "partitioner/simulate/check_streams.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static const struct merak_plan rows[] = {
    {.tp = 1, .pp = 1, .dp = 2, .schedule = "1f1b"},
    {.tp = 1, .pp = 1, .dp = 3, .schedule = "gpipe"},
    {.tp = 1, .pp = 2, .dp = 2, .schedule = "1f1b"},
    {.tp = 2, .pp = 1, .dp = 2, .schedule = "1f1b"},
    {.tp = 2, .pp = 2, .dp = 2, .schedule = "1f1b", .sp = MERAK_SP_ON},
    {.tp = 2, .pp = 2, .dp = 2, .schedule = "zb-h1"},
    {.tp = 1, .pp = 2, .dp = 2, .schedule = "sliced"},
    {.tp = 2,
     .pp = 1,
     .dp = 2,
     .schedule = "1f1b",
     .tp_batch_percent = 100,
     .sp = MERAK_SP_OFF},
    {.tp = 1,
     .pp = 1,
     .dp = 2,
     .schedule = "1f1b",
     .recompute = MERAK_RECOMPUTE_FULL},
    {.tp = 2,
     .pp = 2,
     .dp = 2,
     .schedule = "1f1b",
     .sp = MERAK_SP_ON,
     .recompute = MERAK_RECOMPUTE_SELECTIVE},
    {.tp = 1,
     .pp = 2,
     .dp = 2,
     .chunks = 2,
     .schedule = "interleaved",
     .recompute = MERAK_RECOMPUTE_FULL},
    {.tp = 1, .pp = 2, .dp = 2, .chunks = 3, .schedule = "interlaced"},
    {.tp = 2, .pp = 1, .dp = 2, .schedule = "1f1b", .sub_pipeline = true},
    {.tp = 2,
     .pp = 2,
     .dp = 2,
     .schedule = "1f1b",
     .sub_pipeline = true,
     .recompute = MERAK_RECOMPUTE_FULL},
    {.tp = 2,
     .pp = 1,
     .dp = 2,
     .schedule = "1f1b",
     .sub_pipeline = true,
     .tp_batch_percent = 100,
     .sp = MERAK_SP_OFF},
};

static struct merak_plan with(const struct merak_plan *row, int zero, int m)
{
    struct merak_plan plan = *row;

    plan.zero = zero;
    plan.microbatches = m;
    return plan;
}

static const struct small_model *model_of(size_t row, bool untied)
{
    static struct small_model model;

    model = parity_gpt;
    model.layers = 4;
    model.untied = untied;
    model.shared_proj = row % 3 == 2 && untied;
    return &model;
}

/* --- numbers -------------------------------------------------------------- */

/* One micro-batch is summed over ranks as with ZeRO-1.  More are summed over
 * ranks one by one, so they are near, and the same at both levels and however
 * many blocks are fetched; or once, as with ZeRO-1. */
static void levels_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int untied = 0; untied < 2; untied++) {
            const struct small_model *model = model_of(i, untied != 0);

            for (int m = 1; m < 5; m += 3) {
                struct merak_plan z1 = with(&rows[i], MERAK_ZERO_STATE, m);
                struct merak_plan z2 = with(&rows[i], MERAK_ZERO_GRADS, m);
                struct merak_plan z3 = with(&rows[i], MERAK_ZERO_PARAMS, m);
                struct merak_plan some = z3, whole = z3, once;

                /* these take micro-batches in twos */
                if (m % 2 != 0 &&
                    (rows[i].sub_pipeline ||
                     strcmp(rows[i].schedule, "interleaved") == 0))
                    continue;
                whole.sub_pipeline = false;
                if (rows[i].sub_pipeline)
                    parity_plans(model, &whole, &z3, true);
                parity_plans(model, &z1, &z2, m == 1);
                parity_plans(model, &z2, &z3, true);
                some.fetch = 1 + (int)i % 2;
                parity_plans(model, &z2, &some, true);
                once = i % 2 == 0 ? z3 : some;
                once.grad_sum = MERAK_SUM_STEP;
                parity_plans(model, &z1, &once, true);
            }
        }
    }
}

/* --- memory --------------------------------------------------------------- */

/* Is it read by layers that all stages run?  Those have nothing to fetch. */
static bool is_shared(const struct merak_program *prog, int value)
{
    const struct merak_sharded *sharded = prog->sharded;

    for (int n = 0; n < sharded->graph->n_nodes && sharded->n_shared > 0; n++) {
        const struct merak_node *node = sharded->graph->node[n];

        for (int k = 0; k < node->n_in && sharded->shared[n] > 0; k++) {
            if (node->in[k]->id == value)
                return true;
        }
    }
    return false;
}

static bool is_matrix(const struct merak_program *prog,
                      const struct merak_param_slots *p)
{
    return p->shape.ndim > 1 && !is_shared(prog, p->value);
}

/* A slot's bytes, of which replica r of n has its part. */
static size_t part_bytes(size_t elements, size_t bytes, int r, int n)
{
    size_t to = elements * ((size_t)r + 1) / (size_t)n;

    return merak_size_align((to - elements * (size_t)r / (size_t)n) * bytes,
                            MERAK_ALIGN);
}

/* Of one use each. */
static size_t kept_bytes(const struct merak_program *prog,
                         const struct merak_param_slots *p, int zero)
{
    size_t n = merak_box_count(&prog->slot[p->param].box);
    size_t bytes = merak_dtype_bytes(prog->slot[p->param].dtype);
    size_t flat = part_bytes(n, 4, prog->dp_index, prog->plan.dp);
    int states = bytes == 4 ? 2 : 3; /* moments; a master copy */
    size_t sum = (size_t)states * flat;

    /* a part of the sum, or the accumulator that has it */
    sum += merak_plan_sums_each(&prog->plan) && is_matrix(prog, p)
               ? flat
               : part_bytes(n, 4, 0, 1);
    return sum + (zero >= MERAK_ZERO_PARAMS && is_matrix(prog, p) &&
                          (prog->plan.fetch == 0 || p->home != p->param)
                      ? part_bytes(n, bytes, prog->dp_index, prog->plan.dp)
                      : part_bytes(n, bytes, 0, 1));
}

static void check_kept(const struct merak_planned *p, const char *what)
{
    for (int r = 0; r < p->n_programs; r++) {
        const struct merak_program *prog = p->program[r];
        size_t sum = 0;

        for (int i = 0; i < prog->n_params; i++)
            sum += kept_bytes(prog, &prog->param[i], p->plan.zero);
        if (sum != prog->persistent_bytes)
            fail_msg("%s, zero %d, rank %d keeps %zu bytes, not %zu", what,
                     p->plan.zero, r, prog->persistent_bytes, sum);
        if (prog->plan.fetch > 0)
            assert_in_range(prog->fetched_blocks, 1,
                            prog->plan.fetch * merak_plan_chunks(&prog->plan));
        else
            assert_int_equal(prog->category_bytes[MERAK_CAT_FETCHED] > 0,
                             p->plan.zero >= MERAK_ZERO_PARAMS);
    }
}

static void programs_are_sound_and_keep_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        /* the last: ZeRO-3 of the first two blocks, and with sums of a step */
        for (int at = MERAK_ZERO_STATE; at <= MERAK_MAX_ZERO + 2; at++) {
            int zero = at > MERAK_MAX_ZERO ? MERAK_ZERO_PARAMS : at;

            for (int low = 0; low < 2; low++) {
                struct merak_plan plan = with(&rows[i], zero, 4);
                struct small_model model = *model_of(1, true);
                struct merak_error err = {.text = ""};
                struct merak_planned *p;

                plan.fetch = at == MERAK_MAX_ZERO + 1 ? 2 : 0;
                plan.grad_sum =
                    at > MERAK_MAX_ZERO + 1 ? MERAK_SUM_STEP : MERAK_SUM_MICRO;
                model.dtype = low ? MERAK_BF16 : MERAK_F32;
                p = planned_build(&model, &plan, NULL);
                planned_assert_sound(p);
                /* at no level do pairs of several stages go from device to
                 * device */
                if (!(plan.sub_pipeline && plan.pp > 1) &&
                    merak_program_check_streams(p->program, p->n_programs,
                                                &err) != MERAK_OK)
                    fail_msg("%s: %s", rows[i].schedule, err.text);
                if (rows[i].tp_batch_percent == 0) /* or tensor ranks, too */
                    check_kept(p, rows[i].schedule);
                merak_planned_destroy(p);
            }
        }
    }
}

/* --- sequences over ranks ------------------------------------------------- */

static const struct small_model wide = {.layers = 2,
                                        .vocab = 13,
                                        .hidden = 128,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .untied = true};

/* Ranks of a sequence, or tensor ranks of samples, share weights out like
 * replicas, also where there are none: of what is 2^14 elements and more each
 * has 1 / (shared dp), of parameter, gradient and state; of other matrices
 * 1 / dp. */
static int check_parts(const struct merak_program *prog, size_t shared)
{
    int large = 0;

    for (int i = 0; i < prog->n_params; i++) {
        const struct merak_param_slots *p = &prog->param[i];
        const struct merak_slot *home = &prog->slot[p->home];
        const struct merak_slot *grad = &prog->slot[p->grad];
        size_t n = merak_box_count(&home->box);
        size_t ranks = (n >= 1 << 14 ? shared : 1) * (size_t)prog->plan.dp;
        bool whole = prog->plan.zero < MERAK_ZERO_PARAMS || ranks == 1;

        if (p->shape.ndim < 2)
            continue;
        large += n >= 1 << 14;
        assert_int_equal(p->home != p->param, !whole);
        assert_int_equal(home->flat_hi - home->flat_lo, whole ? n : n / ranks);
        assert_int_equal(grad->flat_hi - grad->flat_lo, n / ranks);
        assert_int_equal(prog->slot[grad->whole].flat_hi -
                             prog->slot[grad->whole].flat_lo,
                         n / ranks);
    }
    return large;
}

static void check_shares(const struct merak_plan *plan, size_t shared)
{
    struct merak_planned *p = planned_build(&wide, plan, NULL);
    struct merak_error err = {.text = ""};
    int large = 0;

    planned_assert_sound(p);
    assert_int_equal(
        merak_program_check_streams(p->program, p->n_programs, &err), MERAK_OK);
    for (int r = 0; r < p->n_programs; r++)
        large += check_parts(p->program[r], shared);
    assert_true(large > 0);
    merak_planned_destroy(p);
}

static void ranks_without_replicas_share_parameters_out(void **state)
{
    static const struct merak_plan by[] = {
        {.tp = 1, .pp = 1, .dp = 2, .cp = 2, .schedule = "1f1b"},
        {.tp = 1, .pp = 1, .dp = 1, .cp = 2, .schedule = "1f1b"},
        {.tp = 1, .pp = 2, .dp = 1, .cp = 2, .schedule = "zb-h1"},
        {.tp = 1,
         .pp = 1,
         .dp = 1,
         .cp = 4,
         .cp_form = MERAK_CP_HEADS,
         .recompute = MERAK_RECOMPUTE_FULL,
         .schedule = "1f1b"},
        {.tp = 2,
         .pp = 1,
         .dp = 1,
         .tp_batch_percent = 100,
         .sp = MERAK_SP_OFF,
         .schedule = "1f1b"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(by); i++) {
        for (int m = 1; m < 3; m++) {
            struct merak_plan z1 = with(&by[i], MERAK_ZERO_STATE, m);
            struct merak_plan z2 = with(&by[i], MERAK_ZERO_GRADS, m);
            struct merak_plan z3 = with(&by[i], MERAK_ZERO_PARAMS, m);
            struct merak_plan once = z3;

            z1.micro_batch = z2.micro_batch = z3.micro_batch = 4;
            once.micro_batch = 4;
            once.grad_sum = MERAK_SUM_STEP;
            parity_plans(&wide, &z1, &z2, m == 1);
            parity_plans(&wide, &z2, &z3, true);
            parity_plans(&wide, &z1, &once, true);
            check_shares(&z2, by[i].cp > 0 ? (size_t)by[i].cp : 2);
            check_shares(&z3, by[i].cp > 0 ? (size_t)by[i].cp : 2);
        }
    }
}

/* --- refusals ------------------------------------------------------------- */

static const struct {
    struct merak_plan plan;
    const char *says;
} refused[] = {
    {{.tp = 2, .pp = 1, .dp = 1, .zero = 3, .schedule = "1f1b"},
     "--zero 3 needs ranks with the same weights, which share them out: dp or "
     "cp 2 or more; use --zero 1"},
    {{.tp = 1,
      .pp = 1,
      .dp = 2,
      .zero = 2,
      .grad_sum = MERAK_SUM_STEP,
      .schedule = "1f1b"},
     "--grad-sum step needs --zero 3, not 2; give that, or leave out"},
    {{.tp = 1, .pp = 1, .dp = 2, .zero = 2, .fetch = 1, .schedule = "1f1b"},
     "--fetch 1 needs --zero 3, not 2"},
    {{.tp = 1, .pp = 1, .dp = 2, .zero = 3, .fetch = 14, .schedule = "1f1b"},
     "--fetch 14: part 0 has 13 blocks; give 1 to 13, or all"},
    {{.tp = 1, .pp = 2, .dp = 2, .zero = 3, .fetch = 8, .schedule = "1f1b"},
     "--fetch 8: part 1 has 7 blocks, and none has more; give 1 to 7, or all"},
};

static void what_is_not_possible_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refused); i++) {
        struct merak_plan plan =
            with(&refused[i].plan, refused[i].plan.zero, 4);
        struct merak_error err = {.text = ""};

        assert_int_equal(planned_try(model_of(0, true), &plan, &err),
                         MERAK_ERR_CONFIG);
        if (strstr(err.text, refused[i].says) == NULL)
            fail_msg("row %zu says \"%s\"", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(programs_are_sound_and_keep_parts),
        cmocka_unit_test(ranks_without_replicas_share_parameters_out),
        cmocka_unit_test(what_is_not_possible_is_refused),
    };

    return cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
}
