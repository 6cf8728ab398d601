/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/gemm_moves.h - conversions of bf16 around products, in the
 * instruction set that a file is compiled for */
#ifndef MERAK_KERNELS_CPU_GEMM_MOVES_H
#define MERAK_KERNELS_CPU_GEMM_MOVES_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/transpose.h"

static void gemm_turn(const uint16_t *from, size_t from_pitch, size_t rows,
                      size_t cols, uint16_t *to, size_t to_pitch)
{
    transpose_half_matrix(from, from_pitch, rows, cols, to, to_pitch);
}

static void gemm_widen(const uint16_t *from, size_t from_pitch, size_t rows,
                       size_t cols, float *to, size_t to_pitch)
{
    for (size_t i = 0; i < rows; i++, from += from_pitch, to += to_pitch)
        for (size_t j = 0; j < cols; j += LANES)
            vstore_n(to, j, cols - j, vload_n(from, j, cols - j, true), false);
}

static void gemm_narrow(const float *from, size_t from_pitch, size_t rows,
                        size_t cols, uint16_t *to, size_t to_pitch)
{
    for (size_t i = 0; i < rows; i++, from += from_pitch, to += to_pitch)
        for (size_t j = 0; j < cols; j += LANES)
            vstore_n(to, j, cols - j, vload_n(from, j, cols - j, false), true);
}

static const struct merak_gemm_moves gemm_moves = {gemm_turn, gemm_widen,
                                                   gemm_narrow};

#endif
