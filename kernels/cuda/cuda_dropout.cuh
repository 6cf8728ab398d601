/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_dropout.cuh - the mask of dropout, by words of
 * merak_dropout_key(), geometry.h */
#ifndef MERAK_KERNELS_CUDA_CUDA_DROPOUT_CUH
#define MERAK_KERNELS_CUDA_CUDA_DROPOUT_CUH

#include "kernels/cuda/cuda_device.cuh"

extern "C" {
#include "base/rng.h"
}

struct merak_drop {
    uint64_t key; /* of seed and step */
    uint64_t first_sample, stream, pass;
    uint32_t threshold; /* of 24-bit words: at least this is kept */
    float scale;        /* of what is kept */
};

static inline merak_drop drop_of(const struct merak_step *step, int64_t stream,
                                 double p)
{
    merak_drop d = {};

    d.key = merak_rng_mix(merak_rng_key(step->seed, "dropout"), step->step);
    d.first_sample = step->sample;
    d.stream = (uint64_t)stream;
    d.pass = (uint64_t)step->pass;
    d.threshold = (uint32_t)ceil(p * 16777216.0);
    d.scale = (float)(1 / (1 - p));
    return d;
}

/* merak_dropout_key() of a sample. */
static __device__ __forceinline__ uint64_t drop_key(const merak_drop &d,
                                                    size_t sample)
{
    uint64_t key = mix(mix(d.key, d.first_sample + sample), d.stream);

    return d.pass == 0 ? key : mix(key, d.pass);
}

static __device__ __forceinline__ bool is_kept(const merak_drop &d,
                                               uint32_t word)
{
    return word >> 8 >= d.threshold;
}

#endif
