/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_sinks.cu - the gradient of attention's sinks
 *
 * A block adds up SINK_ROWS rows of one head, and a second kernel those sums by
 * ascending row, so that two runs agree to the bit.
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

#define SINK_ROWS 128 /* of a block, its warps taking turns */
#define SINK_WARPS 8

template <typename T> struct merak_sinks {
    const T *d_o, *o;        /* [rows, heads, E] */
    const float *lse, *sink; /* [rows, heads], [heads] */
    float *part;             /* [chunks, heads] */
    float *out;              /* [heads] */
    size_t rows, heads, E, chunks;
    bool accumulate;
};

/* Block (chunk of rows, head). */
template <typename T>
static __global__ void __launch_bounds__(SINK_WARPS *WARP)
    sink_parts(const __grid_constant__ merak_sinks<T> s)
{
    MERAK_SHARED(float, sums, [SINK_WARPS]);
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t h = blockIdx.y, from = blockIdx.x * (size_t)SINK_ROWS;
    size_t end = from + SINK_ROWS < s.rows ? from + SINK_ROWS : s.rows;
    float sum = 0;

    for (size_t i = from + warp; i < end; i += SINK_WARPS) {
        size_t row = i * s.heads + h;
        float delta = 0;

        for (size_t d = lane; d < s.E; d += WARP)
            delta += to_f32(s.d_o[row * s.E + d]) * to_f32(s.o[row * s.E + d]);
        sum -= expf(s.sink[h] - s.lse[row]) * warp_sum(delta);
    }
    if (lane == 0)
        sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (unsigned w = 1; w < SINK_WARPS; w++)
        sum += sums[w];
    s.part[blockIdx.x * s.heads + h] = sum;
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    add_sink_parts(const __grid_constant__ merak_sinks<T> s)
{
    for (size_t h = grid_thread(); h < s.heads; h += grid_threads()) {
        float sum = 0;

        for (size_t i = 0; i < s.chunks; i++)
            sum += s.part[i * s.heads + h];
        s.out[h] = s.accumulate ? s.out[h] + sum : sum;
    }
}

template <typename T>
static merak_sinks<T> view_sinks(const struct merak_kernel_call *call)
{
    const struct merak_operand *op = call->operand;
    merak_sinks<T> s = {};

    s.d_o = static_cast<const T *>(op[0].data);
    s.o = static_cast<const T *>(op[1].data);
    s.lse = static_cast<const float *>(op[2].data);
    s.sink = static_cast<const float *>(op[3].data);
    s.part = static_cast<float *>(call->scratch);
    s.out = static_cast<float *>(merak_call_out(call, 0)->data);
    s.heads = merak_local_count(&op[3]);
    s.rows = s.heads > 0 ? merak_local_count(&op[2]) / s.heads : 0;
    s.E = merak_local_last(&op[0]);
    s.chunks = ceil_div(s.rows, SINK_ROWS);
    s.accumulate = call->accumulate;
    return s;
}

CUDA_SCRATCH(attention_sinks_dw)
{
    merak_sinks<float> s = view_sinks<float>(call);

    return s.chunks * s.heads * sizeof(float);
}

CUDA_KERNEL(attention_sinks_dw)
{
    return by_dtype(call, 0, err, [&](auto x) {
        using T = decltype(x);
        const struct merak_cuda_context *cx = merak_cuda_context_of(call);
        merak_sinks<T> s = view_sinks<T>(call);
        enum merak_status rc;

        if (s.heads > 65535)
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "attention_sinks_dw of %zu heads: the cuda "
                              "backend has up to 65535",
                              s.heads);
        rc = launch(cx,
                    merak_launch{"attention_sinks_dw",
                                 dim3((unsigned)s.chunks, (unsigned)s.heads),
                                 dim3(SINK_WARPS * WARP), 0},
                    err, sink_parts<T>, s);
        return rc != MERAK_OK
                   ? rc
                   : launch(cx, map_launch("attention_sinks_dw", s.heads), err,
                            add_sink_parts<T>, s);
    });
}
