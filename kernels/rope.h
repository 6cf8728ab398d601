/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/rope.h - how fast pairs of channels turn in rotary positions */
#ifndef MERAK_KERNELS_ROPE_H
#define MERAK_KERNELS_ROPE_H

#include <stddef.h>

#include "merak/op.h"

/*
 * Radians from one position to the next of pair i of D/2, as the attributes
 * of op rope (partitioner/graph/graph.h) say: theta^(-2i/D), and of that a
 * share that is divided by the factor, or all of it by one of the pair's own.
 */
double merak_rope_frequency(const struct merak_attrs *attrs, size_t D,
                            size_t i);
/* What cosines and sines are multiplied by. */
double merak_rope_amplitude(const struct merak_attrs *attrs);

#endif
