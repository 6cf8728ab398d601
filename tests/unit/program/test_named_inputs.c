/* SPDX-License-Identifier: Apache-2.0 */
/* test_named_inputs.c - models of pixels and labels, also with convolutions,
 * train alike on any number of ranks */
#include "config.h"

#include "unit/execute.h"
#include "unit/parity.h"

#include <string.h>

enum { Y = 4, X = 6, HIDDEN = 8, CLASSES = 5, LAYERS = 3 };

#define WEIGHT(name, ...) MERAK_PARAM(m, name, MERAK_NORMAL(0.1f), __VA_ARGS__)

/* Layers of a residual stream [B, hidden], from pixels of all three dims. */
static struct merak_value *trunk(struct merak_model *m)
{
    const size_t dim[] = {merak_model_micro_batch(m), Y, X, 1};
    struct merak_value *x =
        merak_input(m, "pixels", merak_model_dtype(m), "byxc", dim);

    x = merak_linear(m, x, WEIGHT("in.w", HIDDEN, Y, X, 1),
                     WEIGHT("in.b", HIDDEN), 3);
    for (int l = 0; l < LAYERS; l++) {
        struct merak_value *h = merak_linear(
            m, x, WEIGHT(merak_name(m, "h.%d.up", l), 4 * HIDDEN, HIDDEN), NULL,
            1);

        h = merak_linear(
            m, merak_gelu(m, h, true),
            WEIGHT(merak_name(m, "h.%d.down", l), HIDDEN, 4 * HIDDEN), NULL, 1);
        x = merak_add(m, x, h);
    }
    return x;
}

static void classifier(struct merak_model *m, void *arg)
{
    struct merak_value *x = trunk(m);

    (void)arg;
    x = merak_linear(m, x, WEIGHT("out", CLASSES, HIDDEN), NULL, 1);
    merak_cross_entropy(m, x, merak_labels(m, "label", "b"));
}

/* A class for each pixel. */
static void segmenter(struct merak_model *m, void *arg)
{
    const size_t dim[] = {merak_model_micro_batch(m), Y, X};
    struct merak_value *x = trunk(m);

    (void)arg;
    x = merak_linear(m, x, WEIGHT("out", Y, X, CLASSES, HIDDEN), NULL, 1);
    merak_cross_entropy(m, x, merak_input(m, "mask", MERAK_I32, "byx", dim));
}

/* Convolutions and pools, with and without strides and biases. */
static void convolutions(struct merak_model *m, void *arg)
{
    const size_t dim[] = {merak_model_micro_batch(m), Y, X, 1};
    const struct merak_window half = {.stride = 2};
    struct merak_value *x =
        merak_input(m, "pixels", merak_model_dtype(m), "byxc", dim);

    (void)arg;
    x = merak_conv(m, x, WEIGHT("in.w", HIDDEN, 3, 3, 1),
                   WEIGHT("in.b", HIDDEN), NULL);
    for (int l = 0; l < LAYERS; l++) {
        struct merak_value *h = merak_conv(
            m, x, WEIGHT(merak_name(m, "h.%d.up", l), 2 * HIDDEN, 3, 3, HIDDEN),
            WEIGHT(merak_name(m, "h.%d.bias", l), 2 * HIDDEN), NULL);

        h = merak_conv(
            m, merak_gelu(m, h, true),
            WEIGHT(merak_name(m, "h.%d.down", l), HIDDEN, 1, 3, 2 * HIDDEN),
            NULL, NULL);
        x = merak_add(m, x, h);
    }
    x = merak_pool(m, x, MERAK_POOL_MAX, 2, &half);
    x = merak_conv(m, x, WEIGHT("last", HIDDEN, 2, 2, HIDDEN), NULL, &half);
    x = merak_pool(m, x, MERAK_POOL_MEAN_INSIDE, 3, NULL);
    x = merak_linear(m, x, WEIGHT("out", CLASSES, Y / 4, (X + 2) / 4, HIDDEN),
                     NULL, 3);
    merak_cross_entropy(m, x, merak_labels(m, "label", "b"));
}

static struct executed *trained(merak_describe_fn describe,
                                const struct parity_variant *v, double *loss)
{
    struct merak_plan plan = parity_plan(v);
    struct merak_planned *planned = NULL;
    struct merak_error err = {0};
    struct executed *ex;

    plan.micro_batch = 2;
    if (merak_plan_build(&plan, 16, describe, NULL, MERAK_PLAN_ALL, NULL,
                         &planned, &err) != MERAK_OK)
        fail_msg("tp %d pp %d dp %d: %s", v->tp, v->pp, v->dp, err.text);
    planned_assert_sound(planned);
    ex = executed_create(planned);
    for (int s = 0; s < PARITY_STEPS; s++) {
        executed_step(ex, (uint64_t)s);
        loss[s] = executed_loss(ex);
    }
    return ex;
}

static const struct row {
    const char *name;
    merak_describe_fn describe;
    struct parity_variant want, got;
    bool exact;
} rows[] = {
#define ONE                   \
    {                         \
        1, 1, 1, "1f1b", 0, 0 \
    }
#define TWO                   \
    {                         \
        1, 1, 2, "1f1b", 0, 0 \
    }
    {"labels of samples, pp 2", classifier, ONE, {1, 2, 1, "1f1b", 0, 0}, true},
    {"labels of samples, pp 4",
     classifier,
     ONE,
     {1, 4, 1, "gpipe", 0, 0},
     true},
    {"labels of samples, tp 2",
     classifier,
     ONE,
     {2, 1, 1, "1f1b", 0, 0},
     false},
    {"labels of samples, dp 2",
     classifier,
     ONE,
     {1, 1, 2, "1f1b", 1, 0},
     false},
    {"labels of samples, pp 2, dp 2",
     classifier,
     TWO,
     {1, 2, 2, "1f1b", 0, 0},
     true},
    {"convolutions, pp 2", convolutions, ONE, {1, 2, 1, "zb-h1", 0, 0}, true},
    {"convolutions, tp 2", convolutions, ONE, {2, 1, 1, "1f1b", 0, 0}, false},
    {"convolutions, tp 2, pp 2, dp 2",
     convolutions,
     ONE,
     {2, 2, 2, "1f1b", 1, 0},
     false},
    {"labels of pixels, pp 2", segmenter, ONE, {1, 2, 1, "zb-h1", 0, 0}, true},
    {"labels of pixels, tp 2, dp 2",
     segmenter,
     ONE,
     {2, 1, 2, "1f1b", 1, 0},
     false},
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

static void layouts_agree(void **state)
{
    const struct row *row = *state;
    double want[PARITY_STEPS], got[PARITY_STEPS];
    struct executed *x = trained(row->describe, &row->want, want);
    struct executed *y = trained(row->describe, &row->got, got);

    assert_near(got, want, PARITY_STEPS, row->exact ? 0 : 1e-6, 0);
    /* AdamW moves an element by about lr whatever its gradient's size, so a
     * gradient of next to nothing may go either way. */
    parity_params(x, y, row->exact ? 0 : 2e-3);
    executed_destroy(x);
    executed_destroy(y);
}

int main(void)
{
    struct CMUnitTest tests[N_ROWS];

    for (size_t i = 0; i < N_ROWS; i++)
        tests[i] =
            (struct CMUnitTest){.name = rows[i].name,
                                .test_func = layouts_agree,
                                .initial_state = (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests_name("named inputs", tests, NULL, NULL);
}
