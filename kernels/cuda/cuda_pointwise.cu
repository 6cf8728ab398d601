/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_pointwise.cu - activations, residuals, dropout */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_dropout.cuh"
#include "kernels/cuda/cuda_kernels.h"

/* --- element by element ----------------------------------------------------
 */

template <typename T, int IN, int OUT> struct merak_map {
    const T *in[IN];
    T *out[OUT];
    size_t n;
    bool whole;
};

/* Pieces that a thread takes at once, MAP_THREADS apart: so many loads of an
 * input are in flight. */
#define MAP_PIECES 2

template <typename T, int IN, int OUT, typename F>
static __device__ __forceinline__ void
map_piece(const F &f, const float (&x)[IN][merak_piece<T>::N],
          float (&y)[OUT][merak_piece<T>::N])
{
#pragma unroll
    for (int j = 0; j < merak_piece<T>::N; j++) {
        float a[IN], b[OUT];

#pragma unroll
        for (int k = 0; k < IN; k++)
            a[k] = x[k][j];
        f.at(a, b);
#pragma unroll
        for (int k = 0; k < OUT; k++)
            y[k][j] = b[k];
    }
}

/* MAP_PIECES whole pieces, the first at element i. */
template <typename T, int IN, int OUT, typename F>
static __device__ __forceinline__ void
map_pieces(const merak_map<T, IN, OUT> &m, const F &f, size_t i)
{
    constexpr int N = merak_piece<T>::N;
    uint4 raw[MAP_PIECES][IN];

#pragma unroll
    for (int u = 0; u < MAP_PIECES; u++)
#pragma unroll
        for (int k = 0; k < IN; k++)
            raw[u][k] = load_16(m.in[k] + i + u * MAP_THREADS * N);
#pragma unroll
    for (int u = 0; u < MAP_PIECES; u++) {
        float x[IN][N], y[OUT][N];

#pragma unroll
        for (int k = 0; k < IN; k++)
            unpack(raw[u][k], x[k]);
        map_piece<T>(f, x, y);
#pragma unroll
        for (int k = 0; k < OUT; k++)
            store_16(m.out[k] + i + u * MAP_THREADS * N, pack(y[k]));
    }
}

/* f.at(x, y) gives y[OUT] of x[IN].  An output may be an input. */
template <typename T, int IN, int OUT, typename F>
static __global__ void __launch_bounds__(MAP_THREADS)
    map_elements(merak_map<T, IN, OUT> m, F f)
{
    constexpr int N = merak_piece<T>::N, TURN = MAP_THREADS * N;
    constexpr int LAST = (MAP_PIECES - 1) * TURN;

    for (size_t i = (size_t)blockIdx.x * MAP_PIECES * TURN + threadIdx.x * N;
         i < m.n; i += (size_t)gridDim.x * MAP_PIECES * TURN) {
        if (m.whole && i + LAST + N <= m.n) {
            map_pieces(m, f, i);
            continue;
        }
#pragma unroll 1
        for (size_t at = i; at < m.n && at <= i + LAST; at += TURN) {
            float x[IN][N], y[OUT][N];

            read_all(m.in, at, m.n - at, m.whole, x);
            map_piece<T>(f, x, y);
#pragma unroll
            for (int k = 0; k < OUT; k++)
                write(m.out[k] + at, m.n - at, m.whole, y[k]);
        }
    }
}

template <typename T, int IN, int OUT, typename F>
static enum merak_status map_as(const struct merak_kernel_call *call,
                                const char *name, F f, struct merak_error *err)
{
    merak_map<T, IN, OUT> m;

    m.n = merak_local_count(&call->operand[0]);
    m.whole = true;
    for (int k = 0; k < IN; k++) {
        m.in[k] = static_cast<const T *>(call->operand[k].data);
        m.whole = m.whole && is_aligned(m.in[k]);
    }
    for (int k = 0; k < OUT; k++) {
        m.out[k] = static_cast<T *>(merak_call_out(call, k)->data);
        m.whole = m.whole && is_aligned(m.out[k]);
    }
    return launch(
        merak_cuda_context_of(call),
        map_launch(name, ceil_div(m.n, merak_piece<T>::N * MAP_PIECES)), err,
        map_elements<T, IN, OUT, F>, m, f);
}

template <int IN, int OUT, typename F>
static enum merak_status map(const struct merak_kernel_call *call,
                             const char *name, F f, struct merak_error *err)
{
    return by_dtype(call, 0, err, [&](auto x) {
        return map_as<decltype(x), IN, OUT>(call, name, f, err);
    });
}

struct gelu_of {
    bool tanh_form;
    __device__ __forceinline__ void at(const float (&x)[1], float (&y)[1]) const
    {
        y[0] = gelu(x[0], tanh_form);
    }
};

struct gelu_dx_of { /* dy, x */
    bool tanh_form;
    __device__ __forceinline__ void at(const float (&x)[2], float (&y)[1]) const
    {
        y[0] = x[0] * gelu_slope(x[1], tanh_form);
    }
};

/* So et al. 2021 (arXiv:2109.08668), sec. 4; a NaN stays one. */
__device__ __forceinline__ float positive(float x)
{
    return x < 0.0f ? 0.0f : x;
}

struct relu_of {
    float slope; /* below 0 */
    __device__ __forceinline__ void at(const float (&x)[1], float (&y)[1]) const
    {
        y[0] = x[0] < 0.0f ? (slope > 0.0f ? slope * x[0] : 0.0f) : x[0];
    }
};

struct relu_dx_of { /* dy, x */
    float slope;
    __device__ __forceinline__ void at(const float (&x)[2], float (&y)[1]) const
    {
        y[0] = x[1] <= 0.0f ? (slope > 0.0f ? slope * x[0] : 0.0f) : x[0];
    }
};

struct log1p_of {
    __device__ __forceinline__ void at(const float (&x)[1], float (&y)[1]) const
    {
        y[0] = log1pf(x[0]);
    }
};

struct log1p_dx_of { /* dy, x */
    __device__ __forceinline__ void at(const float (&x)[2], float (&y)[1]) const
    {
        y[0] = x[0] / (1.0f + x[1]);
    }
};

struct tanh_of {
    __device__ __forceinline__ void at(const float (&x)[1], float (&y)[1]) const
    {
        y[0] = tanhf(x[0]);
    }
};

struct tanh_dx_of { /* dy, y */
    __device__ __forceinline__ void at(const float (&x)[2], float (&y)[1]) const
    {
        y[0] = x[0] * (1.0f - x[1] * x[1]);
    }
};

struct relu2_of {
    __device__ __forceinline__ void at(const float (&x)[1], float (&y)[1]) const
    {
        y[0] = positive(x[0]) * positive(x[0]);
    }
};

struct relu2_dx_of { /* dy, x */
    __device__ __forceinline__ void at(const float (&x)[2], float (&y)[1]) const
    {
        y[0] = 2.0f * x[0] * positive(x[1]);
    }
};

/* The activation of the gate, Shazeer 2020 (arXiv:2002.05202): silu, or gelu's
 * tanh form. */
struct swiglu_of { /* gate, up */
    bool gelu_form;
    __device__ __forceinline__ void at(const float (&x)[2], float (&y)[1]) const
    {
        y[0] = (gelu_form ? gelu(x[0], true) : x[0] * sigmoid(x[0])) * x[1];
    }
};

struct swiglu_dx_of { /* dy, gate, up */
    bool gelu_form;
    __device__ __forceinline__ void at(const float (&x)[3], float (&y)[2]) const
    {
        float g = x[1];

        y[0] = x[0] * x[2] * (gelu_form ? gelu_slope(g, true) : silu_slope(g));
        y[1] = x[0] * (gelu_form ? gelu(g, true) : g * sigmoid(g));
    }
};

struct softcap_of {
    float cap;
    __device__ __forceinline__ void at(const float (&x)[1], float (&y)[1]) const
    {
        y[0] = cap * tanhf(x[0] / cap);
    }
};

struct softcap_dx_of { /* dy, y */
    float cap;
    __device__ __forceinline__ void at(const float (&x)[2], float (&y)[1]) const
    {
        float t = x[1] / cap;

        y[0] = x[0] * (1.0f - t * t);
    }
};

struct add_of {
    __device__ __forceinline__ void at(const float (&x)[2], float (&y)[1]) const
    {
        y[0] = x[0] + x[1];
    }
};

struct times_of {
    float factor;
    __device__ __forceinline__ void at(const float (&x)[1], float (&y)[1]) const
    {
        y[0] = factor * x[0];
    }
};

CUDA_KERNEL(gelu)
{
    return map<1, 1>(call, "gelu", gelu_of{call->attrs->i[0] == 1}, err);
}

CUDA_KERNEL(gelu_dx)
{
    return map<2, 1>(call, "gelu_dx", gelu_dx_of{call->attrs->i[0] == 1}, err);
}

CUDA_KERNEL(relu)
{
    return map<1, 1>(call, "relu", relu_of{(float)call->attrs->f[0]}, err);
}

CUDA_KERNEL(relu_dx)
{
    return map<2, 1>(call, "relu_dx", relu_dx_of{(float)call->attrs->f[0]},
                     err);
}

#define MAP_KERNEL(op, n_in)                              \
    CUDA_KERNEL(op)                                       \
    {                                                     \
        return map<n_in, 1>(call, #op, op##_of{}, err); \
    }

MAP_KERNEL(log1p, 1)
MAP_KERNEL(log1p_dx, 2)
MAP_KERNEL(tanh, 1)
MAP_KERNEL(tanh_dx, 2)
MAP_KERNEL(relu2, 1)
MAP_KERNEL(relu2_dx, 2)

CUDA_KERNEL(swiglu)
{
    return map<2, 1>(call, "swiglu", swiglu_of{call->attrs->i[0] == 1}, err);
}

CUDA_KERNEL(swiglu_dx)
{
    return map<3, 2>(call, "swiglu_dx", swiglu_dx_of{call->attrs->i[0] == 1},
                     err);
}

CUDA_KERNEL(softcap)
{
    return map<1, 1>(call, "softcap", softcap_of{(float)call->attrs->f[0]},
                     err);
}

CUDA_KERNEL(softcap_dx)
{
    return map<2, 1>(call, "softcap_dx",
                     softcap_dx_of{(float)call->attrs->f[0]}, err);
}

CUDA_KERNEL(add)
{
    return map<2, 1>(call, "add", add_of{}, err);
}

CUDA_KERNEL(scale)
{
    return map<1, 1>(call, "scale", times_of{(float)call->attrs->f[0]}, err);
}

/* A thread takes a piece of what was made in f32. */
static __global__ void __launch_bounds__(MAP_THREADS)
    add_to_bf16(const float *a, merak_bf16 *out, size_t n, bool whole)
{
    constexpr int N = merak_piece<float>::N;

    for (size_t at = grid_thread() * N; at < n; at += grid_threads() * N) {
        float x[N];

        read(a + at, n - at, whole, x);
        for (int k = 0; k < N && at + k < n; k++)
            from_f32(&out[at + k], to_f32(out[at + k]) + x[k]);
    }
}

/* out += a: the output is the second input.  A sum in bf16 may be of what was
 * made in f32, or of another such sum. */
CUDA_KERNEL(grad_add)
{
    const struct merak_operand *a = &call->operand[0];
    const struct merak_operand *out = merak_call_out(call, 0);
    size_t n = merak_local_count(a);
    enum merak_status rc = check_dtype(call, 0, out->dtype != MERAK_BF16, err);

    if (rc == MERAK_OK)
        rc = check_dtype(call, 1, false, err);
    if (rc != MERAK_OK)
        return rc;
    if (a->dtype == out->dtype)
        return map<2, 1>(call, "grad_add", add_of{}, err);
    return launch(merak_cuda_context_of(call),
                  map_launch("grad_add", ceil_div(n, merak_piece<float>::N)),
                  err, add_to_bf16, static_cast<const float *>(a->data),
                  static_cast<merak_bf16 *>(out->data), n, is_aligned(a->data));
}

/* --- types -----------------------------------------------------------------
 */

/* A thread takes a piece of the wider type. */
template <typename A, typename B>
static __global__ void __launch_bounds__(MAP_THREADS)
    retype_elements(const A *x, B *y, size_t n)
{
    constexpr int N = merak_piece<float>::N;

    for (size_t at = grid_thread() * N; at < n; at += grid_threads() * N) {
        for (int k = 0; k < N && at + k < n; k++)
            from_f32(&y[at + k], to_f32(x[at + k]));
    }
}

template <typename A, typename B>
static enum merak_status retype(const struct merak_kernel_call *call,
                                const char *name, struct merak_error *err)
{
    size_t n = merak_local_count(&call->operand[0]);

    return launch(merak_cuda_context_of(call),
                  map_launch(name, ceil_div(n, merak_piece<float>::N)), err,
                  retype_elements<A, B>,
                  static_cast<const A *>(call->operand[0].data),
                  static_cast<B *>(merak_call_out(call, 0)->data), n);
}

CUDA_KERNEL(widen)
{
    return by_dtype(call, 0, err, [&](auto x) {
        return retype<decltype(x), float>(call, "widen", err);
    });
}

CUDA_KERNEL(narrow)
{
    return by_dtype(call, 1, err, [&](auto x) {
        return retype<float, decltype(x)>(call, "narrow", err);
    });
}

/* --- dropout ---------------------------------------------------------------
 */

/* Positions of an operand's runs (geometry.h) in its samples: run r is split
 * into mixed-radix digits from the last on, each with a stride. */
struct merak_runs {
    size_t length, count;
    size_t sample, element; /* of run 0 */
    int digits;
    size_t extent[MERAK_MAX_DIMS], stride[MERAK_MAX_DIMS];
    /* if sequences are in pieces, the last digit is of places of positions, and
     * of run 0 the element is that of position 0 */
    size_t pieces, all, t0;
};

static merak_runs runs_of(const struct merak_operand *x, size_t pieces)
{
    merak_runs r = {};
    size_t stride = 1, inner = 1;

    r.length = merak_run_length(x, pieces);
    r.count = merak_run_count(x, pieces);
    r.pieces = pieces;
    merak_run_place(x, pieces, 0, &r.sample, &r.element);
    for (int d = x->local.ndim - 1; d >= 1; d--) {
        if (d == 1 && pieces > 0) {
            r.all = x->full.dim[1];
            r.t0 = x->lo[1];
            r.element -= merak_position(pieces, r.all, r.t0) * stride;
            r.extent[r.digits] = x->local.dim[1];
            r.stride[r.digits++] = stride;
        } else if (inner < r.length) {
            inner *= x->local.dim[d];
        } else if (x->local.dim[d] > 1) {
            r.extent[r.digits] = x->local.dim[d];
            r.stride[r.digits++] = stride;
        }
        stride *= x->full.dim[d];
    }
    return r;
}

struct merak_dropout {
    merak_runs runs;
    size_t groups; /* of four words that a run may touch, or strips of it */
    merak_drop drop;
};

/* Run `run`: its sample, and its first element there. */
static __device__ __forceinline__ void
place_run(const merak_runs &r, size_t run, size_t *sample, size_t *element)
{
    *element = r.element;
    for (int k = 0; k < r.digits; k++) {
        size_t digit = run % r.extent[k];

        if (r.pieces > 0 && k == r.digits - 1)
            digit = merak_position(r.pieces, r.all, r.t0 + digit);
        *element += digit * r.stride[k];
        run /= r.extent[k];
    }
    *sample = r.sample + run;
}

/* A thread takes the elements of one Philox block that are in the run. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    drop_elements(merak_dropout d, const T *x, T *y)
{
    const merak_runs &r = d.runs;

    for (size_t i = grid_thread(); i < r.count * d.groups;
         i += grid_threads()) {
        size_t run = i / d.groups, sample, element, from, to;
        uint32_t word[4];
        uint64_t block;

        place_run(r, run, &sample, &element);
        block = element / 4 + i % d.groups;
        from = block * 4 > element ? block * 4 : element;
        to = block * 4 + 4 < element + r.length ? block * 4 + 4
                                                : element + r.length;
        if (from >= to)
            continue;
        philox(drop_key(d.drop, sample), block, word);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            size_t e = block * 4 + k, at = run * r.length + (e - element);

            if (e >= from && e < to)
                from_f32(&y[at], is_kept(d.drop, word[k])
                                     ? to_f32(x[at]) * d.drop.scale
                                     : 0.0f);
        }
    }
}

/* Runs of whole pieces that begin at Philox blocks: a warp takes a strip of a
 * run, so that the place and key of a run are computed once for each thread. */
#define STRIP_PIECES 4 /* of a thread: their loads are in flight together */

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    drop_strips(merak_dropout d, const T *x, T *y)
{
    constexpr int N = merak_piece<T>::N;
    const merak_runs &r = d.runs;
    size_t pieces = r.length / N, strips = d.groups;
    unsigned lane = threadIdx.x % WARP;

    for (size_t i = grid_thread() / WARP; i < r.count * strips;
         i += grid_threads() / WARP) {
        size_t run = i / strips, sample, element;
        size_t first = i % strips * STRIP_PIECES * WARP + lane;
        uint4 raw[STRIP_PIECES];
        uint64_t key;

#pragma unroll
        for (int u = 0; u < STRIP_PIECES; u++)
            raw[u] = load_16_if(first + u * WARP < pieces,
                                x + run * r.length + (first + u * WARP) * N);
        place_run(r, run, &sample, &element);
        key = drop_key(d.drop, sample);
#pragma unroll
        for (int u = 0; u < STRIP_PIECES; u++) {
            size_t at = (first + u * WARP) * N;
            float v[N];

            if (first + u * WARP >= pieces)
                break;
            unpack(raw[u], v);
#pragma unroll
            for (int g = 0; g < N; g += 4) {
                uint32_t word[4];

                philox(key, (element + at + g) / 4, word);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    v[g + k] = is_kept(d.drop, word[k])
                                   ? v[g + k] * d.drop.scale
                                   : 0.0f;
            }
            store_16(y + run * r.length + at, pack(v));
        }
    }
}

/* Do runs consist of whole pieces, and begin at Philox blocks?  Short ones
 * would leave most lanes idle. */
template <typename T>
static bool has_strips(const merak_runs &r, const T *x, const T *y)
{
    size_t places = r.element;

    for (int k = 0; k < r.digits; k++)
        places |= r.stride[k];
    return r.length % merak_piece<T>::N == 0 &&
           r.length >= WARP / 4 * merak_piece<T>::N && places % 4 == 0 &&
           is_aligned(x) && is_aligned(y);
}

template <typename T>
static enum merak_status drop(const struct merak_kernel_call *call,
                              merak_dropout d, struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    const T *x = static_cast<const T *>(call->operand[0].data);
    T *y = static_cast<T *>(call->operand[1].data);

    if (has_strips(d.runs, x, y)) {
        d.groups =
            ceil_div(d.runs.length, STRIP_PIECES * WARP * merak_piece<T>::N);
        return launch(cx, map_launch("dropout", d.runs.count * d.groups * WARP),
                      err, drop_strips<T>, d, x, y);
    }
    d.groups = (d.runs.length + 2) / 4 + 1;
    return launch(cx, map_launch("dropout", d.runs.count * d.groups), err,
                  drop_elements<T>, d, x, y);
}

CUDA_KERNEL(dropout)
{
    const struct merak_operand *x = &call->operand[0];
    double p = call->step->train ? call->attrs->f[0] : 0.0;
    merak_dropout d = {};

    if (merak_local_count(x) == 0)
        return MERAK_OK;
    d.runs = runs_of(x, call->pieces);
    d.drop = drop_of(call->step, call->attrs->i[0], p);
    return by_dtype(call, 0, err,
                    [&](auto y) { return drop<decltype(y)>(call, d, err); });
}
