/* SPDX-License-Identifier: Apache-2.0 */
/* ref_dice.c - overlap of classes of points, and its gradient (reference): the
 * equations are in kernels/dice.h
 *
 * With g the slope by p, dz = p (g - sum p g), the sum over classes.
 */
#include "config.h"

#include "kernels/dice.h"
#include "kernels/ref/ref.h"

#include <math.h>

static double share(const struct merak_operand *z, size_t at, size_t V,
                    size_t c)
{
    double max = ref_load(z, at), sum = 0;

    for (size_t k = 1; k < V; k++)
        max = fmax(max, ref_load(z, at + k));
    for (size_t k = 0; k < V; k++)
        sum += exp(ref_load(z, at + k) - max);
    return exp(ref_load(z, at + c) - max) / sum;
}

REF_KERNEL(dice_sums)
{
    const struct merak_operand *z = &call->operand[0];
    const int32_t *target = call->operand[1].data;
    struct merak_dice d = merak_dice_view(call);
    enum merak_status rc = merak_check_targets(&call->operand[1], d.V, err);

    for (size_t i = 0; rc == MERAK_OK && i < d.B * d.V; i++) {
        double sums[3] = {0};

        for (size_t p = 0; p < d.points; p++) {
            size_t row = i / d.V * d.points + p;
            double x = share(z, row * d.V, d.V, i % d.V);
            bool is = target[row] == (int32_t)(i % d.V);

            if (target[row] == MERAK_NO_TARGET)
                continue;
            sums[0] += is ? x : 0;
            sums[1] += x;
            sums[2] += is;
        }
        for (size_t k = 0; k < 3; k++)
            ref_store(merak_call_out(call, 0), 3 * i + k, sums[k]);
    }
    return rc;
}

REF_KERNEL(dice_loss)
{
    const double *sums = call->operand[0].data;
    const struct merak_operand *e = merak_call_out(call, 0);

    (void)err;
    for (size_t i = 0; i < merak_local_count(e); i++)
        ref_store(e, i, merak_dice_loss(sums + 3 * i));
    return MERAK_OK;
}

REF_KERNEL(dice_dlogits)
{
    const struct merak_operand *z = &call->operand[0];
    const int32_t *target = call->operand[1].data;
    const double *sums = call->operand[2].data;
    struct merak_dice d = merak_dice_view(call);
    double scale = merak_loss_scale(call);

    (void)err;
    for (size_t i = 0; i < d.B * d.points * d.V; i++) {
        size_t row = i / d.V, b = row / d.points, at = row * d.V;
        double mean = 0, own = 0;

        for (size_t c = 0; c < d.V; c++) {
            double g = merak_dice_slope(sums + 3 * (b * d.V + c),
                                        target[row] == (int32_t)c);

            mean += share(z, at, d.V, c) * g;
            own = c == i % d.V ? g : own;
        }
        ref_store(merak_call_out(call, 0), i,
                  target[row] == MERAK_NO_TARGET
                      ? 0
                      : scale * share(z, at, d.V, i % d.V) * (own - mean));
    }
    return MERAK_OK;
}
