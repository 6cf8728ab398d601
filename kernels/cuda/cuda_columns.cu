/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_columns.cu - gradients of parameters that all rows use: norms' weights,
 * alone and together with the gradient of their input, and biases
 *
 * Rows are divided into chunks, the sums of which go to scratch,
 * [OUT, chunks, C], and are then added.  Row r of a chunk is added by way
 * r mod WAYS; ways are added in order.  A block of norm_rows_back() takes WAYS
 * rows at a time, so WAYS depends on the length of a row (cuda_norm.cuh).
 */
#include "config.h"

#include "kernels/cuda/cuda_fuse.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_norm.cuh"

#define BIAS_WAYS 8
#define BIAS_CHUNK 128
#define WARPS (ROW_BLOCK / WARP)

static inline int norm_ways(size_t C, int N)
{
    return ROW_BLOCK / norm_threads(C, N);
}

/* Few rows for a block that takes them one by one. */
static inline size_t norm_chunk(int ways)
{
    return ways >= 4 ? 64 : 32;
}

template <typename T> struct merak_columns {
    const T *dy, *x;          /* x NULL: only sums of dy */
    const float *mean, *rstd; /* mean NULL: rmsnorm */
    float *part;
    size_t rows, C, chunk, chunks;
    bool whole;
};

/* --- sums of chunks ---------------------------------------------------------
 */

/* Sum 0 is that of dy h with h = (x - mean) rstd, or without x that of dy; sum
 * 1 is that of dy. */
template <int OUT, int N>
static __device__ __forceinline__ void
add_row(const float (&dy)[N], const float (&h)[N], float (&sum)[OUT][N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        sum[0][i] = fmaf(dy[i], h[i], sum[0][i]);
        if (OUT > 1)
            sum[OUT - 1][i] = add_rn(sum[OUT - 1][i], dy[i]);
    }
}

template <typename T, int OUT>
static __device__ __forceinline__ void
read_row(const merak_columns<T> &c, size_t row, size_t at,
         float (&sum)[OUT][merak_piece<T>::N])
{
    constexpr int N = merak_piece<T>::N;
    float d[N], h[N], mean, rstd;

    read(c.dy + row * c.C + at, c.C - at, c.whole, d);
    if (c.x != nullptr)
        read(c.x + row * c.C + at, c.C - at, c.whole, h);
    mean = c.mean != nullptr ? c.mean[row] : 0.0f;
    rstd = c.rstd != nullptr ? c.rstd[row] : 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++)
        h[i] = c.x != nullptr ? scaled(h[i], mean, rstd) : 1.0f;
    add_row(d, h, sum);
}

/* A warp takes the rows of one way and a piece a lane. */
template <typename T, int OUT, int WAYS>
static __global__ void __launch_bounds__(ROW_BLOCK, 2)
    column_parts(merak_columns<T> c)
{
    constexpr unsigned N = merak_piece<T>::N, GROUPS = WARPS / WAYS;
    MERAK_SHARED(float, part, [WARPS][WARP * N + 1]);
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    size_t from = (size_t)blockIdx.x * c.chunk;
    size_t to = from + c.chunk < c.rows ? from + c.chunk : c.rows;
    size_t base = (size_t)blockIdx.y * GROUPS * WARP * N;
    size_t at = base + (warp / WAYS * WARP + lane) * N;
    float sum[OUT][N] = {};

#pragma unroll 4
    for (size_t row = from + warp % WAYS; row < to; row += WAYS)
        if (at < c.C)
            read_row(c, row, at, sum);
#pragma unroll
    for (int o = 0; o < OUT; o++) {
        __syncthreads();
#pragma unroll
        for (unsigned i = 0; i < N; i++)
            part[warp][lane * N + i] = sum[o][i];
        __syncthreads();
        for (unsigned k = threadIdx.x; k < GROUPS * WARP * N; k += ROW_BLOCK) {
            unsigned group = k / (WARP * N);
            float total = 0;

#pragma unroll
            for (unsigned w = 0; w < WAYS; w++)
                total += part[group * WAYS + w][k % (WARP * N)];
            if (base + k < c.C)
                c.part[(o * c.chunks + blockIdx.x) * c.C + base + k] = total;
        }
    }
}

/* The gradient of a norm's input, and its part of those of the weights. */
template <typename T, int THREADS, int PIECES, bool CENTER>
static __global__ void __launch_bounds__(ROW_BLOCK, 2)
    norm_rows_back(merak_norm<T> n, merak_columns<T> c)
{
    constexpr int N = merak_piece<T>::N, OUT = CENTER ? 2 : 1;
    constexpr unsigned WAYS = ROW_BLOCK / THREADS;
    constexpr unsigned LENGTH = THREADS * PIECES * N;
    MERAK_SHARED(uint4, shared, [WAYS * LENGTH / 4]);
    float *part = reinterpret_cast<float *>(&shared[0]);
    unsigned way = threadIdx.x / THREADS;
    size_t from = (size_t)blockIdx.x * c.chunk;
    size_t to = from + c.chunk < c.rows ? from + c.chunk : c.rows;
    float sum[PIECES][OUT][N] = {};

    n.rows = to;
    for (size_t row = from; row < to; row += WAYS)
        back_row<T, THREADS, PIECES, CENTER>(
            n, row + way, [&](int k, const float(&dy)[N], const float(&h)[N]) {
                add_row(dy, h, sum[k]);
            });
#pragma unroll
    for (int o = 0; o < OUT; o++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < PIECES; k++)
#pragma unroll
            for (int i = 0; i < N; i += 4)
                shared[(way * LENGTH +
                        (threadIdx.x % THREADS + (unsigned)k * THREADS) * N +
                        i) /
                       4] = pack(*reinterpret_cast<float(*)[4]>(&sum[k][o][i]));
        __syncthreads();
        for (unsigned at = threadIdx.x; at < n.C; at += ROW_BLOCK) {
            float total = 0;

#pragma unroll
            for (unsigned w = 0; w < WAYS; w++)
                total += part[w * LENGTH + at];
            c.part[(o * c.chunks + blockIdx.x) * c.C + at] = total;
        }
    }
}

/* --- their sums -------------------------------------------------------------
 */

#define ADD_WAYS 32

struct merak_totals {
    const float *part; /* [OUT, chunks, C] */
    size_t chunks, C;
    float *out[2];
    bool accumulate;
};

/* A block takes 32 columns of output blockIdx.y; way w adds chunks w, w + 32,
 * ..; ways are added in order. */
static __global__ void __launch_bounds__(WARP *ADD_WAYS)
    add_parts(merak_totals t)
{
    MERAK_SHARED(float, part, [ADD_WAYS][WARP]);
    unsigned lane = threadIdx.x % WARP, way = threadIdx.x / WARP;
    size_t at = (size_t)blockIdx.x * WARP + lane;
    const float *from = t.part + blockIdx.y * t.chunks * t.C + at;
    float *out = blockIdx.y == 0 ? t.out[0] : t.out[1], sum = 0;

#pragma unroll 8
    for (size_t k = way; k < t.chunks; k += ADD_WAYS)
        if (at < t.C)
            sum += from[k * t.C];
    part[way][lane] = sum;
    __syncthreads();
    if (way > 0 || at >= t.C)
        return;
    sum = 0;
#pragma unroll 8
    for (int w = 0; w < ADD_WAYS; w++)
        sum += part[w][lane];
    out[at] = t.accumulate ? out[at] + sum : sum;
}

template <typename T>
static enum merak_status
add_chunks(const struct merak_kernel_call *call, const char *name, int outputs,
           const merak_columns<T> &c, struct merak_error *err)
{
    merak_totals t = {c.part, c.chunks, c.C, {}, call->accumulate};

    for (int o = 0; o < outputs; o++)
        t.out[o] = static_cast<float *>(merak_call_out(call, o)->data);
    return launch(
        merak_cuda_context_of(call),
        merak_launch{name,
                     dim3((unsigned)ceil_div(c.C, WARP), (unsigned)outputs),
                     dim3(WARP * ADD_WAYS), 0},
        err, add_parts, t);
}

/* --- calls ------------------------------------------------------------------
 */

/* Rows of operand 0, which are as long as output 0. */
static size_t count_rows(const struct merak_kernel_call *call)
{
    size_t C = merak_local_count(merak_call_out(call, 0));

    return C > 0 ? merak_local_count(&call->operand[0]) / C : 0;
}

static size_t chunk_rows(const struct merak_kernel_call *call, bool bias)
{
    size_t C = merak_local_count(merak_call_out(call, 0));
    int N = (int)(16 / merak_dtype_bytes(call->operand[0].dtype));

    return bias ? BIAS_CHUNK : norm_chunk(norm_ways(C, N));
}

static size_t column_scratch(const struct merak_kernel_call *call, bool bias)
{
    size_t chunks = ceil_div(count_rows(call), chunk_rows(call, bias));

    return (size_t)call->n_out * chunks *
           merak_local_count(merak_call_out(call, 0)) * sizeof(float);
}

/* rstd 0: a bias; mean 0: rmsnorm. */
template <typename T>
static merak_columns<T> view_columns(const struct merak_kernel_call *call,
                                     int mean, int rstd)
{
    const struct merak_operand *op = call->operand;
    merak_columns<T> c = {};

    c.dy = static_cast<const T *>(op[0].data);
    c.C = merak_local_count(merak_call_out(call, 0));
    c.rows = count_rows(call);
    if (rstd > 0) {
        c.x = static_cast<const T *>(op[1].data);
        c.rstd = static_cast<const float *>(op[rstd].data);
    }
    if (mean > 0)
        c.mean = static_cast<const float *>(op[mean].data);
    c.part = static_cast<float *>(call->scratch);
    c.chunk = chunk_rows(call, rstd == 0);
    c.chunks = ceil_div(c.rows, c.chunk);
    c.whole = c.C % merak_piece<T>::N == 0 && is_aligned(c.dy) &&
              is_aligned(c.x); /* NULL is aligned */
    return c;
}

template <typename T, int OUT>
static enum merak_status
sum_columns(const struct merak_kernel_call *call, const char *name,
            const merak_columns<T> &c, struct merak_error *err)
{
    int ways = c.x == nullptr ? BIAS_WAYS : norm_ways(c.C, merak_piece<T>::N);
    size_t columns = (size_t)(WARPS / ways * WARP * merak_piece<T>::N);
    enum merak_status rc = launch(
        merak_cuda_context_of(call),
        merak_launch{name,
                     dim3((unsigned)c.chunks, (unsigned)ceil_div(c.C, columns)),
                     dim3(ROW_BLOCK), 0},
        err,
        ways == 8   ? column_parts<T, OUT, 8>
        : ways == 4 ? column_parts<T, OUT, 4>
        : ways == 2 ? column_parts<T, OUT, 2>
                    : column_parts<T, OUT, 1>,
        c);

    return rc == MERAK_OK ? add_chunks(call, name, OUT, c, err) : rc;
}

#define COLUMN_KERNEL(op, outputs, mean, rstd)                      \
    CUDA_KERNEL(op)                                                 \
    {                                                               \
        return by_dtype(call, 0, err, [&](auto x) {                 \
            using T = decltype(x);                                  \
                                                                    \
            return sum_columns<T, outputs>(                         \
                call, #op, view_columns<T>(call, mean, rstd), err); \
        });                                                         \
    }                                                               \
    CUDA_SCRATCH(op)                                                \
    {                                                               \
        return column_scratch(call, rstd == 0);                     \
    }

COLUMN_KERNEL(layernorm_dw, 2, 2, 3)
COLUMN_KERNEL(rmsnorm_dw, 1, 0, 2)
COLUMN_KERNEL(linear_db, 1, 0, 0)
COLUMN_KERNEL(attention_biased_dw, 1, 0, 0)

/* --- norms with both gradients ----------------------------------------------
 */

template <typename T, bool CENTER>
static enum merak_status norm_back(const struct merak_kernel_call *dx,
                                   const struct merak_kernel_call *add,
                                   const struct merak_kernel_call *dw,
                                   bool store, struct merak_error *err)
{
    static void (*const kernel[])(merak_norm<T>, merak_columns<T>) = {
        norm_rows_back<T, ROW_BLOCK, NORM_PIECES, CENTER>,
        norm_rows_back<T, 4 * WARP, NORM_PIECES, CENTER>,
        norm_rows_back<T, 2 * WARP, NORM_PIECES, CENTER>,
        norm_rows_back<T, WARP, NORM_PIECES, CENTER>,
    };
    const char *name = CENTER ? "layernorm_dx" : "rmsnorm_dx";
    merak_columns<T> c = view_columns<T>(dw, CENTER ? 2 : 0, CENTER ? 3 : 2);
    int ways = norm_ways(c.C, merak_piece<T>::N), i = 0;
    enum merak_status rc;

    while (1 << i < ways)
        i++;
    rc =
        launch(merak_cuda_context_of(dx),
               merak_launch{name, dim3((unsigned)c.chunks), dim3(ROW_BLOCK), 0},
               err, kernel[i], view_back<T, CENTER>(dx, add, store), c);
    return rc == MERAK_OK ? add_chunks(dw, name, CENTER ? 2 : 1, c, err) : rc;
}

extern "C" enum merak_status
merak_cuda_norm_back(const struct merak_kernel_call *dx,
                     const struct merak_kernel_call *add,
                     const struct merak_kernel_call *dw, bool store,
                     bool center, struct merak_error *err)
{
    return by_dtype(dx, 0, err, [&](auto x) {
        using T = decltype(x);

        return center ? norm_back<T, true>(dx, add, dw, store, err)
                      : norm_back<T, false>(dx, add, dw, store, err);
    });
}

extern "C" bool merak_cuda_norm_back_fits(const struct merak_kernel_call *dx)
{
    size_t bytes = merak_dtype_bytes(dx->operand[0].dtype);

    return norm_is_held(merak_local_last(&dx->operand[0]), (int)(16 / bytes));
}
