/* SPDX-License-Identifier: Apache-2.0 */
/* dice.c - overlap of classes of points, and its gradient; the equations are in
 * dice.h and ref/ref_dice.c
 *
 * Sums are of blocks of points that follow from the shape, in double, and
 * blocks are added in order.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/dice.h"

#include <math.h>
#include <string.h>

#define BLOCK 1024 /* points */

struct dice {
    struct merak_dice d;
    const void *z;
    const int32_t *target;
    const double *sums;
    double *part; /* [B, blocks, V, 3] */
    void *out;
    size_t blocks;
    float scale;
    bool bf16;
};

static float logit(const struct dice *w, size_t i)
{
    return w->bf16 ? merak_bf16_to_f32(((const uint16_t *)w->z)[i])
                   : ((const float *)w->z)[i];
}

/* The largest of a point's logits; p of a class is
 * exp(logit - max) / *sum_p. */
static float norm_of(const struct dice *w, size_t at, float *sum_p)
{
    float max = logit(w, at), sum = 0;

    for (size_t c = 1; c < w->d.V; c++)
        max = logit(w, at + c) > max ? logit(w, at + c) : max;
    for (size_t c = 0; c < w->d.V; c++)
        sum += expf(logit(w, at + c) - max);
    *sum_p = sum;
    return max;
}

static struct dice view(const struct merak_kernel_call *call)
{
    struct dice w = {.d = merak_dice_view(call),
                     .z = call->operand[0].data,
                     .target = call->operand[1].data,
                     .out = merak_call_out(call, 0)->data,
                     .bf16 = call->operand[0].dtype == MERAK_BF16};

    w.blocks = cpu_range_count(w.d.points, BLOCK);
    return w;
}

static void sum_block(void *arg, size_t item, int thread)
{
    const struct dice *w = arg;
    size_t V = w->d.V, block = item % w->blocks;
    size_t end = cpu_range_end(block, BLOCK, w->d.points);
    double *sums = w->part + item * V * 3;

    (void)thread;
    memset(sums, 0, V * 3 * sizeof(*sums));
    for (size_t p = block * BLOCK; p < end; p++) {
        size_t row = item / w->blocks * w->d.points + p;
        float sum, max;

        if (w->target[row] == MERAK_NO_TARGET)
            continue;
        max = norm_of(w, row * V, &sum);
        for (size_t c = 0; c < V; c++) {
            double x = (double)(expf(logit(w, row * V + c) - max) / sum);
            bool is = w->target[row] == (int32_t)c;

            sums[3 * c] += is ? x : 0;
            sums[3 * c + 1] += x;
            sums[3 * c + 2] += is;
        }
    }
}

CPU_SCRATCH(dice_sums)
{
    struct dice w = view(call);

    return w.d.B * w.blocks * w.d.V * 3 * sizeof(double);
}

CPU_KERNEL(dice_sums)
{
    struct dice w = view(call);
    size_t n = w.d.V * 3;
    double *out = w.out;
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc == MERAK_OK)
        rc = merak_check_targets(&call->operand[1], w.d.V, err);
    if (rc != MERAK_OK)
        return rc;
    w.part = call->scratch;
    merak_pool_run(sum_block, &w, w.d.B * w.blocks);
    for (size_t i = 0; i < w.d.B * n; i++) {
        const double *part = w.part + i / n * w.blocks * n + i % n;

        out[i] = 0;
        for (size_t k = 0; k < w.blocks; k++)
            out[i] += part[k * n];
    }
    return MERAK_OK;
}

CPU_KERNEL(dice_loss)
{
    const double *sums = call->operand[0].data;
    float *e = merak_call_out(call, 0)->data;
    enum merak_status rc = cpu_check_dtype(call, 1, true, err);
    size_t n = merak_local_count(merak_call_out(call, 0));

    for (size_t i = 0; i < n && rc == MERAK_OK; i++)
        e[i] = (float)merak_dice_loss(sums + 3 * i);
    return rc;
}

static void store(const struct dice *w, size_t i, float x)
{
    if (w->bf16)
        ((uint16_t *)w->out)[i] = merak_f32_to_bf16(x);
    else
        ((float *)w->out)[i] = x;
}

/* dz may be z: its row is read before it is written, class by class. */
static void slope_row(const struct dice *w, size_t row)
{
    size_t V = w->d.V, at = row * V;
    const double *sums = w->sums + row / w->d.points * V * 3;
    float sum, max = norm_of(w, at, &sum), mean = 0;

    for (size_t c = 0; c < V; c++)
        mean +=
            expf(logit(w, at + c) - max) / sum *
            (float)merak_dice_slope(sums + 3 * c, w->target[row] == (int32_t)c);
    for (size_t c = 0; c < V; c++) {
        float g =
            (float)merak_dice_slope(sums + 3 * c, w->target[row] == (int32_t)c);

        store(w, at + c,
              w->target[row] == MERAK_NO_TARGET
                  ? 0.0f
                  : w->scale * (expf(logit(w, at + c) - max) / sum) *
                        (g - mean));
    }
}

static void slope_block(void *arg, size_t item, int thread)
{
    const struct dice *w = arg;
    size_t end = cpu_range_end(item, BLOCK, w->d.B * w->d.points);

    (void)thread;
    for (size_t row = item * BLOCK; row < end; row++)
        slope_row(w, row);
}

CPU_KERNEL(dice_dlogits)
{
    struct dice w = view(call);
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    w.sums = call->operand[2].data;
    w.scale = (float)merak_loss_scale(call);
    merak_pool_run(slope_block, &w, cpu_range_count(w.d.B * w.d.points, BLOCK));
    return MERAK_OK;
}
