/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_norm.cuh - rows of norms in registers, and their arithmetic
 *
 * THREADS threads of a block of ROW_BLOCK share a row, 16-byte piece by piece.
 * Each holds up to PIECES pieces, so that memory is read once; PIECES 0 is for
 * rows of any length, which are read again by each pass.  Both numbers depend
 * on the length alone.
 *
 * A kernel that computes a norm together with its neighbours has the bits of
 * single kernels: both call these functions, which round as written
 * (cuda_rounding.cuh).
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_NORM_CUH
#define MERAK_KERNELS_CUDA_CUDA_NORM_CUH

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_rounding.cuh"

#define NORM_PIECES 3

/* Threads for a row of C elements, N in a piece. */
static inline int norm_threads(size_t C, int N)
{
    int threads = WARP;

    while (threads < ROW_BLOCK &&
           ceil_div(C, (size_t)N) > (size_t)(threads * NORM_PIECES))
        threads *= 2;
    return threads;
}

/* Do they hold it in registers? */
static inline bool norm_is_held(size_t C, int N)
{
    return ceil_div(C, (size_t)N) <= ROW_BLOCK * NORM_PIECES;
}

template <typename T> struct merak_norm {
    const T *x, *dy;
    const float *gamma, *beta;      /* beta NULL: rmsnorm */
    const float *mean_in, *rstd_in; /* for gradients; mean NULL: rmsnorm */
    T *out;                         /* NULL: not stored */
    float *mean, *rstd;
    /* Not NULL: the norm is of x + other, which is stored in `sum`; its
     * gradient is added to `other`, in `sum`. */
    const T *other;
    T *sum;
    size_t rows;
    unsigned C;
    float eps, offset; /* offset: added to gamma */
    bool whole;
};

/* (x - mean) rstd */
static __device__ __forceinline__ float scaled(float x, float mean, float rstd)
{
    return mul_rn(add_rn(x, -mean), rstd);
}

/* --- rows -------------------------------------------------------------------
 */

/* Sums of the THREADS threads of a block that share a row, of which there may
 * be several; all of the block's threads take part. */
template <int THREADS, int K>
static __device__ __forceinline__ void sum_rows(float (&sum)[K])
{
#pragma unroll
    for (int s = 0; s < K; s++)
        sum[s] = warp_sum(sum[s]);
    if constexpr (THREADS > WARP) {
        MERAK_SHARED(float, part, [K][ROW_BLOCK / WARP]);
        constexpr unsigned WARPS = THREADS / WARP;
        unsigned warp = threadIdx.x / WARP, first = warp / WARPS * WARPS;

        __syncthreads(); /* the previous sums have been read */
#pragma unroll
        for (int s = 0; s < K; s++)
            if (threadIdx.x % WARP == 0)
                part[s][warp] = sum[s];
        __syncthreads();
#pragma unroll
        for (int s = 0; s < K; s++) {
            sum[s] = part[s][first];
#pragma unroll
            for (unsigned w = 1; w < WARPS; w++)
                sum[s] += part[s][first + w];
        }
    }
}

/* A thread's pieces of a row. */
template <typename T, int PIECES> struct merak_held {
    const T *row;
    uint4 raw[PIECES > 0 ? PIECES : 1];

    __device__ __forceinline__ void hold(int k, unsigned at, unsigned C,
                                         bool whole)
    {
        if constexpr (PIECES > 0) {
            if (whole) {
                raw[k] = load_16(row + at);
            } else {
                float x[merak_piece<T>::N];

                read(row + at, C - at, false, x);
                raw[k] = pack(x);
            }
        }
    }

    /* Elements behind the row are 0. */
    __device__ __forceinline__ void get(int k, unsigned at, unsigned C,
                                        bool whole,
                                        float (&x)[merak_piece<T>::N]) const
    {
        if constexpr (PIECES > 0)
            unpack(raw[k], x);
        else
            read(row + at, C - at, whole, x);
    }
};

/* The launch of a kernel for rows; kernel[]: for 32, 64, 128 and 256 threads a
 * row, and for any length. */
template <typename T>
static enum merak_status launch_rows(const struct merak_kernel_call *call,
                                     const char *name, const merak_norm<T> &n,
                                     void (*const (&kernel)[5])(merak_norm<T>),
                                     struct merak_error *err)
{
    int threads = norm_threads(n.C, merak_piece<T>::N), i = 4;

    if (norm_is_held(n.C, merak_piece<T>::N))
        for (i = 0; WARP << i < threads;)
            i++;
    return launch(merak_cuda_context_of(call),
                  row_launch(name, n.rows, threads), err, kernel[i], n);
}

#define ROW_KERNELS(kernel, T, ...)                         \
    {                                                       \
        kernel<T, WARP, NORM_PIECES, __VA_ARGS__>,          \
            kernel<T, 2 * WARP, NORM_PIECES, __VA_ARGS__>,  \
            kernel<T, 4 * WARP, NORM_PIECES, __VA_ARGS__>,  \
            kernel<T, ROW_BLOCK, NORM_PIECES, __VA_ARGS__>, \
            kernel<T, ROW_BLOCK, 0, __VA_ARGS__>,           \
    }

template <typename T>
static void view_rows(merak_norm<T> *n, const struct merak_kernel_call *call,
                      int x, int gamma)
{
    n->x = static_cast<const T *>(call->operand[x].data);
    n->gamma = static_cast<const float *>(call->operand[gamma].data);
    n->out = static_cast<T *>(merak_call_out(call, 0)->data);
    n->C = (unsigned)merak_local_count(&call->operand[gamma]);
    n->rows = merak_local_count(&call->operand[x]) / n->C;
    n->eps = (float)call->attrs->f[0];
    n->offset = (float)call->attrs->f[1]; /* rmsnorm; 0 for layernorm */
    n->whole = n->C % merak_piece<T>::N == 0 && is_aligned(n->x) &&
               is_aligned(n->gamma) && is_aligned(n->out);
}

/* --- gradients of rows ------------------------------------------------------
 */

/* A gradient's call; and, unless it is NULL, that of the addition to another
 * gradient.  `store`: also what is added. */
template <typename T, bool CENTER>
static merak_norm<T> view_back(const struct merak_kernel_call *dx,
                               const struct merak_kernel_call *add, bool store)
{
    const struct merak_operand *op = dx->operand;
    merak_norm<T> n = {};

    view_rows(&n, dx, 1, 2);
    n.dy = static_cast<const T *>(op[0].data);
    n.whole = n.whole && is_aligned(n.dy);
    if (CENTER)
        n.mean_in = static_cast<const float *>(op[3].data);
    n.rstd_in = static_cast<const float *>(op[CENTER ? 4 : 3].data);
    if (add != nullptr) {
        int other = add->operand[0].data == n.out ? 1 : 0;

        n.other = static_cast<const T *>(add->operand[other].data);
        n.sum = static_cast<T *>(merak_call_out(add, 0)->data);
        n.whole = n.whole && is_aligned(n.other) && is_aligned(n.sum);
    }
    if (!store)
        n.out = nullptr;
    return n;
}

/* With h = (x - mean) rstd and g = dy gamma:
 * dx = rstd (g - mean(g) - h mean(g h)), for rmsnorm without mean(g).
 * use(k, dy, h) gets the elements of piece k. */
template <typename T, int THREADS, int PIECES, bool CENTER, typename F>
static __device__ __forceinline__ void back_row(const merak_norm<T> &n,
                                                size_t row, F use)
{
    constexpr int N = merak_piece<T>::N;
    bool here = row < n.rows;
    unsigned C = here ? n.C : 0;
    size_t at_row = row * n.C;
    merak_held<T, PIECES> x = {n.x + at_row, {}}, dy = {n.dy + at_row, {}};
    merak_held<T, PIECES> other = {
        n.other != nullptr ? n.other + at_row : nullptr, {}};
    float mean = CENTER && here ? n.mean_in[row] : 0.0f;
    float rstd = here ? n.rstd_in[row] : 0.0f;
    float sum[2] = {0, 0}, g_mean, gh_mean; /* of g, of g h */
    bool whole = n.whole;

    each_piece<T, THREADS, PIECES>(C, [&](int k, unsigned at) {
        x.hold(k, at, C, whole);
        dy.hold(k, at, C, whole);
        if (n.other != nullptr)
            other.hold(k, at, C, whole);
    });
    each_piece<T, THREADS, PIECES>(C, [&](int k, unsigned at) {
        float v[N], d[N], g[N];

        x.get(k, at, C, whole, v);
        dy.get(k, at, C, whole, d);
        read(n.gamma + at, C - at, whole, g);
#pragma unroll
        for (int i = 0; i < N; i++) {
            /* 0 after the row */
            float dg = mul_rn(d[i], add_rn(n.offset, g[i]));

            sum[0] = add_rn(sum[0], dg);
            sum[1] = fmaf(dg, scaled(v[i], mean, rstd), sum[1]);
        }
    });
    sum_rows<THREADS>(sum);
    g_mean = CENTER ? sum[0] / (float)n.C : 0.0f;
    gh_mean = sum[1] / (float)n.C;
    each_piece<T, THREADS, PIECES>(C, [&](int k, unsigned at) {
        float v[N], d[N], g[N], y[N];

        x.get(k, at, C, whole, v);
        dy.get(k, at, C, whole, d);
        read(n.gamma + at, C - at, whole, g);
#pragma unroll
        for (int i = 0; i < N; i++) {
            v[i] = scaled(v[i], mean, rstd);
            y[i] = mul_rn(d[i], add_rn(n.offset, g[i]));
            y[i] = mul_rn(rstd, fmaf(-v[i], gh_mean, add_rn(y[i], -g_mean)));
        }
        use(k, d, v);
        if (n.out != nullptr)
            write(n.out + at_row + at, C - at, whole, y);
        if (n.other == nullptr)
            return;
        other.get(k, at, C, whole, g);
#pragma unroll
        for (int i = 0; i < N; i++)
            y[i] = add_rn(rounded<T>(y[i]), g[i]);
        write(n.sum + at_row + at, C - at, whole, y);
    });
}

#endif
