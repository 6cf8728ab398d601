/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/scores.h - what a router makes of the logits of a token */
#ifndef MERAK_KERNELS_CPU_SCORES_H
#define MERAK_KERNELS_CPU_SCORES_H

#include "kernels/cpu/vec.h"

INLINE vf sigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

/* Elements of the workspace from one array of E to the next. */
static inline size_t score_room(size_t E)
{
    return (E / LANES + 1) * LANES;
}

/* A softmax of E logits that begin at `at`, to s; returns the logarithm of the
 * sum of their exponentials. */
static inline float find_softmax(const void *z, bool bf16, size_t at, size_t E,
                                 float *s)
{
    vf top = vset(-INFINITY), sum = vset(0);
    float max, total, scale;

    for (size_t e = 0; e < E; e += LANES) {
        vf x = vload_n(z, at + e, E - e, bf16);

        vstore_f32(s + e, x);
        top = vmax(top, vkeep(x, E - e, -INFINITY));
    }
    max = vmax_lane(top);
    for (size_t e = 0; e < E; e += LANES) {
        vf x = vkeep(vexp(vload_f32(s + e) - max), E - e, 0);

        vstore_f32(s + e, x);
        sum += x;
    }
    total = vsum(sum);
    scale = 1.0f / total;
    for (size_t e = 0; e < E; e += LANES)
        vstore_f32(s + e, vload_f32(s + e) * scale);
    return max + logf(total);
}

/* The sigmoids of E logits that begin at `at`, to s; returns their sum. */
static inline float find_sigmoids(const void *z, bool bf16, size_t at, size_t E,
                                  float *s)
{
    vf sum = vset(0);

    for (size_t e = 0; e < E; e += LANES) {
        vf x = sigmoid(vload_n(z, at + e, E - e, bf16));

        vstore_f32(s + e, x);
        sum += vkeep(x, E - e, 0);
    }
    return vsum(sum);
}

#endif
