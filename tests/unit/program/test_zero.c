/* SPDX-License-Identifier: Apache-2.0 */
/* test_zero.c - ZeRO-1's parts: of replicas, and of tensor ranks that hold a
 * parameter alike
 */
#include "config.h"

#include "unit/test_box.h"
#include "unit/execute.h"

#include "partitioner/graph/graph.h"
#include "partitioner/simulate/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define LARGE \
    16384 /* elements from which on it is worth it: zero_tensor_ranks.c */

struct row {
    const char *what;
    struct small_model model;
    int tp, pp, dp, batch;
    enum merak_seq_parallel sp;
    const char *alike; /* a parameter that is shared out, or NULL */
    bool partial;      /* its gradient comes in partial sums */
};

/* Weights of 4 hidden^2 elements are large, those of 3 and less are not. */
#define SMALL                                               \
    {                                                       \
        .layers = 2, .vocab = 509, .hidden = 64, .heads = 4 \
    }
#define GROUPED                                                              \
    {                                                                        \
        .layers = 2, .vocab = 509, .hidden = 128, .heads = 4, .kv_heads = 2, \
        .untied = true                                                       \
    }
/* Positions of 16 by 1024, which nothing cuts. */
#define WIDE                                                 \
    {                                                        \
        .layers = 0, .vocab = 13, .hidden = 1024, .heads = 4 \
    }

static const struct row rows[] = {
    {"layers by samples", SMALL, 2, 1, 2, 100, MERAK_SP_OFF, "h.0.fc.w", true},
    {"one replica", SMALL, 2, 1, 1, 100, MERAK_SP_OFF, "h.1.out.w", true},
    {"the latter half", SMALL, 2, 2, 2, 50, MERAK_SP_ON, "h.1.fc.w", true},
    {"four by three", SMALL, 4, 1, 3, 100, MERAK_SP_OFF, "h.0.out.w", true},
    {"two tensor axes", GROUPED, 4, 1, 2, 100, MERAK_SP_OFF, "h.1.fc.w", true},
    {"positions", WIDE, 2, 1, 2, 0, MERAK_SP_OFF, "wpe", false},
    {"weights cut alone", SMALL, 2, 1, 2, 0, MERAK_SP_ON, NULL, false},
};

static struct merak_planned *build(const struct row *row, int zero,
                                   enum merak_dtype dtype)
{
    const struct merak_program_options opt = {.dump_grads = true};
    struct small_model model = row->model;
    struct merak_plan plan = {.tp = row->tp,
                              .pp = row->pp,
                              .dp = row->dp,
                              .microbatches = 2,
                              .micro_batch = 4,
                              .schedule = "1f1b",
                              .zero = zero,
                              .sp = row->sp,
                              .tp_batch_percent = row->batch};
    struct merak_planned *p;
    struct merak_error err;

    model.dtype = dtype;
    p = planned_build(&model, &plan, &opt);
    if (merak_program_check(p->program, p->n_programs, &err) != MERAK_OK)
        fail_msg("%s: %s", row->what, err.text);
    return p;
}

/* --- who has what --------------------------------------------------------- */

static size_t slot_count(const struct merak_slot *s)
{
    return s->flat_hi - s->flat_lo;
}

/* Ranks of a stage that share a parameter's state out: replicas, and of a
 * large one tensor ranks that have as much of it each. */
static size_t holders(const struct merak_planned *p,
                      const struct merak_param_slots *param,
                      const struct merak_program *prog)
{
    size_t own = merak_box_count(&prog->slot[param->param].box);
    size_t all = merak_shape_count(&param->shape);
    size_t alike = ((size_t)p->plan.tp * own + all / 2) / all;

    return (size_t)p->plan.dp * (own < LARGE ? 1 : alike);
}

/* Does each rank keep its part of what several hold, rounded, and no more? */
static void assert_shares(const struct row *row, const struct merak_planned *p)
{
    bool found = row->alike == NULL;

    for (int r = 0; r < p->n_programs; r++) {
        const struct merak_program *prog = p->program[r];

        for (int i = 0; i < prog->n_params; i++) {
            const struct merak_param_slots *param = &prog->param[i];
            size_t all = merak_box_count(&prog->slot[param->param].box);
            size_t n = holders(p, param, prog);
            const int state[] = {param->master, param->m, param->v,
                                 param->grad};

            for (size_t k = 0; k < COUNT(state); k++) {
                size_t part = slot_count(&prog->slot[state[k]]);

                if (part + 1 < all / n || part > all / n + 2)
                    fail_msg("%s: rank %d has %zu of %zu elements of %s, which "
                             "%zu ranks hold",
                             row->what, r, part, all, param->name, n);
            }
            if (row->alike != NULL && strcmp(param->name, row->alike) == 0)
                found = n > (size_t)p->plan.dp;
        }
    }
    if (!found)
        fail_msg("%s: tensor ranks do not hold %s alike", row->what,
                 row->alike);
}

/* Is each element counted by one rank, for norms and checkpoints? */
static void assert_counted_once(const struct merak_planned *p)
{
    for (int v = 0; v < p->sharded->graph->n_values; v++) {
        const struct merak_value *value = p->sharded->graph->value[v];
        size_t n = merak_shape_count(&value->shape);
        unsigned char *seen;

        if (value->kind != MERAK_VALUE_PARAM)
            continue;
        seen = calloc(n, 1);
        assert_non_null(seen);
        for (int r = 0; r < p->n_programs; r++) {
            const struct merak_program *prog = p->program[r];

            for (int i = 0; i < prog->n_params; i++) {
                const struct merak_slot *s = &prog->slot[prog->param[i].m];

                if (prog->param[i].value != v || !prog->param[i].primary)
                    continue;
                for (size_t e = s->flat_lo; e < s->flat_hi; e++)
                    seen[box_place(&s->box, e)]++;
            }
        }
        for (size_t e = 0; e < n; e++)
            assert_int_equal(seen[e], 1);
        free(seen);
    }
}

static void all_that_hold_a_parameter_share_its_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int low = 0; low < 2; low++) {
            struct merak_planned *p =
                build(&rows[i], true, low ? MERAK_BF16 : MERAK_F32);
            struct merak_planned *whole =
                build(&rows[i], false, low ? MERAK_BF16 : MERAK_F32);

            assert_shares(&rows[i], p);
            assert_counted_once(p);
            assert_counted_once(whole);
            if (low)
                print_message(
                    "# %s: optimizer state %zu bytes, whole %zu\n",
                    rows[i].what,
                    p->program[0]->category_bytes[MERAK_CAT_OPTIMIZER],
                    whole->program[0]->category_bytes[MERAK_CAT_OPTIMIZER]);
            merak_planned_destroy(p);
            merak_planned_destroy(whole);
        }
    }
}

/* --- sums ----------------------------------------------------------------- */

/* Is some gradient of it partial along a tensor axis? */
static bool is_partial(const struct merak_planned *p, const char *name)
{
    const struct merak_graph *graph = p->sharded->graph;
    bool partial = false;

    for (int v = 0; v < graph->n_values; v++) {
        const struct merak_value *value = graph->value[v];

        if (value->kind != MERAK_VALUE_PARAM_GRAD ||
            strcmp(graph->value[value->of]->name, name) != 0)
            continue;
        for (int a = 0; a < merak_sharded_tensor_axes(p->sharded); a++)
            partial = partial ||
                      p->sharded->layout[v].at[a].kind == MERAK_PARTIAL_SUM;
    }
    return partial;
}

/* The sum of all replicas' gradients of a parameter, from those who count. */
static float *summed(const struct executed *ex, int value)
{
    const struct merak_planned *p = ex->planned;
    size_t n = merak_shape_count(&p->sharded->graph->value[value]->shape);
    float *sum = calloc(n, sizeof(*sum));

    assert_non_null(sum);
    for (int r = 0; r < p->n_programs; r++) {
        const struct merak_program *prog = p->program[r];

        for (int i = 0; i < prog->n_params; i++) {
            const struct merak_slot *s = &prog->slot[prog->param[i].grad];
            const float *data = (const float *)(ex->arena[r] + s->offset);

            if (prog->param[i].value != value || !prog->param[i].primary)
                continue;
            for (size_t e = s->flat_lo; e < s->flat_hi; e++)
                sum[box_place(&s->box, e)] = data[e - s->flat_lo];
        }
    }
    return sum;
}

/* A step with ZeRO-1 and one without, and what is left of their gradients. */
static void parts_are_summed_as_a_whole_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct executed *parts =
            executed_create(build(&rows[i], true, MERAK_F32));
        struct executed *whole =
            executed_create(build(&rows[i], false, MERAK_F32));
        const struct merak_graph *graph = whole->planned->sharded->graph;

        if (rows[i].alike != NULL)
            assert_int_equal(is_partial(parts->planned, rows[i].alike),
                             rows[i].partial);
        executed_step(parts, i);
        executed_step(whole, i + 1);
        for (int v = 0; v < graph->n_values; v++) {
            size_t n = merak_shape_count(&graph->value[v]->shape);
            float *got, *want;

            if (graph->value[v]->kind != MERAK_VALUE_PARAM)
                continue;
            got = summed(parts, v);
            want = summed(whole, v);
            if (memcmp(got, want, n * sizeof(*got)) != 0)
                fail_msg("%s: gradients of %s differ", rows[i].what,
                         graph->value[v]->name);
            free(got);
            free(want);
        }
        executed_destroy(parts);
        executed_destroy(whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_hold_a_parameter_share_its_state),
        cmocka_unit_test(parts_are_summed_as_a_whole_is),
    };

    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}
