/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_channels.cu - norms of groups of channels with their gradients, and
 * channels beside one another; the equations are in ref/ref_channels.c
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

extern "C" {
#include "kernels/channels.h"
}

/* --- sums ------------------------------------------------------------------
 */

#define SUM_WAYS (ROW_BLOCK / WARP)
#define SUM_BLOCK 512        /* points, at least, that a block sums */
#define SUM_MOST_BLOCKS 1024 /* of a sample */

template <typename T> struct merak_channel_sums {
    const T *x, *by;
    double *part, *out;                 /* [B, blocks, C, 2], [B, C, 2] */
    size_t points, C, block, blocks, n; /* n: elements of out */
};

/* A block takes 32 channels of a block of points; a warp every eighth one. */
template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    sum_points(merak_channel_sums<T> s)
{
    MERAK_SHARED(double, part, [SUM_WAYS][2 * WARP]);
    unsigned lane = threadIdx.x % WARP, way = threadIdx.x / WARP;
    size_t c = (size_t)blockIdx.y * WARP + lane;
    size_t from = blockIdx.x % s.blocks * s.block, to = from + s.block;
    size_t first = blockIdx.x / s.blocks * s.points;
    double sum = 0, product = 0;

    to = to < s.points ? to : s.points;
    for (size_t p = from + way; p < to && c < s.C; p += SUM_WAYS) {
        double x = (double)to_f32(s.x[(first + p) * s.C + c]);

        sum += x;
        product += x * (double)to_f32(s.by[(first + p) * s.C + c]);
    }
    part[way][lane] = sum;
    part[way][WARP + lane] = product;
    __syncthreads();
    if (way > 1 || c >= s.C)
        return;
    sum = 0;
    for (int w = 0; w < SUM_WAYS; w++)
        sum += part[w][way * WARP + lane];
    s.part[2 * (blockIdx.x * s.C + c) + way] = sum;
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    add_blocks(merak_channel_sums<T> s)
{
    for (size_t i = grid_thread(); i < s.n; i += grid_threads()) {
        const double *part =
            s.part + i / (2 * s.C) * s.blocks * 2 * s.C + i % (2 * s.C);
        double sum = 0;

        for (size_t k = 0; k < s.blocks; k++)
            sum += part[k * 2 * s.C];
        s.out[i] = sum;
    }
}

template <typename T>
static merak_channel_sums<T> sums_view(const struct merak_kernel_call *call)
{
    const struct merak_operand *x = &call->operand[0];
    merak_channel_sums<T> s = {};

    s.x = static_cast<const T *>(x->data);
    s.by = static_cast<const T *>(call->operand[call->n_in - 1].data);
    s.part = static_cast<double *>(call->scratch);
    s.out = static_cast<double *>(merak_call_out(call, 0)->data);
    s.points = merak_local_span(x, 1, x->local.ndim - 1);
    s.C = merak_local_last(x);
    s.n = 2 * s.C * x->local.dim[0];
    s.block = ceil_div(s.points, SUM_MOST_BLOCKS);
    s.block = s.block < SUM_BLOCK ? SUM_BLOCK : s.block;
    s.blocks = ceil_div(s.points, s.block);
    return s;
}

CUDA_SCRATCH(channel_sums)
{
    merak_channel_sums<float> s = sums_view<float>(call);

    return s.n * s.blocks * sizeof(double);
}

CUDA_KERNEL(channel_sums)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        merak_channel_sums<T> s = sums_view<T>(call);
        size_t blocks = call->operand[0].local.dim[0] * s.blocks;
        enum merak_status rc = launch(
            merak_cuda_context_of(call),
            merak_launch{"channel_sums",
                         dim3((unsigned)blocks, (unsigned)ceil_div(s.C, WARP)),
                         dim3(ROW_BLOCK), 0},
            err, sum_points<T>, s);

        return rc != MERAK_OK ? rc
                              : launch(merak_cuda_context_of(call),
                                       map_launch("channel_sums", s.n), err,
                                       add_blocks<T>, s);
    });
}

/* --- norms -----------------------------------------------------------------
 */

/* What each channel of each sample is shifted and multiplied by. */
enum { TERM_SHIFT, TERM_FACTOR, TERM_BY, TERM_LESS, TERMS };

template <typename T> struct merak_channel_norm {
    struct merak_channels q;
    const T *x, *dy; /* dy: of a gradient */
    T *out;
    float *term;                  /* [TERMS, B, C] */
    const float *gamma, *beta;    /* [C], of the norm itself */
    const float *mean, *variance; /* [C], to be taken, or NULL */
};

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    find_terms(merak_channel_norm<T> m)
{
    size_t n = m.q.B * m.q.C;

    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        size_t b = i / m.q.C, c = i % m.q.C;
        struct merak_moments moments = merak_channels_moments(&m.q, b, c);
        double gamma =
            (double)(m.dy != nullptr ? m.q.gamma[m.q.first + c] : m.gamma[c]);

        m.term[TERM_SHIFT * n + i] = (float)moments.mean;
        m.term[TERM_FACTOR * n + i] = (float)(moments.rstd * gamma);
        if (m.dy != nullptr) {
            struct merak_slopes s = merak_channels_slopes(&m.q, b, c, moments);

            m.term[TERM_BY * n + i] = (float)s.by;
            m.term[TERM_LESS * n + i] = (float)s.less;
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    norm_points(merak_channel_norm<T> m)
{
    size_t n = m.q.B * m.q.C, all = n * m.q.points;

    for (size_t i = grid_thread(); i < all; i += grid_threads()) {
        size_t c = i % m.q.C, at = i / (m.q.points * m.q.C) * m.q.C + c;
        float x = to_f32(m.x[i]) - m.term[TERM_SHIFT * n + at];
        float by = m.term[TERM_FACTOR * n + at];

        from_f32(&m.out[i], m.dy == nullptr ? x * by + m.beta[c]
                                            : to_f32(m.dy[i]) * by -
                                                  x * m.term[TERM_BY * n + at] -
                                                  m.term[TERM_LESS * n + at]);
    }
}

static size_t norm_scratch(const struct merak_kernel_call *call)
{
    const struct merak_operand *x = &call->operand[0];

    return TERMS * x->local.dim[0] * merak_local_last(x) * sizeof(float);
}

template <typename T>
static enum merak_status
norm_run(const struct merak_kernel_call *call, const char *name,
         const merak_channel_norm<T> &m, struct merak_error *err)
{
    size_t n = m.q.B * m.q.C;
    enum merak_status rc = launch(merak_cuda_context_of(call),
                                  map_launch(name, n), err, find_terms<T>, m);

    return rc != MERAK_OK ? rc
                          : launch(merak_cuda_context_of(call),
                                   map_launch(name, n * m.q.points), err,
                                   norm_points<T>, m);
}

CUDA_SCRATCH(channel_norm)
{
    return norm_scratch(call);
}

/* running: the mean and the variance to take, or NULL. */
static enum merak_status channel_norm_of(const struct merak_kernel_call *call,
                                         const char *name,
                                         const struct merak_operand *running,
                                         struct merak_error *err)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        merak_channel_norm<T> m = {};

        m.q = merak_channels_norm_view(call);
        m.x = static_cast<const T *>(call->operand[0].data);
        m.gamma = static_cast<const float *>(call->operand[2].data);
        m.beta = static_cast<const float *>(call->operand[3].data);
        m.out = static_cast<T *>(merak_call_out(call, 0)->data);
        if (running != nullptr) {
            m.mean = static_cast<const float *>(running[0].data);
            m.variance = static_cast<const float *>(running[1].data);
        }
        m.term = static_cast<float *>(call->scratch);
        return norm_run(call, name, m, err);
    });
}

CUDA_KERNEL(channel_norm)
{
    return channel_norm_of(call, "channel_norm", nullptr, err);
}

CUDA_SCRATCH(batch_norm)
{
    return norm_scratch(call);
}

CUDA_KERNEL(batch_norm)
{
    return channel_norm_of(call, "batch_norm",
                           call->step->train ? nullptr : &call->operand[4],
                           err);
}

static __global__ void __launch_bounds__(MAP_THREADS)
    stats_of(struct merak_channels q, float *mean, float *variance,
             bool accumulate)
{
    for (size_t c = grid_thread(); c < q.C; c += grid_threads()) {
        double m, v;

        merak_channels_stats(&q, c, &m, &v);
        mean[c] = (float)(m + (accumulate ? (double)mean[c] : 0));
        variance[c] = (float)(v + (accumulate ? (double)variance[c] : 0));
    }
}

CUDA_KERNEL(batch_stats)
{
    struct merak_channels q = merak_channels_stats_view(call);
    enum merak_status rc = check_dtype(call, 1, true, err);

    if (rc != MERAK_OK)
        return rc;
    return launch(
        merak_cuda_context_of(call), map_launch("batch_stats", q.C), err,
        stats_of, q, static_cast<float *>(merak_call_out(call, 0)->data),
        static_cast<float *>(merak_call_out(call, 1)->data), call->accumulate);
}

CUDA_SCRATCH(channel_norm_dx)
{
    return norm_scratch(call);
}

CUDA_KERNEL(channel_norm_dx)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        merak_channel_norm<T> m = {};

        m.q = merak_channels_dx_view(call);
        m.dy = static_cast<const T *>(call->operand[0].data);
        m.x = static_cast<const T *>(call->operand[1].data);
        m.out = static_cast<T *>(merak_call_out(call, 0)->data);
        m.term = static_cast<float *>(call->scratch);
        return norm_run(call, "channel_norm_dx", m, err);
    });
}

static __global__ void __launch_bounds__(MAP_THREADS)
    norm_weights(struct merak_channels q, float *dgamma, float *dbeta,
                 bool accumulate)
{
    for (size_t c = grid_thread(); c < q.C; c += grid_threads()) {
        struct merak_channels_dw dw = {0, 0};

        if (accumulate)
            dw = {dgamma[c], dbeta[c]};
        dw = merak_channels_dw_add(&q, c, dw);
        dgamma[c] = (float)dw.gamma;
        dbeta[c] = (float)dw.beta;
    }
}

CUDA_KERNEL(channel_norm_dw)
{
    struct merak_channels q = merak_channels_dw_view(call);
    enum merak_status rc = check_dtype(call, 2, true, err);

    if (rc != MERAK_OK)
        return rc;
    return launch(
        merak_cuda_context_of(call), map_launch("channel_norm_dw", q.C), err,
        norm_weights, q, static_cast<float *>(merak_call_out(call, 0)->data),
        static_cast<float *>(merak_call_out(call, 1)->data), call->accumulate);
}

/* --- beside one another ----------------------------------------------------
 */

/* Rows of n elements, that are so far apart. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    copy_channels(const T *from, T *to, size_t rows, size_t n, size_t from_row,
                  size_t to_row)
{
    for (size_t i = grid_thread(); i < rows * n; i += grid_threads())
        to[i / n * to_row + i % n] = from[i / n * from_row + i % n];
}

CUDA_KERNEL(concat)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        const struct merak_operand *y = merak_call_out(call, 0);
        size_t N = merak_local_last(y), rows = merak_local_count(y) / N;
        T *to = static_cast<T *>(y->data);
        enum merak_status rc = MERAK_OK;

        for (int o = 0; o < call->n_in && rc == MERAK_OK; o++) {
            const struct merak_operand *x = &call->operand[o];
            size_t n = merak_local_last(x);

            rc = launch(merak_cuda_context_of(call),
                        map_launch("concat", rows * n), err, copy_channels<T>,
                        static_cast<const T *>(x->data), to, rows, n, n, N);
            to += n;
        }
        return rc;
    });
}

CUDA_KERNEL(concat_dx)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        const struct merak_operand *dy = &call->operand[0];
        const struct merak_operand *dx = merak_call_out(call, 0);
        size_t n = merak_local_last(dx), N = merak_local_last(dy);
        size_t rows = merak_local_count(dx) / n;

        return launch(merak_cuda_context_of(call),
                      map_launch("concat_dx", rows * n), err, copy_channels<T>,
                      static_cast<const T *>(dy->data) + call->attrs->i[0],
                      static_cast<T *>(dx->data), rows, n, N, n);
    });
}

/* y [rows, G + R]: a row of `shared` for each H rows of x. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    share_channels(const T *shared, const T *x, T *y, size_t rows, size_t H,
                   size_t G, size_t R)
{
    for (size_t i = grid_thread(); i < rows * (G + R); i += grid_threads()) {
        size_t row = i / (G + R), c = i % (G + R);

        y[i] = c < G ? shared[row / H * G + c] : x[row * R + c - G];
    }
}

CUDA_KERNEL(concat_shared)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        const struct merak_operand *s = &call->operand[0];
        const struct merak_operand *x = &call->operand[1];
        const struct merak_operand *y = merak_call_out(call, 0);

        return launch(
            merak_cuda_context_of(call),
            map_launch("concat_shared", merak_local_count(y)), err,
            share_channels<T>, static_cast<const T *>(s->data),
            static_cast<const T *>(x->data), static_cast<T *>(y->data),
            merak_local_span(x, 0, 3), x->local.dim[2], merak_local_last(s),
            merak_local_last(x));
    });
}

/* sum [rows, n]: of each H rows of dy, their first n channels of N. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    sum_shared(const T *dy, T *sum, size_t rows, size_t H, size_t n, size_t N)
{
    for (size_t i = grid_thread(); i < rows * n; i += grid_threads()) {
        const T *from = dy + i / n * H * N + i % n;
        float x = 0;

        for (size_t h = 0; h < H; h++)
            x += to_f32(from[h * N]);
        from_f32(&sum[i], x);
    }
}

CUDA_KERNEL(concat_shared_dx)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        const struct merak_operand *dy = &call->operand[0];
        const struct merak_operand *out = merak_call_out(call, 0);
        const struct merak_operand *dx = merak_call_out(call, 1);
        const T *from = static_cast<const T *>(dy->data);
        size_t n = merak_local_last(out), N = merak_local_last(dy);
        size_t rows = merak_local_span(dy, 0, 3);
        enum merak_status rc =
            launch(merak_cuda_context_of(call),
                   map_launch("concat_shared_dx", merak_local_count(out)), err,
                   sum_shared<T>, from, static_cast<T *>(out->data),
                   merak_local_span(dy, 0, 2), dy->local.dim[2], n, N);

        if (rc != MERAK_OK)
            return rc;
        return launch(merak_cuda_context_of(call),
                      map_launch("concat_shared_dx", merak_local_count(dx)),
                      err, copy_channels<T>, from + n,
                      static_cast<T *>(dx->data), rows, N - n, N, N - n);
    });
}
