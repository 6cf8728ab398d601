/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/philox.h - Philox in vector lanes, one block per 64 bits */
#ifndef MERAK_KERNELS_CPU_PHILOX_H
#define MERAK_KERNELS_CPU_PHILOX_H

#include "kernels/cpu/vec.h"

#define PHILOX_BLOCKS (LANES / 2)        /* blocks at once .. */
#define PHILOX_WORDS (4 * PHILOX_BLOCKS) /* .. of four words each */

/* The low halves of a's lanes times b. */
INLINE vq multiply_low(vq a, uint32_t b)
{
#if defined(__AVX512F__)
    return (vq)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b));
#elif defined(__AVX2__)
    return (vq)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(__SSE2__)
    return (vq)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
    return (a & 0xffffffffu) * (uint64_t)b;
#endif
}

/* Lanes of a and b interleaved: the first and the second half of the result. */
#if LANES == 16
#define TURNS_1 0, 8, 1, 9, 2, 10, 3, 11
#define TURNS_2 4, 12, 5, 13, 6, 14, 7, 15
#elif LANES == 8
#define TURNS_1 0, 4, 1, 5
#define TURNS_2 2, 6, 3, 7
#else
#define TURNS_1 0, 2
#define TURNS_2 1, 3
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define VTURNS(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define VTURNS(a, b, ...) __builtin_shuffle(a, b, (vq){__VA_ARGS__})
#endif

/* Salmon et al., SC'11; as merak_philox() with counters {block, 0, 0}.  The
 * upper halves of c0 .. c3 are garbage. */
INLINE void philox(uint64_t key, uint64_t block, uint32_t word[PHILOX_WORDS])
{
    const uint64_t low = 0xffffffffu;
    vq c0, c1, c2 = {0}, c3 = {0};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    UNROLL
    for (uint64_t i = 0; i < PHILOX_BLOCKS; i++)
        c0[i] = block + i;
    c1 = c0 >> 32;
    for (int round = 0; round < 10; round++) {
        vq p0 = multiply_low(c0, 0xD2511F53u);
        vq p1 = multiply_low(c2, 0xCD9E8D57u);

        c0 = (p1 >> 32) ^ c1 ^ (uint64_t)k0;
        c2 = (p0 >> 32) ^ c3 ^ (uint64_t)k1;
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    c0 = (c0 & low) | c1 << 32;
    c2 = (c2 & low) | c3 << 32;
    c1 = VTURNS(c0, c2, TURNS_1);
    c3 = VTURNS(c0, c2, TURNS_2);
    memcpy(word, &c1, sizeof(c1));
    memcpy(word + PHILOX_WORDS / 2, &c3, sizeof(c3));
}

#endif
