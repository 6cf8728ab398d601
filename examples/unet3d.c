/* SPDX-License-Identifier: Apache-2.0 */
/* unet3d.c - which part of a body each point of a scan belongs to
 *
 *   ./unet3d SIDE --data scans.json                      alone
 *   srun -n4 --merak-cp=4 ./unet3d SIDE --data scans.json
 *   ./unet3d 256 plan --nodes 1 --ranks-per-node 8 --device a100 --cp auto \
 *       --global-batch 8
 *
 * with scans.json, of arrays in HDF5, npy or idx files:
 *
 *   {"scan": {"file": "scans.h5", "dataset": "scan"},
 *    "mask": {"file": "scans.h5", "dataset": "mask"}}
 *
 * scan is [samples, SIDE, SIDE, SIDE, 1], mask [samples, SIDE, SIDE, SIDE], 0
 * to 2, -1 where it is not known.  The layers are those of Cicek et al. 2016
 * (arXiv:1606.06650) with convolutions that keep the size, 19 070 560
 * parameters. Norms are of groups of channels (merak_groupnorm()), not of
 * batches: a scan is all that fits, and results do not depend on how many
 * samples are computed at once.  SIDE,WIDTH in the place of SIDE has WIDTH
 * channels in the first layer in the place of 32; SIDE,WIDTH,nearest repeats
 * points on the way up, before the convolution that follows anyway, in the place
 * of transposed convolutions.  `--cp` cuts scans into slabs or blocks, whose ranks
 * exchange the points on their faces, and the sums of norms.
 */
#include <merak/merak.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 3, LEVELS = 3, WIDTH = 32, IN_GROUP = 4 };

struct net {
    size_t side, width;
    int nearest; /* points are repeated on the way up */
};

/* A convolution over 3^3 points, a norm of as many groups at each size. */
static struct merak_value *convolve(struct merak_model *m,
                                    struct merak_value *x, const char *name,
                                    const struct net *net, size_t in,
                                    size_t out)
{
    const float std = sqrtf(2 / (float)(27 * in));

    x = merak_conv(m, x,
                   MERAK_PARAM(m, merak_name(m, "%s.weight", name),
                               MERAK_NORMAL(std), out, 3, 3, 3, in),
                   NULL, NULL);
    x = merak_groupnorm(
        m, x, MERAK_PARAM(m, merak_name(m, "%s.gamma", name), MERAK_ONES, out),
        MERAK_PARAM(m, merak_name(m, "%s.beta", name), MERAK_ZEROS, out),
        (int)(net->width / IN_GROUP), 1e-5f);
    return merak_relu(m, x);
}

/* Twice as many points along each dim, and then those of the way down. */
static struct merak_value *rise(struct merak_model *m, struct merak_value *x,
                                struct merak_value *side, int i,
                                const struct net *net, size_t C)
{
    const struct merak_window twice = {.stride = 2};

    if (net->nearest)
        x = merak_upsample(m, x, 2);
    else
        x = merak_conv_transposed(
            m, x,
            MERAK_PARAM(m, merak_name(m, "up.%d.weight", i),
                        MERAK_NORMAL(sqrtf(1 / (float)C)), C, 2, 2, 2, C),
            &twice);
    return merak_concat(m, 2, (struct merak_value *[]){side, x});
}

static void describe(struct merak_model *m, void *arg)
{
    const struct net *net = arg;
    const size_t B = merak_model_micro_batch(m), S = net->side;
    const struct merak_window half = {.stride = 2};
    struct merak_value *x, *side[LEVELS];
    size_t in = 1, C = net->width;

    x = merak_input(m, "scan", merak_model_dtype(m), "bzyxc",
                    (const size_t[]){B, S, S, S, 1});
    for (int i = 0; i <= LEVELS; i++, C *= 2) {
        x = convolve(m, x, merak_name(m, "down.%d.0", i), net, in, C);
        x = convolve(m, x, merak_name(m, "down.%d.1", i), net, C, 2 * C);
        in = 2 * C;
        if (i == LEVELS)
            break;
        side[i] = x;
        x = merak_pool(m, x, MERAK_POOL_MAX, 2, &half);
    }
    for (int i = LEVELS - 1; i >= 0; i--) {
        x = rise(m, x, side[i], i, net, in);
        C = in / 2;
        x = convolve(m, x, merak_name(m, "up.%d.0", i), net, in + C, C);
        x = convolve(m, x, merak_name(m, "up.%d.1", i), net, C, C);
        in = C;
    }
    x = merak_conv(
        m, x,
        MERAK_PARAM(m, "out.weight", MERAK_NORMAL(0.05f), CLASSES, 1, 1, 1, in),
        NULL, NULL);
    merak_cross_entropy(m, x,
                        merak_input(m, "mask", MERAK_I32, "bzyx",
                                    (const size_t[]){B, S, S, S}));
}

/* The side is the first word; all others are the run's. */
int main(int argc, char **argv)
{
    struct net net = {.width = WIDTH};
    char *end = "";

    if (argc > 1)
        net.side = (size_t)strtoul(argv[1], &end, 10);
    if (*end == ',')
        net.width = (size_t)strtoul(end + 1, &end, 10);
    if (strcmp(end, ",nearest") == 0) {
        net.nearest = 1;
        end = "";
    }
    if (*end != '\0' || net.side == 0 || net.side % (1 << LEVELS) != 0 ||
        net.width == 0 || net.width % IN_GROUP != 0) {
        fprintf(stderr,
                "unet3d: expected first a side that %d divides, perhaps with "
                "a number of channels that %d divides, and a way up: 64, "
                "64,32 or 64,32,nearest\n",
                1 << LEVELS, IN_GROUP);
        return 64;
    }
    argv[1] = argv[0];
    return merak_train(argc - 1, argv + 1, describe, &net);
}
