/* SPDX-License-Identifier: Apache-2.0 */
/* test_recompute.c - programs that drop activations, of every schedule: sound,
 * smaller, and as long as the closed forms say
 */
#include "config.h"

#include "unit/small_plans.h"
#include "partitioner/simulate/simulate.h"

#include <stdio.h>
#include <string.h>

static const struct small_model gpt = {
    .layers = 8, .vocab = 61, .hidden = 32, .heads = 4};

static struct merak_plan plan_of(int tp, int pp, int m, const char *schedule,
                                 enum merak_recompute recompute)
{
    struct merak_plan plan = {
        .tp = tp, .pp = pp, .dp = 1, .microbatches = m, .recompute = recompute};

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule);
    return plan;
}

static bool trains(const struct merak_plan *plan)
{
    const struct merak_schedule *schedule;

    return merak_plan_schedule(plan, &schedule, NULL) == MERAK_OK &&
           !schedule->forward_only;
}

/* With as many chunks as it needs. */
static int check_schedule(const struct merak_schedule *schedule, int tp, int pp,
                          unsigned kind)
{
    static const enum merak_recompute mode[] = {
        MERAK_RECOMPUTE_NONE, MERAK_RECOMPUTE_FULL, MERAK_RECOMPUTE_SELECTIVE};
    struct merak_plan plan = plan_of(tp, pp, 8, schedule->name, mode[kind % 3]);
    struct merak_planned *p;

    plan.chunks = schedule->usual_chunks > 0 ? schedule->usual_chunks
                                             : schedule->min_chunks;
    plan.sub_pipeline = kind % 2;
    plan.microbatches *= plan.sub_pipeline ? 2 : 1;
    plan.sp = tp > 1 ? MERAK_SP_ON : MERAK_SP_OFF;
    if (!trains(&plan))
        return 0;
    p = planned_build(&gpt, &plan, NULL);
    planned_assert_sound(p);
    merak_planned_destroy(p);
    return 1;
}

static void every_schedule_and_mode_is_sound(void **state)
{
    const struct merak_schedule *const *all = merak_schedules();
    int n = 0;

    (void)state;
    for (int s = 0; all[s] != NULL; s++) {
        for (unsigned kind = 0; kind < 6; kind++) {
            n += check_schedule(all[s], 1, 4, kind);
            n += check_schedule(all[s], 2, 2, kind);
        }
    }
    assert_true(n >= 6 * 12 + 2 * 3);
}

/* --- memory ----------------------------------------------------------------
 */

static size_t arena_of(const struct merak_plan *plan, int stage)
{
    struct merak_planned *p = planned_build(&gpt, plan, NULL);
    size_t bytes =
        p->program[stage]->arena_bytes - p->program[stage]->persistent_bytes;

    merak_planned_destroy(p);
    return bytes;
}

static void memory_falls_with_what_is_dropped(void **state)
{
    struct merak_plan plan = plan_of(1, 2, 8, "gpipe", MERAK_RECOMPUTE_NONE);
    size_t none, full, selective;

    (void)state;
    none = arena_of(&plan, 0);
    plan.recompute = MERAK_RECOMPUTE_SELECTIVE;
    selective = arena_of(&plan, 0);
    plan.recompute = MERAK_RECOMPUTE_FULL;
    full = arena_of(&plan, 0);
    assert_true(selective < none);
    /* Of 4 layers' some 18 C a token (norms 2, qkv 3, attention 1, residual
     * streams 2, MLP 4 + 4, gradients) the 2 C of the streams stay. */
    assert_true(full < none / 4);
    assert_true(full < selective);
}

/* What was run again, by kind of instruction. */
struct again {
    int kernels, reductions, gathers;
};

static struct again count_again(const struct merak_program *prog)
{
    struct again n = {0};

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (!in->recompute)
            continue;
        if (in->kind == MERAK_INSTR_KERNEL)
            n.kernels++;
        else if (in->kind == MERAK_INSTR_EXCHANGE &&
                 in->exchange->kind == MERAK_CONVERT_ALL_GATHER)
            n.gathers++;
        else if (in->kind == MERAK_INSTR_EXCHANGE)
            n.reductions++;
    }
    return n;
}

static void only_what_was_dropped_runs_again(void **state)
{
    struct merak_plan plan = plan_of(2, 1, 3, "1f1b", MERAK_RECOMPUTE_FULL);
    struct merak_planned *p;
    struct again n;

    (void)state;
    plan.sp = MERAK_SP_ON;
    p = planned_build(&gpt, &plan, NULL);
    n = count_again(p->program[0]);
    /* A layer: norm, qkv, attention; fc, gelu (its norm is fused with
     * nothing here: the model has one norm a layer); a head: logits. */
    assert_int_equal(n.kernels, 3 * (8 * 5 + 1));
    /* Each layer's two inputs, cut along the sequence, and the head's. */
    assert_int_equal(n.gathers, 3 * (8 * 2 + 1));
    assert_int_equal(n.reductions, 0);
    merak_planned_destroy(p);
    plan.recompute = MERAK_RECOMPUTE_SELECTIVE;
    p = planned_build(&gpt, &plan, NULL);
    n = count_again(p->program[0]);
    assert_int_equal(n.kernels, 3 * 8);
    assert_int_equal(n.gathers + n.reductions, 0);
    merak_planned_destroy(p);
}

/* Seconds of a stage's recomputation. */
static double again_chosen(struct merak_plan *plan, size_t limit, int stage)
{
    struct merak_planned *p;
    double again = 0;

    plan->recompute = MERAK_RECOMPUTE_AUTO;
    plan->memory_bytes = limit;
    p = planned_build(&gpt, plan, NULL);
    for (int s = 0; s < p->n_programs; s++)
        assert_true(p->program[s]->arena_bytes <= limit);
    for (int i = 0; i < p->program[stage]->n_instrs; i++) {
        if (p->program[stage]->instr[i].recompute)
            again += p->program[stage]->instr[i].cost_s;
    }
    merak_planned_destroy(p);
    return again;
}

/* Each stage the least: the first, which holds most, more than the next. */
static void auto_drops_the_least_that_fits(void **state)
{
    struct merak_plan plan = plan_of(1, 4, 8, "1f1b", MERAK_RECOMPUTE_FULL);
    struct merak_planned *p = planned_build(&gpt, &plan, NULL);
    size_t least = 0, most = 0;
    double before;

    (void)state;
    for (int s = 0; s < p->n_programs; s++)
        least = p->program[s]->arena_bytes > least ? p->program[s]->arena_bytes
                                                   : least;
    merak_planned_destroy(p);
    plan.recompute = MERAK_RECOMPUTE_NONE;
    p = planned_build(&gpt, &plan, NULL);
    most = p->program[0]->arena_bytes;
    merak_planned_destroy(p);
    assert_true(again_chosen(&plan, most, 0) == 0);
    before = again_chosen(&plan, most - 1, 0);
    assert_true(before > 0);
    for (int i = 1; i <= 4; i++) {
        size_t limit = most - (most - least) * (size_t)i / 5;
        double first = again_chosen(&plan, limit, 0);

        assert_true(first >= before);
        assert_true(again_chosen(&plan, limit, 2) < first);
        before = first;
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    struct merak_plan plan = plan_of(1, 2, 4, "1f1b", MERAK_RECOMPUTE_AUTO);
    struct merak_error err;

    (void)state;
    plan.memory_bytes = 1 << 16;
    assert_int_equal(planned_try(&gpt, &plan, &err), MERAK_ERR_NOMEM);
    assert_non_null(strstr(err.text, "the limit is 0.1 MiB"));
    assert_non_null(strstr(err.text, "stage 0"));
}

/* --- time ------------------------------------------------------------------
 */

static double units_of(const char *schedule, int p, int m,
                       enum merak_recompute recompute)
{
    struct merak_program_options opt = {.unit_s = 1.0};
    struct merak_plan plan = plan_of(1, p, m, schedule, recompute);
    struct merak_planned *planned = planned_build(&gpt, &plan, &opt);
    struct merak_timeline *timeline = NULL;
    double units;

    assert_int_equal(
        merak_simulate(planned->program, p, NULL, NULL, &timeline, NULL),
        MERAK_OK);
    units = timeline->step_s;
    merak_timeline_destroy(timeline);
    merak_planned_destroy(planned);
    return units;
}

/* f = r = 1, b = 2.  The forms know actions as a whole; here an input's
 * gradient leaves before the weights' are computed, which saves some hops a
 * little, and transfers take microseconds. */
static void steps_take_the_closed_forms(void **state)
{
    static const struct {
        const char *schedule;
        int p, m;
        double units;
    } rows[] = {
        {"1f1b", 4, 8, 44},  {"early", 4, 8, 41}, {"last", 4, 8, 39},
        {"scp", 4, 8, 38},   {"1f1b", 8, 16, 92}, {"early", 8, 16, 85},
        {"last", 8, 16, 83}, {"scp", 8, 16, 82},  {"scp", 4, 16, 70},
        {"1f1b", 8, 8, 60},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        double got = units_of(rows[i].schedule, rows[i].p, rows[i].m,
                              MERAK_RECOMPUTE_FULL);

        assert_true(got <= rows[i].units + 0.01);
        assert_true(got >= rows[i].units - 0.1 * (rows[i].p - 1));
    }
}

static void nothing_dropped_takes_no_time(void **state)
{
    const double want = (8 + 4 - 1) * 3;
    double got = units_of("1f1b", 4, 8, MERAK_RECOMPUTE_NONE);

    (void)state;
    assert_near(&got, &want, 1, 0, 0.3);
    got = units_of("scp", 4, 8, MERAK_RECOMPUTE_NONE);
    assert_near(&got, &want, 1, 0, 0.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_and_mode_is_sound),
        cmocka_unit_test(memory_falls_with_what_is_dropped),
        cmocka_unit_test(only_what_was_dropped_runs_again),
        cmocka_unit_test(auto_drops_the_least_that_fits),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(steps_take_the_closed_forms),
        cmocka_unit_test(nothing_dropped_takes_no_time),
    };

    return cmocka_run_group_tests_name("recompute", tests, NULL, NULL);
}
