/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/product.h - products of small matrices that are in the cache
 *
 * C[m][n] (+)= sum_k A(m, k) B[k][n] with n along the vector lanes.  Every
 * element is one chain of multiplications and additions in ascending k from
 * zero, however the matrix is blocked, so its bits do not depend on neighboring
 * elements, nor on terms at either end that are zero and skipped.
 */
#ifndef MERAK_KERNELS_CPU_PRODUCT_H
#define MERAK_KERNELS_CPU_PRODUCT_H

#include "kernels/cpu/vec.h"

/*
 * A register block is BLOCK_M rows of BLOCK_N vectors: these accumulators,
 * BLOCK_N vectors of B and an element of A have to fit in registers.  There are
 * 32 with AVX-512 and on aarch64, 16 otherwise.  Eight or more accumulators
 * hide the latency of the multiplications.
 */
#if defined(__AVX512F__)
#define BLOCK_M 8
#define BLOCK_N 2
#elif defined(__aarch64__)
#define BLOCK_M 6
#define BLOCK_N 4
#else
#define BLOCK_M 6
#define BLOCK_N 2
#endif

/* The elements of a product in a diagonal tile that are zero or not needed, and
 * therefore skipped. */
enum triangle {
    FULL,
    C_UPPER, /* C[m][n] is only needed for m <= n */
    B_UPPER, /* B[k][n] is zero for k > n */
    A_UPPER, /* A(m, k) is zero for m > k */
    A_LOWER, /* A(m, k) is zero for m < k */
};

struct product {
    const float *a; /* A(m, k) = a[m * a_pitch + k] */
    bool a_turned;  /* A(m, k) = a[k * a_pitch + m] */
    const float *b; /* [k][b_pitch] */
    float *c;       /* [m][c_pitch] */
    size_t a_pitch, b_pitch, c_pitch;
    size_t M, N, K; /* N: a multiple of LANES */
    size_t column;  /* triangles count columns from this number on */
    bool add;       /* C += */
    enum triangle triangle;
};

/* Row, or column, up to which a triangle is filled for column n: the end of
 * the block of vectors that n is in. */
static inline size_t product_columns_end(size_t n)
{
    return (n / (BLOCK_N * LANES) + 1) * BLOCK_N * LANES;
}

/* Compute rows m .. m + rows - 1, vectors of columns from n on. */
INLINE void product_block(const struct product *x, size_t m, size_t n,
                          size_t from, size_t end, int rows, int cols,
                          bool turned)
{
    const float *a =
        x->a + (turned ? m + from * x->a_pitch : m * x->a_pitch + from);
    const float *b = x->b + from * x->b_pitch + n;
    size_t a_row = turned ? 1 : x->a_pitch, a_step = turned ? x->a_pitch : 1;
    vf sum[BLOCK_M][BLOCK_N];

    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
    for (int j = 0; j < cols; j++)
        sum[i][j] = vset(0);
    for (size_t k = from; k < end; k++) {
        vf row[BLOCK_N];

        UNROLL
        for (int j = 0; j < cols; j++)
            row[j] = vload_f32(b + j * LANES);
        UNROLL
        for (int i = 0; i < rows; i++)
            UNROLL
        for (int j = 0; j < cols; j++)
            sum[i][j] += a[(size_t)i * a_row] * row[j];
        a += a_step;
        b += x->b_pitch;
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        float *c = x->c + (m + (size_t)i) * x->c_pitch + n;

        UNROLL
        for (int j = 0; j < cols; j++) {
            if (x->add)
                sum[i][j] += vload_f32(c + j * LANES);
            vstore_f32(c + j * LANES, sum[i][j]);
        }
    }
}

INLINE void product_rows(const struct product *x, size_t m, size_t n, int rows,
                         int cols, bool turned)
{
    size_t right = product_columns_end(x->column + n), below = m + (size_t)rows;
    size_t from = 0, end = x->K;

    if (x->triangle == A_UPPER)
        from = m < end ? m : end;
    if (x->triangle == B_UPPER && right < end)
        end = right;
    if (x->triangle == A_LOWER && below < end)
        end = below;
    product_block(x, m, n, from, end, rows, cols, turned);
}

INLINE void product_columns(const struct product *x, size_t n, int cols,
                            bool turned)
{
    size_t right = product_columns_end(x->column + n), m = 0;
    size_t M = x->triangle == C_UPPER && right < x->M ? right : x->M;

    for (; m + BLOCK_M <= M; m += BLOCK_M)
        product_rows(x, m, n, BLOCK_M, cols, turned);
    for (; m + 4 <= M; m += 4)
        product_rows(x, m, n, 4, cols, turned);
    for (; m < M; m++)
        product_rows(x, m, n, 1, cols, turned);
}

INLINE void product_all(const struct product *x, bool turned)
{
    size_t n = 0;

    for (; n < x->N && (x->column + n) % (BLOCK_N * LANES) != 0; n += LANES)
        product_columns(x, n, 1, turned);
    for (; n + BLOCK_N * LANES <= x->N; n += BLOCK_N * LANES)
        product_columns(x, n, BLOCK_N, turned);
    for (; n < x->N; n += LANES)
        product_columns(x, n, 1, turned);
}

static __attribute__((noinline)) void product(const struct product *x)
{
    if (x->a_turned)
        product_all(x, true);
    else
        product_all(x, false);
}

#endif
