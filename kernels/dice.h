/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/dice.h - how much classes of points overlap with what they should be
 *
 * Of class c of a sample, with p the softmax of a point's logits and t 1 where
 * c is its target, all summed over points that have one: sums = (sum p t, sum
 * p, sum t),  e = 1 - (2 sum p t + s) / (sum p + sum t + s) Milletari et al.
 * 2016 (arXiv:1606.04797), sec. 3, with sums of p in the place of those of
 * squares; s makes a class that is nowhere e = 0.
 */
#ifndef MERAK_KERNELS_DICE_H
#define MERAK_KERNELS_DICE_H

#include "kernels/geometry.h"

#define MERAK_DICE_SMOOTH 1e-5

struct merak_dice {
    size_t B, points, V;
    const double *sums; /* [B, V, 3], of gradients only */
};

/* Of a call whose operand 0 is logits. */
static inline struct merak_dice
merak_dice_view(const struct merak_kernel_call *call)
{
    const struct merak_operand *z = &call->operand[0];
    struct merak_dice d = {};

    d.B = z->local.dim[0];
    d.points = merak_local_span(z, 1, z->local.ndim - 1);
    d.V = merak_local_last(z);
    return d;
}

#ifdef __CUDACC__
#define MERAK_DICE_FN static inline __host__ __device__
#else
#define MERAK_DICE_FN static inline
#endif

/* e of a class. */
MERAK_DICE_FN double merak_dice_loss(const double *sums)
{
    return 1 - (2 * sums[0] + MERAK_DICE_SMOOTH) /
                   (sums[1] + sums[2] + MERAK_DICE_SMOOTH);
}

/* How e changes with p of a point, of which c is the target or not. */
MERAK_DICE_FN double merak_dice_slope(const double *sums, bool target)
{
    double all = sums[1] + sums[2] + MERAK_DICE_SMOOTH;

    return ((2 * sums[0] + MERAK_DICE_SMOOTH) / all - (target ? 2 : 0)) / all;
}

#endif
