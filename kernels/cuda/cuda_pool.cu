/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_pool.cu - pooling over points of space: an element of the output, or of
 * the input's gradient, is a thread's
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

extern "C" {
#include "kernels/windows.h"
}

template <typename T> struct merak_pool_call {
    struct merak_patches windows; /* a row each */
    const T *x, *dy;
    T *out;
    size_t n, C; /* elements of out, channels */
    int64_t kind;
};

/* What a window's sum is divided by. */
template <typename T>
static __device__ __forceinline__ float
points_of(const merak_pool_call<T> &p, size_t row)
{
    size_t n = 0;

    if (p.kind == MERAK_POOL_SUM)
        return 1;
    if (p.kind == MERAK_POOL_MEAN)
        return (float)p.windows.taps;
    for (size_t k = 0; k < p.windows.taps; k++)
        n += merak_patch_from(&p.windows, row, k) >= 0;
    return (float)n;
}

/* A window's first largest point in channel c, or -1. */
template <typename T>
static __device__ __forceinline__ int64_t
largest(const merak_pool_call<T> &p, size_t row, size_t c, float *most)
{
    int64_t best = -1;

    *most = 0;
    for (size_t k = 0; k < p.windows.taps; k++) {
        int64_t from = merak_patch_from(&p.windows, row, k);
        float x = from < 0 ? 0 : to_f32(p.x[(size_t)from * p.C + c]);

        if (from >= 0 && (best < 0 || x > *most)) {
            best = from;
            *most = x;
        }
    }
    return best;
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    pool_rows(const __grid_constant__ merak_pool_call<T> p)
{
    for (size_t i = grid_thread(); i < p.n; i += grid_threads()) {
        size_t row = i / p.C, c = i % p.C;
        float sum = 0;

        if (p.kind == MERAK_POOL_MAX) {
            largest(p, row, c, &sum);
        } else {
            float n = points_of(p, row);

            for (size_t k = 0; k < p.windows.taps; k++) {
                int64_t from = merak_patch_from(&p.windows, row, k);

                sum += from < 0 ? 0 : to_f32(p.x[(size_t)from * p.C + c]);
            }
            sum = n > 0 ? sum / n : 0;
        }
        from_f32(&p.out[i], sum);
    }
}

/* The window of dim d whose point k is number `at` of the input, or -1. */
template <typename T>
static __device__ __forceinline__ int64_t
window_at(const merak_pool_call<T> &p, int d, size_t at, size_t k)
{
    const struct merak_patch_dim &dim = p.windows.dim[d];
    int64_t over = (int64_t)at - dim.first - (int64_t)k * dim.tap_step;

    if (over < 0 || over % dim.row_step != 0 ||
        over / dim.row_step >= (int64_t)dim.rows)
        return -1;
    return over / dim.row_step;
}

/* An element of dx: what all windows with its point give, in ascending order
 * of its taps in them. */
template <typename T>
static __device__ __forceinline__ float taken(const merak_pool_call<T> &p,
                                              size_t point, size_t c)
{
    const struct merak_patch_dim *d = p.windows.dim;
    size_t x = point % d[2].source, y = point / d[2].source % d[1].source;
    size_t z = point / d[2].source / d[1].source % d[0].source;
    size_t sample = point / d[2].source / d[1].source / d[0].source;
    float sum = 0, most;

    for (size_t k = 0; k < p.windows.taps; k++) {
        int64_t i = window_at(p, 0, z, k / d[2].taps / d[1].taps);
        int64_t j = window_at(p, 1, y, k / d[2].taps % d[1].taps);
        int64_t l = window_at(p, 2, x, k % d[2].taps);
        size_t row;
        float dy;

        if (i < 0 || j < 0 || l < 0)
            continue;
        row = ((sample * d[0].rows + (size_t)i) * d[1].rows + (size_t)j) *
                  d[2].rows +
              (size_t)l;
        dy = to_f32(p.dy[row * p.C + c]);
        if (p.kind != MERAK_POOL_MAX)
            sum += dy / points_of(p, row);
        else if (largest(p, row, c, &most) == (int64_t)point)
            sum += dy;
    }
    return sum;
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    pool_dx_rows(const __grid_constant__ merak_pool_call<T> p)
{
    for (size_t i = grid_thread(); i < p.n; i += grid_threads())
        from_f32(&p.out[i], taken(p, i / p.C, i % p.C));
}

template <typename T>
static merak_pool_call<T> pool_of(const struct merak_kernel_call *call, int x,
                                  int y)
{
    const struct merak_operand *out = merak_call_out(call, 0);
    struct merak_windows w = merak_windows_of(call, x, y);
    merak_pool_call<T> p = {};

    p.windows = merak_patches_forward(&w, out->local.dim[0]);
    p.out = static_cast<T *>(out->data);
    p.n = merak_local_count(out);
    p.C = merak_local_last(out);
    p.kind = call->attrs->i[1];
    return p;
}

CUDA_KERNEL(pool)
{
    return by_dtype(call, 0, err, [&](auto of) {
        auto p = pool_of<decltype(of)>(call, 0, 1);

        p.x = static_cast<const decltype(of) *>(call->operand[0].data);
        return launch(merak_cuda_context_of(call), map_launch("pool", p.n), err,
                      pool_rows<decltype(of)>, p);
    });
}

CUDA_KERNEL(pool_dx)
{
    return by_dtype(call, 0, err, [&](auto of) {
        auto p = pool_of<decltype(of)>(call, call->n_in, 0);

        p.dy = static_cast<const decltype(of) *>(call->operand[0].data);
        if (call->n_in > 1)
            p.x = static_cast<const decltype(of) *>(call->operand[1].data);
        return launch(merak_cuda_context_of(call), map_launch("pool_dx", p.n),
                      err, pool_dx_rows<decltype(of)>, p);
    });
}
