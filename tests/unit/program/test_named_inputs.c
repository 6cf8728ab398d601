/* SPDX-License-Identifier: Apache-2.0 */
/* test_named_inputs.c - models of pixels and labels, also with convolutions,
 * train alike on any number of ranks */
#include "config.h"

#include "unit/execute.h"
#include "unit/parity.h"
#include "unit/program/named_models.h"

#include "base/factors.h"

#include <stdlib.h>
#include <string.h>

/* cp: a number, or with = before it, its axes. */
static struct merak_planned *built(merak_describe_fn describe,
                                   const struct parity_variant *v,
                                   const char *cp)
{
    struct merak_plan plan = parity_plan(v);
    struct merak_planned *planned = NULL;
    struct merak_error err = {0};

    plan.micro_batch = 2;
    plan.cp = atoi(cp);
    if (*cp == '=') {
        assert_true(merak_factors_parse(cp + 1, &plan.cp_axes));
        plan.cp = (int)merak_factors_product(plan.cp_axes);
    }
    if (plan.cp > 2) /* halos are exchanged again, too */
        plan.recompute = MERAK_RECOMPUTE_FULL;
    if (merak_plan_build(&plan, 16, describe, NULL, MERAK_PLAN_ALL, NULL,
                         &planned, &err) != MERAK_OK)
        fail_msg("tp %d pp %d dp %d cp %s: %s", v->tp, v->pp, v->dp, cp,
                 err.text);
    planned_assert_sound(planned);
    return planned;
}

/* Trained for some steps; loss has each one's losses. */
static struct executed *trained(merak_describe_fn describe,
                                const struct parity_variant *v, const char *cp,
                                double loss[PARITY_STEPS * MERAK_MAX_LOSSES])
{
    struct merak_planned *planned = built(describe, v, cp);
    struct executed *ex = executed_create(planned);

    for (int k = 0; k < planned->sharded->graph->n_losses; k++)
        ex->step.loss_scale[k] = planned->sharded->graph->losses[k].weight;
    for (int s = 0; s < PARITY_STEPS; s++) {
        executed_step(ex, (uint64_t)s);
        for (int k = 0; k < MERAK_MAX_LOSSES; k++)
            loss[s * MERAK_MAX_LOSSES + k] =
                k < planned->sharded->graph->n_losses
                    ? executed_loss_part(ex, k)
                    : 0;
    }
    return ex;
}

static const struct row {
    const char *name;
    merak_describe_fn describe;
    struct parity_variant want, got;
    bool exact;
    const char *cp; /* ranks that have parts of the images each, or a grid */
} rows[] = {
#define ONE                   \
    {                         \
        1, 1, 1, "1f1b", 0, 0 \
    }
#define TWO                   \
    {                         \
        1, 1, 2, "1f1b", 0, 0 \
    }
    /* clang-format off */
    {"labels of samples, pp 2", classifier, ONE,
     {1, 2, 1, "1f1b", 0, 0}, true, "1"},
    {"labels of samples, pp 4", classifier, ONE,
     {1, 4, 1, "gpipe", 0, 0}, true, "1"},
    {"labels of samples, tp 2", classifier, ONE,
     {2, 1, 1, "1f1b", 0, 0}, false, "1"},
    {"labels of samples, dp 2", classifier, ONE,
     {1, 1, 2, "1f1b", 1, 0}, false, "1"},
    {"labels of samples, pp 2, dp 2", classifier, TWO,
     {1, 2, 2, "1f1b", 0, 0}, true, "1"},
    {"convolutions, pp 2", convolutions, ONE,
     {1, 2, 1, "zb-h1", 0, 0}, true, "1"},
    {"convolutions, tp 2", convolutions, ONE,
     {2, 1, 1, "1f1b", 0, 0}, false, "1"},
    {"convolutions, tp 2, pp 2, dp 2", convolutions, ONE,
     {2, 2, 2, "1f1b", 1, 0}, false, "1"},
    {"convolutions, cp 2", convolutions, ONE,
     {1, 1, 1, "1f1b", 0, 0}, false, "2"},
    {"convolutions, cp 2, tp 2, pp 2", convolutions, ONE,
     {2, 2, 1, "1f1b", 0, 0}, false, "2"},
    {"volumes, cp 4", volumes, ONE, {1, 1, 1, "1f1b", 0, 0}, false, "4"},
    {"volumes, cp 2 x 2", volumes, ONE, {1, 1, 1, "1f1b", 0, 0}, false, "=2x2"},
    {"volumes, cp 2 x 2 x 2", volumes, ONE,
     {1, 1, 1, "1f1b", 0, 0}, false, "=2x2x2"},
    {"volumes, cp 2 x 2, tp 2, pp 2", volumes, ONE,
     {2, 2, 1, "1f1b", 0, 0}, false, "=2x2"},
    {"convolutions, cp 2 x 2", convolutions, ONE,
     {1, 1, 1, "1f1b", 0, 0}, false, "=2x2"},
    {"groups, cp 2 x 2", segments, ONE, {1, 1, 1, "1f1b", 0, 0}, false, "=2x2"},
    {"points repeated, cp 4 x 2, dp 2", repeated, ONE,
     {1, 1, 2, "1f1b", 1, 0}, false, "=4x2"},
    {"volumes, cp 2, tp 2, dp 2", volumes, ONE,
     {2, 1, 2, "1f1b", 1, 0}, false, "2"},
    {"labels of pixels, cp 4", segmenter, ONE,
     {1, 1, 1, "1f1b", 0, 0}, false, "4"},
    {"labels of pixels, pp 2", segmenter, ONE,
     {1, 2, 1, "zb-h1", 0, 0}, true, "1"},
    {"labels of pixels, tp 2, dp 2", segmenter, ONE,
     {2, 1, 2, "1f1b", 1, 0}, false, "1"},
    {"groups, pp 2", segments, ONE, {1, 2, 1, "zb-h1", 0, 0}, true, "1"},
    {"groups, tp 2", segments, ONE, {2, 1, 1, "1f1b", 0, 0}, false, "1"},
    {"groups, cp 2", segments, ONE, {1, 1, 1, "1f1b", 0, 0}, false, "2"},
    {"groups, cp 4", segments, ONE, {1, 1, 1, "1f1b", 0, 0}, false, "4"},
    {"groups, cp 2, tp 2, pp 2, dp 2", segments, ONE,
     {2, 2, 2, "1f1b", 1, 0}, false, "2"},
    {"points repeated, pp 2", repeated, ONE,
     {1, 2, 1, "zb-h1", 0, 0}, true, "1"},
    {"points repeated, tp 2", repeated, ONE,
     {2, 1, 1, "1f1b", 0, 0}, false, "1"},
    {"points repeated, cp 4", repeated, ONE,
     {1, 1, 1, "1f1b", 0, 0}, false, "4"},
    {"batches, pp 2", batches, ONE, {1, 2, 1, "zb-h1", 0, 0}, true, "1"},
    {"batches, tp 2", batches, ONE, {2, 1, 1, "1f1b", 0, 0}, false, "1"},
    {"batches, cp 2", batches, ONE, {1, 1, 1, "1f1b", 0, 0}, false, "2"},
    {"batches, dp 2", batches, ONE, {1, 1, 2, "1f1b", 2, 0}, false, "1"},
    {"means, pp 2", means, ONE, {1, 2, 1, "1f1b", 0, 0}, true, "1"},
    {"means, tp 2", means, ONE, {2, 1, 1, "1f1b", 0, 0}, false, "1"},
    {"means, cp 2", means, ONE, {1, 1, 1, "1f1b", 0, 0}, false, "2"},
    {"several losses, pp 2", with_others, ONE,
     {1, 2, 1, "1f1b", 0, 0}, true, "1"},
    {"several losses, pp 4", with_others, ONE,
     {1, 4, 1, "zb-h1", 0, 0}, true, "1"},
    {"several losses, tp 2", with_others, ONE,
     {2, 1, 1, "1f1b", 0, 0}, false, "1"},
    {"several losses, dp 2", with_others, ONE,
     {1, 1, 2, "1f1b", 2, 0}, false, "1"},
    {"several losses, pp 2, tp 2, dp 2", with_others, ONE,
     {2, 2, 2, "1f1b", 1, 0}, false, "1"},
    {"several losses, cp 2, pp 2", with_others, ONE,
     {1, 2, 1, "1f1b", 0, 0}, false, "2"},
    /* clang-format on */
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

static void layouts_agree(void **state)
{
    const struct row *row = *state;
    double want[PARITY_STEPS * MERAK_MAX_LOSSES];
    double got[PARITY_STEPS * MERAK_MAX_LOSSES];
    struct executed *x = trained(row->describe, &row->want, "1", want);
    struct executed *y = trained(row->describe, &row->got, row->cp, got);

    assert_near(got, want, PARITY_STEPS * MERAK_MAX_LOSSES,
                row->exact ? 0 : 1e-6, 0);
    /* AdamW moves an element by about lr whatever its gradient's size, so a
     * gradient of next to nothing may go either way. */
    parity_params(x, y, row->exact ? 0 : 2e-3);
    executed_destroy(x);
    executed_destroy(y);
}

/* Bytes that a rank sends its neighbours. */
static size_t sent_by(const struct merak_program *prog)
{
    size_t sent = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_exchange *ex = prog->instr[i].exchange;

        if (ex != NULL && ex->kind == MERAK_CONVERT_HALO)
            sent += merak_exchange_bytes(ex);
    }
    return sent;
}

/* Words that a rank sends its neighbours: a plane of the second convolution's
 * input to each before it, of the gradient of its output to each on the way
 * back, and of the input again for that of its weights.  Of the first one's
 * input a rank loads its own planes and one of each neighbour. */
static void halos_are_planes(void **state)
{
    const struct parity_variant one = ONE;
    double loss[PARITY_STEPS * MERAK_MAX_LOSSES];
    struct executed *x = trained(volumes, &one, "=4", loss);
    const struct merak_planned *p = x->planned;
    const size_t plane = (size_t)p->plan.micro_batch * NARROW / 2 * NARROW / 2 *
                         CHANNELS * sizeof(float);

    (void)state;
    for (int r = 0; r < 4; r++) {
        size_t planes = 0, neighbours = r == 0 || r == 3 ? 1 : 2;
        const struct merak_program *prog = p->program[r];

        for (int i = 0; i < prog->n_instrs; i++) {
            if (prog->instr[i].kind == MERAK_INSTR_LOAD &&
                strcmp(prog->instr[i].name, "mass") == 0)
                planes += prog->slot[prog->instr[i].slot[0]].box.len[1];
        }
        assert_int_equal(planes, (size_t)p->plan.microbatches *
                                     (SIDE / 4 + neighbours));
        assert_int_equal(sent_by(prog), (size_t)p->plan.microbatches *
                                            neighbours *
                                            (plane + 2 * plane + plane));
    }
    executed_destroy(x);
}

/* Over 2 x 2 ranks each has one neighbour along z, of whose points it gets those
 * of its own y, and one along y, of whose it gets those of its own z and of the
 * plane that has come: the corner with them.  All from and to the same ranks. */
static void corners_come_with_planes(void **state)
{
    const struct parity_variant one = ONE;
    double loss[PARITY_STEPS * MERAK_MAX_LOSSES];
    struct executed *x = trained(volumes, &one, "=2x2", loss);
    const struct merak_planned *p = x->planned;
    const size_t z = SIDE / 2 / 2, y = NARROW / 2 / 2, row = NARROW / 2;
    const size_t points = 1 * y * row + (z + 1) * 1 * row;
    const size_t words = (size_t)p->plan.micro_batch * points *
                         (CHANNELS + 2 * CHANNELS + CHANNELS);

    (void)state;
    for (int r = 0; r < 4; r++) {
        const struct merak_program *prog = p->program[r];
        size_t loaded = 0;

        for (int i = 0; i < prog->n_instrs; i++) {
            const struct merak_instr *in = &prog->instr[i];

            if (in->kind == MERAK_INSTR_LOAD && strcmp(in->name, "mass") == 0)
                loaded += merak_box_count(&prog->slot[in->slot[0]].box);
        }
        assert_int_equal(sent_by(prog), (size_t)p->plan.microbatches * words *
                                            sizeof(float));
        assert_int_equal(loaded, (size_t)p->plan.microbatches *
                                     p->plan.micro_batch * (SIDE / 2 + 1) *
                                     (NARROW / 2 + 1) * NARROW);
    }
    executed_destroy(x);
}

/* What the busiest rank sends its neighbours. */
static size_t most_sent(merak_describe_fn describe, const char *cp)
{
    const struct parity_variant one = ONE;
    struct merak_planned *planned = built(describe, &one, cp);
    size_t most = 0;

    for (int r = 0; r < planned->n_programs; r++) {
        size_t sent = sent_by(planned->program[r]);

        most = sent > most ? sent : most;
    }
    merak_planned_destroy(planned);
    return most;
}

static void grids_are_those_with_the_least_to_send(void **state)
{
    (void)state;
    assert_true(most_sent(square, "=2x2") < most_sent(square, "=4"));
    assert_int_equal(most_sent(square, "4"), most_sent(square, "=2x2"));
    assert_true(most_sent(oblong, "=4") < most_sent(oblong, "=2x2"));
    assert_int_equal(most_sent(oblong, "4"), most_sent(oblong, "=4"));
}

static void grids_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *axes;
        int cp;
        const char *why;
    } bad[] = {
        {"2x2", 8, "--cp-axes 2x2 is not cp 8: use --cp 4"},
        {"2x8", 16,
         "input mass has 4 points along y, which cannot be cut over cp=8 "
         "(nearest: 4)"},
        {NULL, 3,
         "input mass has 8 points along z, which cannot be cut over cp=3 "
         "(nearest: 2 or 4)"},
    };

    (void)state;
    for (size_t r = 0; r < sizeof(bad) / sizeof(*bad); r++) {
        struct merak_plan plan = parity_plan(&(struct parity_variant)ONE);
        struct merak_planned *planned = NULL;
        struct merak_error err = {0};

        plan.micro_batch = 2;
        plan.cp = bad[r].cp;
        if (bad[r].axes != NULL)
            assert_true(merak_factors_parse(bad[r].axes, &plan.cp_axes));
        assert_int_equal(merak_plan_build(&plan, 16, volumes, NULL,
                                          MERAK_PLAN_ALL, NULL, &planned, &err),
                         MERAK_ERR_CONFIG);
        assert_string_equal(err.text, bad[r].why);
    }
}

/* Twice the weights, twice the gradient. */
static void a_weight_is_a_factor_of_the_gradient(void **state)
{
    const struct parity_variant one = ONE;
    double loss[PARITY_STEPS * MERAK_MAX_LOSSES];
    struct executed *x = trained(with_others, &one, "1", loss);
    float norm[2];

    (void)state;
    assert_int_equal(x->planned->sharded->graph->n_losses, 3);
    assert_string_equal(x->planned->sharded->graph->losses[1].name, "class");
    for (int k = 0; k < 3; k++)
        x->step.loss_scale[k] *= 2;
    x->step.lr = 0;
    x->step.step = 9; /* of the same samples */
    executed_step(x, 7);
    norm[0] = executed_norm(x, 0);
    for (int k = 0; k < 3; k++)
        x->step.loss_scale[k] /= 2;
    x->step.step = 9;
    executed_step(x, 7);
    norm[1] = 2 * executed_norm(x, 0);
    assert_near(norm, &norm[1], 1, 1e-6, 0);
    executed_destroy(x);
}

int main(void)
{
    struct CMUnitTest tests[N_ROWS + 5] = {
        [N_ROWS] = cmocka_unit_test(a_weight_is_a_factor_of_the_gradient),
        [N_ROWS + 1] = cmocka_unit_test(halos_are_planes),
        [N_ROWS + 2] = cmocka_unit_test(corners_come_with_planes),
        [N_ROWS + 3] = cmocka_unit_test(grids_are_those_with_the_least_to_send),
        [N_ROWS + 4] = cmocka_unit_test(grids_that_do_not_fit_are_refused)};

    for (size_t i = 0; i < N_ROWS; i++)
        tests[i] =
            (struct CMUnitTest){.name = rows[i].name,
                                .test_func = layouts_agree,
                                .initial_state = (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests_name("named inputs", tests, NULL, NULL);
}
