/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_rope.cu - rotary positions */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

extern "C" {
#include "kernels/rope.h"
}

#define ROPE_PAIRS 128 /* of channels per launch; frequencies are arguments */
#define ROPE_THREADS 128
#ifndef MERAK_ROPE_BLOCKS
#define MERAK_ROPE_BLOCKS                              \
    2048 /* so many, if there are: samples share sines \
          */
#endif

struct merak_rope {
    size_t B, T, inner, D, t0, first; /* first: pair of this launch */
    size_t all, pieces;               /* for merak_position() */
    size_t R;                         /* channels that are rotated */
    bool whole;                       /* halves of heads are whole pieces */
    unsigned pairs, kept; /* kept: channels after R that it copies */
    double amplitude, sign;
    double radians[ROPE_PAIRS]; /* per position */
};

/* Head h of those that a block has at its position: all of sample blockIdx.y,
 * then of sample blockIdx.y + gridDim.y, .. */
static __device__ __forceinline__ size_t head_at(const merak_rope &r, size_t h)
{
    size_t sample = blockIdx.y + h / r.inner * gridDim.y;

    return ((sample * r.T + blockIdx.x) * r.inner + h % r.inner) * r.D;
}

/* Rotate n heads by N pairs at a time: 1, or those of a whole piece. */
template <int N, typename T>
static __device__ __forceinline__ void
turn_heads(const merak_rope &r, size_t n, const float *cosine,
           const float *sine, const T *x, T *y)
{
    size_t pieces = r.pairs / N;
    merak_place next = place_of(threadIdx.x, pieces);
    merak_place by = place_of(ROPE_THREADS, pieces);

    for (; next.row < n; advance(&next, by, pieces)) {
        size_t i = next.piece * N, at = head_at(r, next.row) + r.first + i;
        const T *const half[2] = {x + at, x + at + r.R / 2};
        float v[2][N], a[N], b[N];

        read_all(half, 0, N, N > 1, v);
#pragma unroll
        for (int j = 0; j < N; j++) {
            a[j] = v[0][j] * cosine[i + j] - v[1][j] * sine[i + j];
            b[j] = v[1][j] * cosine[i + j] + v[0][j] * sine[i + j];
        }
        write(y + at, N, N > 1, a);
        write(y + at + r.R / 2, N, N > 1, b);
    }
}

/* Copy the channels of n heads that are not rotated. */
template <int N, typename T>
static __device__ __forceinline__ void keep_heads(const merak_rope &r, size_t n,
                                                  const T *x, T *y)
{
    size_t pieces = r.kept / N;

    for (size_t k = threadIdx.x; k < n * pieces; k += ROPE_THREADS) {
        size_t at = head_at(r, k / pieces) + r.R + k % pieces * N;

        if constexpr (N == 1)
            y[at] = x[at];
        else
            store_16(y + at, load_16(x + at));
    }
}

/* Block (t, y) rotates all heads at a position of samples y, y + gridDim.y, ..
 * Angles are f64, as on the host: at position 4096 an f32 angle is wrong in its
 * fourth digit. */
template <typename T>
static __global__ void __launch_bounds__(ROPE_THREADS)
    turn_pairs(const __grid_constant__ merak_rope r, const T *x, T *y)
{
    constexpr int N = merak_piece<T>::N;
    MERAK_SHARED(float4, cosines, [ROPE_PAIRS / 4]);
    MERAK_SHARED(float4, sines, [ROPE_PAIRS / 4]);
    float *cosine = &cosines[0].x, *sine = &sines[0].x;
    size_t heads = (r.B - blockIdx.y + gridDim.y - 1) / gridDim.y * r.inner;
    size_t t = merak_position(r.pieces, r.all, r.t0 + blockIdx.x);

    for (unsigned i = threadIdx.x; i < r.pairs; i += ROPE_THREADS) {
        double angle = (double)t * r.radians[i];

        cosine[i] = (float)(r.amplitude * cos(angle));
        sine[i] = (float)(r.sign * r.amplitude * sin(angle));
    }
    __syncthreads();
    if (r.whole) {
        turn_heads<N>(r, heads, cosine, sine, x, y);
        keep_heads<N>(r, heads, x, y);
    } else {
        turn_heads<1>(r, heads, cosine, sine, x, y);
        keep_heads<1>(r, heads, x, y);
    }
}

/* Blocks of samples at a position. */
static unsigned rope_rows(const merak_rope &r)
{
    size_t rows = ceil_div(MERAK_ROPE_BLOCKS, r.T);

    return (unsigned)(rows < r.B ? rows : r.B);
}

template <typename T>
static enum merak_status turn(const struct merak_kernel_call *call,
                              struct merak_error *err)
{
    const struct merak_operand *x = &call->operand[0];
    const T *from = static_cast<const T *>(x->data);
    T *to = static_cast<T *>(merak_call_out(call, 0)->data);
    enum merak_status rc = MERAK_OK;
    merak_rope r = {};

    r.B = x->local.dim[0];
    r.T = x->local.dim[1];
    r.inner = merak_local_span(x, 2, x->local.ndim - 1);
    r.D = merak_local_last(x);
    if (merak_local_count(x) == 0)
        return MERAK_OK;
    r.t0 = x->lo[1];
    r.all = x->full.dim[1];
    r.pieces = call->pieces;
    r.sign = call->attrs->i[0] == 1 ? -1 : 1;
    r.amplitude = merak_rope_amplitude(call->attrs);
    r.R = merak_rope_turned(call->attrs, r.D);
    r.kept = (unsigned)(r.D - r.R);
    r.whole = r.R / 2 % merak_piece<T>::N == 0 &&
              r.D % merak_piece<T>::N == 0 && is_aligned(from) &&
              is_aligned(to);
    for (; rc == MERAK_OK && r.first < r.R / 2; r.first += ROPE_PAIRS) {
        size_t left = r.R / 2 - r.first;

        r.pairs = (unsigned)(left < ROPE_PAIRS ? left : ROPE_PAIRS);
        for (unsigned i = 0; i < r.pairs; i++)
            r.radians[i] = merak_rope_frequency(call->attrs, r.R, r.first + i);
        rc = launch(merak_cuda_context_of(call),
                    merak_launch{"rope", dim3((unsigned)r.T, rope_rows(r)),
                                 dim3(ROPE_THREADS), 0},
                    err, turn_pairs<T>, r, from, to);
        r.kept = 0;
    }
    return rc;
}

CUDA_KERNEL(rope)
{
    return by_dtype(call, 0, err,
                    [&](auto x) { return turn<decltype(x)>(call, err); });
}
