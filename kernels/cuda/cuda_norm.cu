/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_norm.cu - layernorm, rmsnorm and their gradients, bias gradients; the
 * equations are in ref/ref_norm.c
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

/* --- rows ------------------------------------------------------------------
 */

template <typename T> struct merak_norm {
    const T *x, *dy;
    const float *gamma, *beta;      /* beta NULL: rmsnorm */
    const float *mean_in, *rstd_in; /* for gradients; mean NULL: rmsnorm */
    T *out;
    float *mean, *rstd;
    size_t rows, C;
    float eps, offset; /* offset: added to gamma */
    bool whole;
};

/* Elements of a row that a thread takes: N from each `at`, THREADS apart. */
#define FOR_ROW_PIECES(at, N, THREADS, C) \
    for (size_t at = threadIdx.x % THREADS * N; at < C; at += THREADS * N)

template <typename T, int THREADS, bool CENTER>
static __global__ void __launch_bounds__(ROW_BLOCK) norm_rows(merak_norm<T> n)
{
    constexpr int N = merak_piece<T>::N;
    size_t row = grid_thread() / THREADS, C = n.C;
    const T *x = n.x + row * C;
    float sum = 0, mean = 0, rstd;

    if (row >= n.rows)
        return;
    if (CENTER) {
        FOR_ROW_PIECES(at, N, THREADS, C)
        {
            float v[N];

            read(x + at, C - at, n.whole, v);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum += v[i];
        }
        mean = row_sum<THREADS>(sum) / (float)C;
        sum = 0;
    }
    FOR_ROW_PIECES(at, N, THREADS, C)
    {
        float v[N];

        read(x + at, C - at, n.whole, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (at + i < C)
                sum += (v[i] - mean) * (v[i] - mean);
    }
    rstd = 1.0f / sqrtf(row_sum<THREADS>(sum) / (float)C + n.eps);
    FOR_ROW_PIECES(at, N, THREADS, C)
    {
        float v[N], g[N], b[N];

        read(x + at, C - at, n.whole, v);
        read(n.gamma + at, C - at, n.whole, g);
        if (CENTER)
            read(n.beta + at, C - at, n.whole, b);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = (v[i] - mean) * rstd * (n.offset + g[i]) +
                   (CENTER ? b[i] : 0.0f);
        write(n.out + row * C + at, C - at, n.whole, v);
    }
    if (threadIdx.x % THREADS == 0) {
        n.rstd[row] = rstd;
        if (CENTER)
            n.mean[row] = mean;
    }
}

/* With h = (x - mean) rstd and g = dy gamma:
 * dx = rstd (g - mean(g) - h mean(g h)), for rmsnorm without mean(g). */
template <typename T, int THREADS, bool CENTER>
static __global__ void __launch_bounds__(ROW_BLOCK)
    norm_rows_dx(merak_norm<T> n)
{
    constexpr int N = merak_piece<T>::N;
    size_t row = grid_thread() / THREADS, C = n.C;
    const T *x = n.x + row * C, *dy = n.dy + row * C;
    float g_sum = 0, gh_sum = 0, mean, rstd;

    if (row >= n.rows)
        return;
    mean = CENTER ? n.mean_in[row] : 0.0f;
    rstd = n.rstd_in[row];
    FOR_ROW_PIECES(at, N, THREADS, C)
    {
        float v[N], d[N], g[N];

        read(x + at, C - at, n.whole, v);
        read(dy + at, C - at, n.whole, d);
        read(n.gamma + at, C - at, n.whole, g);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float dg = d[i] * (n.offset + g[i]); /* 0 after the row */

            g_sum += dg;
            gh_sum += dg * ((v[i] - mean) * rstd);
        }
    }
    g_sum = CENTER ? row_sum<THREADS>(g_sum) / (float)C : 0.0f;
    gh_sum = row_sum<THREADS>(gh_sum) / (float)C;
    FOR_ROW_PIECES(at, N, THREADS, C)
    {
        float v[N], d[N], g[N];

        read(x + at, C - at, n.whole, v);
        read(dy + at, C - at, n.whole, d);
        read(n.gamma + at, C - at, n.whole, g);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = rstd * (d[i] * (n.offset + g[i]) - g_sum -
                           (v[i] - mean) * rstd * gh_sum);
        write(n.out + row * C + at, C - at, n.whole, v);
    }
}

template <typename T>
static void view_rows(merak_norm<T> *n, const struct merak_kernel_call *call,
                      int x, int gamma)
{
    n->x = static_cast<const T *>(call->operand[x].data);
    n->gamma = static_cast<const float *>(call->operand[gamma].data);
    n->out = static_cast<T *>(merak_call_out(call, 0)->data);
    n->C = merak_local_count(&call->operand[gamma]);
    n->rows = merak_local_count(&call->operand[x]) / n->C;
    n->eps = (float)call->attrs->f[0];
    n->offset = (float)call->attrs->f[1]; /* rmsnorm; 0 for layernorm */
    n->whole = n->C % merak_piece<T>::N == 0 && is_aligned(n->x) &&
               is_aligned(n->gamma) && is_aligned(n->out);
}

template <typename T>
static enum merak_status
run_rows(const struct merak_kernel_call *call, const char *name,
         const merak_norm<T> &n, void (*short_rows)(merak_norm<T>),
         void (*long_rows)(merak_norm<T>), struct merak_error *err)
{
    bool is_short = n.C < LONG_ROW;

    return launch(merak_cuda_context_of(call),
                  row_launch(name, n.rows, is_short ? WARP : ROW_BLOCK), err,
                  is_short ? short_rows : long_rows, n);
}

template <typename T, bool CENTER>
static enum merak_status norm(const struct merak_kernel_call *call,
                              const char *name, struct merak_error *err)
{
    merak_norm<T> n = {};

    view_rows(&n, call, 0, 1);
    if (CENTER) {
        n.beta = static_cast<const float *>(call->operand[2].data);
        n.mean = static_cast<float *>(merak_call_out(call, 1)->data);
        n.whole = n.whole && is_aligned(n.beta);
    }
    n.rstd = static_cast<float *>(merak_call_out(call, CENTER ? 2 : 1)->data);
    return run_rows(call, name, n, norm_rows<T, WARP, CENTER>,
                    norm_rows<T, ROW_BLOCK, CENTER>, err);
}

template <typename T, bool CENTER>
static enum merak_status norm_dx(const struct merak_kernel_call *call,
                                 const char *name, struct merak_error *err)
{
    const struct merak_operand *op = call->operand;
    merak_norm<T> n = {};

    view_rows(&n, call, 1, 2);
    n.dy = static_cast<const T *>(op[0].data);
    n.whole = n.whole && is_aligned(n.dy);
    if (CENTER)
        n.mean_in = static_cast<const float *>(op[3].data);
    n.rstd_in = static_cast<const float *>(op[CENTER ? 4 : 3].data);
    return run_rows(call, name, n, norm_rows_dx<T, WARP, CENTER>,
                    norm_rows_dx<T, ROW_BLOCK, CENTER>, err);
}

#define NORM_KERNEL(op, function, center)                         \
    CUDA_KERNEL(op)                                               \
    {                                                             \
        enum merak_status rc = check_dtype(call, 0, false, err);  \
                                                                  \
        if (rc != MERAK_OK)                                       \
            return rc;                                            \
        return call->operand[0].dtype == MERAK_BF16               \
                   ? function<merak_bf16, center>(call, #op, err) \
                   : function<float, center>(call, #op, err);     \
    }

NORM_KERNEL(layernorm, norm, true)
NORM_KERNEL(rmsnorm, norm, false)
NORM_KERNEL(layernorm_dx, norm_dx, true)
NORM_KERNEL(rmsnorm_dx, norm_dx, false)

/* --- columns ---------------------------------------------------------------
 *
 * Gradients of parameters that all rows use: rows are divided into chunks, the
 * sums of which go to scratch, [OUT, chunks, C], and are then added in order.
 */

#define CHUNK_ROWS 128
#define COLUMN_LANES 32
#define COLUMN_ROWS 8 /* rows that a block works on at once */

template <typename T> struct merak_columns {
    const T *dy, *x;          /* x NULL: only sums of dy */
    const float *mean, *rstd; /* mean NULL: rmsnorm */
    float *part;
    size_t rows, C, chunks;
    bool whole;
};

/* Output 0 is sum dy h with h = (x - mean) rstd, or sum dy without x; output 1
 * is sum dy. */
template <typename T, int OUT>
static __device__ __forceinline__ void
add_row(const merak_columns<T> &c, size_t row, size_t at,
        float (&sum)[OUT][merak_piece<T>::N])
{
    constexpr int N = merak_piece<T>::N;
    float d[N], v[N], mean = 0, rstd = 1;

    read(c.dy + row * c.C + at, c.C - at, c.whole, d);
    if (c.x != nullptr) {
        read(c.x + row * c.C + at, c.C - at, c.whole, v);
        mean = c.mean != nullptr ? c.mean[row] : 0.0f;
        rstd = c.rstd[row];
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        sum[0][i] += c.x != nullptr ? d[i] * ((v[i] - mean) * rstd) : d[i];
        if (OUT > 1)
            sum[OUT - 1][i] += d[i];
    }
}

template <typename T, int OUT>
static __global__ void __launch_bounds__(COLUMN_LANES *COLUMN_ROWS)
    column_parts(merak_columns<T> c)
{
    constexpr int N = merak_piece<T>::N;
    MERAK_SHARED(float, part, [COLUMN_ROWS][COLUMN_LANES * N + 1]);
    size_t lane = threadIdx.x % COLUMN_LANES,
           first = threadIdx.x / COLUMN_LANES;
    size_t from = (size_t)blockIdx.x * CHUNK_ROWS;
    size_t to = from + CHUNK_ROWS < c.rows ? from + CHUNK_ROWS : c.rows;
    size_t base = (size_t)blockIdx.y * COLUMN_LANES * N, at = base + lane * N;
    float sum[OUT][N] = {};

    for (size_t row = from + first; row < to && at < c.C; row += COLUMN_ROWS)
        add_row<T, OUT>(c, row, at, sum);
#pragma unroll
    for (int o = 0; o < OUT; o++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N; i++)
            part[first][lane * N + i] = sum[o][i];
        __syncthreads();
        for (size_t k = threadIdx.x; k < COLUMN_LANES * N && base + k < c.C;
             k += COLUMN_LANES * COLUMN_ROWS) {
            float total = 0;

#pragma unroll
            for (int r = 0; r < COLUMN_ROWS; r++)
                total += part[r][k];
            c.part[(o * c.chunks + blockIdx.x) * c.C + base + k] = total;
        }
    }
}

static __global__ void __launch_bounds__(MAP_THREADS)
    add_parts(const float *part, size_t chunks, size_t C, float *out,
              bool accumulate)
{
    for (size_t c = grid_thread(); c < C; c += grid_threads()) {
        float sum = 0;

#pragma unroll 8
        for (size_t k = 0; k < chunks; k++)
            sum += part[k * C + c];
        out[c] = accumulate ? out[c] + sum : sum;
    }
}

template <typename T, int OUT>
static enum merak_status sum_columns(const struct merak_kernel_call *call,
                                     const char *name, merak_columns<T> c,
                                     struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    enum merak_status rc;

    c.part = static_cast<float *>(call->scratch);
    c.chunks = ceil_div(c.rows, CHUNK_ROWS);
    c.whole = c.C % merak_piece<T>::N == 0 && is_aligned(c.dy) &&
              is_aligned(c.x); /* NULL is aligned */
    rc = launch(cx,
                merak_launch{name,
                             dim3((unsigned)c.chunks,
                                  (unsigned)ceil_div(
                                      c.C, COLUMN_LANES * merak_piece<T>::N)),
                             dim3(COLUMN_LANES * COLUMN_ROWS), 0},
                err, column_parts<T, OUT>, c);
    for (int o = 0; o < OUT && rc == MERAK_OK; o++)
        rc = launch(cx, map_launch(name, c.C), err, add_parts,
                    c.part + o * c.chunks * c.C, c.chunks, c.C,
                    static_cast<float *>(merak_call_out(call, o)->data),
                    call->accumulate);
    return rc;
}

/* Scratch of `outputs` sums over the rows of operand 0, sized as output 0. */
static size_t column_scratch(const struct merak_kernel_call *call, int outputs)
{
    size_t C = merak_local_count(merak_call_out(call, 0));
    size_t rows = C > 0 ? merak_local_count(&call->operand[0]) / C : 0;

    return (size_t)outputs * ceil_div(rows, CHUNK_ROWS) * C * sizeof(float);
}

template <typename T>
static merak_columns<T> view_columns(const struct merak_kernel_call *call,
                                     int mean, int rstd)
{
    const struct merak_operand *op = call->operand;
    merak_columns<T> c = {};

    c.dy = static_cast<const T *>(op[0].data);
    c.C = merak_local_count(merak_call_out(call, 0));
    c.rows = c.C > 0 ? merak_local_count(&op[0]) / c.C : 0;
    if (rstd > 0) {
        c.x = static_cast<const T *>(op[1].data);
        c.rstd = static_cast<const float *>(op[rstd].data);
    }
    if (mean > 0)
        c.mean = static_cast<const float *>(op[mean].data);
    return c;
}

#define COLUMN_KERNEL(op, outputs, mean, rstd)                               \
    CUDA_KERNEL(op)                                                          \
    {                                                                        \
        enum merak_status rc = check_dtype(call, 0, false, err);             \
                                                                             \
        if (rc != MERAK_OK)                                                  \
            return rc;                                                       \
        if (call->operand[0].dtype == MERAK_BF16)                            \
            return sum_columns<merak_bf16, outputs>(                         \
                call, #op, view_columns<merak_bf16>(call, mean, rstd), err); \
        return sum_columns<float, outputs>(                                  \
            call, #op, view_columns<float>(call, mean, rstd), err);          \
    }                                                                        \
    CUDA_SCRATCH(op)                                                         \
    {                                                                        \
        return column_scratch(call, outputs);                                \
    }

COLUMN_KERNEL(layernorm_dw, 2, 2, 3)
COLUMN_KERNEL(rmsnorm_dw, 1, 0, 2)
COLUMN_KERNEL(linear_db, 1, 0, 0)
