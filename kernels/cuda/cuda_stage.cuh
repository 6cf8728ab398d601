/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_stage.cuh - what products find in scratch: copies of rows
 * at multiples of 16 bytes, which libraries need for bf16, a bias in the
 * output's type, and their workspace
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_STAGE_CUH
#define MERAK_KERNELS_CUDA_CUDA_STAGE_CUH

#include "kernels/cuda/cuda_device.cuh"

/* Approximate bytes of staged rows, which are a multiple of STAGE_ROWS. */
#ifndef MERAK_STAGE_BYTES
#define MERAK_STAGE_BYTES ((size_t)256 << 20)
#endif
#define STAGE_ROWS 128

/* Elements from a row of so many columns to the next. */
static inline size_t padded(enum merak_dtype dtype, size_t columns)
{
    size_t per = 16 / merak_dtype_bytes(dtype);

    return dtype == MERAK_BF16 ? ceil_div(columns, per) * per : columns;
}

/* Reserve bytes of scratch, of which *used_p are; returns their offset. */
static inline size_t reserve(size_t *used_p, size_t bytes)
{
    size_t at = *used_p;

    *used_p += ceil_div(bytes, 256) * 256;
    return at;
}

/* Scratch has a smaller alignment than a product's workspace needs. */
static inline void *aligned_up(char *p)
{
    size_t over = (uintptr_t)p % MERAK_CUDA_WORK_ALIGN;

    return over == 0 ? p : p + (MERAK_CUDA_WORK_ALIGN - over);
}

static __global__ void __launch_bounds__(MAP_THREADS)
    round_bias(const float *from, merak_bf16 *to, size_t n)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        from_f32(&to[i], from[i]);
}

/* The bias of a call, input 2, or NULL unless it `has` one: of bf16 products n
 * elements at this offset in scratch. */
static enum merak_status prepare_bias(const struct merak_kernel_call *call,
                                      const char *op, bool has, size_t n,
                                      size_t at, const void **bias_p,
                                      struct merak_error *err)
{
    const void *bias = has ? call->operand[2].data : nullptr;
    merak_bf16 *rounded;

    *bias_p = bias;
    if (!has || call->operand[0].dtype != MERAK_BF16)
        return MERAK_OK;
    rounded =
        reinterpret_cast<merak_bf16 *>(static_cast<char *>(call->scratch) + at);
    *bias_p = rounded;
    return launch(merak_cuda_context_of(call), map_launch(op, n), err,
                  round_bias, static_cast<const float *>(bias), rounded, n);
}

#endif
