/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_relative.cuh - biases of attention by distance, on the
 * device (kernels/relative.h)
 *
 * A launch before attention writes the table's number of each head and lag to
 * scratch.  Gradients of scores are summed by bucket: by each thread in a
 * column of shared memory of its own, then over threads and tiles of queries in
 * order, so that results are the same bit for bit.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_RELATIVE_CUH
#define MERAK_KERNELS_CUDA_CUDA_RELATIVE_CUH

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

/* No tile of queries has fewer rows. */
#define LEAST_TILE 32

struct merak_lags {
    float *bias;     /* [H, lags], for exponentials of attention; NULL: none */
    float *parts;    /* [B, H, tiles of queries, N], of the backward */
    uint8_t *bucket; /* [lags] */
    unsigned lags, keys, N;
    float *sums; /* [B, N, H]: of gradients of scores; of the backward */
};

/* Floats of biases and of parts, which follow each other in scratch; then there
 * are a byte for each lag. */
static size_t bias_floats(const struct merak_attention *at)
{
    return at->G * at->R * at->bias.lags;
}

static size_t part_floats(const struct merak_attention *at)
{
    size_t queries = at->q.op->local.dim[1];

    return at->d_o.op == nullptr
               ? 0
               : at->B * at->G * at->R * ceil_div(queries, LEAST_TILE) *
                     at->bias.table->local.dim[0];
}

static size_t lags_bytes(const struct merak_attention *at)
{
    return (bias_floats(at) + part_floats(at)) * sizeof(float) + at->bias.lags;
}

static merak_lags lags_of(const struct merak_attention *at, void *scratch)
{
    float *bias = static_cast<float *>(scratch);
    float *parts = bias + bias_floats(at);

    return {bias,
            at->d_o.op != nullptr ? parts : nullptr,
            reinterpret_cast<uint8_t *>(parts + part_floats(at)),
            (unsigned)at->bias.lags,
            (unsigned)at->bias.keys,
            (unsigned)at->bias.table->local.dim[0],
            nullptr};
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    spread_bias(const __grid_constant__ merak_relative r, merak_lags to,
                const T *table, size_t H, float factor)
{
    for (size_t k = grid_thread(); k < H * to.lags; k += grid_threads()) {
        size_t lag = k % to.lags, h = k / to.lags;
        size_t bucket = merak_relative_bucket(&r, lag);

        to.bias[k] = to_f32(table[bucket * H + h]) * factor;
        if (h == 0)
            to.bucket[lag] = (uint8_t)bucket;
    }
}

/* Write what attention reads; `factor`: of its exponentials. */
template <typename T>
static enum merak_status prepare_lags(const struct merak_cuda_context *cx,
                                      const struct merak_attention *at,
                                      void *scratch, float factor,
                                      struct merak_error *err)
{
    size_t H = at->G * at->R;

    return launch(cx, map_launch("attention_biased", H * at->bias.lags), err,
                  spread_bias<T>, at->bias, lags_of(at, scratch),
                  static_cast<const T *>(at->bias.table->data), H, factor);
}

/* Zero this thread's column of [N, threads] sums. */
static __device__ __forceinline__ void clear_buckets(const merak_lags &l,
                                                     float *sums)
{
    for (unsigned n = 0; n < l.N; n++)
        sums[n * blockDim.x + threadIdx.x] = 0;
}

/* Add gradients of the scores of 16 queries, of which there are `rows`, with NT
 * * 8 keys. */
template <int NT>
static __device__ __forceinline__ void
add_buckets(const merak_lags &l, float *sums, const float (&s)[NT][4],
            unsigned query, int rows, unsigned key)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = g + i / 2 * 8;
            unsigned j = key + n * 8 + 2 * t + i % 2;

            if (row < rows && j < l.keys)
                sums[l.bucket[query + row + l.keys - 1 - j] * blockDim.x +
                     threadIdx.x] += s[n][i];
        }
    }
}

/* Store the block's sums as `part` [N]. */
static __device__ __forceinline__ void
store_buckets(const merak_lags &l, const float *sums, float *part)
{
    unsigned lane = threadIdx.x % WARP;

    __syncthreads();
    for (unsigned n = threadIdx.x / WARP; n < l.N; n += blockDim.x / WARP) {
        float sum = 0;

        for (unsigned i = lane; i < blockDim.x; i += WARP)
            sum += sums[n * blockDim.x + i];
#pragma unroll
        for (int d = WARP / 2; d > 0; d /= 2)
            sum += __shfl_xor_sync(ALL_LANES, sum, d);
        if (lane == 0)
            part[n] = sum;
    }
}

/* Parts over tiles; U is float. */
template <typename U>
static __global__ void __launch_bounds__(MAP_THREADS)
    sum_parts(merak_lags l, size_t B, size_t H, unsigned tiles, bool accumulate)
{
    for (size_t k = grid_thread(); k < B * l.N * H; k += grid_threads()) {
        size_t h = k % H, n = k / H % l.N, b = k / H / l.N;
        const float *part = l.parts + (b * H + h) * tiles * l.N + n;
        U sum = accumulate ? l.sums[k] : 0;

        for (unsigned i = 0; i < tiles; i++)
            sum += part[(size_t)i * l.N];
        l.sums[k] = sum;
    }
}

#endif
