/* SPDX-License-Identifier: Apache-2.0 */
/* classify.c - which of ten classes an image of 28 x 28 pixels is of
 *
 *   ./classify --data images.json                               alone
 *   srun -n4 --merak-tp=2 --merak-pp=2 ./classify --data images.json
 *
 * with images.json, of MNIST or Fashion-MNIST (Debian has the latter's files in
 * dataset-fashion-mnist):
 *
 *   {"pixels": {"file": "train-images-idx3-ubyte.gz", "scale": 0.00392156863},
 *    "label": "train-labels-idx1-ubyte.gz"}
 *
 * A residual network of MLPs: what an image is, is a vector of `width` numbers,
 * to which each layer adds something.
 *
 *   ./classify 0.1 --data images.json
 *
 * also draws the image again from that vector: the mean square of the
 * difference is a second loss, "pixels", with that weight beside "class".  An
 * image whose label is -1 has only the former.
 */
#include <merak/merak.h>

#include <math.h>
#include <stdlib.h>

enum { HEIGHT = 28, WIDTH = 28, CLASSES = 10 };

struct classifier {
    int layers;
    size_t width;
    double drawing; /* weight of that loss; 0: there is one loss */
};

/* The usual scale of weights for so many inputs. */
static struct merak_init scaled(size_t inputs)
{
    return MERAK_NORMAL(1 / sqrtf((float)inputs));
}

static struct merak_value *layer(struct merak_model *m, struct merak_value *x,
                                 const struct classifier *c, int i)
{
    const size_t C = c->width;
    struct merak_value *h, *w;

    h = merak_layernorm(
        m, x,
        MERAK_PARAM(m, merak_name(m, "h.%d.norm.weight", i), MERAK_ONES, C),
        MERAK_PARAM(m, merak_name(m, "h.%d.norm.bias", i), MERAK_ZEROS, C),
        1e-5f);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.up.weight", i), scaled(C), 4 * C, C);
    h = merak_gelu(m, merak_linear(m, h, w, NULL, 1), true);
    w = MERAK_PARAM(m, merak_name(m, "h.%d.down.weight", i), scaled(4 * C), C,
                    4 * C);
    return merak_add(m, x, merak_linear(m, h, w, NULL, 1));
}

static void describe(struct merak_model *m, void *arg)
{
    const struct classifier *c = arg;
    const size_t dim[] = {merak_model_micro_batch(m), HEIGHT, WIDTH};
    const size_t C = c->width;
    struct merak_value *pixels, *x, *w, *loss;

    pixels = merak_input(m, "pixels", merak_model_dtype(m), "byx", dim);
    w = MERAK_PARAM(m, "in.weight", scaled((size_t)HEIGHT * WIDTH), C, HEIGHT,
                    WIDTH);
    x = merak_linear(m, pixels, w, MERAK_PARAM(m, "in.bias", MERAK_ZEROS, C),
                     2);
    for (int i = 0; i < c->layers; i++)
        x = layer(m, x, c, i);
    w = MERAK_PARAM(m, "out.weight", scaled(C), CLASSES, C);
    loss = merak_cross_entropy(
        m,
        merak_linear(m, x, w, MERAK_PARAM(m, "out.bias", MERAK_ZEROS, CLASSES),
                     1),
        merak_labels(m, "label", "b"));
    if (c->drawing == 0)
        return;
    merak_loss(m, "class", loss, 1);
    w = MERAK_PARAM(m, "draw.weight", scaled(C), HEIGHT, WIDTH, C);
    loss = merak_mse(m, merak_linear(m, merak_relu(m, x), w, NULL, 1),
                     merak_widen(m, pixels));
    merak_loss(m, "pixels", loss, c->drawing);
}

int main(int argc, char **argv)
{
    struct classifier c = {.layers = 3, .width = 128};

    if (argc > 1 && argv[1][0] != '-' && atof(argv[1]) > 0) {
        c.drawing = atof(argv[1]);
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    return merak_train(argc, argv, describe, &c);
}
