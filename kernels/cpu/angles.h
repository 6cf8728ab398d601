/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/angles.h - cosines and sines of rotary positions, kept */
#ifndef MERAK_KERNELS_CPU_ANGLES_H
#define MERAK_KERNELS_CPU_ANGLES_H

#include <stddef.h>

#include "merak/status.h"

/*
 * Of pair i at position t the angle is t theta^(-2i/D) (Su et al. 2021,
 * arXiv:2104.09864), rounded to f32 after cosine and sine.
 *
 *   rows_p     [positions, D]: of each position D/2 cosines, then D/2 sines;
 *              until the next call
 *   positions  from 0
 *
 * Computed once for a theta and D: 20 ns an angle are several times what it
 * takes to turn a few heads by it.  To be called by one thread at a time, as
 * kernels are.  Error: NOMEM.
 */
enum merak_status merak_angles(double theta, size_t D, size_t positions,
                               const float **rows_p,
                               struct merak_error *err) MERAK_CHECKED;

#endif
