/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/angles.h - cosines and sines of rotary positions, kept */
#ifndef MERAK_KERNELS_CPU_ANGLES_H
#define MERAK_KERNELS_CPU_ANGLES_H

#include <stddef.h>

#include "merak/op.h"
#include "merak/status.h"

/*
 * Of pair i at position t the angle is t times merak_rope_frequency()
 * (kernels/rope.h); cosine and sine times the amplitude are rounded to f32.
 *
 *   R          channels that turn
 *   rows_p     [positions, R]: of each position R/2 cosines, then R/2 sines;
 *              until the next call
 *   positions  from 0
 *
 * Computed once for a scaling, theta and R: 20 ns an angle are several times
 * what it takes to turn a few heads by it.  To be called by one thread at a
 * time, as kernels are.  Error: NOMEM.
 */
enum merak_status merak_angles(const struct merak_attrs *attrs, size_t R,
                               size_t positions, const float **rows_p,
                               struct merak_error *err) MERAK_CHECKED;

#endif
