/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_loss.cuh - what the kernels of cross-entropy share: the
 * threads of a row of logits, and arithmetic that has the same bits in all of
 * them
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_LOSS_CUH
#define MERAK_KERNELS_CUDA_CUDA_LOSS_CUH

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ids.cuh"
#include "kernels/cuda/cuda_rounding.cuh"

/* Threads of a row: a warp, a block, or a large block from this length on. */
#define WIDE_ROW 8192
#define WIDE_BLOCK 1024

template <typename T> struct merak_xent {
    const T *logits;
    merak_ids targets;
    const float *max, *sum;
    const float *weight; /* of each row's gradient; NULL: 1 */
    T *out;
    float *result, *z;
    float *max_out, *sum_out; /* row_losses() */
    size_t rows, V;
    size_t ld, out_ld; /* elements between rows of logits, of out */
    float scale;
    bool first; /* first rank of the vocabulary: sets rows without a target */
    bool alike; /* out's rows have the same 16-byte alignment as logits' */
};

/* --- rows -------------------------------------------------------------------
 */

constexpr int block_of(int threads)
{
    return threads > ROW_BLOCK ? threads : ROW_BLOCK;
}

/* Sums and maxima of the threads of a row; a large block's in fewer steps. */
template <int THREADS>
static __device__ __forceinline__ float sum_of_row(float x)
{
    if constexpr (THREADS <= ROW_BLOCK) {
        return row_sum<THREADS>(x);
    } else {
        MERAK_SHARED(float, part, [WARP]);

        x = warp_sum(x);
        __syncthreads(); /* the previous sum has been read */
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = x;
        __syncthreads();
        return warp_sum(part[threadIdx.x % WARP]);
    }
}

template <int THREADS>
static __device__ __forceinline__ float max_of_row(float x)
{
    if constexpr (THREADS <= ROW_BLOCK) {
        return row_max<THREADS>(x);
    } else {
        MERAK_SHARED(float, part, [WARP]);

        x = warp_max(x);
        __syncthreads();
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = x;
        __syncthreads();
        return warp_max(part[threadIdx.x % WARP]);
    }
}

/* e^(x - max); of logits in bf16 its last three bits may be wrong. */
template <typename T>
static __device__ __forceinline__ float exp_below(float x, float max)
{
    float d = add_rn(x, -max);

#ifdef __CUDA_ARCH__
    return sizeof(T) == 2 ? __expf(d) : expf(d);
#else
    return expf(d);
#endif
}

/* The gradient of a logit with e = e^(x - max); target: the loss's scale, for
 * logits that are no target 0. */
static __device__ __forceinline__ float slope_of(float e, float scale,
                                                 float target)
{
    return add_rn(mul_rn(e, scale), -target);
}

/* The first rank sets the results of a row without a target. */
template <typename T>
static __device__ __forceinline__ float sum_of(const merak_xent<T> &x,
                                               size_t row, float sum)
{
    return has_none(x.targets, row) ? (x.first ? 1.0f : 0.0f) : sum;
}

template <typename T>
static __device__ __forceinline__ float z_of(const merak_xent<T> &x, size_t row,
                                             float max, float logit)
{
    return has_none(x.targets, row) ? (x.first ? max : 0.0f) : logit;
}

/* --- calls ------------------------------------------------------------------
 */

template <typename T>
static merak_xent<T> view_logits(const struct merak_kernel_call *call)
{
    const struct merak_operand *l = &call->operand[0];
    merak_xent<T> x = {};

    x.logits = static_cast<const T *>(l->data);
    x.V = merak_local_last(l);
    x.ld = merak_local_ld(l);
    x.rows = merak_local_span(l, 0, l->local.ndim - 1);
    x.result = static_cast<float *>(merak_call_out(call, 0)->data);
    if (call->n_in > 1)
        x.max = static_cast<const float *>(call->operand[1].data);
    return x;
}

static merak_ids view_targets(const struct merak_kernel_call *call, int o)
{
    const struct merak_operand *l = &call->operand[0];

    return view_ids(call, o, l, l->local.ndim - 1, MERAK_CUDA_FAULT_TARGET);
}

static inline int row_threads(size_t V)
{
    return V < LONG_ROW ? WARP : V < WIDE_ROW ? ROW_BLOCK : WIDE_BLOCK;
}

/* kernel[]: for a warp, a block and a large block. */
template <typename T>
static enum merak_status run_logits(const struct merak_kernel_call *call,
                                    const char *name, const merak_xent<T> &x,
                                    void (*const (&kernel)[3])(merak_xent<T>),
                                    struct merak_error *err)
{
    int threads = row_threads(x.V), block = block_of(threads);
    dim3 grid((unsigned)ceil_div(x.rows * (size_t)threads, (size_t)block));

    return launch(merak_cuda_context_of(call),
                  merak_launch{name, grid, dim3((unsigned)block), 0}, err,
                  kernel[threads == WARP        ? 0
                         : threads == ROW_BLOCK ? 1
                                                : 2],
                  x);
}

#endif
