/* SPDX-License-Identifier: Apache-2.0 */
/* convnet.c - a residual network of convolutions over images of 28 x 28 pixels
 *
 *   ./convnet --data images.json                               alone
 *   srun -n4 --merak-tp=2 --merak-pp=2 ./convnet --data images.json
 *
 * with images.json as in classify.c.  Tensor ranks have channels of the
 * weights each, or samples.
 */
#include <merak/merak.h>

#include <math.h>

enum { SIDE = 28, CLASSES = 10, HALVINGS = 2 };

struct net {
    int blocks;   /* at each size of the image */
    size_t width; /* channels at its full size; doubled where that is halved */
};

/* A convolution's weight, at the usual scale for so many inputs. */
static struct merak_value *weight(struct merak_model *m, const char *name,
                                  size_t out, size_t size, size_t in)
{
    const float std = sqrtf(2 / (float)(size * size * in));

    return MERAK_PARAM(m, name, MERAK_NORMAL(std), out, size, size, in);
}

/* Much of an image is black: what is nearly zero shall not be made large. */
#define EPS 0.01f

static struct merak_value *block(struct merak_model *m, struct merak_value *x,
                                 size_t C, int i)
{
    struct merak_value *h, *w;

    h = merak_rmsnorm(
        m, x, MERAK_PARAM(m, merak_name(m, "h.%d.norm", i), MERAK_ONES, C),
        EPS);
    w = weight(m, merak_name(m, "h.%d.up", i), 2 * C, 3, C);
    h = merak_gelu(m, merak_conv(m, h, w, NULL, NULL), true);
    w = weight(m, merak_name(m, "h.%d.down", i), C, 3, 2 * C);
    return merak_add(m, x, merak_conv(m, h, w, NULL, NULL));
}

static void describe(struct merak_model *m, void *arg)
{
    const struct net *net = arg;
    const struct merak_window half = {.stride = 2};
    const size_t dim[] = {merak_model_micro_batch(m), SIDE, SIDE, 1};
    size_t C = net->width, side = SIDE;
    struct merak_value *x, *w;

    x = merak_input(m, "pixels", merak_model_dtype(m), "byxc", dim);
    x = merak_conv(m, x, weight(m, "in.weight", C, 3, 1),
                   MERAK_PARAM(m, "in.bias", MERAK_ZEROS, C), NULL);
    for (int i = 0; i <= HALVINGS; i++) {
        if (i > 0) {
            x = merak_pool(m, x, MERAK_POOL_MAX, 2, &half);
            w = weight(m, merak_name(m, "widen.%d", i), 2 * C, 1, C);
            x = merak_conv(m, x, w, NULL, NULL);
            C *= 2;
            side /= 2;
        }
        for (int b = 0; b < net->blocks; b++)
            x = block(m, x, C, i * net->blocks + b);
    }
    w = MERAK_PARAM(m, "out.weight", MERAK_NORMAL(0.01f), CLASSES, side, side,
                    C);
    x = merak_linear(m, x, w, MERAK_PARAM(m, "out.bias", MERAK_ZEROS, CLASSES),
                     3);
    merak_cross_entropy(m, x, merak_labels(m, "label", "b"));
}

int main(int argc, char **argv)
{
    struct net net = {.blocks = 1, .width = 16};

    return merak_train(argc, argv, describe, &net);
}
