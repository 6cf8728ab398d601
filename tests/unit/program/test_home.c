/* SPDX-License-Identifier: Apache-2.0 */
/* test_home.c - replicas that are summed over in two parts, and what these keep
 * of matrices: the same bits, less memory, few bytes between nodes
 */
#include "config.h"

#include "unit/parity.h"

#include "base/size.h"
#include "partitioner/program/memplan.h"
#include "partitioner/simulate/check_streams.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static const struct merak_plan rows[] = {
    {.tp = 1, .pp = 1, .dp = 4, .dp_in = 2, .schedule = "1f1b"},
    {.tp = 1, .pp = 1, .dp = 6, .dp_in = 3, .schedule = "gpipe"},
    {.tp = 1,
     .pp = 2,
     .dp = 4,
     .dp_in = 2,
     .schedule = "1f1b",
     .recompute = MERAK_RECOMPUTE_FULL},
    {.tp = 2,
     .pp = 1,
     .dp = 4,
     .dp_in = 2,
     .schedule = "1f1b",
     .sp = MERAK_SP_ON},
    {.tp = 2, .pp = 2, .dp = 4, .dp_in = 2, .schedule = "zb-h1"},
    {.tp = 1,
     .pp = 2,
     .dp = 4,
     .dp_in = 2,
     .schedule = "1f1b",
     .order_tp_pp_dp = true},
    {.tp = 2,
     .pp = 1,
     .dp = 4,
     .dp_in = 2,
     .schedule = "1f1b",
     .tp_batch_percent = 100,
     .sp = MERAK_SP_OFF},
    {.tp = 1, .pp = 2, .dp = 4, .dp_in = 2, .schedule = "interlaced"},
    {.tp = 2,
     .pp = 1,
     .dp = 4,
     .dp_in = 2,
     .schedule = "1f1b",
     .sub_pipeline = true},
};

static struct merak_plan with(const struct merak_plan *row, int zero,
                              enum merak_zero_home home, int m)
{
    struct merak_plan plan = *row;

    plan.zero = zero;
    plan.zero_home = home;
    plan.microbatches = m;
    return plan;
}

static struct small_model model_of(size_t row)
{
    struct small_model model = parity_gpt;

    model.layers = 4;
    model.untied = row % 2 == 0;
    model.shared_proj = row % 3 == 2 && model.untied;
    return model;
}

/* --- numbers -------------------------------------------------------------- */

/* One micro-batch is summed in the same order wherever the sums are kept. */
static void check_one(const struct small_model *model,
                      const struct merak_plan *row)
{
    struct merak_plan z1 = with(row, MERAK_ZERO_STATE, MERAK_HOME_ALL, 1);

    for (int zero = 0; zero <= MERAK_MAX_ZERO; zero++) {
        for (int in = 0; in <= (zero >= MERAK_ZERO_GRADS); in++) {
            struct merak_plan other =
                with(row, zero, in ? MERAK_HOME_IN : MERAK_HOME_ALL, 1);

            parity_plans(model, &z1, &other, true);
        }
    }
}

/* More are summed inside first, over micro-batches then, and in the end over
 * the others: near, and the same at both levels. */
static void check_more(const struct small_model *model,
                       const struct merak_plan *row)
{
    struct merak_plan z1 = with(row, MERAK_ZERO_STATE, MERAK_HOME_ALL, 4);
    struct merak_plan z2 = with(row, MERAK_ZERO_GRADS, MERAK_HOME_IN, 4);
    struct merak_plan z3 = with(row, MERAK_ZERO_PARAMS, MERAK_HOME_IN, 4);
    struct merak_plan all = with(row, MERAK_ZERO_PARAMS, MERAK_HOME_ALL, 4);
    struct merak_plan z2_all = with(row, MERAK_ZERO_GRADS, MERAK_HOME_ALL, 4);
    struct merak_plan some = z3, once = z3;

    some.fetch = 1;
    once.grad_sum = MERAK_SUM_STEP; /* inside a node only gathers are left */

    parity_plans(model, &z1, &z2, false);
    parity_plans(model, &z2, &z3, true);
    parity_plans(model, &z2, &some, true);
    parity_plans(model, &z1, &once, true);
    parity_plans(model, &z2_all, &all, true);
    parity_plans(model, &all, &z3, false);
}

static void homes_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct small_model model = model_of(i);

        if (!rows[i].sub_pipeline)
            check_one(&model, &rows[i]);
        check_more(&model, &rows[i]);
    }
}

/* All replicas at once, in two parts of which one is all, or in two. */
static void sums_in_two_parts_are_near(void **state)
{
    (void)state;
    for (int zero = 0; zero <= MERAK_MAX_ZERO; zero++) {
        struct merak_plan once = with(&rows[0], zero, MERAK_HOME_ALL, 2);
        struct merak_plan all = once, two = once;

        once.dp_in = 1;
        all.dp_in = all.dp;
        parity_plans(&parity_gpt, &once, &all, true);
        parity_plans(&parity_gpt, &once, &two, false);
    }
}

/* --- memory --------------------------------------------------------------- */

/* Replica r's part of elements that n share out, or its part of that. */
static size_t part_of(size_t elements, int r, int n)
{
    return elements * ((size_t)r + 1) / (size_t)n -
           elements * (size_t)r / (size_t)n;
}

static size_t kept(size_t elements, size_t bytes)
{
    return merak_size_align(elements * bytes, MERAK_ALIGN);
}

/* Of one use. */
static size_t kept_bytes(const struct merak_program *prog,
                         const struct merak_param_slots *p)
{
    const struct merak_plan *plan = &prog->plan;
    size_t n = merak_box_count(&prog->slot[p->param].box);
    size_t bytes = merak_dtype_bytes(prog->slot[p->param].dtype);
    int in = plan->dp_in, out = plan->dp / in;
    size_t inner = part_of(n, prog->dp_index % in, in);
    size_t state = part_of(inner, prog->dp_index / in, out);
    bool matrix = p->shape.ndim > 1;
    bool is_in = plan->zero_home == MERAK_HOME_IN;
    size_t sum = (bytes == 4 ? 2 : 3) * kept(state, 4);

    if (!matrix || !merak_plan_sums_each(plan)) /* the accumulator */
        sum += kept(n, 4);
    else
        sum += kept(state, 4) + (is_in ? kept(inner, 4) : 0);
    if (!matrix || plan->zero < MERAK_ZERO_PARAMS)
        return sum + kept(n, bytes);
    return sum + kept(is_in ? inner : state, bytes);
}

static void check_kept(const struct merak_planned *p)
{
    for (int r = 0; r < p->n_programs; r++) {
        const struct merak_program *prog = p->program[r];
        size_t sum = 0;

        for (int i = 0; i < prog->n_params; i++)
            sum += kept_bytes(prog, &prog->param[i]);
        if (sum != prog->persistent_bytes)
            fail_msg("zero %d, home %d, rank %d keeps %zu bytes, not %zu",
                     p->plan.zero, (int)p->plan.zero_home, r,
                     prog->persistent_bytes, sum);
    }
}

static void programs_are_sound_and_keep_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4 * COUNT(rows); i++) {
        const struct merak_plan *row = &rows[i / 4];

        /* the last: with sums of a step */
        for (int at = 0; at <= MERAK_MAX_ZERO + 1; at++) {
            int zero = at > MERAK_MAX_ZERO ? MERAK_ZERO_PARAMS : at;
            struct merak_plan plan = with(
                row, zero,
                i % 2 != 0 && zero > 1 ? MERAK_HOME_IN : MERAK_HOME_ALL, 4);
            struct small_model model = parity_gpt;
            struct merak_error err = {.text = ""};
            struct merak_planned *p;

            plan.grad_sum = at > zero ? MERAK_SUM_STEP : MERAK_SUM_MICRO;
            model.untied = true;
            model.dtype = i / 2 % 2 != 0 ? MERAK_BF16 : MERAK_F32;
            p = planned_build(&model, &plan, NULL);
            planned_assert_sound(p);
            if (merak_program_check_streams(p->program, p->n_programs, &err) !=
                MERAK_OK)
                fail_msg("%s: %s", row->schedule, err.text);
            /* tensor ranks share out, too; other stages read, too */
            if (zero > 0 && row->tp_batch_percent == 0 &&
                strcmp(row->schedule, "interlaced") != 0)
                check_kept(p);
            merak_planned_destroy(p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(homes_agree),
        cmocka_unit_test(sums_in_two_parts_are_near),
        cmocka_unit_test(programs_are_sound_and_keep_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
