/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_xent.cu - maximum, sum and gradient of rows of logits in one kernel,
 * which reads them from memory once; with the bits of the kernels of
 * cuda_loss.cu
 */
#include "config.h"

#include "kernels/cuda/cuda_fuse.h"
#include "kernels/cuda/cuda_loss.cuh"

/* Pieces of a row that a thread holds in registers; 0: longer rows, which the
 * passes read again. */
template <typename T, int THREADS> constexpr int pieces_of_row()
{
    constexpr int N = merak_piece<T>::N;

    return THREADS == WARP        ? LONG_ROW / N / WARP
           : THREADS == ROW_BLOCK ? WIDE_ROW / N / ROW_BLOCK
           : sizeof(T) == 4       ? 6 /* 64 registers a thread, no spills */
                                  : 8;
}

/* Elements behind the row become -infinity; they are memory of its own. */
template <typename T>
static __device__ __forceinline__ uint4 read_piece(const T *row, unsigned at,
                                                   unsigned V)
{
    constexpr int N = merak_piece<T>::N;
    uint4 raw = load_16(row + at);
    float v[N];

    if (at + N <= V)
        return raw;
    unpack(raw, v);
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = at + i < V ? v[i] : -INFINITY;
    return pack(v);
}

/* Rows begin on 16-byte boundaries.  Gradients may overwrite the logits: each
 * thread writes what it alone has read, and the target's after a barrier. */
template <typename T, int THREADS, int PIECES>
static __global__ void __launch_bounds__(block_of(THREADS), 1)
    row_losses(merak_xent<T> x)
{
    constexpr unsigned N = merak_piece<T>::N;
    size_t row = grid_thread() / THREADS;
    const T *logits = x.logits + row * x.ld;
    uint4 raw[PIECES > 0 ? PIECES : 1];
    float max = -INFINITY, sum = 0, scale, z = 0;
    unsigned V = (unsigned)x.V, target;

    if (row >= x.rows)
        return;
    auto get = [&](int k, unsigned at, float(&v)[N]) {
        if constexpr (PIECES > 0)
            unpack(raw[k], v);
        else
            unpack(read_piece(logits, at, V), v);
    };
    if constexpr (PIECES > 0)
        each_piece<T, THREADS, PIECES>(
            V, [&](int k, unsigned at) { raw[k] = read_piece(logits, at, V); });
    target = quiet_local_id(x.targets, row) < V
                 ? (unsigned)quiet_local_id(x.targets, row)
                 : UINT32_MAX;
    if (threadIdx.x % THREADS == 0 && target < V)
        z = to_f32(logits[target]);
    __syncwarp();
    each_piece<T, THREADS, PIECES>(V, [&](int k, unsigned at) {
        float v[N];

        get(k, at, v);
#pragma unroll
        for (unsigned i = 0; i < N; i++)
            max = fmaxf(max, v[i]);
    });
    max = max_of_row<THREADS>(max);
    each_piece<T, THREADS, PIECES>(V, [&](int k, unsigned at) {
        float v[N];

        get(k, at, v);
#pragma unroll
        for (unsigned i = 0; i < N; i++)
            sum = add_rn(sum, exp_below<T>(v[i], max));
    });
    sum = sum_of(x, row, sum_of_row<THREADS>(sum));
    if (threadIdx.x % THREADS == 0) {
        (void)local_id(x.targets, row); /* reports one that is none */
        x.max_out[row] = max;
        x.sum_out[row] = sum;
        x.z[row] = z_of(x, row, max, z);
    }
    if (x.out == nullptr)
        return;
    scale = has_none(x.targets, row) ? 0.0f : x.scale / sum;
    each_piece<T, THREADS, PIECES>(V, [&](int k, unsigned at) {
        float v[N];

        get(k, at, v);
#pragma unroll
        for (unsigned i = 0; i < N; i++)
            v[i] = slope_of(exp_below<T>(v[i], max), scale, 0.0f);
        if (target - at < N)
#pragma unroll
            for (unsigned i = 0; i < N; i++)
                v[i] = i == target - at ? add_rn(v[i], -x.scale) : v[i];
        store_16(x.out + row * x.out_ld + at, pack(v));
    });
}

template <typename T>
static enum merak_status xent_rows(const struct merak_kernel_call *max,
                                   const struct merak_kernel_call *sum,
                                   const struct merak_kernel_call *dlogits,
                                   struct merak_error *err)
{
    constexpr int WIDE = pieces_of_row<T, WIDE_BLOCK>();
    static void (*const kernels[])(merak_xent<T>) = {
        row_losses<T, WARP, pieces_of_row<T, WARP>()>,
        row_losses<T, ROW_BLOCK, pieces_of_row<T, ROW_BLOCK>()>,
        row_losses<T, WIDE_BLOCK, WIDE>,
    };
    static void (*const any[])(merak_xent<T>) = {kernels[0], kernels[1],
                                                 row_losses<T, WIDE_BLOCK, 0>};
    merak_xent<T> x = view_logits<T>(sum);

    x.max_out = static_cast<float *>(merak_call_out(max, 0)->data);
    x.sum_out = static_cast<float *>(merak_call_out(sum, 0)->data);
    x.z = static_cast<float *>(merak_call_out(sum, 1)->data);
    x.targets = view_targets(sum, 2);
    x.first = sum->first;
    if (dlogits != nullptr) {
        x.out = static_cast<T *>(merak_call_out(dlogits, 0)->data);
        x.out_ld = merak_local_ld(merak_call_out(dlogits, 0));
        x.scale = (float)dlogits->attrs->f[0];
    }
    return x.V <= (size_t)(WIDE * WIDE_BLOCK * merak_piece<T>::N)
               ? run_logits(sum, "xent_sum", x, kernels, err)
               : run_logits(sum, "xent_sum", x, any, err);
}

extern "C" enum merak_status merak_cuda_xent_rows(
    const struct merak_kernel_call *max, const struct merak_kernel_call *sum,
    const struct merak_kernel_call *dlogits, struct merak_error *err)
{
    return sum->operand[0].dtype == MERAK_BF16
               ? xent_rows<merak_bf16>(max, sum, dlogits, err)
               : xent_rows<float>(max, sum, dlogits, err);
}

static bool rows_are_aligned(const struct merak_operand *x)
{
    return is_aligned(x->data) &&
           merak_local_ld(x) * merak_dtype_bytes(x->dtype) % 16 == 0;
}

extern "C" bool merak_cuda_xent_fits(const struct merak_kernel_call *max,
                                     const struct merak_kernel_call *dlogits)
{
    return rows_are_aligned(&max->operand[0]) &&
           (dlogits == nullptr || rows_are_aligned(merak_call_out(dlogits, 0)));
}
