/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_copy.cu - copy parts of tensors, reduce pieces of several ranks to one,
 * and copy rows to another stride */
#include "config.h"

#include "kernels/cuda/cuda_copy.cuh"
#include "kernels/cuda/cuda_device.cuh"

/* --- boxes -----------------------------------------------------------------
 */

/* A box in units of up to 16 bytes, outermost dim first; a dim that is complete
 * is merged with the one before it. */
struct merak_units {
    int ndim;
    size_t len[MERAK_MAX_DIMS], stride[MERAK_MAX_DIMS];
    size_t count;
};

template <typename U>
static __global__ void __launch_bounds__(MAP_THREADS)
    pack_units(const __grid_constant__ merak_units box, const U *from, U *to)
{
    for (size_t k = grid_thread(); k < box.count; k += grid_threads()) {
        size_t rest = k, at = 0;

        for (int d = box.ndim - 1; d > 0; d--) {
            at += rest % box.len[d] * box.stride[d];
            rest /= box.len[d];
        }
        to[k] = from[at + rest * box.stride[0]];
    }
}

template <typename U>
static __global__ void __launch_bounds__(MAP_THREADS)
    unpack_units(const __grid_constant__ merak_units box, const U *from, U *to)
{
    for (size_t k = grid_thread(); k < box.count; k += grid_threads()) {
        size_t rest = k, at = 0;

        for (int d = box.ndim - 1; d > 0; d--) {
            at += rest % box.len[d] * box.stride[d];
            rest /= box.len[d];
        }
        to[at + rest * box.stride[0]] = from[k];
    }
}

/* The box in elements; *first_p: its first element. */
static merak_units fold(const struct merak_accel_box *box, size_t *first_p)
{
    merak_units u = {};
    size_t stride = 1, first = 0;
    size_t len[MERAK_MAX_DIMS], strides[MERAK_MAX_DIMS];
    int n = 0;

    /* from the last dim on: len[n - 1] is the one that grows */
    for (int d = box->ndim - 1; d >= 0; d--) {
        bool joins = n > 0 && stride == len[n - 1] * strides[n - 1];

        first += box->lo[d] * stride;
        if (joins) {
            len[n - 1] *= box->len[d];
        } else {
            len[n] = box->len[d];
            strides[n++] = stride;
        }
        stride *= box->full[d];
    }
    u.ndim = n;
    u.count = 1;
    for (int d = 0; d < n; d++) {
        u.len[d] = len[n - 1 - d];
        u.stride[d] = strides[n - 1 - d];
        u.count *= u.len[d];
    }
    *first_p = first;
    return u;
}

/* A copy of a box to or from contiguous memory. */
struct merak_boxed {
    const char *from;
    char *to;
    merak_units units; /* in elements */
    size_t elem_bytes;
    bool packs; /* else it unpacks */
};

template <typename U>
static enum merak_status move_as(const struct merak_cuda_context *cx,
                                 const merak_boxed &b, struct merak_error *err)
{
    merak_units u = b.units;
    const U *from = reinterpret_cast<const U *>(b.from);
    U *to = reinterpret_cast<U *>(b.to);

    u.len[u.ndim - 1] = u.len[u.ndim - 1] * b.elem_bytes / sizeof(U);
    for (int d = 0; d < u.ndim - 1; d++)
        u.stride[d] = u.stride[d] * b.elem_bytes / sizeof(U);
    u.count = u.count * b.elem_bytes / sizeof(U);
    if (b.packs)
        return launch(cx, map_launch("slice", u.count), err, pack_units<U>, u,
                      from, to);
    return launch(cx, map_launch("unpack", u.count), err, unpack_units<U>, u,
                  from, to);
}

static enum merak_status move_box(const struct merak_cuda_context *cx,
                                  const merak_boxed &b, struct merak_error *err)
{
    const merak_units &u = b.units;
    size_t fits;

    /* the low bits of all addresses and lengths */
    fits = (size_t)((uintptr_t)b.from | (uintptr_t)b.to) |
           u.len[u.ndim - 1] * b.elem_bytes;
    for (int d = 0; d < u.ndim - 1; d++)
        fits |= u.stride[d] * b.elem_bytes;
    if (fits % 16 == 0)
        return move_as<uint4>(cx, b, err);
    if (fits % 4 == 0)
        return move_as<uint32_t>(cx, b, err);
    if (fits % 2 == 0)
        return move_as<uint16_t>(cx, b, err);
    return move_as<uint8_t>(cx, b, err);
}

enum merak_status merak_cuda_pack(const struct merak_cuda_context *context,
                                  void *to, const void *from,
                                  const struct merak_accel_box *box,
                                  struct merak_error *err)
{
    size_t first;
    merak_boxed b = {};

    b.units = fold(box, &first);
    b.elem_bytes = box->elem_bytes;
    b.from = static_cast<const char *>(from) + first * box->elem_bytes;
    b.to = static_cast<char *>(to);
    b.packs = true;
    return move_box(context, b, err);
}

enum merak_status merak_cuda_unpack(const struct merak_cuda_context *context,
                                    void *to,
                                    const struct merak_accel_box *box,
                                    const void *from, struct merak_error *err)
{
    size_t first;
    merak_boxed b = {};

    b.units = fold(box, &first);
    b.elem_bytes = box->elem_bytes;
    b.from = static_cast<const char *>(from);
    b.to = static_cast<char *>(to) + first * box->elem_bytes;
    return move_box(context, b, err);
}

/* --- pieces ----------------------------------------------------------------
 */

template <typename T>
static __device__ __forceinline__ const T *
piece_of(const merak_accel_terms &p, int q)
{
    const char *staged = static_cast<const char *>(p.staged);

    if (q == p.me)
        return static_cast<const T *>(p.mine);
    return reinterpret_cast<const T *>(
        staged + (size_t)(q < p.me ? q : q - 1) * p.stride);
}

/* NaNs are propagated. */
template <typename T>
static __device__ __forceinline__ T take(T a, T b, bool max)
{
    if (!max)
        return a + b;
    return a >= b || a != a ? a : b;
}

/* f32 and bf16: 16 bytes per thread.  A thread reads its elements of all pieces
 * before it writes, so `to` may be one of them. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    combine_floats(const __grid_constant__ merak_accel_terms p, bool whole,
                   T *to)
{
    constexpr int N = merak_piece<T>::N;

    for (size_t i = grid_thread() * N; i < p.count; i += grid_threads() * N) {
        float acc[N], x[N];

        read(piece_of<T>(p, 0) + i, p.count - i, whole, acc);
        for (int q = 1; q < p.n; q++) {
            read(piece_of<T>(p, q) + i, p.count - i, whole, x);
#pragma unroll
            for (int k = 0; k < N; k++)
                acc[k] = take(acc[k], x[k], p.max);
        }
        write(to + i, p.count - i, whole, acc);
    }
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    combine_words(const __grid_constant__ merak_accel_terms p, T *to)
{
    for (size_t i = grid_thread(); i < p.count; i += grid_threads()) {
        T acc = piece_of<T>(p, 0)[i];

        for (int q = 1; q < p.n; q++)
            acc = take(acc, piece_of<T>(p, q)[i], p.max);
        to[i] = acc;
    }
}

template <typename T>
static enum merak_status combine_as(const struct merak_cuda_context *cx,
                                    void *to, const merak_accel_terms &p,
                                    struct merak_error *err)
{
    size_t fits = (size_t)((uintptr_t)to | (uintptr_t)p.mine |
                           (uintptr_t)p.staged | p.stride);

    return launch(cx,
                  map_launch("combine", ceil_div(p.count, merak_piece<T>::N)),
                  err, combine_floats<T>, p, fits % 16 == 0,
                  static_cast<T *>(to));
}

enum merak_status merak_cuda_combine(const struct merak_cuda_context *context,
                                     void *to,
                                     const struct merak_accel_terms *pieces,
                                     struct merak_error *err)
{
    const merak_accel_terms &p = *pieces;

    if (p.count == 0)
        return MERAK_OK;
    switch (p.dtype) {
    case MERAK_F32:
        return combine_as<float>(context, to, p, err);
    case MERAK_BF16:
        return combine_as<merak_bf16>(context, to, p, err);
    case MERAK_F64:
        return launch(context, map_launch("combine", p.count), err,
                      combine_words<double>, p, static_cast<double *>(to));
    default:
        return launch(context, map_launch("combine", p.count), err,
                      combine_words<int>, p, static_cast<int *>(to));
    }
}

#ifdef __CUDACC__
template <typename K>
static bool load(K kernel)
{
    cudaFuncAttributes unused;

    return cudaFuncGetAttributes(&unused, kernel) == cudaSuccess;
}

template <typename U>
static bool load_units()
{
    return load(pack_units<U>) && load(unpack_units<U>);
}

enum merak_status merak_cuda_load_copies(struct merak_error *err)
{
    if (load_units<uint4>() && load_units<uint32_t>() &&
        load_units<uint16_t>() && load_units<uint8_t>() &&
        load(combine_floats<float>) && load(combine_floats<merak_bf16>) &&
        load(combine_words<double>) && load(combine_words<int>))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_SYSTEM, "load kernels: %s",
                      cudaGetErrorString(cudaGetLastError()));
}
#else
enum merak_status merak_cuda_load_copies(struct merak_error *err)
{
    (void)err;
    return MERAK_OK;
}
#endif

/* --- rows ------------------------------------------------------------------
 */

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    copy_rows(merak_rows r, const T *from, T *to)
{
    for (size_t row = blockIdx.y; row < r.rows; row += gridDim.y) {
        const T *in = from + row * r.from_ld;
        T *out = to + row * r.to_ld;

        for (size_t c = grid_thread(); c < r.to_columns; c += grid_threads())
            out[c] = c < r.columns ? in[c] : T{};
    }
}

template <typename T>
enum merak_status merak_cuda_copy_rows(const struct merak_cuda_context *cx,
                                       const char *op, const merak_rows &rows,
                                       const T *from, T *to,
                                       struct merak_error *err)
{
    merak_launch how = map_launch(op, rows.to_columns);

    how.grid.y = (unsigned)(rows.rows < 65535 ? rows.rows : 65535);
    return launch(cx, how, err, copy_rows<T>, rows, from, to);
}

template enum merak_status merak_cuda_copy_rows<merak_bf16>(
    const struct merak_cuda_context *, const char *, const merak_rows &,
    const merak_bf16 *, merak_bf16 *, struct merak_error *);
template enum merak_status
merak_cuda_copy_rows<float>(const struct merak_cuda_context *, const char *,
                            const merak_rows &, const float *, float *,
                            struct merak_error *);
