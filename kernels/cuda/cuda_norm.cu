/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_norm.cu - layernorm, rmsnorm and the gradients of their inputs, alone
 * and with the residual's addition beside them; the equations are in
 * ref/ref_norm.c
 */
#include "config.h"

#include "kernels/cuda/cuda_fuse.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_norm.cuh"

/* Replace a piece of x by its sum with `other`, which is stored. */
template <typename T, int PIECES>
static __device__ __forceinline__ void
add_other(const merak_norm<T> &n, size_t at_row, int k, unsigned at, unsigned C,
          merak_held<T, PIECES> &x, const merak_held<T, PIECES> &other)
{
    constexpr int N = merak_piece<T>::N;
    float a[N], b[N];

    x.get(k, at, C, n.whole, a);
    other.get(k, at, C, n.whole, b);
#pragma unroll
    for (int i = 0; i < N; i++)
        a[i] = add_rn(a[i], b[i]);
    if constexpr (PIECES > 0)
        x.raw[k] = pack(a);
    write(n.sum + at_row + at, C - at, n.whole, a);
}

template <typename T, int THREADS, int PIECES, bool CENTER>
static __global__ void __launch_bounds__(ROW_BLOCK) norm_rows(merak_norm<T> n)
{
    constexpr int N = merak_piece<T>::N;
    size_t row = grid_thread() / THREADS, at_row = row * n.C;
    unsigned C = row < n.rows ? n.C : 0;
    merak_held<T, PIECES> x = {n.x + at_row, {}};
    float sum[1] = {0}, mean = 0, rstd;

    if (n.other != nullptr) {
        merak_held<T, PIECES> other = {n.other + at_row, {}};

        each_piece<T, THREADS, PIECES>(C, [&](int k, unsigned at) {
            x.hold(k, at, C, n.whole);
            other.hold(k, at, C, n.whole);
        });
        each_piece<T, THREADS, PIECES>(C, [&](int k, unsigned at) {
            add_other(n, at_row, k, at, C, x, other);
        });
        x.row = n.sum + at_row;
    } else {
        each_piece<T, THREADS, PIECES>(
            C, [&](int k, unsigned at) { x.hold(k, at, C, n.whole); });
    }
    if constexpr (CENTER) {
        each_piece<T, THREADS, PIECES>(C, [&](int k, unsigned at) {
            float v[N];

            x.get(k, at, C, n.whole, v);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[0] = add_rn(sum[0], v[i]);
        });
        sum_rows<THREADS>(sum);
        mean = sum[0] / (float)n.C;
        sum[0] = 0;
    }
    each_piece<T, THREADS, PIECES>(C, [&](int k, unsigned at) {
        float v[N];

        x.get(k, at, C, n.whole, v);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float d = add_rn(v[i], -mean);

            if (n.whole || at + i < C)
                sum[0] = fmaf(d, d, sum[0]);
        }
    });
    sum_rows<THREADS>(sum);
    rstd = 1.0f / sqrtf(sum[0] / (float)n.C + n.eps);
    each_piece<T, THREADS, PIECES>(C, [&](int k, unsigned at) {
        float v[N], g[N], b[N];

        x.get(k, at, C, n.whole, v);
        read(n.gamma + at, C - at, n.whole, g);
        if constexpr (CENTER)
            read(n.beta + at, C - at, n.whole, b);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float h = scaled(v[i], mean, rstd);

            g[i] = add_rn(n.offset, g[i]);
            if constexpr (CENTER)
                v[i] = fmaf(h, g[i], b[i]);
            else
                v[i] = mul_rn(h, g[i]);
        }
        write(n.out + at_row + at, C - at, n.whole, v);
    });
    if (threadIdx.x % THREADS == 0 && row < n.rows) {
        n.rstd[row] = rstd;
        if (CENTER)
            n.mean[row] = mean;
    }
}

template <typename T, int THREADS, int PIECES, bool CENTER>
static __global__ void __launch_bounds__(ROW_BLOCK)
    norm_rows_dx(merak_norm<T> n)
{
    constexpr int N = merak_piece<T>::N;

    back_row<T, THREADS, PIECES, CENTER>(
        n, grid_thread() / THREADS,
        [](int, const float(&)[N], const float(&)[N]) {});
}

/* add NULL: the norm alone. */
template <typename T, bool CENTER>
static enum merak_status norm(const struct merak_kernel_call *add,
                              const struct merak_kernel_call *call,
                              const char *name, struct merak_error *err)
{
    static void (*const kernels[])(merak_norm<T>) =
        ROW_KERNELS(norm_rows, T, CENTER);
    merak_norm<T> n = {};

    view_rows(&n, call, 0, 1);
    if (CENTER) {
        n.beta = static_cast<const float *>(call->operand[2].data);
        n.mean = static_cast<float *>(merak_call_out(call, 1)->data);
        n.whole = n.whole && is_aligned(n.beta);
    }
    n.rstd = static_cast<float *>(merak_call_out(call, CENTER ? 2 : 1)->data);
    if (add != nullptr) {
        n.x = static_cast<const T *>(add->operand[0].data);
        n.other = static_cast<const T *>(add->operand[1].data);
        n.sum = static_cast<T *>(merak_call_out(add, 0)->data);
        n.whole = n.whole && is_aligned(n.x) && is_aligned(n.other);
    }
    return launch_rows(call, name, n, kernels, err);
}

template <typename T, bool CENTER>
static enum merak_status norm_dx(const struct merak_kernel_call *call,
                                 const struct merak_kernel_call *add,
                                 bool store, const char *name,
                                 struct merak_error *err)
{
    static void (*const kernels[])(merak_norm<T>) =
        ROW_KERNELS(norm_rows_dx, T, CENTER);

    return launch_rows(call, name, view_back<T, CENTER>(call, add, store),
                       kernels, err);
}

#define NORM_KERNELS(op, center)                                       \
    CUDA_KERNEL(op)                                                    \
    {                                                                  \
        return by_dtype(call, 0, err, [&](auto x) {                    \
            return norm<decltype(x), center>(nullptr, call, #op, err); \
        });                                                            \
    }                                                                  \
    CUDA_KERNEL(op##_dx)                                               \
    {                                                                  \
        return by_dtype(call, 0, err, [&](auto x) {                    \
            return norm_dx<decltype(x), center>(call, nullptr, true,   \
                                                #op "_dx", err);       \
        });                                                            \
    }

NORM_KERNELS(layernorm, true)
NORM_KERNELS(rmsnorm, false)

/* --- with their neighbours --------------------------------------------------
 */

extern "C" enum merak_status
merak_cuda_add_norm(const struct merak_kernel_call *add,
                    const struct merak_kernel_call *norm_call, bool center,
                    struct merak_error *err)
{
    return by_dtype(norm_call, 0, err, [&](auto x) {
        using T = decltype(x);

        return center ? norm<T, true>(add, norm_call, "layernorm", err)
                      : norm<T, false>(add, norm_call, "rmsnorm", err);
    });
}

extern "C" enum merak_status
merak_cuda_norm_dx_add(const struct merak_kernel_call *dx,
                       const struct merak_kernel_call *add, bool store,
                       bool center, struct merak_error *err)
{
    const char *name = center ? "layernorm_dx" : "rmsnorm_dx";

    return by_dtype(dx, 0, err, [&](auto x) {
        using T = decltype(x);

        return center ? norm_dx<T, true>(dx, add, store, name, err)
                      : norm_dx<T, false>(dx, add, store, name, err);
    });
}
