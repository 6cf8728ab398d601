/* SPDX-License-Identifier: Apache-2.0 */
/* rng.c - counter-based random numbers (Philox4x32-10) */
#include "config.h"

#include "base/rng.h"

#include <math.h>

#define FEISTEL_ROUNDS 6

struct merak_rng_block merak_philox(const uint32_t key[2],
                                    const uint32_t counter[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1];
    uint32_t c2 = counter[2], c3 = counter[3];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;

        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct merak_rng_block){{c0, c1, c2, c3}};
}

static uint64_t finalize(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t merak_rng_mix(uint64_t a, uint64_t b)
{
    return finalize(a + 0x9e3779b97f4a7c15ull * (b + 1));
}

uint64_t merak_rng_key(uint64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325ull;

    for (const char *p = name; *p != '\0'; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3ull;
    return merak_rng_mix(h, seed);
}

static struct merak_rng_block block_at(uint64_t key, uint64_t block)
{
    const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    const uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};

    return merak_philox(k, c);
}

float merak_rng_uniform(uint64_t key, uint64_t index)
{
    struct merak_rng_block b = block_at(key, index / 4);

    return (float)(b.word[index % 4] >> 8) * 0x1p-24f;
}

float merak_rng_normal(uint64_t key, uint64_t index)
{
    struct merak_rng_block b = block_at(key, index / 2);
    const uint32_t *w = &b.word[2 * (index % 2)];
    double u1 = ((double)w[0] + 1.0) * 0x1p-32; /* (0, 1] */
    double u2 = (double)w[1] * 0x1p-32;

    return (float)(sqrt(-2.0 * log(u1)) * cos(6.283185307179586 * u2));
}

static uint64_t feistel(uint64_t key, int half_bits, uint64_t x)
{
    uint64_t mask = (1ull << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;

    for (int round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t f = merak_rng_mix(key + (uint64_t)round, right) & mask;
        uint64_t next = left ^ f;

        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t merak_rng_permute(uint64_t key, uint64_t n, uint64_t i)
{
    int half_bits = 1;

    while (half_bits < 32 && (1ull << (2 * half_bits)) < n)
        half_bits++;
    /* The network permutes [0, 4^half_bits), at most 4 n; walking the cycle
     * until it returns below n permutes [0, n). */
    do {
        i = feistel(key, half_bits, i);
    } while (i >= n);
    return i;
}
