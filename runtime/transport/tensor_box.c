/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_box.c - copying and combining boxes of tensors */
#include "config.h"

#include "runtime/transport/tensor_box.h"

#include <string.h>

/* Elements summed at a time: the accumulator stays in the L1 cache. */
#define BLOCK 1024

union block {
    float f32[BLOCK];
    double f64[BLOCK];
    int32_t i32[BLOCK];
};

static void start_view(struct merak_view *v, const void *base,
                       enum merak_dtype dtype)
{
    v->base = (char *)(uintptr_t)base;
    v->elem = merak_dtype_bytes(dtype);
    v->in_run = v->offset = 0;
    v->n_outer = 0; /* other fields of outer dims are set with them */
}

/*
 * A run consists of the trailing dims that the box spans entirely and the
 * first dim that it does not.
 */
void merak_view_box(struct merak_view *v, const void *base,
                    enum merak_dtype dtype, const struct merak_box *box)
{
    size_t stride = 1, count = 1;
    int d = box->ndim;
    bool whole = true;

    start_view(v, base, dtype);
    v->run = 1;
    while (--d >= 0) {
        v->offset += box->lo[d] * stride;
        count *= box->len[d];
        if (whole) {
            v->run *= box->len[d];
            whole = box->len[d] == box->full[d];
        } else {
            v->at[v->n_outer] = 0;
            v->len[v->n_outer] = box->len[d];
            v->stride[v->n_outer++] = stride;
        }
        stride *= box->full[d];
    }
    v->left = count;
}

void merak_view_flat(struct merak_view *v, const void *base,
                     enum merak_dtype dtype, size_t count)
{
    start_view(v, base, dtype);
    v->run = count;
    v->left = count;
}

static void next_run(struct merak_view *v)
{
    v->in_run = 0;
    for (int d = 0; d < v->n_outer; d++) {
        v->offset += v->stride[d];
        if (++v->at[d] < v->len[d])
            return;
        v->offset -= v->stride[d] * v->len[d];
        v->at[d] = 0;
    }
}

/* The next run of at most max elements; *n_p gets its length (0: the end). */
static void *take_some(struct merak_view *v, size_t max, size_t *n_p)
{
    char *p = v->base + (v->offset + v->in_run) * v->elem;
    size_t n = v->run - v->in_run;

    if (n > v->left)
        n = v->left;
    if (n > max)
        n = max;
    v->left -= n;
    v->in_run += n;
    if (v->in_run == v->run && v->left > 0)
        next_run(v);
    *n_p = n;
    return p;
}

size_t merak_view_copy(struct merak_view *to, struct merak_view *from,
                       size_t max)
{
    size_t done = 0;

    while (done < max) {
        size_t n, m;
        char *src = take_some(from, max - done, &n);

        if (n == 0)
            break;
        for (size_t part = 0; part < n; part += m) {
            char *dst = take_some(to, n - part, &m);

            if (m == 0)
                return done + part; /* the views differ in length */
            if (dst != src + part * from->elem)
                memcpy(dst, src + part * from->elem, m * from->elem);
        }
        done += n;
    }
    return done;
}

/* --- the arithmetic of one run ------------------------------------------ */

static float bf16_to_f32(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Round to nearest, ties to even; a NaN stays one. */
static uint16_t f32_to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define DEFINE_ACCUMULATE(suffix, acc_type, src_type, load)                 \
    static void accumulate_##suffix(acc_type *restrict acc,                 \
                                    const src_type *restrict src, size_t n, \
                                    enum merak_combine how)                 \
    {                                                                       \
        if (how == MERAK_STORE) {                                           \
            _Pragma("omp simd") for (size_t i = 0; i < n; i++) acc[i] =     \
                load(src[i]);                                               \
        } else if (how == MERAK_SUM) {                                      \
            _Pragma("omp simd") for (size_t i = 0; i < n; i++) acc[i] +=    \
                load(src[i]);                                               \
        } else {                                                            \
            _Pragma("omp simd") for (size_t i = 0; i < n; i++)              \
            {                                                               \
                acc_type x = load(src[i]);                                  \
                /* a NaN must come through, so it counts as greater */      \
                acc[i] = acc[i] >= x || acc[i] != acc[i] ? acc[i] : x;      \
            }                                                               \
        }                                                                   \
    }
DEFINE_ACCUMULATE(f32, float, float, )
DEFINE_ACCUMULATE(bf16, float, uint16_t, bf16_to_f32)
DEFINE_ACCUMULATE(f64, double, double, )
DEFINE_ACCUMULATE(i32, int32_t, int32_t, )

static void accumulate(union block *acc, size_t at, const void *src, size_t n,
                       enum merak_combine how, enum merak_dtype dtype)
{
    switch (dtype) {
    case MERAK_F32:
        accumulate_f32(acc->f32 + at, src, n, how);
        break;
    case MERAK_BF16:
        accumulate_bf16(acc->f32 + at, src, n, how);
        break;
    case MERAK_F64:
        accumulate_f64(acc->f64 + at, src, n, how);
        break;
    default:
        accumulate_i32(acc->i32 + at, src, n, how);
        break;
    }
}

static void store(void *dst, const union block *acc, size_t at, size_t n,
                  enum merak_dtype dtype)
{
    uint16_t *half = dst;

    if (dtype == MERAK_F64) {
        memcpy(dst, acc->f64 + at, n * sizeof(double));
    } else if (dtype != MERAK_BF16) {
        memcpy(dst, acc->f32 + at, n * sizeof(float));
    } else {
        for (size_t i = 0; i < n; i++)
            half[i] = f32_to_bf16(acc->f32[at + i]);
    }
}

static void load_block(union block *acc, struct merak_view *from, size_t count,
                       enum merak_combine how, enum merak_dtype dtype)
{
    size_t n;

    for (size_t at = 0; at < count; at += n) {
        const void *src = take_some(from, count - at, &n);

        if (n == 0)
            break;
        accumulate(acc, at, src, n, how, dtype);
    }
}

static void store_block(struct merak_view *to, const union block *acc,
                        size_t count, enum merak_dtype dtype)
{
    size_t n;

    for (size_t at = 0; at < count; at += n) {
        void *dst = take_some(to, count - at, &n);

        if (n == 0)
            break;
        store(dst, acc, at, n, dtype);
    }
}

size_t merak_view_combine(struct merak_view *to, int n_to,
                          struct merak_view *from, int n,
                          enum merak_combine combine, enum merak_dtype dtype,
                          size_t max)
{
    union block acc;
    size_t done = 0;

    while (done < max && from[0].left > 0) {
        size_t count = from[0].left;

        if (count > BLOCK)
            count = BLOCK;
        if (count > max - done)
            count = max - done;
        for (int i = 0; i < n; i++)
            load_block(&acc, &from[i], count, i == 0 ? MERAK_STORE : combine,
                       dtype);
        for (int i = 0; i < n_to; i++)
            store_block(&to[i], &acc, count, dtype);
        done += count;
    }
    return done;
}
