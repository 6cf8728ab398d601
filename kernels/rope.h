/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/rope.h - how fast pairs of channels turn in rotary positions */
#ifndef MERAK_KERNELS_ROPE_H
#define MERAK_KERNELS_ROPE_H

#include <stddef.h>

#include "merak/op.h"

/*
 * Channels of D that turn, as the attributes of op rope
 * (partitioner/graph/graph.h) say; the others are copied.
 */
static inline size_t merak_rope_turned(const struct merak_attrs *attrs,
                                       size_t D)
{
    return attrs->i[3] > 0 ? (size_t)attrs->i[3] : D;
}

/*
 * Radians from one position to the next of pair i of R/2, where R channels
 * turn: theta^(-2i/R), and of that a share that is divided by the factor, or
 * all of it by one of the pair's own.
 */
double merak_rope_frequency(const struct merak_attrs *attrs, size_t R,
                            size_t i);
/* What cosines and sines are multiplied by. */
double merak_rope_amplitude(const struct merak_attrs *attrs);

#endif
