/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/transpose.h - transpose in blocks that fit in registers */
#ifndef MERAK_KERNELS_CPU_TRANSPOSE_H
#define MERAK_KERNELS_CPU_TRANSPOSE_H

#include "kernels/cpu/vec.h"

/* The lower halves of a and b interleaved, and the upper ones. */
#if LANES == 16
#define VZIP_LOW(a, b) \
    VSHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define VZIP_HIGH(a, b) \
    VSHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define ROUNDS 4
#elif LANES == 8
#define VZIP_LOW(a, b) VSHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define VZIP_HIGH(a, b) VSHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define ROUNDS 3
#else
#define VZIP_LOW(a, b) VSHUFFLE(a, b, 0, 4, 1, 5)
#define VZIP_HIGH(a, b) VSHUFFLE(a, b, 2, 6, 3, 7)
#define ROUNDS 2
#endif

/* Transpose LANES vectors, by rounds of interleaving rows LANES / 2 apart. */
INLINE void transpose_lanes(vf x[LANES])
{
    UNROLL
    for (int round = 0; round < ROUNDS; round++) {
        vf y[LANES];

        UNROLL
        for (int i = 0; i < LANES / 2; i++) {
            y[2 * i] = VZIP_LOW(x[i], x[i + LANES / 2]);
            y[2 * i + 1] = VZIP_HIGH(x[i], x[i + LANES / 2]);
        }
        UNROLL
        for (int i = 0; i < LANES; i++)
            x[i] = y[i];
    }
}

/* Transpose a block of at most LANES rows and columns, from [rows][from_row] to
 * [cols][to_row]. */
INLINE void transpose_block(const float *from, size_t from_row, size_t rows,
                            size_t cols, float *to, size_t to_row)
{
    vf x[LANES];

    if (rows >= LANES && cols >= LANES) {
        UNROLL
        for (size_t k = 0; k < LANES; k++)
            x[k] = vload_f32(from + k * from_row);
        transpose_lanes(x);
        UNROLL
        for (size_t k = 0; k < LANES; k++)
            vstore_f32(to + k * to_row, x[k]);
        return;
    }
    for (size_t k = 0; k < LANES; k++)
        x[k] = k < rows ? vload_n(from, k * from_row, cols, false) : vset(0);
    transpose_lanes(x);
    for (size_t k = 0; k < cols && k < LANES; k++)
        vstore_n(to, k * to_row, rows, x[k], false);
}

/* Transpose from [rows][cols], rows from_row elements apart, to [cols][rows],
 * rows to_row elements apart.  Reads along the rows of `from`, which may be
 * long and far apart, to have them prefetched; `to` should fit in the cache. */
INLINE void transpose_matrix(const float *from, size_t from_row, size_t rows,
                             size_t cols, float *to, size_t to_row)
{
    for (size_t i = 0; i < rows; i += LANES)
        for (size_t j = 0; j < cols; j += LANES)
            transpose_block(from + i * from_row + j, from_row, rows - i,
                            cols - j, to + j * to_row + i, to_row);
}

/* --- elements of sixteen bits --------------------------------------------- */

#define HALVES 8     /* 16 bytes: interleaving them is one instruction */
#define HALF_ROWS 32 /* rows that fill a cache line of the output */

typedef uint16_t v8h __attribute__((vector_size(2 * HALVES)));
typedef uint16_t v8h_mem
    __attribute__((vector_size(2 * HALVES), aligned(2), may_alias));

INLINE void transpose_halves(v8h x[HALVES])
{
    UNROLL
    for (int round = 0; round < 3; round++) {
        v8h y[HALVES];

        UNROLL
        for (int i = 0; i < HALVES / 2; i++) {
            v8h a = x[i], b = x[i + HALVES / 2];

            y[2 * i] = VSHUFFLE_OF(v8h, a, b, 0, 8, 1, 9, 2, 10, 3, 11);
            y[2 * i + 1] = VSHUFFLE_OF(v8h, a, b, 4, 12, 5, 13, 6, 14, 7, 15);
        }
        UNROLL
        for (int i = 0; i < HALVES; i++)
            x[i] = y[i];
    }
}

INLINE void transpose_half_block(const uint16_t *from, size_t from_row,
                                 uint16_t *to, size_t to_row)
{
    v8h x[HALVES];

    UNROLL
    for (size_t k = 0; k < HALVES; k++)
        x[k] = *(const v8h_mem *)(from + k * from_row);
    transpose_halves(x);
    UNROLL
    for (size_t k = 0; k < HALVES; k++)
        *(v8h_mem *)(to + k * to_row) = x[k];
}

/* Transpose HALF_ROWS rows: whole blocks, then the remaining columns. */
INLINE void transpose_half_rows(const uint16_t *from, size_t from_row,
                                size_t cols, uint16_t *to, size_t to_row)
{
    size_t j = 0;

    for (; j + HALVES <= cols; j += HALVES)
        for (size_t i = 0; i < HALF_ROWS; i += HALVES)
            transpose_half_block(from + i * from_row + j, from_row,
                                 to + j * to_row + i, to_row);
    for (; j < cols; j++)
        for (size_t i = 0; i < HALF_ROWS; i++)
            to[j * to_row + i] = from[i * from_row + j];
}

/* Like transpose_matrix(). */
INLINE void transpose_half_matrix(const uint16_t *from, size_t from_row,
                                  size_t rows, size_t cols, uint16_t *to,
                                  size_t to_row)
{
    size_t i = 0;

    for (; i + HALF_ROWS <= rows; i += HALF_ROWS)
        transpose_half_rows(from + i * from_row, from_row, cols, to + i,
                            to_row);
    for (; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            to[j * to_row + i] = from[i * from_row + j];
}

#endif
