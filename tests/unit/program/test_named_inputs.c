/* SPDX-License-Identifier: Apache-2.0 */
/* test_named_inputs.c - models of pixels and labels, also with convolutions,
 * train alike on any number of ranks */
#include "config.h"

#include "unit/execute.h"
#include "unit/parity.h"

#include <string.h>

enum { Y = 4, X = 6, HIDDEN = 8, CLASSES = 5, LAYERS = 3 };

#define WEIGHT(name, ...) MERAK_PARAM(m, name, MERAK_NORMAL(0.1f), __VA_ARGS__)

/* Pixels of all three dims -> [B, hidden]. */
static struct merak_value *begin(struct merak_model *m)
{
    const size_t dim[] = {merak_model_micro_batch(m), Y, X, 1};
    struct merak_value *x =
        merak_input(m, "pixels", merak_model_dtype(m), "byxc", dim);

    return merak_linear(m, x, WEIGHT("in.w", HIDDEN, Y, X, 1),
                        WEIGHT("in.b", HIDDEN), 3);
}

/* Layers of a residual stream. */
static struct merak_value *layers(struct merak_model *m, struct merak_value *x,
                                  int from, int to)
{
    for (int l = from; l < to; l++) {
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

static struct merak_value *trunk(struct merak_model *m)
{
    return layers(m, begin(m), 0, LAYERS);
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

enum { SIDE = 8, NARROW = 4, CHANNELS = 4 };

/* Numbers of a volume. */
static void volumes(struct merak_model *m, void *arg)
{
    const size_t B = merak_model_micro_batch(m);
    const size_t dim[] = {B, SIDE, NARROW, NARROW, 1};
    const struct merak_window half = {.stride = 2};
    struct merak_value *x =
        merak_input(m, "mass", merak_model_dtype(m), "bzyxc", dim);

    (void)arg;
    x = merak_conv(m, x, WEIGHT("in.w", CHANNELS, 3, 3, 3, 1),
                   WEIGHT("in.b", CHANNELS), NULL);
    x = merak_pool(m, merak_relu(m, x), MERAK_POOL_MAX, 2, &half);
    x = merak_conv(m, x, WEIGHT("w", 2 * CHANNELS, 3, 3, 3, CHANNELS), NULL,
                   NULL);
    x = merak_linear(
        m, merak_relu(m, x),
        WEIGHT("out", 3, SIDE / 2, NARROW / 2, NARROW / 2, 2 * CHANNELS), NULL,
        4);
    merak_loss(m, "error",
               merak_mse(m, x,
                         merak_input(m, "truth", MERAK_F32, "b.",
                                     (const size_t[]){B, 3})),
               1);
}

/* Channels in groups at points of space, and again beside what they were before
 * two halvings of their size: classes of points. */
static struct merak_value *normed(struct merak_model *m, struct merak_value *x,
                                  const char *name, size_t in, size_t out)
{
    x = merak_conv(m, x,
                   WEIGHT(merak_name(m, "%s.w", name), out, 3, 3, in), NULL,
                   NULL);
    return merak_leaky_relu(
        m,
        merak_groupnorm(
            m, x, MERAK_PARAM(m, merak_name(m, "%s.g", name), MERAK_ONES, out),
            MERAK_PARAM(m, merak_name(m, "%s.b", name), MERAK_ZEROS, out), 2,
            1e-3f),
        0.1f);
}

/* A network that halves the size and doubles it again, by weights or not. */
static void up_and_down(struct merak_model *m, bool nearest)
{
    const size_t B = merak_model_micro_batch(m);
    const size_t dim[] = {B, SIDE, NARROW, 1};
    const struct merak_window half = {.stride = 2};
    struct merak_value *x =
        merak_input(m, "pixels", merak_model_dtype(m), "byxc", dim);
    struct merak_value *side, *mask;

    side = x = normed(m, x, "down", 1, CHANNELS);
    x = merak_pool(m, x, MERAK_POOL_MAX, 2, &half);
    x = normed(m, x, "bottom", CHANNELS, 2 * CHANNELS);
    x = nearest ? merak_upsample(m, x, 2)
                : merak_conv_transposed(
                      m, x, WEIGHT("up", 2 * CHANNELS, 2, 2, 2 * CHANNELS),
                      &half);
    x = merak_concat(m, 2, (struct merak_value *[]){side, x});
    x = normed(m, x, "again", 3 * CHANNELS, CHANNELS);
    x = merak_conv(m, x, WEIGHT("out", CLASSES, 1, 1, CHANNELS), NULL, NULL);
    mask = merak_input(m, "mask", MERAK_I32, "byx",
                       (const size_t[]){B, SIDE, NARROW});
    merak_loss(m, "class", merak_cross_entropy(m, x, mask), 1);
    merak_loss(m, "overlap", merak_softmax_dice(m, x, mask), 0.5);
}

static void segments(struct merak_model *m, void *arg)
{
    (void)arg;
    up_and_down(m, false);
}

static void repeated(struct merak_model *m, void *arg)
{
    (void)arg;
    up_and_down(m, true);
}

/* Statistics of all samples of a micro-batch. */
static void batches(struct merak_model *m, void *arg)
{
    const size_t B = merak_model_micro_batch(m);
    const struct merak_window half = {.stride = 2};
    struct merak_batch_statistics of = {.momentum = 0.25f};
    struct merak_value *x = merak_input(m, "pixels", merak_model_dtype(m),
                                        "byxc", (const size_t[]){B, Y, X, 1});

    (void)arg;
    for (int i = 0; i < 2; i++) {
        x = merak_conv(m, x,
                       WEIGHT(merak_name(m, "%d.w", i), CHANNELS, 3, 3,
                              i == 0 ? 1 : CHANNELS),
                       NULL, NULL);
        of.mean = MERAK_PARAM(m, merak_name(m, "%d.mean", i), MERAK_ZEROS,
                              CHANNELS);
        of.variance = MERAK_PARAM(m, merak_name(m, "%d.variance", i),
                                  MERAK_ONES, CHANNELS);
        x = merak_batchnorm(
            m, x, MERAK_PARAM(m, merak_name(m, "%d.g", i), MERAK_ONES, CHANNELS),
            MERAK_PARAM(m, merak_name(m, "%d.b", i), MERAK_ZEROS, CHANNELS),
            1e-3f, &of);
        x = merak_relu(m, x);
    }
    x = merak_pool(m, x, MERAK_POOL_MEAN, 2, &half);
    x = merak_linear(m, x, WEIGHT("out", CLASSES, Y / 2, X / 2, CHANNELS), NULL,
                     3);
    merak_cross_entropy(m, x, merak_labels(m, "label", "b"));
}

/* Rows of an image, their mean, a mean of its columns. */
static void means(struct merak_model *m, void *arg)
{
    const size_t dim[] = {merak_model_micro_batch(m), Y, X};
    struct merak_value *x =
        merak_input(m, "pixels", merak_model_dtype(m), "byx", dim);
    struct merak_value *h =
        merak_linear(m, x, WEIGHT("rows", X, HIDDEN, X), NULL, 1);

    (void)arg;
    h = merak_mean(m, merak_tanh(m, h), 'y');
    h = layers(m,
               merak_linear(m, h, WEIGHT("fold", HIDDEN, X, HIDDEN), NULL, 2),
               0, LAYERS);
    h = merak_linear(m, h, WEIGHT("out", CLASSES, HIDDEN), NULL, 1);
    merak_cross_entropy(m, h, merak_labels(m, "label", "b"));
}

/* Two more losses, one of which is known before the last layers. */
static void with_others(struct merak_model *m, void *arg)
{
    const size_t B = merak_model_micro_batch(m);
    struct merak_value *x, *middle = NULL, *loss;
    struct merak_value *size, *where;

    (void)arg;
    x = layers(m, begin(m), 0, LAYERS - 1);
    size = merak_input(m, "size", MERAK_F32, "b.", (const size_t[]){B, 2});
    middle =
        merak_linear(m, merak_relu(m, x), WEIGHT("size.w", 2, HIDDEN), NULL, 1);
    loss = merak_mae(m, middle, size);
    merak_loss(m, "size", loss, 0.25);
    x = layers(m, x, LAYERS - 1, LAYERS);
    loss = merak_cross_entropy(
        m, merak_linear(m, x, WEIGHT("out", CLASSES, HIDDEN), NULL, 1),
        merak_labels(m, "label", "b"));
    merak_loss(m, "class", loss, 1);
    where =
        merak_input(m, "where", MERAK_F32, "byx", (const size_t[]){B, Y, X});
    x = merak_linear(m, merak_tanh(m, x), WEIGHT("where.w", Y, X, HIDDEN), NULL,
                     1);
    merak_loss(m, "where", merak_mse(m, x, where), 0.5);
}

/* Trained for some steps; loss has each one's losses. */
static struct executed *trained(merak_describe_fn describe,
                                const struct parity_variant *v, int cp,
                                double loss[PARITY_STEPS * MERAK_MAX_LOSSES])
{
    struct merak_plan plan = parity_plan(v);
    struct merak_planned *planned = NULL;
    struct merak_error err = {0};
    struct executed *ex;

    plan.micro_batch = 2;
    plan.cp = cp;
    if (cp > 2) /* halos are exchanged again, too */
        plan.recompute = MERAK_RECOMPUTE_FULL;
    if (merak_plan_build(&plan, 16, describe, NULL, MERAK_PLAN_ALL, NULL,
                         &planned, &err) != MERAK_OK)
        fail_msg("tp %d pp %d dp %d cp %d: %s", v->tp, v->pp, v->dp, cp,
                 err.text);
    planned_assert_sound(planned);
    ex = executed_create(planned);
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
    int cp; /* ranks that have parts of the images each */
} rows[] = {
#define ONE                   \
    {                         \
        1, 1, 1, "1f1b", 0, 0 \
    }
#define TWO                   \
    {                         \
        1, 1, 2, "1f1b", 0, 0 \
    }
    {"labels of samples, pp 2",
     classifier,
     ONE,
     {1, 2, 1, "1f1b", 0, 0},
     true,
     1},
    {"labels of samples, pp 4",
     classifier,
     ONE,
     {1, 4, 1, "gpipe", 0, 0},
     true,
     1},
    {"labels of samples, tp 2",
     classifier,
     ONE,
     {2, 1, 1, "1f1b", 0, 0},
     false,
     1},
    {"labels of samples, dp 2",
     classifier,
     ONE,
     {1, 1, 2, "1f1b", 1, 0},
     false,
     1},
    {"labels of samples, pp 2, dp 2",
     classifier,
     TWO,
     {1, 2, 2, "1f1b", 0, 0},
     true,
     1},
    {"convolutions, pp 2",
     convolutions,
     ONE,
     {1, 2, 1, "zb-h1", 0, 0},
     true,
     1},
    {"convolutions, tp 2",
     convolutions,
     ONE,
     {2, 1, 1, "1f1b", 0, 0},
     false,
     1},
    {"convolutions, tp 2, pp 2, dp 2",
     convolutions,
     ONE,
     {2, 2, 2, "1f1b", 1, 0},
     false,
     1},
    {"convolutions, cp 2",
     convolutions,
     ONE,
     {1, 1, 1, "1f1b", 0, 0},
     false,
     2},
    {"convolutions, cp 2, tp 2, pp 2",
     convolutions,
     ONE,
     {2, 2, 1, "1f1b", 0, 0},
     false,
     2},
    {"volumes, cp 4", volumes, ONE, {1, 1, 1, "1f1b", 0, 0}, false, 4},
    {"volumes, cp 2, tp 2, dp 2",
     volumes,
     ONE,
     {2, 1, 2, "1f1b", 1, 0},
     false,
     2},
    {"labels of pixels, cp 4",
     segmenter,
     ONE,
     {1, 1, 1, "1f1b", 0, 0},
     false,
     4},
    {"labels of pixels, pp 2",
     segmenter,
     ONE,
     {1, 2, 1, "zb-h1", 0, 0},
     true,
     1},
    {"labels of pixels, tp 2, dp 2",
     segmenter,
     ONE,
     {2, 1, 2, "1f1b", 1, 0},
     false,
     1},
    {"groups, pp 2", segments, ONE, {1, 2, 1, "zb-h1", 0, 0}, true, 1},
    {"groups, tp 2", segments, ONE, {2, 1, 1, "1f1b", 0, 0}, false, 1},
    {"groups, cp 2", segments, ONE, {1, 1, 1, "1f1b", 0, 0}, false, 2},
    {"groups, cp 4", segments, ONE, {1, 1, 1, "1f1b", 0, 0}, false, 4},
    {"groups, cp 2, tp 2, pp 2, dp 2",
     segments,
     ONE,
     {2, 2, 2, "1f1b", 1, 0},
     false,
     2},
    {"points repeated, pp 2",
     repeated,
     ONE,
     {1, 2, 1, "zb-h1", 0, 0},
     true,
     1},
    {"points repeated, tp 2",
     repeated,
     ONE,
     {2, 1, 1, "1f1b", 0, 0},
     false,
     1},
    {"points repeated, cp 4",
     repeated,
     ONE,
     {1, 1, 1, "1f1b", 0, 0},
     false,
     4},
    {"batches, pp 2", batches, ONE, {1, 2, 1, "zb-h1", 0, 0}, true, 1},
    {"batches, tp 2", batches, ONE, {2, 1, 1, "1f1b", 0, 0}, false, 1},
    {"batches, cp 2", batches, ONE, {1, 1, 1, "1f1b", 0, 0}, false, 2},
    {"batches, dp 2", batches, ONE, {1, 1, 2, "1f1b", 2, 0}, false, 1},
    {"means, pp 2", means, ONE, {1, 2, 1, "1f1b", 0, 0}, true, 1},
    {"means, tp 2", means, ONE, {2, 1, 1, "1f1b", 0, 0}, false, 1},
    {"means, cp 2", means, ONE, {1, 1, 1, "1f1b", 0, 0}, false, 2},
    {"several losses, pp 2",
     with_others,
     ONE,
     {1, 2, 1, "1f1b", 0, 0},
     true,
     1},
    {"several losses, pp 4",
     with_others,
     ONE,
     {1, 4, 1, "zb-h1", 0, 0},
     true,
     1},
    {"several losses, tp 2",
     with_others,
     ONE,
     {2, 1, 1, "1f1b", 0, 0},
     false,
     1},
    {"several losses, dp 2",
     with_others,
     ONE,
     {1, 1, 2, "1f1b", 2, 0},
     false,
     1},
    {"several losses, pp 2, tp 2, dp 2",
     with_others,
     ONE,
     {2, 2, 2, "1f1b", 1, 0},
     false,
     1},
    {"several losses, cp 2, pp 2",
     with_others,
     ONE,
     {1, 2, 1, "1f1b", 0, 0},
     false,
     2},
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

static void layouts_agree(void **state)
{
    const struct row *row = *state;
    double want[PARITY_STEPS * MERAK_MAX_LOSSES];
    double got[PARITY_STEPS * MERAK_MAX_LOSSES];
    struct executed *x = trained(row->describe, &row->want, 1, want);
    struct executed *y = trained(row->describe, &row->got, row->cp, got);

    assert_near(got, want, PARITY_STEPS * MERAK_MAX_LOSSES,
                row->exact ? 0 : 1e-6, 0);
    /* AdamW moves an element by about lr whatever its gradient's size, so a
     * gradient of next to nothing may go either way. */
    parity_params(x, y, row->exact ? 0 : 2e-3);
    executed_destroy(x);
    executed_destroy(y);
}

/* Words that a rank sends its neighbours: a plane of the second convolution's
 * input to each before it, of the gradient of its output to each on the way
 * back, and of the input again for that of its weights.  Of the first one's
 * input a rank loads its own planes and one of each neighbour. */
static void halos_are_planes(void **state)
{
    const struct parity_variant one = ONE;
    double loss[PARITY_STEPS * MERAK_MAX_LOSSES];
    struct executed *x = trained(volumes, &one, 4, loss);
    const struct merak_planned *p = x->planned;
    const size_t plane = (size_t)p->plan.micro_batch * NARROW / 2 * NARROW / 2 *
                         CHANNELS * sizeof(float);

    (void)state;
    for (int r = 0; r < 4; r++) {
        size_t sent = 0, planes = 0, neighbours = r == 0 || r == 3 ? 1 : 2;
        const struct merak_program *prog = p->program[r];

        for (int i = 0; i < prog->n_instrs; i++) {
            const struct merak_exchange *ex = prog->instr[i].exchange;

            if (ex != NULL && ex->kind == MERAK_CONVERT_HALO)
                sent += merak_exchange_bytes(ex);
            if (prog->instr[i].kind == MERAK_INSTR_LOAD &&
                strcmp(prog->instr[i].name, "mass") == 0)
                planes += prog->slot[prog->instr[i].slot[0]].box.len[1];
        }
        assert_int_equal(planes, (size_t)p->plan.microbatches *
                                     (SIDE / 4 + neighbours));
        assert_int_equal(sent, (size_t)p->plan.microbatches * neighbours *
                                   (plane + 2 * plane + plane));
    }
    executed_destroy(x);
}

/* Twice the weights, twice the gradient. */
static void a_weight_is_a_factor_of_the_gradient(void **state)
{
    const struct parity_variant one = ONE;
    double loss[PARITY_STEPS * MERAK_MAX_LOSSES];
    struct executed *x = trained(with_others, &one, 1, loss);
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
    struct CMUnitTest tests[N_ROWS + 2] = {
        [N_ROWS] = cmocka_unit_test(a_weight_is_a_factor_of_the_gradient),
        [N_ROWS + 1] = cmocka_unit_test(halos_are_planes)};

    for (size_t i = 0; i < N_ROWS; i++)
        tests[i] =
            (struct CMUnitTest){.name = rows[i].name,
                                .test_func = layouts_agree,
                                .initial_state = (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests_name("named inputs", tests, NULL, NULL);
}
