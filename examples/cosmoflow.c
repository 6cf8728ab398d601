/* SPDX-License-Identifier: Apache-2.0 */
/* cosmoflow.c - four numbers of a universe from the masses in a cube of it
 *
 *   ./cosmoflow SIDE --data cubes.json                   alone
 *   srun -n4 --merak-cp=4 ./cosmoflow SIDE --data cubes.json
 *   ./cosmoflow 512 plan --nodes 4 --ranks-per-node 8 --device a100 \
 *       --cp auto --global-batch 8
 *
 * with cubes.json, of arrays in HDF5 (or npy) files:
 *
 *   {"mass": {"file": "cubes.h5", "dataset": "mass"},
 *    "truth": {"file": "cubes.h5", "dataset": "truth"}}
 *
 * mass is [samples, SIDE, SIDE, SIDE, 4], logarithms of one more than counts,
 * truth [samples, 4], between -1.2 and 1.2.  The layers are those of MLPerf
 * HPC's CosmoFlow (Mathuriya et al. 2018, arXiv:1808.04728), with a rectifier
 * that does not leak.  A cube of 512 points a side needs 25 GB for its first
 * layers in bf16: `--cp` cuts it into slabs or, along two or three dims, into
 * blocks, whose ranks exchange the points on their faces.
 */
#include <merak/merak.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHANNELS = 4, FIRST = 32, MOST = 512, LAST_SIDE = 4, NUMBERS = 4 };

static struct merak_value *convolve(struct merak_model *m,
                                    struct merak_value *x, int i, size_t in,
                                    size_t out)
{
    const float std = sqrtf(2 / (float)(27 * in));

    return merak_conv(m, x,
                      MERAK_PARAM(m, merak_name(m, "conv.%d.weight", i),
                                  MERAK_NORMAL(std), out, 3, 3, 3, in),
                      MERAK_PARAM(m, merak_name(m, "conv.%d.bias", i),
                                  MERAK_ZEROS, out),
                      NULL);
}

static struct merak_value *linear(struct merak_model *m, struct merak_value *x,
                                  int i, size_t in, size_t out)
{
    return merak_linear(m, x,
                        MERAK_PARAM(m, merak_name(m, "linear.%d.weight", i),
                                    MERAK_NORMAL(1 / (float)in), out, in),
                        MERAK_PARAM(m, merak_name(m, "linear.%d.bias", i),
                                    MERAK_ZEROS, out),
                        1);
}

static void describe(struct merak_model *m, void *arg)
{
    const size_t *side_p = arg, B = merak_model_micro_batch(m);
    const size_t dim[] = {B, *side_p, *side_p, *side_p, CHANNELS};
    const struct merak_window half = {.stride = 2};
    size_t in = CHANNELS, out = FIRST, side = *side_p, rest;
    struct merak_value *x, *w, *truth;

    x = merak_input(m, "mass", merak_model_dtype(m), "bzyxc", dim);
    for (int i = 0; side > LAST_SIDE; i++, side /= 2) {
        x = merak_relu(m, convolve(m, x, i, in, out));
        x = merak_pool(m, x, MERAK_POOL_MAX, 2, &half);
        in = out;
        out = 2 * out < MOST ? 2 * out : MOST;
    }
    rest = side * side * side * in;
    w = MERAK_PARAM(m, "linear.0.weight", MERAK_NORMAL(sqrtf(2 / (float)rest)),
                    128, side, side, side, in);
    x = merak_linear(m, x, w,
                     MERAK_PARAM(m, "linear.0.bias", MERAK_ZEROS, 128), 4);
    x = merak_dropout(m, merak_relu(m, x), 0.5f);
    x = merak_dropout(m, merak_relu(m, linear(m, x, 1, 128, 64)), 0.5f);
    x = merak_scale(m, merak_tanh(m, linear(m, x, 2, 64, NUMBERS)), 1.2f);
    truth = merak_input(m, "truth", MERAK_F32, "b.",
                        (const size_t[]){B, NUMBERS});
    merak_loss(m, "error", merak_mse(m, x, truth), 1);
}

/* The side is the first word; all others are the run's. */
int main(int argc, char **argv)
{
    size_t side = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 0;

    if (side < 2 * LAST_SIDE || (side & (side - 1)) != 0) {
        fprintf(stderr,
                "cosmoflow: expected a side first, a power of two from 8\n");
        return 64;
    }
    argv[1] = argv[0];
    return merak_train(argc - 1, argv + 1, describe, &side);
}
