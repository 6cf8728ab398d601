/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_position.cu - position embeddings */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

struct merak_positions {
    size_t B, T, C, rows;   /* rows: of table */
    size_t t0, all, pieces; /* t0: the place of the first one, which position
                               that is says merak_position() */
    const int32_t *starts;    /* [B, T], starts of tokens' documents, where
                                 positions are 0; NULL: all 0 */
    bool whole, accumulate;
};

/* The row of the table for local token i. */
static __device__ __forceinline__ size_t row_of(const merak_positions &p,
                                                size_t i)
{
    size_t t = merak_position(p.pieces, p.all, p.t0 + i % p.T);

    return p.starts == nullptr ? t : t - (size_t)p.starts[i];
}

/* Whole pieces, of tokens that exist. */
template <typename T>
static __device__ __forceinline__ void
position_pieces(const merak_positions &p, const T *x, const T *table, T *y,
                const merak_place (&at)[ROW_PIECES])
{
    constexpr int N = merak_piece<T>::N;
    uint4 raw[ROW_PIECES][2];

#pragma unroll
    for (int u = 0; u < ROW_PIECES; u++) {
        bool here = at[u].row < p.B * p.T;
        size_t row = here ? row_of(p, at[u].row) : 0;

        raw[u][0] = load_16_if(here, x + at[u].row * p.C + at[u].piece * N);
        raw[u][1] = load_16_if(here, table + row * p.C + at[u].piece * N);
    }
#pragma unroll
    for (int u = 0; u < ROW_PIECES; u++) {
        float v[N], w[N];

        if (at[u].row >= p.B * p.T)
            break;
        unpack(raw[u][0], v);
        unpack(raw[u][1], w);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] += w[j];
        store_16(y + at[u].row * p.C + at[u].piece * N, pack(v));
    }
}

/* Elements of token i from `at` on. */
template <typename T>
static __device__ __forceinline__ void position_part(const merak_positions &p,
                                                     const T *x, const T *table,
                                                     T *y, size_t i, size_t at)
{
    constexpr int N = merak_piece<T>::N;
    float v[N], w[N];

    read(x + i * p.C + at, p.C - at, false, v);
    read(table + row_of(p, i) * p.C + at, p.C - at, false, w);
#pragma unroll
    for (int j = 0; j < N; j++)
        v[j] += w[j];
    write(y + i * p.C + at, p.C - at, false, v);
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    add_positions(merak_positions p, const T *x, const T *table, T *y)
{
    constexpr int N = merak_piece<T>::N;
    size_t pieces = (p.C + N - 1) / N;
    merak_place next = place_of(grid_thread(), pieces);
    merak_place by = place_of(grid_threads(), pieces);

    while (p.whole && next.row < p.B * p.T) {
        merak_place at[ROW_PIECES];

#pragma unroll
        for (int u = 0; u < ROW_PIECES; u++) {
            at[u] = next;
            advance(&next, by, pieces);
        }
        position_pieces(p, x, table, y, at);
    }
    for (; next.row < p.B * p.T; advance(&next, by, pieces))
        position_part(p, x, table, y, next.row, next.piece * N);
}

/* The first local token from i on with row r; B T or more: none.  All tokens
 * are examined; threads of a warp have the same r and examine the same ones. */
static __device__ __forceinline__ size_t find_row(const merak_positions &p,
                                                  size_t r, size_t i)
{
    while (i < p.B * p.T && row_of(p, i) != r)
        i++;
    return i;
}

/* The first local token with row r, and the next after i, which has it.
 * Without documents there is one per sample. */
static __device__ __forceinline__ size_t first_with(const merak_positions &p,
                                                    size_t r)
{
    size_t i;

    if (p.starts != nullptr)
        return find_row(p, r, 0);
    i = merak_position_index(p.pieces, p.all, r);
    return r >= p.all || i < p.t0 || i - p.t0 >= p.T ? p.B * p.T : i - p.t0;
}

static __device__ __forceinline__ size_t next_with(const merak_positions &p,
                                                   size_t r, size_t i)
{
    return p.starts == nullptr ? i + p.T : find_row(p, r, i + 1);
}

/* Add the elements at `at` of all tokens at position r, in order: of whole
 * pieces, those of four tokens are in flight together. */
template <typename T>
static __device__ __forceinline__ void
add_tokens(const merak_positions &p, const T *dy, size_t r, size_t at,
           float (&sum)[merak_piece<T>::N])
{
    constexpr int N = merak_piece<T>::N;
    size_t n = p.B * p.T, i = first_with(p, r);
    float v[N];

    while (p.whole && i < n) {
        uint4 raw[ROW_PIECES];
        int held = 0;

#pragma unroll
        for (int u = 0; u < ROW_PIECES; u++) {
            raw[u] = load_16_if(i < n, dy + i * p.C + at);
            held += i < n;
            i = i < n ? next_with(p, r, i) : n;
        }
#pragma unroll
        for (int u = 0; u < ROW_PIECES; u++) {
            if (u >= held)
                break;
            unpack(raw[u], v);
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] += v[j];
        }
    }
    for (; i < n; i = next_with(p, r, i)) {
        read(dy + i * p.C + at, p.C - at, false, v);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] += v[j];
    }
}

/* Row r of the gradient: the sum over the tokens at position r, in order. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    sum_positions(merak_positions p, const T *dy, float *dw)
{
    constexpr int N = merak_piece<T>::N;
    size_t pieces = (p.C + N - 1) / N;

    for (size_t k = grid_thread(); k < p.rows * pieces; k += grid_threads()) {
        size_t row = k / pieces, at = k % pieces * N, left = p.C - at;
        float sum[N] = {}, v[N];

        add_tokens(p, dy, row, at, sum);
        if (p.accumulate) {
            read(dw + row * p.C + at, left, p.whole, v);
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] += v[j];
        }
        write(dw + row * p.C + at, left, p.whole, sum);
    }
}

/* starts: the index of that operand, if the call has it. */
static merak_positions view_positions(const struct merak_kernel_call *call,
                                      const struct merak_operand *table,
                                      int starts)
{
    const struct merak_operand *x = &call->operand[0];
    size_t N = 16 / merak_dtype_bytes(x->dtype);
    merak_positions p = {};

    p.B = x->local.dim[0];
    p.T = x->local.dim[1];
    p.C = x->local.dim[2];
    p.t0 = x->lo[1];
    p.all = x->full.dim[1];
    p.pieces = call->pieces;
    p.rows = table->local.dim[0];
    p.accumulate = call->accumulate;
    if (starts < call->n_in)
        p.starts = static_cast<const int32_t *>(call->operand[starts].data);
    p.whole = p.C % N == 0;
    for (int o = 0; o < call->n_in + call->n_out; o++)
        p.whole = p.whole && (call->operand[o].dtype == MERAK_I32 ||
                              is_aligned(call->operand[o].data));
    return p;
}

template <typename T>
static enum merak_status position(const struct merak_kernel_call *call,
                                  struct merak_error *err)
{
    const struct merak_operand *op = call->operand;
    merak_positions p = view_positions(call, &op[1], 2);
    size_t pieces = p.B * p.T * ceil_div(p.C, merak_piece<T>::N);

    return launch(merak_cuda_context_of(call),
                  map_launch("add_position",
                             p.whole ? ceil_div(pieces, ROW_PIECES) : pieces),
                  err, add_positions<T>, p, static_cast<const T *>(op[0].data),
                  static_cast<const T *>(op[1].data),
                  static_cast<T *>(merak_call_out(call, 0)->data));
}

CUDA_KERNEL(add_position)
{
    return by_dtype(call, 0, err,
                    [&](auto x) { return position<decltype(x)>(call, err); });
}

template <typename T>
static enum merak_status position_dw(const struct merak_kernel_call *call,
                                     struct merak_error *err)
{
    const struct merak_operand *dw = merak_call_out(call, 0);
    merak_positions p = view_positions(call, dw, 1);

    return launch(merak_cuda_context_of(call),
                  map_launch("add_position_dw",
                             p.rows * ceil_div(p.C, merak_piece<T>::N)),
                  err, sum_positions<T>, p,
                  static_cast<const T *>(call->operand[0].data),
                  static_cast<float *>(dw->data));
}

CUDA_KERNEL(add_position_dw)
{
    return by_dtype(call, 0, err, [&](auto x) {
        return position_dw<decltype(x)>(call, err);
    });
}
