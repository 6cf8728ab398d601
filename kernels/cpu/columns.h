/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/columns.h - sums over the rows of a [rows, C] matrix
 *
 * For parameter gradients.  Threads take slabs of columns, so no partial
 * results are combined; rows are summed in blocks, and blocks in order, which
 * keeps the rounding error of many rows small.
 */
#ifndef MERAK_KERNELS_CPU_COLUMNS_H
#define MERAK_KERNELS_CPU_COLUMNS_H

#include "kernels/cpu/vec.h"

#define COLUMNS_SLAB 64   /* columns a thread takes: four vectors or more */
#define COLUMNS_BLOCK 128 /* rows summed before they join the total */

struct columns {
    const void *dy, *x;       /* [rows, C]; x if terms need it */
    const float *mean, *rstd; /* [rows] or NULL */
    float *out, *out2;        /* [C] */
    size_t rows, C;
    bool bf16, accumulate;
};

/* What row `row` adds to columns at .. at + n - 1. */
typedef vf (*columns_term_fn)(const struct columns *col, size_t row, size_t at,
                              size_t n, bool bf16);

INLINE void columns_put(const struct columns *col, float *out, size_t at,
                        size_t n, vf sum)
{
    if (col->accumulate)
        sum += vload_n(out, at, n, false);
    vstore_n(out, at, n, sum, false);
}

INLINE vf columns_sum(const struct columns *col, size_t at, size_t n,
                      columns_term_fn term, bool bf16)
{
    vf total = {0};

    for (size_t row = 0; row < col->rows; row += COLUMNS_BLOCK) {
        size_t end =
            row + COLUMNS_BLOCK < col->rows ? row + COLUMNS_BLOCK : col->rows;
        vf block = {0};

        for (size_t i = row; i < end; i++)
            block += term(col, i, at, n, bf16);
        total += block;
    }
    return total;
}

/* Four vectors at once, which are a cache line or more of every row. */
INLINE void columns_four(const struct columns *col, size_t at,
                         columns_term_fn term, float *out, bool bf16)
{
    vf total[4] = {{0}};

    for (size_t row = 0; row < col->rows; row += COLUMNS_BLOCK) {
        size_t end =
            row + COLUMNS_BLOCK < col->rows ? row + COLUMNS_BLOCK : col->rows;
        vf b0 = {0}, b1 = {0}, b2 = {0}, b3 = {0};

        for (size_t i = row; i < end; i++) {
            b0 += term(col, i, at, LANES, bf16);
            b1 += term(col, i, at + LANES, LANES, bf16);
            b2 += term(col, i, at + 2 * LANES, LANES, bf16);
            b3 += term(col, i, at + 3 * LANES, LANES, bf16);
        }
        total[0] += b0;
        total[1] += b1;
        total[2] += b2;
        total[3] += b3;
    }
    for (size_t v = 0; v < 4; v++)
        columns_put(col, out, at + v * LANES, LANES, total[v]);
}

INLINE void columns_slab(const struct columns *col, size_t slab,
                         columns_term_fn term, float *out, bool bf16)
{
    size_t at = slab * COLUMNS_SLAB;
    size_t end = at + COLUMNS_SLAB < col->C ? at + COLUMNS_SLAB : col->C;

    for (; at + 4 * LANES <= end; at += 4 * LANES)
        columns_four(col, at, term, out, bf16);
    for (; at < end; at += LANES) {
        size_t n = end - at < LANES ? end - at : LANES;

        columns_put(col, out, at, n, columns_sum(col, at, n, term, bf16));
    }
}

#endif
