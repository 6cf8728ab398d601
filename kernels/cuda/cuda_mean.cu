/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_mean.cu - means along a dim; an element of the output is a thread's */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    means(const T *x, T *y, size_t outer, size_t n, size_t inner)
{
    for (size_t i = grid_thread(); i < outer * inner; i += grid_threads()) {
        const T *from = x + i / inner * n * inner + i % inner;
        double sum = 0;

        for (size_t k = 0; k < n; k++)
            sum += (double)to_f32(from[k * inner]);
        from_f32(&y[i], (float)(sum / (double)n));
    }
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    mean_slopes(const T *dy, T *dx, size_t outer, size_t n, size_t inner,
                double whole)
{
    for (size_t i = grid_thread(); i < outer * n * inner; i += grid_threads()) {
        double d = (double)to_f32(dy[i / (n * inner) * inner + i % inner]);

        from_f32(&dx[i], (float)(d / whole));
    }
}

CUDA_KERNEL(mean)
{
    struct merak_along a = merak_along_of(call, &call->operand[0]);

    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);

        return launch(merak_cuda_context_of(call),
                      map_launch("mean", a.outer * a.inner), err, means<T>,
                      static_cast<const T *>(call->operand[0].data),
                      static_cast<T *>(merak_call_out(call, 0)->data), a.outer,
                      a.n, a.inner);
    });
}

CUDA_KERNEL(mean_dx)
{
    struct merak_along a = merak_along_of(call, merak_call_out(call, 0));

    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);

        return launch(merak_cuda_context_of(call),
                      map_launch("mean_dx", a.outer * a.n * a.inner), err,
                      mean_slopes<T>,
                      static_cast<const T *>(call->operand[0].data),
                      static_cast<T *>(merak_call_out(call, 0)->data), a.outer,
                      a.n, a.inner, (double)call->attrs->i[1]);
    });
}
