/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/transpose.h - transposing in blocks of LANES by LANES */
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

/* LANES vectors become their transpose, by rounds of interleaving rows that
 * are half of them apart. */
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

/* A block of at most LANES rows and columns: from [rows][from_row] to
 * [cols][to_row]. */
INLINE void transpose_block(const void *from, size_t at, size_t from_row,
                            size_t rows, size_t cols, void *to, size_t put,
                            size_t to_row, bool bf16)
{
    vf x[LANES];

    if (rows >= LANES && cols >= LANES) {
        UNROLL
        for (size_t k = 0; k < LANES; k++)
            x[k] = vload(from, at + k * from_row, bf16);
        transpose_lanes(x);
        UNROLL
        for (size_t k = 0; k < LANES; k++)
            vstore(to, put + k * to_row, x[k], bf16);
        return;
    }
    for (size_t k = 0; k < LANES; k++)
        x[k] =
            k < rows ? vload_n(from, at + k * from_row, cols, bf16) : vset(0);
    transpose_lanes(x);
    for (size_t k = 0; k < cols && k < LANES; k++)
        vstore_n(to, put + k * to_row, rows, x[k], bf16);
}

/* from [rows][cols], rows from_row elements apart, to [cols][rows], rows to_row
 * elements apart.  Along the rows of `from`, which may be large and far apart,
 * so that they are prefetched; `to` is expected to fit the cache. */
INLINE void transpose_matrix(const void *from, size_t from_row, size_t rows,
                             size_t cols, void *to, size_t to_row, bool bf16)
{
    for (size_t i = 0; i < rows; i += LANES)
        for (size_t j = 0; j < cols; j += LANES)
            transpose_block(from, i * from_row + j, from_row, rows - i,
                            cols - j, to, j * to_row + i, to_row, bf16);
}

#endif
