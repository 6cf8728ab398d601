/* SPDX-License-Identifier: Apache-2.0 */
/* test_passes_numbers.c - models that run several forward passes: numbers
 * against a plain computation
 */
#include "config.h"

#include "unit/execute.h"

#include "base/rng.h"

#include <stdio.h>
#include <string.h>

static struct merak_plan plan_of(int pp, int m, const char *schedule)
{
    struct merak_plan plan = {
        .tp = 1, .pp = pp, .dp = 1, .microbatches = m, .micro_batch = 1};

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", schedule);
    return plan;
}

enum { SEQ = 16, WIDTH = 4, VOCAB = 7, PASSES = 3 };
enum { TABLE, OLD, MIX, N_WEIGHTS };

static const char *const weight_name[] = {"table", "old", "mix"};
static const int weight_rows[] = {VOCAB, WIDTH, WIDTH};

/* y = h + gelu(h MIX'), h = table[token] + r OLD', r the last pass's y. */
static void describe_plain(struct merak_model *m, void *arg)
{
    struct merak_value *w[N_WEIGHTS], *h, *y, *old;

    (void)arg;
    for (int i = 0; i < N_WEIGHTS; i++)
        w[i] = MERAK_PARAM(m, weight_name[i], MERAK_NORMAL(1),
                           (size_t)weight_rows[i], WIDTH);
    merak_passes(m, PASSES);
    old = MERAK_RECYCLED(m, 1, SEQ, WIDTH);
    h = merak_add(m, merak_embedding(m, merak_tokens(m), w[TABLE]),
                  merak_linear(m, old, w[OLD], NULL, 1));
    y = merak_add(m, h,
                  merak_gelu(m, merak_linear(m, h, w[MIX], NULL, 1), false));
    merak_recycle(m, old, y);
    merak_cross_entropy(m, merak_linear(m, y, w[TABLE], NULL, 1),
                        merak_targets(m));
}

struct plain {
    double w[N_WEIGHTS][VOCAB * WIDTH];
    int token[SEQ], target[SEQ];
    double y[SEQ][WIDTH]; /* of the latest pass */
};

static void multiply(const double *w, const double *x, int rows, double *out)
{
    for (int r = 0; r < rows; r++) {
        out[r] = 0;
        for (int c = 0; c < WIDTH; c++)
            out[r] += w[r * WIDTH + c] * x[c];
    }
}

static void plain_pass(struct plain *p)
{
    for (int t = 0; t < SEQ; t++) {
        double h[WIDTH], g[WIDTH];

        multiply(p->w[OLD], p->y[t], WIDTH, h);
        for (int c = 0; c < WIDTH; c++)
            h[c] += p->w[TABLE][p->token[t] * WIDTH + c];
        multiply(p->w[MIX], h, WIDTH, g);
        for (int c = 0; c < WIDTH; c++)
            p->y[t][c] = h[c] + g[c] * 0.5 * (1 + erf(g[c] / sqrt(2)));
    }
}

static double plain_loss(const struct plain *p)
{
    double loss = 0;

    for (int t = 0; t < SEQ; t++) {
        double logit[VOCAB], sum = 0;

        multiply(p->w[TABLE], p->y[t], VOCAB, logit);
        for (int v = 0; v < VOCAB; v++)
            sum += exp(logit[v]);
        loss += log(sum) - logit[p->target[t]];
    }
    return loss / SEQ;
}

/* The last pass's loss with one weight moved: in that pass alone, or in
 * all. */
static double moved_loss(const struct plain *base, int w, int i, double by,
                         bool all)
{
    struct plain p = *base;

    memset(p.y, 0, sizeof(p.y));
    for (int pass = 0; pass < PASSES; pass++) {
        p.w[w][i] = base->w[w][i] + (all || pass == PASSES - 1 ? by : 0);
        plain_pass(&p);
    }
    return plain_loss(&p);
}

static double slope(const struct plain *base, int w, int i, bool all)
{
    const double by = 1e-5;

    return (moved_loss(base, w, i, by, all) -
            moved_loss(base, w, i, -by, all)) /
           (2 * by);
}

static struct merak_planned *plain_planned(void)
{
    struct merak_program_options opt = {.dump_grads = true};
    struct merak_plan plan = plan_of(1, 1, "1f1b");
    struct merak_planned *p = NULL;
    struct merak_error err = {0};

    if (merak_plan_build(&plan, SEQ, describe_plain, NULL, MERAK_PLAN_ALL, &opt,
                         &p, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return p;
}

static const void *slot_of(const struct executed *ex, int slot)
{
    return ex->arena[0] + ex->planned->program[0]->slot[slot].offset;
}

/* The same weights and the tokens that execute.c loads. */
static void take_values(const struct executed *ex, struct plain *p)
{
    const struct merak_program *prog = ex->planned->program[0];

    memset(p, 0, sizeof(*p));
    for (int w = 0; w < N_WEIGHTS; w++) {
        const float *data = slot_of(ex, prog->param[w].param);

        assert_string_equal(prog->param[w].name, weight_name[w]);
        for (int i = 0; i < weight_rows[w] * WIDTH; i++)
            p->w[w][i] = (double)data[i];
    }
    for (uint64_t t = 0; t < SEQ; t++) {
        p->token[t] = (int)(merak_rng_mix(ex->step.step, t) % VOCAB);
        p->target[t] = (int)(merak_rng_mix(ex->step.step, t + 1) % VOCAB);
    }
}

/* What came from earlier passes is a constant: so says the gradient, and it
 * is not the gradient through all passes. */
static void one_rank_agrees_with_a_plain_computation(void **state)
{
    struct executed *ex = executed_create(plain_planned());
    const struct merak_program *prog = ex->planned->program[0];
    double largest = 0, loss, want;
    struct plain p;

    (void)state;
    take_values(ex, &p);
    executed_step(ex, 1);
    loss = executed_loss(ex);
    want = moved_loss(&p, TABLE, 0, 0, true);
    assert_near(&loss, &want, 1, 1e-6, 0); /* f32 against f64 */
    for (int w = 0; w < N_WEIGHTS; w++) {
        const float *grad = slot_of(ex, prog->param[w].grad);

        for (int i = 0; i < weight_rows[w] * WIDTH; i++) {
            double got = (double)grad[i], here = slope(&p, w, i, false);

            assert_near(&got, &here, 1, 1e-4, 1e-6);
            largest = fmax(largest, fabs(slope(&p, w, i, true) - here));
        }
    }
    assert_true(largest > 0.01);
    executed_destroy(ex);
}

/* Masks differ from pass to pass: with the same one in each, a value that is
 * dropped once would be dropped always. */
static void dropout_differs_between_passes(void **state)
{
    struct merak_step step = {.seed = 7, .step = 3, .train = true};
    const struct merak_backend *ref = NULL;
    const struct merak_kernel *kernel = NULL;
    float x[64], y[PASSES][64];
    struct merak_attrs attrs = {.f = {0.5}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .n_in = 1, .n_out = 1, .step = &step};

    (void)state;
    assert_int_equal(merak_backend_find("ref", &ref, NULL), MERAK_OK);
    assert_int_equal(merak_kernel_find(ref, "dropout", &kernel, NULL),
                     MERAK_OK);
    for (int i = 0; i < 64; i++)
        x[i] = 1;
    for (step.pass = 0; step.pass < PASSES; step.pass++) {
        for (int o = 0; o < 2; o++)
            call.operand[o] =
                (struct merak_operand){.data = o == 0 ? x : y[step.pass],
                                       .dtype = MERAK_F32,
                                       .local = {2, {1, 64}},
                                       .full = {2, {1, 64}}};
        assert_int_equal(kernel->fn(&call, NULL), MERAK_OK);
        for (int before = 0; before < step.pass; before++)
            assert_memory_not_equal(y[before], y[step.pass], sizeof(x));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_agrees_with_a_plain_computation),
        cmocka_unit_test(dropout_differs_between_passes),
    };

    return cmocka_run_group_tests_name("passes_numbers", tests, NULL, NULL);
}
