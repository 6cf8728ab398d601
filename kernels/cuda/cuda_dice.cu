/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_dice.cu - overlap of classes of points, and its gradient; the equations
 * are in dice.h and ref/ref_dice.c
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

extern "C" {
#include "kernels/dice.h"
}

#define DICE_BLOCK 4096 /* points that a block sums */

template <typename T> struct merak_dice_call {
    struct merak_dice d;
    const T *z;
    const int32_t *target;
    double *part; /* [B, blocks, V, 3] */
    size_t blocks;
};

/* p of class c of a point. */
template <typename T>
static __device__ __forceinline__ float share_of(const merak_dice_call<T> &w,
                                                 size_t row, size_t c)
{
    const T *z = w.z + row * w.d.V;
    float max = to_f32(z[0]), sum = 0;

    for (size_t k = 1; k < w.d.V; k++)
        max = fmaxf(max, to_f32(z[k]));
    for (size_t k = 0; k < w.d.V; k++)
        sum += expf(to_f32(z[k]) - max);
    return expf(to_f32(z[c]) - max) / sum;
}

/* Class blockIdx.y of a block of points. */
template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    dice_points(merak_dice_call<T> w)
{
    size_t b = blockIdx.x / w.blocks, block = blockIdx.x % w.blocks;
    size_t end = (block + 1) * DICE_BLOCK, c = blockIdx.y;
    double sums[3] = {0, 0, 0};

    end = end < w.d.points ? end : w.d.points;
    for (size_t p = block * DICE_BLOCK + threadIdx.x; p < end; p += ROW_BLOCK) {
        size_t row = b * w.d.points + p;
        bool is = w.target[row] == (int32_t)c;
        double x;

        if (w.target[row] == MERAK_NO_TARGET)
            continue;
        x = (double)share_of(w, row, c);
        sums[0] += is ? x : 0;
        sums[1] += x;
        sums[2] += is ? 1 : 0;
    }
    for (int k = 0; k < 3; k++) {
        double all = row_sum<ROW_BLOCK>(sums[k]);

        if (threadIdx.x == 0)
            w.part[(blockIdx.x * w.d.V + c) * 3 + (size_t)k] = all;
    }
}

static __global__ void __launch_bounds__(MAP_THREADS)
    dice_blocks(const double *part, double *out, size_t B, size_t blocks,
                size_t n)
{
    for (size_t i = grid_thread(); i < B * n; i += grid_threads()) {
        const double *from = part + i / n * blocks * n + i % n;
        double sum = 0;

        for (size_t k = 0; k < blocks; k++)
            sum += from[k * n];
        out[i] = sum;
    }
}

template <typename T>
static merak_dice_call<T> dice_view(const struct merak_kernel_call *call)
{
    merak_dice_call<T> w = {};

    w.d = merak_dice_view(call);
    w.z = static_cast<const T *>(call->operand[0].data);
    w.target = static_cast<const int32_t *>(call->operand[1].data);
    w.part = static_cast<double *>(call->scratch);
    w.blocks = ceil_div(w.d.points, DICE_BLOCK);
    return w;
}

CUDA_SCRATCH(dice_sums)
{
    merak_dice_call<float> w = dice_view<float>(call);

    return w.d.B * w.blocks * w.d.V * 3 * sizeof(double);
}

CUDA_KERNEL(dice_sums)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        merak_dice_call<T> w = dice_view<T>(call);
        enum merak_status rc = launch(
            merak_cuda_context_of(call),
            merak_launch{"dice_sums",
                         dim3((unsigned)(w.d.B * w.blocks), (unsigned)w.d.V),
                         dim3(ROW_BLOCK), 0},
            err, dice_points<T>, w);

        return rc != MERAK_OK
                   ? rc
                   : launch(
                         merak_cuda_context_of(call),
                         map_launch("dice_sums", w.d.B * w.d.V * 3), err,
                         dice_blocks, static_cast<const double *>(w.part),
                         static_cast<double *>(merak_call_out(call, 0)->data),
                         w.d.B, w.blocks, w.d.V * 3);
    });
}

static __global__ void __launch_bounds__(MAP_THREADS)
    dice_classes(const double *sums, float *e, size_t n)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        e[i] = (float)merak_dice_loss(sums + 3 * i);
}

CUDA_KERNEL(dice_loss)
{
    size_t n = merak_local_count(merak_call_out(call, 0));
    enum merak_status rc = check_dtype(call, 1, true, err);

    return rc != MERAK_OK
               ? rc
               : launch(merak_cuda_context_of(call), map_launch("dice_loss", n),
                        err, dice_classes,
                        static_cast<const double *>(call->operand[0].data),
                        static_cast<float *>(merak_call_out(call, 0)->data), n);
}

/* By class of each sample: how e changes with p, and how much less so where it
 * is the target. */
static __global__ void __launch_bounds__(MAP_THREADS)
    dice_terms(const double *sums, float *term, size_t n)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        double other = merak_dice_slope(sums + 3 * i, false);

        term[2 * i] = (float)other;
        term[2 * i + 1] = (float)merak_dice_slope(sums + 3 * i, true);
    }
}

/* A thread has a point: dz may be z. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    dice_slopes(merak_dice_call<T> w, const float *term, T *out, float scale)
{
    size_t rows = w.d.B * w.d.points;

    for (size_t row = grid_thread(); row < rows; row += grid_threads()) {
        const float *by = term + row / w.d.points * w.d.V * 2;
        const T *z = w.z + row * w.d.V;
        int target = w.target[row], V = (int)w.d.V;
        float max = to_f32(z[0]), sum = 0, mean = 0;

        for (int k = 1; k < V; k++)
            max = fmaxf(max, to_f32(z[k]));
        for (int k = 0; k < V; k++) {
            float e = expf(to_f32(z[k]) - max);

            sum += e;
            mean += e * by[2 * k + (target == k)];
        }
        mean /= sum;
        for (int k = 0; k < V; k++) {
            float p = expf(to_f32(z[k]) - max) / sum;
            float dz = scale * p * (by[2 * k + (target == k)] - mean);

            from_f32(&out[row * w.d.V + (size_t)k],
                     target == MERAK_NO_TARGET ? 0.0f : dz);
        }
    }
}

CUDA_SCRATCH(dice_dlogits)
{
    struct merak_dice d = merak_dice_view(call);

    return d.B * d.V * 2 * sizeof(float);
}

CUDA_KERNEL(dice_dlogits)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        merak_dice_call<T> w = dice_view<T>(call);
        float *term = static_cast<float *>(call->scratch);
        enum merak_status rc =
            launch(merak_cuda_context_of(call),
                   map_launch("dice_dlogits", w.d.B * w.d.V), err, dice_terms,
                   static_cast<const double *>(call->operand[2].data), term,
                   w.d.B * w.d.V);

        return rc != MERAK_OK
                   ? rc
                   : launch(merak_cuda_context_of(call),
                            map_launch("dice_dlogits", w.d.B * w.d.points), err,
                            dice_slopes<T>, w, static_cast<const float *>(term),
                            static_cast<T *>(merak_call_out(call, 0)->data),
                            (float)merak_loss_scale(call));
    });
}
