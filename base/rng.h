/* SPDX-License-Identifier: Apache-2.0 */
/* base/rng.h - counter-based random numbers
 *
 * Philox4x32-10 (Salmon et al., SC'11): a pure function of (key, counter), so
 * that a weight, a dropout mask or a sample order never depends on which rank
 * computes it.
 */
#ifndef MERAK_BASE_RNG_H
#define MERAK_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

struct merak_rng_block {
    uint32_t word[4];
};

/* The raw generator: key 2 words, counter 4 words. */
struct merak_rng_block merak_philox(const uint32_t key[2],
                                    const uint32_t counter[4]);
/* A 64-bit key from a seed and a name (FNV-1a of the name, mixed). */
uint64_t merak_rng_key(uint64_t seed, const char *name);
/* Mix two 64-bit words into one (splitmix64 finalizer over a + golden*b). */
uint64_t merak_rng_mix(uint64_t a, uint64_t b);
/* Element `index` of stream `key`: uniform in [0, 1), 24 bits. */
float merak_rng_uniform(uint64_t key, uint64_t index);
/* Element `index` of stream `key`: standard normal (Box-Muller in double,
 * rounded once). */
float merak_rng_normal(uint64_t key, uint64_t index);
/*
 * A keyed permutation of [0, n): where index i goes.  Stateless (a Feistel
 * network with cycle walking), a bijection for every key and n >= 1.
 */
uint64_t merak_rng_permute(uint64_t key, uint64_t n, uint64_t i);

#endif
