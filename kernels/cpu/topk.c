/* SPDX-License-Identifier: Apache-2.0 */
/* topk.c - of each row the largest elements, and where they were; what is
 * computed is in ref/ref_topk.c
 *
 * Magnitudes are ordered as their bits are.  The smallest that counts is found
 * from its highest bit down, with a pass that counts the elements above for
 * each: such passes are vectorized, and most rows need about half of the bits,
 * since none is needed after one that has exactly as many above.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#define ROWS 16             /* that a thread takes at a time */
#define NAN_BITS 0x7f800001 /* of magnitudes; all NaNs are alike */

struct topk {
    const struct merak_operand *from, *at, *to;
    size_t rows, K, C, W;
};

/* Magnitudes of a row, in words of 32 that zeros fill up. */
INLINE void fill_keys(const void *x, size_t C, bool bf16, int32_t *key)
{
    size_t i = 0;

    for (; i + LANES <= C; i += LANES) {
        vf f = bf16 ? from_bf16(*(const vh_mem *)((const uint16_t *)x + i))
                    : vload_f32((const float *)x + i);
        vi bits = (vi)f & 0x7fffffff;
        vi nan = bits > NAN_BITS;

        vstore_f32((float *)(void *)(key + i),
                   (vf)((nan & NAN_BITS) | (~nan & bits)));
    }
    for (; i < C; i++) {
        uint32_t bits = bf16 ? (uint32_t)((const uint16_t *)x)[i] << 16
                             : ((const uint32_t *)x)[i];

        bits &= 0x7fffffffu;
        key[i] = bits < NAN_BITS ? (int32_t)bits : NAN_BITS;
    }
    for (; i % 32 != 0; i++)
        key[i] = 0;
}

INLINE vi load_keys(const int32_t *key)
{
    return (vi)vload_f32((const float *)(const void *)key);
}

/* Elements of W words that are not below `least`, which is not 0. */
static size_t count(const int32_t *key, size_t W, int32_t least)
{
    vi n = {0};
    size_t sum = 0;

    for (size_t w = 0; w < W; w++) {
        UNROLL
        for (int i = 0; i < 32; i += LANES)
            n -= load_keys(key + w * 32 + i) >= least;
    }
    for (int i = 0; i < LANES; i++)
        sum += (size_t)n[i];
    return sum;
}

/* The least magnitude that counts; *equal_p: how many of those that have just
 * this one do, the others being left out. */
static int32_t least_of(const int32_t *key, size_t W, size_t K, bool bf16,
                        size_t *equal_p)
{
    int32_t least = 0;

    *equal_p = SIZE_MAX;
    for (int bit = 30; bit >= (bf16 ? 16 : 0); bit--) {
        int32_t higher = least | 1 << bit;
        size_t n = count(key, W, higher);

        if (n >= K)
            least = higher;
        if (n == K)
            return least;
    }
    *equal_p = K - count(key, W, least + 1);
    return least;
}

/* A bit for each lane that is set. */
INLINE uint32_t bits_of(vi mask)
{
#if defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(X86)
    return (uint32_t)X86(movemask)((vf)mask);
#else
    uint32_t bits = 0;

    for (int i = 0; i < LANES; i++)
        bits |= ((uint32_t)mask[i] & 1) << i;
    return bits;
#endif
}

/* Which of 32 elements, of which n exist, count; *equal_p: as above, of those
 * that are left. */
INLINE uint32_t word_of(const int32_t *key, size_t n, int32_t least,
                        size_t *equal_p)
{
    uint32_t above = 0, equal = 0;

    UNROLL
    for (int i = 0; i < 32; i += LANES) {
        vi k = load_keys(key + i);

        above |= bits_of(k > least) << i;
        equal |= bits_of(k == (vi){0} + least) << i;
    }
    if (n < 32)
        equal &= ((uint32_t)1 << n) - 1;
    for (; equal != 0 && *equal_p > 0; --*equal_p) {
        above |= equal & -equal;
        equal &= equal - 1;
    }
    return above;
}

/* An element of memory to another: both of the same type. */
INLINE void move(void *to, size_t k, const void *from, size_t i, bool bf16)
{
    if (bf16)
        ((uint16_t *)to)[k] = ((const uint16_t *)from)[i];
    else
        ((uint32_t *)to)[k] = ((const uint32_t *)from)[i];
}

/* Elements of a row that its bits name, in their order. */
static void take_row(const void *x, const uint32_t *word, size_t W, bool bf16,
                     void *v)
{
    size_t k = 0;

    for (size_t w = 0; w < W; w++) {
        for (uint32_t left = word[w]; left != 0; left &= left - 1)
            move(v, k++, x, w * 32 + (size_t)__builtin_ctz(left), bf16);
    }
}

static void unpack_row(const void *v, const uint32_t *word, size_t W, bool bf16,
                       void *y)
{
    size_t k = 0;

    for (size_t w = 0; w < W; w++) {
        for (uint32_t left = word[w]; left != 0; left &= left - 1)
            move(y, w * 32 + (size_t)__builtin_ctz(left), v, k++, bf16);
    }
}

static void pack_row(const void *x, size_t K, size_t C, bool bf16, int32_t *key,
                     uint32_t *word, void *v)
{
    size_t W = (C + 31) / 32, equal;
    int32_t least;

    if (bf16)
        fill_keys(x, C, true, key);
    else
        fill_keys(x, C, false, key);
    least = least_of(key, W, K, bf16, &equal);
    for (size_t i = 0; i < C; i += 32)
        word[i / 32] = word_of(key + i, C - i, least, &equal);
    take_row(x, word, W, bf16, v);
}

/* Row r of an operand, of so many elements. */
static void *row_of(const struct merak_operand *op, size_t r, size_t n)
{
    return (char *)op->data + r * n * merak_dtype_bytes(op->dtype);
}

static void pack_rows(void *arg, size_t item, int thread)
{
    const struct topk *t = arg;

    for (size_t r = item * ROWS; r < cpu_range_end(item, ROWS, t->rows); r++)
        pack_row(row_of(t->from, r, t->C), t->K, t->C,
                 t->from->dtype == MERAK_BF16, merak_pool_workspace(thread),
                 row_of(t->at, r, t->W), row_of(t->to, r, t->K));
}

static void unpack_rows(void *arg, size_t item, int thread)
{
    const struct topk *t = arg;

    (void)thread;
    for (size_t r = item * ROWS; r < cpu_range_end(item, ROWS, t->rows); r++) {
        void *y = row_of(t->to, r, t->C);

        memset(y, 0, t->C * merak_dtype_bytes(t->to->dtype));
        unpack_row(row_of(t->from, r, t->K), row_of(t->at, r, t->W), t->W,
                   t->to->dtype == MERAK_BF16, y);
    }
}

static void take_rows(void *arg, size_t item, int thread)
{
    const struct topk *t = arg;

    (void)thread;
    for (size_t r = item * ROWS; r < cpu_range_end(item, ROWS, t->rows); r++)
        take_row(row_of(t->from, r, t->C), row_of(t->at, r, t->W), t->W,
                 t->from->dtype == MERAK_BF16, row_of(t->to, r, t->K));
}

static enum merak_status run(const struct merak_kernel_call *call, int at,
                             int to, merak_item_fn rows,
                             struct merak_error *err)
{
    struct topk t = {.from = &call->operand[0],
                     .at = &call->operand[at],
                     .to = &call->operand[to],
                     .K = (size_t)call->attrs->i[0],
                     .C = (size_t)call->attrs->i[1]};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    t.W = (t.C + 31) / 32;
    if (t.W * 32 * sizeof(int32_t) > MERAK_POOL_WORKSPACE)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the cpu backend packs rows of up to %zu elements, "
                          "not %zu",
                          MERAK_POOL_WORKSPACE / sizeof(int32_t), t.C);
    t.rows = merak_local_span(t.from, 0, t.from->local.ndim - 1);
    merak_pool_run(rows, &t, cpu_range_count(t.rows, ROWS));
    return MERAK_OK;
}

CPU_KERNEL(topk_pack)
{
    return run(call, 2, 1, pack_rows, err);
}

CPU_KERNEL(topk_unpack)
{
    return run(call, 1, 2, unpack_rows, err);
}

CPU_KERNEL(topk_take)
{
    return run(call, 1, 2, take_rows, err);
}
