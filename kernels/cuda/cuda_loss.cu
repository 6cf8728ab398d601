/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_loss.cu - cross-entropy over a vocabulary that may be split; the
 * equations are in ref/ref_loss.c
 *
 * Rows of an odd vocabulary (50257) begin at any element.  If no sum depends on
 * it, pieces begin at 16-byte boundaries of memory, the first one before its
 * row; for sums, pieces begin at fixed columns, so that bits do not change with
 * the address.  xent_dlogits may overwrite the logits that it reads.
 */
#include "config.h"

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_loss.cuh"

/* Number of elements from the 16-byte boundary before p to p. */
template <typename T>
static __device__ __forceinline__ size_t skew_of(const T *p)
{
    return (size_t)((uintptr_t)p % 16 / sizeof(T));
}

/* Read elements [at, at + N) of a row; `at` wraps if they begin before it.
 * Elements outside are -infinity. */
template <typename T, int N>
static __device__ __forceinline__ void read_logits(const T *row, size_t at,
                                                   size_t V, float (&x)[N])
{
    if (at + N <= V && at < V) {
        unpack(load_16(row + at), x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = at + i < V ? to_f32(row[at + i]) : -INFINITY;
}

#define FOR_LOGITS(at, N, THREADS, V, skew)                             \
    for (size_t at = threadIdx.x % THREADS * N - skew, end_ = V + skew, \
                from_ = threadIdx.x % THREADS * N;                      \
         from_ < end_; at += THREADS * N, from_ += THREADS * N)

template <typename T, int THREADS>
static __global__ void __launch_bounds__(block_of(THREADS))
    row_maxima(merak_xent<T> x)
{
    constexpr int N = merak_piece<T>::N;
    size_t row = grid_thread() / THREADS;
    const T *logits = x.logits + row * x.ld;
    float max = -INFINITY;

    if (row >= x.rows)
        return;
    FOR_LOGITS(at, N, THREADS, x.V, skew_of(logits))
    {
        float v[N];

        read_logits(logits, at, x.V, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            max = fmaxf(max, v[i]);
    }
    max = max_of_row<THREADS>(max);
    if (threadIdx.x % THREADS == 0)
        x.result[row] = max;
}

/* Read elements p[0 .. N), of which `left` exist (-infinity for the others),
 * from any address, by the one or two 16-byte words that contain them. */
template <typename T, int N>
static __device__ __forceinline__ void read_anywhere(const T *p, size_t left,
                                                     float (&x)[N])
{
    unsigned skew = (unsigned)((uintptr_t)p % 16);
    const uint4 *words = reinterpret_cast<const uint4 *>(
        reinterpret_cast<const char *>(p) - skew);
    uint4 a, b;

    if (left < 2 * N) {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = (size_t)i < left ? to_f32(p[i]) : -INFINITY;
        return;
    }
    a = words[0];
    if (skew != 0)
        b = words[1];
    else
        b = a; /* not used */
    if (skew & 8)
        a = {a.z, a.w, b.x, b.y}, b = {b.z, b.w, 0, 0};
    if (skew & 4)
        a = {a.y, a.z, a.w, b.x}, b = {b.y, 0, 0, 0};
    if (skew & 2)
        a = {a.x >> 16 | a.y << 16, a.y >> 16 | a.z << 16,
             a.z >> 16 | a.w << 16, a.w >> 16 | b.x << 16};
    unpack(a, x);
}

template <typename T, int THREADS>
static __global__ void __launch_bounds__(block_of(THREADS))
    row_sums(merak_xent<T> x)
{
    constexpr int N = merak_piece<T>::N;
    size_t row = grid_thread() / THREADS;
    const T *logits = x.logits + row * x.ld;
    float max, sum = 0;

    if (row >= x.rows)
        return;
    max = x.max[row];
    for (size_t at = threadIdx.x % THREADS * N; at < x.V; at += THREADS * N) {
        float v[N];

        read_anywhere(logits + at, x.V - at, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum = add_rn(sum, exp_below<T>(v[i], max));
    }
    sum = sum_of_row<THREADS>(sum);
    if (threadIdx.x % THREADS == 0) {
        size_t target = local_id(x.targets, row);

        x.result[row] = sum_of(x, row, sum);
        x.z[row] =
            z_of(x, row, max, target < x.V ? to_f32(logits[target]) : 0.0f);
    }
}

/* Write elements [at, at + N) of a row, as far as they are inside. */
template <typename T, int N>
static __device__ __forceinline__ void
write_logits(T *row, size_t at, size_t V, bool whole, const float (&x)[N])
{
    if (whole && at + N <= V && at < V) {
        store_16(row + at, pack(x));
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (at + i < V)
            from_f32(&row[at + i], x[i]);
}

template <typename T, int THREADS>
static __global__ void __launch_bounds__(block_of(THREADS))
    row_gradients(merak_xent<T> x)
{
    constexpr int N = merak_piece<T>::N;
    size_t row = grid_thread() / THREADS, target;
    const T *logits = x.logits + row * x.ld;
    float max, whole, scale;

    if (row >= x.rows)
        return;
    target = quiet_local_id(x.targets, row);
    max = x.max[row];
    whole = x.weight == NULL ? x.scale : mul_rn(x.scale, x.weight[row]);
    scale = has_none(x.targets, row) ? 0.0f : whole / x.sum[row];
    FOR_LOGITS(at, N, THREADS, x.V, skew_of(logits))
    {
        float v[N];

        read_logits(logits, at, x.V, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = slope_of(exp_below<T>(v[i], max), scale,
                            at + i == target ? whole : 0.0f);
        write_logits(x.out + row * x.out_ld, at, x.V, x.alike, v);
    }
}

#define LOGITS_KERNELS(kernel, T)                                     \
    {                                                                 \
        kernel<T, WARP>, kernel<T, ROW_BLOCK>, kernel<T, WIDE_BLOCK>, \
    }

template <typename T>
static enum merak_status xent_max(const struct merak_kernel_call *call,
                                  struct merak_error *err)
{
    static void (*const kernels[])(merak_xent<T>) =
        LOGITS_KERNELS(row_maxima, T);

    return run_logits(call, "xent_max", view_logits<T>(call), kernels, err);
}

template <typename T>
static enum merak_status xent_sum(const struct merak_kernel_call *call,
                                  struct merak_error *err)
{
    static void (*const kernels[])(merak_xent<T>) = LOGITS_KERNELS(row_sums, T);
    merak_xent<T> x = view_logits<T>(call);

    x.targets = view_targets(call, 2);
    x.z = static_cast<float *>(merak_call_out(call, 1)->data);
    x.first = call->first;
    return run_logits(call, "xent_sum", x, kernels, err);
}

template <typename T>
static enum merak_status xent_dlogits(const struct merak_kernel_call *call,
                                      struct merak_error *err)
{
    static void (*const kernels[])(merak_xent<T>) =
        LOGITS_KERNELS(row_gradients, T);
    merak_xent<T> x = view_logits<T>(call);

    x.sum = static_cast<const float *>(call->operand[2].data);
    x.targets = view_targets(call, 3);
    if (call->n_in > 4)
        x.weight = static_cast<const float *>(call->operand[4].data);
    x.out = static_cast<T *>(merak_call_out(call, 0)->data);
    x.scale = (float)merak_loss_scale(call);
    x.out_ld = merak_local_ld(merak_call_out(call, 0));
    x.alike =
        ((uintptr_t)x.out - (uintptr_t)x.logits) % 16 == 0 && x.ld == x.out_ld;
    return run_logits(call, "xent_dlogits", x, kernels, err);
}

#define LOGITS_KERNEL(op)                                                    \
    CUDA_KERNEL(op)                                                          \
    {                                                                        \
        return by_dtype(call, 0, err,                                        \
                        [&](auto x) { return op<decltype(x)>(call, err); }); \
    }

LOGITS_KERNEL(xent_max)
LOGITS_KERNEL(xent_sum)
LOGITS_KERNEL(xent_dlogits)

static __global__ void __launch_bounds__(MAP_THREADS)
    token_losses(const float *max, const float *sum, const float *z, float *nll,
                 size_t n)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        nll[i] = (float)((double)max[i] + log((double)sum[i]) - (double)z[i]);
}

CUDA_KERNEL(xent_loss)
{
    const struct merak_operand *op = call->operand;
    size_t n = merak_local_count(&op[0]);
    enum merak_status rc = check_dtype(call, 0, true, err);

    if (rc != MERAK_OK)
        return rc;
    return launch(merak_cuda_context_of(call), map_launch("xent_loss", n), err,
                  token_losses, static_cast<const float *>(op[0].data),
                  static_cast<const float *>(op[1].data),
                  static_cast<const float *>(op[2].data),
                  static_cast<float *>(op[3].data), n);
}

struct pair_view {
    const float *nll, *reference;
    const int32_t *second;
    float *loss, *weight, *reward;
    size_t n, T;
    double beta;
};

/* A warp for each position at which a pair begins, or which is in none; the
 * others have nothing to do.  Its lanes add every 32nd position in order. */
static __global__ void __launch_bounds__(ROW_BLOCK) pair_losses(pair_view p)
{
    size_t from = grid_thread() / WARP, lane = threadIdx.x % WARP;
    size_t row, end, second;
    double margin = 0, chosen = 0, rejected = 0, x;
    float slope;

    if (from >= p.n)
        return;
    row = from - from % p.T;
    if (p.second[from] == 0) {
        if (lane == 0)
            p.loss[from] = p.weight[from] = p.reward[from] = 0;
        return;
    }
    if (from > row && p.second[from - 1] == p.second[from])
        return;
    second = row + (size_t)p.second[from];
    for (end = from + lane;
         end < row + p.T && p.second[end] == p.second[from]; end += WARP) {
        double above = (double)p.reference[end] - (double)p.nll[end];

        margin += end < second ? above : -above;
        chosen += end < second ? above : 0;
        rejected += end < second ? 0 : above;
    }
    margin = warp_sum(margin);
    chosen = p.beta * warp_sum(chosen);
    rejected = p.beta * warp_sum(rejected);
    x = -p.beta * margin;
    slope = (float)(p.beta / (1 + exp(-x)));
    for (size_t i = from + lane;
         i < row + p.T && p.second[i] == p.second[from]; i += WARP) {
        p.weight[i] = i < second ? slope : -slope;
        p.loss[i] =
            i == from ? (float)(fmax(x, 0.0) + log1p(exp(-fabs(x)))) : 0.0f;
        p.reward[i] = i == from     ? (float)chosen
                      : i == second ? (float)rejected
                                    : 0.0f;
    }
}

CUDA_KERNEL(pair_loss)
{
    const struct merak_operand *op = call->operand;
    enum merak_status rc = check_dtype(call, 0, true, err);
    pair_view p = {};

    if (rc != MERAK_OK)
        return rc;
    p.nll = static_cast<const float *>(op[0].data);
    p.second = static_cast<const int32_t *>(op[1].data);
    p.reference = static_cast<const float *>(op[2].data);
    p.loss = static_cast<float *>(op[3].data);
    p.weight = static_cast<float *>(op[4].data);
    p.reward = static_cast<float *>(op[5].data);
    p.n = merak_local_count(&op[1]);
    p.T = merak_local_last(&op[1]);
    p.beta = call->attrs->f[0];
    return launch(
        merak_cuda_context_of(call),
        merak_launch{"pair_loss",
                     dim3((unsigned)ceil_div(p.n * WARP, (size_t)ROW_BLOCK)),
                     dim3(ROW_BLOCK), 0},
        err, pair_losses, p);
}

static __global__ void __launch_bounds__(ROW_BLOCK)
    sum_losses(const float *nll, size_t n, double scale, double *out)
{
    double sum = 0;

    for (size_t i = threadIdx.x; i < n; i += ROW_BLOCK)
        sum += (double)nll[i];
    sum = row_sum<ROW_BLOCK>(sum);
    if (threadIdx.x == 0)
        *out = sum * scale;
}

/* The parts of merak_loss_part behind the first. */
static __global__ void __launch_bounds__(ROW_BLOCK)
    sum_rewards(const float *reward, const int32_t *second, size_t n, size_t T,
                double scale, double *out)
{
    double chosen = 0, rejected = 0, better = 0;

    for (size_t i = threadIdx.x; i < n; i += ROW_BLOCK) {
        float a, b;

        if (second[i] == 0 || (i % T > 0 && second[i - 1] == second[i]))
            continue;
        a = reward[i];
        b = reward[i - i % T + (size_t)second[i]];
        chosen += (double)a;
        rejected += (double)b;
        better += a > b;
    }
    chosen = row_sum<ROW_BLOCK>(chosen);
    rejected = row_sum<ROW_BLOCK>(rejected);
    better = row_sum<ROW_BLOCK>(better);
    if (threadIdx.x == 0) {
        out[MERAK_LOSS_CHOSEN] = chosen * scale;
        out[MERAK_LOSS_REJECTED] = rejected * scale;
        out[MERAK_LOSS_ACCURACY] = better * scale;
    }
}

static enum merak_status launch_rewards(const struct merak_kernel_call *call,
                                        struct merak_error *err)
{
    const struct merak_operand *pairs = &call->operand[2];

    return launch(
        merak_cuda_context_of(call),
        merak_launch{"mean_loss", dim3(1), dim3(ROW_BLOCK), 0}, err,
        sum_rewards, static_cast<const float *>(call->operand[1].data),
        static_cast<const int32_t *>(pairs->data), merak_local_count(pairs),
        merak_local_last(pairs), call->attrs->f[0],
        static_cast<double *>(merak_call_out(call, 0)->data));
}

CUDA_KERNEL(mean_loss)
{
    const struct merak_operand *nll = &call->operand[0];
    enum merak_status rc = check_dtype(call, 0, true, err);

    if (rc == MERAK_OK && call->n_in > 1)
        rc = launch_rewards(call, err);
    if (rc != MERAK_OK)
        return rc;
    return launch(merak_cuda_context_of(call),
                  merak_launch{"mean_loss", dim3(1), dim3(ROW_BLOCK), 0}, err,
                  sum_losses, static_cast<const float *>(nll->data),
                  merak_local_count(nll), call->attrs->f[0],
                  static_cast<double *>(merak_call_out(call, 0)->data));
}

/* --- of elements ------------------------------------------------------------
 */

static __device__ __forceinline__ float point_loss(int64_t kind, float x,
                                                   float t)
{
    if (kind == MERAK_POINT_MSE)
        return (x - t) * (x - t);
    if (kind == MERAK_POINT_MAE)
        return fabsf(x - t);
    return fmaxf(x, 0.0f) - x * t + log1pf(expf(-fabsf(x)));
}

static __device__ __forceinline__ float point_slope(int64_t kind, float x,
                                                    float t)
{
    if (kind == MERAK_POINT_MSE)
        return 2.0f * (x - t);
    if (kind == MERAK_POINT_MAE)
        return (float)((x > t) - (x < t));
    return 1.0f / (1.0f + expf(-x)) - t;
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    point_losses(const T *x, const float *t, float *out, size_t n, int64_t kind)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        out[i] = point_loss(kind, to_f32(x[i]), t[i]);
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    point_slopes(const T *x, const float *t, T *out, size_t n, int64_t kind,
                 float scale)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        from_f32(&out[i], point_slope(kind, to_f32(x[i]), t[i]) * scale);
}

CUDA_KERNEL(point_loss)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        size_t n = merak_local_count(&call->operand[0]);

        return launch(merak_cuda_context_of(call), map_launch("point_loss", n),
                      err, point_losses<T>,
                      static_cast<const T *>(call->operand[0].data),
                      static_cast<const float *>(call->operand[1].data),
                      static_cast<float *>(merak_call_out(call, 0)->data), n,
                      call->attrs->i[1]);
    });
}

CUDA_KERNEL(point_loss_dx)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        size_t n = merak_local_count(&call->operand[0]);

        return launch(merak_cuda_context_of(call),
                      map_launch("point_loss_dx", n), err, point_slopes<T>,
                      static_cast<const T *>(call->operand[0].data),
                      static_cast<const float *>(call->operand[1].data),
                      static_cast<T *>(merak_call_out(call, 0)->data), n,
                      call->attrs->i[1], (float)merak_loss_scale(call));
    });
}

struct merak_scalars {
    const double *in[MERAK_MAX_LOSSES];
    int n;
};

static __global__ void __launch_bounds__(WARP)
    gather_losses(merak_scalars s, double *out)
{
    if (threadIdx.x < (unsigned)s.n)
        out[threadIdx.x] = *s.in[threadIdx.x];
}

CUDA_KERNEL(losses)
{
    merak_scalars s = {};

    s.n = call->n_in;
    for (int i = 0; i < call->n_in; i++)
        s.in[i] = static_cast<const double *>(call->operand[i].data);
    return launch(merak_cuda_context_of(call),
                  merak_launch{"losses", dim3(1), dim3(WARP), 0}, err,
                  gather_losses, s,
                  static_cast<double *>(merak_call_out(call, 0)->data));
}
