/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_math.h - the arithmetic of the CUDA kernels, element by
 * element
 *
 * The same source for devices and hosts (a C++ compiler): f32 in registers,
 * bf16 in memory.  The equations are those of kernels/ref/.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_MATH_H
#define MERAK_KERNELS_CUDA_CUDA_MATH_H

#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

#define MERAK_BOTH static __host__ __device__ __forceinline__

/* bf16 in memory, as a distinct type for templates. */
struct merak_bf16 {
    uint16_t bits;
};

MERAK_BOTH float to_f32(float x)
{
    return x;
}

MERAK_BOTH float bits_to_f32(uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    union {
        uint32_t u;
        float f;
    } x = {bits};

    return x.f;
#endif
}

MERAK_BOTH float to_f32(merak_bf16 x)
{
    return bits_to_f32((uint32_t)x.bits << 16);
}

/* Round to nearest even. */
MERAK_BOTH uint16_t to_bf16_bits(float f)
{
#ifdef __CUDA_ARCH__
    return __bfloat16_as_ushort(__float2bfloat16_rn(f));
#else
    union {
        float f;
        uint32_t u;
    } x = {f};

    if ((x.u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((x.u >> 16) | 0x40u); /* quiet NaN */
    return (uint16_t)((x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16);
#endif
}

MERAK_BOTH void from_f32(float *to, float x)
{
    *to = x;
}

MERAK_BOTH void from_f32(merak_bf16 *to, float x)
{
    to->bits = to_bf16_bits(x);
}

/* Hendrycks and Gimpel 2016 (arXiv:1606.08415): x Phi(x), or its tanh form. */
MERAK_BOTH float gelu(float x, bool tanh_form)
{
    const float sqrt_2_over_pi = 0.79788456080286535588f;

    if (tanh_form)
        return 0.5f * x *
               (1.0f + tanhf(sqrt_2_over_pi * (x + 0.044715f * x * x * x)));
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
}

MERAK_BOTH float gelu_slope(float x, bool tanh_form)
{
    const float sqrt_2_over_pi = 0.79788456080286535588f;
    float t;

    if (!tanh_form)
        return 0.5f * (1.0f + erff(x * 0.70710678118654752440f)) +
               x * 0.39894228040143267794f * expf(-0.5f * x * x);
    t = tanhf(sqrt_2_over_pi * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * sqrt_2_over_pi *
                                   (1.0f + 3.0f * 0.044715f * x * x);
}

MERAK_BOTH float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The derivative of x sigmoid(x). */
MERAK_BOTH float silu_slope(float x)
{
    float s = sigmoid(x);

    return s * (1.0f + x * (1.0f - s));
}

/* What AdamW needs in addition to the element: rate = lr / (1 - beta1^t),
 * root = 1 / sqrt(1 - beta2^t), decay = lr * weight decay, or 0. */
struct merak_adamw {
    float beta1, beta2, rate, root, eps, decay;
};

/* Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2. */
MERAK_BOTH void adamw_element(const merak_adamw &a, float g, float *w, float *m,
                              float *v)
{
    *m = *m * a.beta1 + g * (1.0f - a.beta1);
    *v = *v * a.beta2 + g * g * (1.0f - a.beta2);
    *w -= *m * a.rate / (sqrtf(*v) * a.root + a.eps) + *w * a.decay;
}

/* merak_rng_mix(), base/rng.h. */
MERAK_BOTH uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a + 0x9e3779b97f4a7c15ull * (b + 1);

    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Words 4 block .. 4 block + 3 of the stream `key` (Philox4x32-10, Salmon et
 * al., SC'11), counted as in merak_rng_uniform(). */
MERAK_BOTH void philox(uint64_t key, uint64_t block, uint32_t (&word)[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = 0, c3 = 0;

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

#endif
