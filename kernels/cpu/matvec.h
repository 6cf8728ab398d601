/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/matvec.h - y = w x + bias of one row x
 *
 * Generating one token reads every weight once, so a GEMM library's packing
 * costs more than the product: what counts is to read memory in order, in
 * several streams that the hardware prefetcher follows.  Software prefetch of
 * the next row was slower on a Sapphire Rapids, and with a hint that bypasses
 * the L2 cache it took twice as long.  An element of y is four sums of LANES
 * over k in ascending order; its bits depend on the shape alone.
 *
 * For bf16, vectors of 32-bit words are loaded, each a pair of elements; x is
 * split into f32 of its even and of its odd elements, once for all rows that a
 * thread takes.
 */
#ifndef MERAK_KERNELS_CPU_MATVEC_H
#define MERAK_KERNELS_CPU_MATVEC_H

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vec.h"

#define MATVEC_GRAIN ((size_t)16)      /* rows of w that a thread takes; */
#define MATVEC_GRAIN_BF16 ((size_t)64) /* more, since it first converts x */
#define MATVEC_MAX_K (MERAK_POOL_WORKSPACE / sizeof(float) - 4 * LANES)

/* Rows read at once: the four sums of each have to fit in registers. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define MATVEC_ROWS 4
#else
#define MATVEC_ROWS 2
#endif

typedef uint32_t vu_mem
    __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));

struct matvec {
    size_t n, k; /* k <= MATVEC_MAX_K */
    bool bf16, wide; /* y stays f32 */
    const void *w, *x; /* [n, k], [k] */
    void *y;           /* [n] */
    const float *bias; /* [n] or NULL */
};

/* y[0 .. rows) for `rows` consecutive rows of w. */
INLINE void matvec_f32(const float *w, const float *x, size_t k, int rows,
                       float *y)
{
    vf s[MATVEC_ROWS][4] = {{{0}}};
    size_t i = 0;

    for (; i + 4 * LANES <= k; i += 4 * LANES) {
        UNROLL
        for (size_t q = 0; q < 4; q++) {
            vf v = vload_f32(x + i + q * LANES);

            UNROLL
            for (int r = 0; r < rows; r++)
                s[r][q] += vload_f32(w + (size_t)r * k + i + q * LANES) * v;
        }
    }
    for (; i < k; i += LANES) {
        vf v = vload_n(x, i, k - i, false);

        UNROLL
        for (int r = 0; r < rows; r++)
            s[r][0] += vload_n(w + (size_t)r * k, i, k - i, false) * v;
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        y[r] = vsum((s[r][0] + s[r][1]) + (s[r][2] + s[r][3]));
}

INLINE vf matvec_even(vu pairs)
{
    return (vf)(pairs << 16);
}

INLINE vf matvec_odd(vu pairs)
{
    return (vf)(pairs & 0xffff0000u);
}

/* Pairs of w from elements 2 i, 2 i + 1 on; k - 2 i elements exist. */
INLINE vu matvec_pairs(const uint16_t *w, size_t i, size_t k)
{
    vu pairs = {0};

    if (k - 2 * i >= 2 * LANES)
        return *(const vu_mem *)(w + 2 * i);
    memcpy(&pairs, w + 2 * i, (k - 2 * i) * sizeof(*w));
    return pairs;
}

/* Add a vector of pairs to two sums of a row: of even and of odd elements. */
INLINE void matvec_add(vf *s, vu pairs, vf even, vf odd)
{
    s[0] += matvec_even(pairs) * even;
    s[1] += matvec_odd(pairs) * odd;
}

/* even, odd: elements of x, followed by zeros. */
INLINE void matvec_bf16(const uint16_t *w, const float *even, const float *odd,
                        size_t k, int rows, float *y)
{
    vf s[MATVEC_ROWS][4] = {{{0}}};
    size_t i = 0;

    for (; 2 * i + 4 * LANES <= k; i += 2 * LANES) {
        UNROLL
        for (size_t q = 0; q < 2; q++) {
            vf e = vload_f32(even + i + q * LANES);
            vf o = vload_f32(odd + i + q * LANES);

            UNROLL
            for (int r = 0; r < rows; r++)
                matvec_add(&s[r][2 * q],
                           *(const vu_mem *)(w + (size_t)r * k + 2 * i +
                                             2 * q * LANES),
                           e, o);
        }
    }
    for (; 2 * i < k; i += LANES) {
        vf e = vload_f32(even + i), o = vload_f32(odd + i);

        UNROLL
        for (int r = 0; r < rows; r++)
            matvec_add(s[r], matvec_pairs(w + (size_t)r * k, i, k), e, o);
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        y[r] = vsum((s[r][0] + s[r][1]) + (s[r][2] + s[r][3]));
}

INLINE void matvec_put(const struct matvec *mv, size_t row, float y)
{
    if (mv->bias != NULL)
        y += mv->bias[row];
    vstore_n(mv->y, row, 1, vset(y), mv->bf16 && !mv->wide);
}

/* Split x into even and odd elements, each followed by a vector of zeros. */
INLINE void matvec_halves(const struct matvec *mv, float *even, float *odd)
{
    const uint16_t *x = mv->x;
    size_t pairs = (mv->k + 1) / 2;

    for (size_t i = 0; i < pairs; i++) {
        uint32_t first = x[2 * i];
        uint32_t second = 2 * i + 1 < mv->k ? x[2 * i + 1] : 0;

        first <<= 16;
        second <<= 16;
        memcpy(even + i, &first, sizeof(first));
        memcpy(odd + i, &second, sizeof(second));
    }
    memset(even + pairs, 0, LANES * sizeof(*even));
    memset(odd + pairs, 0, LANES * sizeof(*odd));
}

INLINE size_t matvec_grain(const struct matvec *mv)
{
    return mv->bf16 ? MATVEC_GRAIN_BF16 : MATVEC_GRAIN;
}

INLINE void matvec_rows(const struct matvec *mv, size_t row, int rows,
                        const float *even, const float *odd)
{
    size_t at = row * mv->k;
    float y[MATVEC_ROWS];

    if (mv->bf16)
        matvec_bf16((const uint16_t *)mv->w + at, even, odd, mv->k, rows, y);
    else
        matvec_f32((const float *)mv->w + at, mv->x, mv->k, rows, y);
    for (int r = 0; r < rows; r++)
        matvec_put(mv, row + (size_t)r, y[r]);
}

static void matvec_item(void *arg, size_t item, int thread)
{
    const struct matvec *mv = arg;
    size_t grain = matvec_grain(mv), row = item * grain;
    size_t end = row + grain < mv->n ? row + grain : mv->n;
    float *even = merak_pool_workspace(thread);
    float *odd = even + (mv->k + 1) / 2 + LANES;

    if (mv->bf16)
        matvec_halves(mv, even, odd);
    for (; row + MATVEC_ROWS <= end; row += MATVEC_ROWS)
        matvec_rows(mv, row, MATVEC_ROWS, even, odd);
    for (; row < end; row++)
        matvec_rows(mv, row, 1, even, odd);
}

static inline void matvec(struct matvec *mv)
{
    size_t grain = matvec_grain(mv);

    merak_pool_run(matvec_item, mv, (mv->n + grain - 1) / grain);
}

#endif
