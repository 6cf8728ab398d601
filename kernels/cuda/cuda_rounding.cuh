/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_rounding.cuh - arithmetic that rounds as written
 *
 * Compilers fuse a product and a sum where what is around them suggests it.
 * Kernels that have to agree to the bit, such as one that does the work of
 * several, leave no choice: fmaf() where both are to be fused, else these.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_ROUNDING_CUH
#define MERAK_KERNELS_CUDA_CUDA_ROUNDING_CUH

#include "kernels/cuda/cuda_device.cuh"

static __device__ __forceinline__ float add_rn(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

static __device__ __forceinline__ float mul_rn(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

/* As it is read back from memory. */
template <typename T> static __device__ __forceinline__ float rounded(float x)
{
    T stored;

    from_f32(&stored, x);
    return to_f32(stored);
}

#endif
