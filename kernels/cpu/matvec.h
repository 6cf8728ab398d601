/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/matvec.h - y = w x + bias of one row x
 *
 * One token of generated text takes every weight once and nothing twice, so
 * that a product library's packing costs more than the product: what counts
 * is that memory is read in the order it lies, row after row, and ahead.  An
 * element of y is four sums of LANES over k in ascending order; its bits
 * depend on the shape alone.
 *
 * Of bf16 a vector of words is loaded, each a pair: x comes as f32 of its even
 * and of its odd elements, laid out once for all rows that a thread takes.
 */
#ifndef MERAK_KERNELS_CPU_MATVEC_H
#define MERAK_KERNELS_CPU_MATVEC_H

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vec.h"

#define MATVEC_GRAIN ((size_t)16)      /* rows of w that a thread takes, */
#define MATVEC_GRAIN_BF16 ((size_t)64) /* which lays x out for them first */
#define MATVEC_AHEAD 2048 /* bytes, that memory is asked for before */
#define MATVEC_MAX_K (MERAK_POOL_WORKSPACE / sizeof(float) - 4 * LANES)

typedef uint32_t vu_mem
    __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));

struct matvec {
    size_t n, k; /* k <= MATVEC_MAX_K */
    bool bf16;
    const void *w, *x; /* [n, k], [k] */
    void *y;           /* [n] */
    const float *bias; /* [n] or NULL */
};

INLINE float matvec_f32(const float *w, const float *x, size_t k)
{
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    size_t i = 0;

    for (; i + 4 * LANES <= k; i += 4 * LANES) {
        for (size_t b = 0; b < 4 * VECTOR_BYTES; b += 64)
            __builtin_prefetch((const char *)(w + i) + MATVEC_AHEAD + b, 0, 0);
        s0 += vload_f32(w + i) * vload_f32(x + i);
        s1 += vload_f32(w + i + LANES) * vload_f32(x + i + LANES);
        s2 += vload_f32(w + i + 2 * LANES) * vload_f32(x + i + 2 * LANES);
        s3 += vload_f32(w + i + 3 * LANES) * vload_f32(x + i + 3 * LANES);
    }
    for (; i < k; i += LANES)
        s0 += vload_n(w, i, k - i, false) * vload_n(x, i, k - i, false);
    return vsum((s0 + s1) + (s2 + s3));
}

INLINE vf matvec_even(vu pairs)
{
    return (vf)(pairs << 16);
}

INLINE vf matvec_odd(vu pairs)
{
    return (vf)(pairs & 0xffff0000u);
}

/* Pairs 2 i, 2 i + 1 and on of w, of which k - 2 i elements are there. */
INLINE vu matvec_pairs(const uint16_t *w, size_t i, size_t k)
{
    vu pairs = {0};

    if (k - 2 * i >= 2 * LANES)
        return *(const vu_mem *)(w + 2 * i);
    memcpy(&pairs, w + 2 * i, (k - 2 * i) * sizeof(*w));
    return pairs;
}

/* even, odd: of x, zeros behind. */
INLINE float matvec_bf16(const uint16_t *w, const float *even, const float *odd,
                         size_t k)
{
    vf s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    size_t i = 0;

    for (; 2 * i + 4 * LANES <= k; i += 2 * LANES) {
        vu a = *(const vu_mem *)(w + 2 * i);
        vu b = *(const vu_mem *)(w + 2 * i + 2 * LANES);

        for (size_t at = 0; at < 2 * VECTOR_BYTES; at += 64)
            __builtin_prefetch((const char *)(w + 2 * i) + MATVEC_AHEAD + at, 0,
                               0);
        s0 += matvec_even(a) * vload_f32(even + i);
        s1 += matvec_odd(a) * vload_f32(odd + i);
        s2 += matvec_even(b) * vload_f32(even + i + LANES);
        s3 += matvec_odd(b) * vload_f32(odd + i + LANES);
    }
    for (; 2 * i < k; i += LANES) {
        vu a = matvec_pairs(w, i, k);

        s0 += matvec_even(a) * vload_f32(even + i);
        s1 += matvec_odd(a) * vload_f32(odd + i);
    }
    return vsum((s0 + s1) + (s2 + s3));
}

INLINE void matvec_put(const struct matvec *mv, size_t row, float y, bool bf16)
{
    if (mv->bias != NULL)
        y += mv->bias[row];
    vstore_n(mv->y, row, 1, vset(y), bf16);
}

/* x in two halves, each with a vector of zeros behind. */
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

static void matvec_item(void *arg, size_t item, int thread)
{
    const struct matvec *mv = arg;
    size_t grain = matvec_grain(mv), row = item * grain;
    size_t end = row + grain < mv->n ? row + grain : mv->n;
    float *even = merak_pool_workspace(thread);
    float *odd = even + (mv->k + 1) / 2 + LANES;

    if (mv->bf16)
        matvec_halves(mv, even, odd);
    for (; row < end; row++) {
        size_t at = row * mv->k;

        if (mv->bf16)
            matvec_put(
                mv, row,
                matvec_bf16((const uint16_t *)mv->w + at, even, odd, mv->k),
                true);
        else
            matvec_put(mv, row,
                       matvec_f32((const float *)mv->w + at, mv->x, mv->k),
                       false);
    }
}

static inline void matvec(struct matvec *mv)
{
    size_t grain = matvec_grain(mv);

    merak_pool_run(matvec_item, mv, (mv->n + grain - 1) / grain);
}

#endif
