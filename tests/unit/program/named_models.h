/* SPDX-License-Identifier: Apache-2.0 */
/* named_models.h - models of images, volumes and labels, for
 * test_named_inputs.c
 */
#ifndef MERAK_TESTS_NAMED_MODELS_H
#define MERAK_TESTS_NAMED_MODELS_H

#include "merak/model.h"

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

/* An image of y rows from another one. */
static void filter(struct merak_model *m, size_t y, size_t x)
{
    const size_t dim[] = {merak_model_micro_batch(m), y, x, 1};
    struct merak_value *h = merak_input(m, "from", MERAK_F32, "byxc", dim);

    h = merak_conv(m, h, WEIGHT("in.w", CHANNELS, 3, 3, 1), NULL, NULL);
    h = merak_conv(m, merak_relu(m, h), WEIGHT("out.w", 1, 3, 3, CHANNELS),
                   NULL, NULL);
    merak_loss(m, "error",
               merak_mse(m, h, merak_input(m, "to", MERAK_F32, "byxc", dim)),
               1);
}

static void square(struct merak_model *m, void *arg)
{
    (void)arg;
    filter(m, 64, 64);
}

static void oblong(struct merak_model *m, void *arg)
{
    (void)arg;
    filter(m, 256, 8);
}

/* Channels in groups at points of space, and again beside what they were before
 * two halvings of their size: classes of points. */
static struct merak_value *normed(struct merak_model *m, struct merak_value *x,
                                  const char *name, size_t in, size_t out)
{
    x = merak_conv(m, x, WEIGHT(merak_name(m, "%s.w", name), out, 3, 3, in),
                   NULL, NULL);
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
    x = nearest
            ? merak_upsample(m, x, 2)
            : merak_conv_transposed(
                  m, x, WEIGHT("up", 2 * CHANNELS, 2, 2, 2 * CHANNELS), &half);
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
        of.mean =
            MERAK_PARAM(m, merak_name(m, "%d.mean", i), MERAK_ZEROS, CHANNELS);
        of.variance = MERAK_PARAM(m, merak_name(m, "%d.variance", i),
                                  MERAK_ONES, CHANNELS);
        x = merak_batchnorm(
            m, x,
            MERAK_PARAM(m, merak_name(m, "%d.g", i), MERAK_ONES, CHANNELS),
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

#endif
