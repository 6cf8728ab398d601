/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/rope.h - frequencies of rotary position embeddings */
#ifndef MERAK_KERNELS_ROPE_H
#define MERAK_KERNELS_ROPE_H

#include <stddef.h>

#include "merak/op.h"

/*
 * Number of the D channels that are rotated, by the attributes of op rope
 * (partitioner/graph/graph.h); the others are copied.
 */
static inline size_t merak_rope_turned(const struct merak_attrs *attrs,
                                       size_t D)
{
    return attrs->i[3] > 0 ? (size_t)attrs->i[3] : D;
}

/*
 * Radians per position of pair i of R/2, where R channels are rotated:
 * theta^(-2i/R), of which a fraction is divided by the scaling factor, or all
 * of it by a factor of the pair.
 */
double merak_rope_frequency(const struct merak_attrs *attrs, size_t R,
                            size_t i);
/* The factor that cosines and sines are multiplied by. */
double merak_rope_amplitude(const struct merak_attrs *attrs);

#endif
