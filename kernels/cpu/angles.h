/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/angles.h - cache of cosines and sines of rotary positions */
#ifndef MERAK_KERNELS_CPU_ANGLES_H
#define MERAK_KERNELS_CPU_ANGLES_H

#include <stddef.h>

#include "merak/op.h"
#include "merak/status.h"

/*
 * The angle of pair i at position t is t times merak_rope_frequency()
 * (kernels/rope.h); cosine and sine times the amplitude are rounded to f32.
 *
 *   R          channels that are rotated
 *   rows_p     [positions, R]: R/2 cosines, then R/2 sines of each position;
 *              valid until the next call
 *   positions  from 0
 *
 * Computed once for a scaling, theta and R: at 20 ns an angle takes several
 * times as long as rotating a few heads by it.  To be called by one thread at a
 * time, as kernels are.  Error: NOMEM.
 */
enum merak_status merak_angles(const struct merak_attrs *attrs, size_t R,
                               size_t positions, const float **rows_p,
                               struct merak_error *err) MERAK_CHECKED;

#endif
