/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/vec.h - one vector register of floats at a time
 *
 * Uses the vector extensions of gcc and clang and not a loop vectorizer, so
 * that the order of every sum is explicit: it is the same for any address.  A
 * vector is as wide as the registers of the instruction set that the file is
 * compiled for, 16 floats with AVX-512, 8 with AVX2, 4 elsewhere: gcc keeps
 * wider ones in memory.  Operands are f32 or bf16 in memory, f32 here; `bf16`
 * is a constant wherever these are inlined.
 */
#ifndef MERAK_KERNELS_CPU_VEC_H
#define MERAK_KERNELS_CPU_VEC_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

/* LANES: floats in a vector; LANE_IDS: 0, 1, 2, ...  X86(op): the intrinsic
 * `op` on floats of a whole register. */
#if defined(__AVX512F__)
#define LANES 16
#define LANE_IDS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define X86(op) _mm512_##op##_ps
#elif defined(__AVX2__)
#define LANES 8
#define LANE_IDS 0, 1, 2, 3, 4, 5, 6, 7
#define X86(op) _mm256_##op##_ps
#else
#define LANES 4
#define LANE_IDS 0, 1, 2, 3
#ifdef __SSE2__
#define X86(op) _mm_##op##_ps
#endif
#endif
#define VECTOR_BYTES (LANES * 4)

/* For short loops over registers: they must be unrolled to avoid spills. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* Select lanes of a (0 .. LANES - 1) and b (LANES and up) by number. */
#if defined(__clang__) || __GNUC__ >= 12
#define VSHUFFLE_OF(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define VSHUFFLE_OF(type, a, b, ...) \
    __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif
#define VSHUFFLE(a, b, ...) VSHUFFLE_OF(vi, a, b, __VA_ARGS__)
#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t vu __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t vh __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef double vd __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t vq __attribute__((vector_size(VECTOR_BYTES)));
/* the same in memory, at any address */
typedef float vf_mem
    __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef float vf_half_mem
    __attribute__((vector_size(VECTOR_BYTES / 2), aligned(4), may_alias));
typedef uint16_t vh_mem
    __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

INLINE vf vset(float x)
{
    return (vf){0} + x;
}

INLINE vf vselect(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* a > b ? a : b, and a < b ? a : b; the result is b if either is NaN. */
INLINE vf vmax(vf a, vf b)
{
#ifdef X86
    return (vf)X86(max)(a, b);
#else
    return vselect(a > b, a, b);
#endif
}

INLINE vf vmin(vf a, vf b)
{
#ifdef X86
    return (vf)X86(min)(a, b);
#else
    return vselect(a < b, a, b);
#endif
}

INLINE vf vsqrt(vf x)
{
#ifdef X86
    return (vf)X86(sqrt)(x);
#else
    for (int i = 0; i < LANES; i++)
        x[i] = sqrtf(x[i]);
    return x;
#endif
}

INLINE vf vload_f32(const float *p)
{
    return *(const vf_mem *)p;
}

INLINE void vstore_f32(float *p, vf x)
{
    *(vf_mem *)p = x;
}

INLINE vf from_bf16(vh h)
{
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

/* Round to nearest even; NaN stays NaN.  AVX-512 has its own version since
 * compilers translate the general form badly: masks as vectors, halves. */
#ifdef __AVX512F__
INLINE vh to_bf16(vf x)
{
    __m512i u = _mm512_castps_si512((__m512)x);
    __m512i high = _mm512_srli_epi32(u, 16);
    __m512i half =
        _mm512_add_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)),
                         _mm512_set1_epi32(0x7fff));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, half), 16);
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);

    r = _mm512_mask_or_epi32(r, nan, high, _mm512_set1_epi32(0x40));
    return (vh)_mm512_cvtepi32_epi16(r);
}
#else
INLINE vh to_bf16(vf x)
{
    vu u = (vu)x;
    vu rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    vi nan = (vi)((u & 0x7fffffff) > 0x7f800000);
    vu r = ((vu)nan & (u >> 16 | 0x40)) | (~(vu)nan & rounded);

    return __builtin_convertvector(r, vh);
}
#endif

/* Elements i .. i + LANES - 1 of p. */
INLINE vf vload(const void *p, size_t i, bool bf16)
{
    if (bf16)
        return from_bf16(*(const vh_mem *)((const uint16_t *)p + i));
    return vload_f32((const float *)p + i);
}

INLINE void vstore(void *p, size_t i, vf x, bool bf16)
{
    if (bf16)
        *(vh_mem *)((uint16_t *)p + i) = to_bf16(x);
    else
        vstore_f32((float *)p + i, x);
}

/* Load the first n lanes; the others are zero. */
INLINE vf vload_n(const void *p, size_t i, size_t n, bool bf16)
{
    if (n >= LANES)
        return vload(p, i, bf16);
    if (bf16) {
        vh h = {0};

        memcpy(&h, (const uint16_t *)p + i, n * sizeof(uint16_t));
        return from_bf16(h);
    } else {
        vf x = {0};

        memcpy(&x, (const float *)p + i, n * sizeof(float));
        return x;
    }
}

INLINE void vstore_n(void *p, size_t i, size_t n, vf x, bool bf16)
{
    if (n >= LANES) {
        vstore(p, i, x, bf16);
    } else if (bf16) {
        vh h = to_bf16(x);

        memcpy((uint16_t *)p + i, &h, n * sizeof(uint16_t));
    } else {
        memcpy((float *)p + i, &x, n * sizeof(float));
    }
}

/* Lanes 0 .. n - 1 of x, `fill` in the others. */
INLINE vf vkeep(vf x, size_t n, float fill)
{
    const vi lane = {LANE_IDS};

    return vselect(lane < (int32_t)(n < LANES ? n : LANES), x, vset(fill));
}

/* Move lanes by half a vector, a quarter, ... */
#if LANES == 16
#define VDOWN8(x) \
    VSHUFFLE(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define VDOWN4(x) \
    VSHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15)
#define VDOWN2(x) \
    VSHUFFLE(x, x, 2, 3, 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define VDOWN1(x) \
    VSHUFFLE(x, x, 1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#elif LANES == 8
#define VDOWN4(x) VSHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3)
#define VDOWN2(x) VSHUFFLE(x, x, 2, 3, 0, 1, 4, 5, 6, 7)
#define VDOWN1(x) VSHUFFLE(x, x, 1, 0, 2, 3, 4, 5, 6, 7)
#else
#define VDOWN2(x) VSHUFFLE(x, x, 2, 3, 0, 1)
#define VDOWN1(x) VSHUFFLE(x, x, 1, 0, 2, 3)
#endif

/* Sum of the lanes, halves first. */
INLINE float vsum(vf x)
{
#if LANES >= 16
    x += VDOWN8(x);
#endif
#if LANES >= 8
    x += VDOWN4(x);
#endif
    x += VDOWN2(x);
    x += VDOWN1(x);
    return x[0];
}

INLINE float vmax_lane(vf x)
{
#if LANES >= 16
    x = vmax(x, VDOWN8(x));
#endif
#if LANES >= 8
    x = vmax(x, VDOWN4(x));
#endif
    x = vmax(x, VDOWN2(x));
    x = vmax(x, VDOWN1(x));
    return x[0];
}

/* e^x = (result + 1) * two_n, for vexp() and vtanh(). */
INLINE vf vexp_parts(vf x, vf *two_n)
{
    const float shift = 12582912.0f; /* 1.5 2^23: rounds to an integer */
    vf t, n, r, p;

    x = vmin(vset(88.3f), vmax(vset(-87.3f), x));
    t = x * 1.44269504f + shift;
    n = t - shift;
    r = x - n * 0.693359375f; /* exact: nine bits times n */
    r = r - n * -2.12194440e-4f;
    p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r * r + r;
    *two_n = (vf)(((vi)t + (127 - 0x4b400000)) << 23);
    return p;
}

/*
 * e^x within 2 units in the last place for x in [-87.3, 88.3], clamped outside,
 * NaN for NaN.  x = n log 2 + r, |r| <= log(2) / 2; e^r is the Taylor sum up to
 * r^7 (relative error 4e-9), and 2^n is made from the exponent's bits.
 */
INLINE vf vexp(vf x)
{
    vf two_n, p = vexp_parts(x, &two_n);

    return (p + 1.0f) * two_n;
}

/* tanh(x) = (e^2x - 1) / (e^2x + 1), with e^2x - 1 computed from vexp_parts()
 * so that small x lose no precision. */
INLINE vf vtanh(vf x)
{
    vf two_n, less_1, p;

    p = vexp_parts(vmin(vset(20.0f), vmax(vset(-20.0f), 2.0f * x)), &two_n);
    less_1 = p * two_n + (two_n - 1.0f);
    return less_1 / (less_1 + 2.0f);
}

#endif
