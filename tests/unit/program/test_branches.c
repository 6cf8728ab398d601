/* SPDX-License-Identifier: Apache-2.0 */
/* test_branches.c - programs of models that are no chains never hang
 *
 * Random models, of several embeddings and layers that read what was made long
 * before, under every schedule on several numbers of stages, chunks and
 * micro-batches: the programs of all ranks are proved together, training and
 * evaluation.  With receives one action ahead of their readers alone, one in
 * eight of interleaved schedules stood still, and one in fourteen of zb-v and
 * interlaced.
 */
#include "config.h"

#include "unit/near.h"

#include "base/rng.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/search/search.h"
#include "partitioner/simulate/check.h"

#include <stdio.h>
#include <string.h>

#define WIDE 16
#define MAX_VALUES 40

/* --- models --------------------------------------------------------------- */

struct random {
    uint64_t key, at;
};

static int draw(struct random *r, int n)
{
    return (int)(merak_rng_mix(r->key, r->at++) % (uint64_t)n);
}

/* One of those before, a near one more often than not. */
static int pick(struct random *r, int n, int far)
{
    int near = n < 3 ? n : 3;

    return draw(r, far) == 0 ? draw(r, n) : n - 1 - draw(r, near);
}

/* What nobody reads is added up at the end. */
static void finish(struct merak_model *m, struct merak_value **value,
                   const bool *used, int n)
{
    struct merak_value *head =
        MERAK_PARAM(m, "head", MERAK_NORMAL(0.1f), 32, WIDE);
    struct merak_value *x = value[n - 1];

    for (int i = 0; i < n - 1; i++) {
        if (!used[i])
            x = merak_add(m, x, value[i]);
    }
    merak_cross_entropy(m, merak_linear(m, x, head, NULL, 1), merak_targets(m));
}

/* arg: the seed, an int. */
static void describe(struct merak_model *m, void *arg)
{
    struct random r = {merak_rng_key((uint64_t) * (int *)arg, "model"), 0};
    struct merak_value *value[MAX_VALUES];
    bool used[MAX_VALUES] = {false};
    int n = 0, embeddings = 1 + draw(&r, 3), layers = 10 + draw(&r, 16);

    while (n < embeddings) {
        struct merak_value *table = MERAK_PARAM(m, merak_name(m, "wte.%d", n),
                                                MERAK_NORMAL(0.1f), 32, WIDE);

        value[n++] = merak_embedding(m, merak_tokens(m), table);
    }
    for (int l = 0; l < layers; l++) {
        struct merak_value *w = MERAK_PARAM(m, merak_name(m, "w.%d", l),
                                            MERAK_NORMAL(0.1f), WIDE, WIDE);
        int from = pick(&r, n, 4), and = pick(&r, n, 3);
        struct merak_value *x = merak_linear(m, value[from], w, NULL, 1);

        used[from] = true;
        x = merak_gelu(m, x, true);
        if (draw(&r, 2) == 0) {
            x = merak_add(m, value[and], x);
            used[and] = true;
        }
        value[n++] = x;
    }
    finish(m, value, used, n);
}

/* --- programs ------------------------------------------------------------- */

struct count {
    int proved, refused;
    int against; /* a value of tensor ranks would have to go back: refused */
};

static void prove(const struct merak_plan *plan, int seed, bool forward_only,
                  struct count *count)
{
    const struct merak_program_options opt = {.forward_only = forward_only};
    struct merak_planned *planned = NULL;
    struct merak_error err;
    enum merak_status rc = merak_plan_build(
        plan, 8, describe, &seed, MERAK_PLAN_ALL, &opt, &planned, &err);

    if (rc == MERAK_ERR_CONFIG) { /* the numbers are not the schedule's */
        count->refused++;
        return;
    }
    if (rc == MERAK_ERR_UNSUPPORTED && plan->tp > 1) {
        count->against++;
        return;
    }
    if (rc == MERAK_OK)
        rc = merak_program_check(planned->program, planned->n_programs, &err);
    if (rc != MERAK_OK)
        fail_msg("seed %d, %s, tp %d, pp %d, dp %d, %d chunks, %d "
                 "micro-batches: %s",
                 seed, plan->schedule, plan->tp, plan->pp, plan->dp,
                 plan->chunks, plan->microbatches, err.text);
    count->proved++;
    merak_planned_destroy(planned);
}

/* All of it for a schedule: how many were proved. */
static struct count prove_schedule(const char *schedule, int seeds)
{
    struct count count = {0, 0, 0};

    for (int i = 0; i < seeds * 4 * 3 * 3; i++) {
        int seed = i / 36, pp = 2 + i / 9 % 4, chunks = 1 + i / 3 % 3;
        struct merak_plan plan = {.tp = 1,
                                  .pp = pp,
                                  .dp = 1,
                                  .chunks = chunks,
                                  .microbatches = pp + i % 3 * (pp + 1) / 2,
                                  .micro_batch = 1,
                                  .recompute = seed % 2 == 0
                                                   ? MERAK_RECOMPUTE_NONE
                                                   : MERAK_RECOMPUTE_FULL,
                                  .branches = (enum merak_branches)(seed % 3)};

        snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule);
        prove(&plan, seed, false, &count);
        if (i % 6 == 0)
            prove(&plan, seed, true, &count);
    }
    return count;
}

static void no_schedule_deadlocks_on_branches(void **state)
{
    const struct merak_schedule *const *all = merak_schedules();

    (void)state;
    for (int i = 0; all[i] != NULL; i++) {
        struct count count;

        if (all[i]->forward_only || all[i]->passes > 1)
            continue;
        count = prove_schedule(all[i]->name, 9);
        print_message("# %s: %d proved, %d refused\n", all[i]->name,
                      count.proved, count.refused);
        assert_true(count.proved >= 60);
    }
}

/* Tensor ranks, boundaries in parts, replicas, pairs of micro-batches. */
static void branches_at_other_degrees_do_not_deadlock(void **state)
{
    static const char *const schedule[] = {"eager", "interleaved", "zb-v",
                                           "1f1b"};
    struct count count = {0, 0, 0};

    (void)state;
    for (int i = 0; i < 96; i++) {
        struct merak_plan plan = {.tp = 1 + i % 2,
                                  .pp = 3 + i / 8 % 2,
                                  .dp = 2 - i % 2,
                                  .chunks = i % 4 == 1 || i % 4 == 2 ? 2 : 1,
                                  .microbatches = 8,
                                  .micro_batch = 1,
                                  .zero = 1,
                                  .scatter = i % 3 == 0,
                                  .sub_pipeline = i / 4 % 2 == 1};

        snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule[i % 4]);
        prove(&plan, 100 + i / 4, false, &count);
    }
    print_message("# %d proved, %d refused, %d against the pipeline\n",
                  count.proved, count.refused, count.against);
    assert_true(count.proved >= 40);
}

/* What is converted once for the weight gradients of several stages comes
 * with the backward, also where these wait for W and boundaries are gathered
 * from parts. */
static void late_weight_gradients_do_not_deadlock(void **state)
{
    static const struct {
        int seed;
        struct merak_plan plan;
    } rows[] = {
        {8725,
         {.tp = 2,
          .pp = 4,
          .dp = 1,
          .microbatches = 5,
          .micro_batch = 1,
          .scatter = 1,
          .branches = MERAK_BRANCHES_BLOCKS,
          .schedule = "zb-h1"}},
        {53984,
         {.tp = 2,
          .pp = 4,
          .dp = 2,
          .chunks = 2,
          .microbatches = 24,
          .micro_batch = 1,
          .scatter = 1,
          .recompute = MERAK_RECOMPUTE_FULL,
          .sub_pipeline = true,
          .branches = MERAK_BRANCHES_GATHERED,
          .schedule = "zb-v"}},
    };
    struct count count = {0, 0, 0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        prove(&rows[i].plan, rows[i].seed, false, &count);
    assert_int_equal(count.proved, 2);
}

/* What only a backward reads stays where it is in an evaluation.  Of these
 * programs every fifth stood still when it moved: what took its memory waited
 * for a receive that nobody read. */
static void evaluation_by_blocks_does_not_deadlock(void **state)
{
    struct count count = {0, 0, 0};

    (void)state;
    for (int i = 0; i < 48; i++) {
        struct merak_plan plan = {.tp = i % 2 == 0 ? 2 : 4,
                                  .pp = 5,
                                  .dp = 1 + i / 2 % 2,
                                  .chunks = 3,
                                  .microbatches = 10,
                                  .micro_batch = 1,
                                  .scatter = 1,
                                  .branches = MERAK_BRANCHES_GATHERED,
                                  .schedule = "interlaced"};

        prove(&plan, i, true, &count);
    }
    print_message("# %d proved, %d refused\n", count.proved, count.refused);
    assert_true(count.proved >= 30);
}

/* Where a value would have to go back in every plan that is asked for, that is
 * what the planner says: no memory would help. */
static void what_cannot_run_is_named(void **state)
{
    int seed = 4;
    struct merak_device device;
    struct merak_search_result *result = NULL;
    struct merak_error err = {.text = ""};
    const struct merak_search_input in = {
        .describe = describe,
        .arg = &seed,
        .seq = 8,
        .dtype = MERAK_F32,
        .global_batch = 8,
        .nodes = 1,
        .ranks_per_node = 8,
        .threads = 1,
        .device = &device,
        .pin = {.tp = 2,
                .pp = 4,
                .dp = 1,
                .chunks = 1,
                .micro_batch = 1,
                .schedule = "1f1b",
                .sub_pipeline = false,
                .given[MERAK_CHOICE_SUB_PIPELINE] = true,
                .given[MERAK_CHOICE_BRANCHES] = true,
                .given[MERAK_CHOICE_RECOMPUTE] = true}};

    (void)state;
    assert_int_equal(merak_device_find("cpu", &device, &err), MERAK_OK);
    assert_int_equal(merak_search(&in, &result, &err), MERAK_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "against the pipeline's direction"));
    assert_int_equal(merak_search(&in, &result, NULL), MERAK_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_schedule_deadlocks_on_branches),
        cmocka_unit_test(branches_at_other_degrees_do_not_deadlock),
        cmocka_unit_test(late_weight_gradients_do_not_deadlock),
        cmocka_unit_test(evaluation_by_blocks_does_not_deadlock),
        cmocka_unit_test(what_cannot_run_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
