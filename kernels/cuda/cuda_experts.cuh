/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_experts.cuh - rows sorted by expert, products of tiles, and where the
 * layers of a row are
 */
#ifndef MERAK_KERNELS_CUDA_EXPERTS_CUH
#define MERAK_KERNELS_CUDA_EXPERTS_CUH

#include "kernels/cuda/cuda_by_expert.cuh"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_rounding.cuh"

#define TILE_M 32
#define TILE_N 64
#define TILE_K 16
#define TILE_THREADS 128 /* each has 4 x 4 elements */
#define TILE_BLOCKS 4    /* of a multiprocessor: leaves 128 registers each */
#define SORT_BLOCK 256

/* --- sorting -------------------------------------------------------------- */

struct merak_sorted {
    const int32_t *ids;
    uint32_t n, K, E;        /* tokens, rows of each, experts */
    uint32_t begin;          /* number of the first expert */
    uint32_t *first, *order; /* as merak_experts_sort() has them */
};

static __device__ __forceinline__ bool has_row(const merak_sorted &s, size_t i)
{
    return (uint32_t)s.ids[i] - s.begin < s.E;
}

/* Block e lists the rows of expert e: thread t counts those of its part of all
 * rows, and after the counts of the threads before it writes them. */
static __global__ void __launch_bounds__(SORT_BLOCK) sort_rows(merak_sorted s)
{
    MERAK_SHARED(uint32_t, less, [SORT_BLOCK]);
    MERAK_SHARED(uint32_t, same, [SORT_BLOCK]);
    uint32_t rows = s.n * s.K, part = (rows + SORT_BLOCK - 1) / SORT_BLOCK;
    uint32_t from = threadIdx.x * part, to = from + part, at = 0;
    int32_t e = (int32_t)(s.begin + blockIdx.x);

    to = to < rows ? to : rows;
    less[threadIdx.x] = same[threadIdx.x] = 0;
    for (uint32_t i = from; i < to; i++) {
        less[threadIdx.x] += s.ids[i] < e && has_row(s, i);
        same[threadIdx.x] += s.ids[i] == e;
    }
    __syncthreads();
    for (uint32_t t = 0; t < SORT_BLOCK; t++)
        at += less[t];
    if (threadIdx.x == 0)
        s.first[blockIdx.x] = at;
    for (uint32_t t = 0; t < threadIdx.x; t++)
        at += same[t];
    if (threadIdx.x == SORT_BLOCK - 1 && blockIdx.x == s.E - 1)
        s.first[s.E] = at + same[threadIdx.x];
    for (uint32_t i = from; i < to; i++)
        if (s.ids[i] == e)
            s.order[at++] = i;
}

/* --- products ------------------------------------------------------------- */

/* Add the products of rows [m, m_end) and columns [n, n_end), over k of [k,
 * k_end), of p.a(row, k) and p.b(column, k), and pass each to p.put(). */
template <typename P>
static __device__ __forceinline__ void
multiply_tile(const P &p, size_t m, size_t m_end, size_t n, size_t n_end,
              size_t k, size_t k_end)
{
    MERAK_SHARED(float, a, [TILE_K][TILE_M + 1]);
    MERAK_SHARED(float, b, [TILE_K][TILE_N + 1]);
    unsigned row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
    float sum[4][4] = {};

    for (; k < k_end; k += TILE_K) {
        __syncthreads();
        for (unsigned i = threadIdx.x; i < TILE_K * TILE_M; i += TILE_THREADS) {
            unsigned at = i % TILE_K, r = i / TILE_K;

            a[at][r] = m + r < m_end && k + at < k_end ? p.a(m + r, k + at) : 0;
        }
        for (unsigned i = threadIdx.x; i < TILE_K * TILE_N; i += TILE_THREADS) {
            unsigned at = P::TURNED ? i / TILE_N : i % TILE_K;
            unsigned c = P::TURNED ? i % TILE_N : i / TILE_K;

            b[at][c] = n + c < n_end && k + at < k_end ? p.b(n + c, k + at) : 0;
        }
        __syncthreads();
#pragma unroll 4
        for (unsigned at = 0; at < TILE_K; at++)
#pragma unroll
            for (unsigned i = 0; i < 4; i++)
#pragma unroll
                for (unsigned j = 0; j < 4; j++)
                    sum[i][j] += a[at][row + i] * b[at][column + j];
    }
#pragma unroll
    for (unsigned i = 0; i < 4; i++)
#pragma unroll
        for (unsigned j = 0; j < 4; j++)
            if (m + row + i < m_end && n + column + j < n_end)
                p.put(m + row + i, n + column + j, sum[i][j]);
}

/* The numbers of struct merak_gating. */
struct merak_gates {
    float limit, slope, shift;
    bool plain;
};

/* A gate, and what it is multiplied by, within the limit; a missing number
 * stays one. */
static __device__ __forceinline__ float bounded_gate(const merak_gates &by,
                                                     float g)
{
    return g > by.limit ? by.limit : g;
}

static __device__ __forceinline__ float bounded_up(const merak_gates &by,
                                                   float u)
{
    return (u > by.limit ? by.limit : u < -by.limit ? -by.limit : u) + by.shift;
}

static __device__ __forceinline__ float gated(const merak_gates &by, float g,
                                              float u)
{
    if (by.plain)
        return g * sigmoid(g) * u;
    g = bounded_gate(by, g);
    return g * sigmoid(by.slope * g) * bounded_up(by, u);
}

/* The gradients of both, of that of what they make. */
static __device__ __forceinline__ void slopes(const merak_gates &by, float g,
                                              float u, float d, float *dg,
                                              float *du)
{
    float gate = bounded_gate(by, g), s = sigmoid(by.slope * gate);

    *dg = g > by.limit ? 0
                       : d * bounded_up(by, u) * s *
                             (1 + by.slope * gate * (1 - s));
    *du = fabsf(u) > by.limit ? 0 : d * gate * s;
}

/* All that the products of a call read and write. */
template <typename T> struct merak_mlp {
    merak_sorted s;
    uint32_t F, C;
    const T *x, *dy;           /* [n, C] */
    const float *w;            /* [n, K] */
    const T *gate, *up, *down; /* [E, F, C], twice, and [E, C, F] */
    T *pool, *dpool;           /* [kept, 2, F] */
    T *layer, *change;         /* the same of rows from `kept` on, in scratch */
    uint32_t kept;
    uint32_t skip; /* only positions from here on are made (tiles of rows: all
                      of one that has such) */
    bool shared;   /* a row's place is its position; else its number */
    float *rows;   /* [n K, C] or [n K, F], sorted */
    float *dw;     /* [n, K] */
    T *out;        /* [n, C] */
    float *dgate, *dup, *ddown;
    float *dbias;      /* [E, 2, F] */
    const float *bias; /* the same; NULL: none */
    merak_gates gates;
    bool accumulate;
};

/* The [2, F] of the row at position i in a pool or, if it has no place there,
 * in `more`. */
template <typename T>
static __device__ __forceinline__ T *layer_at(const merak_mlp<T> &x, T *pool,
                                              T *more, size_t i)
{
    size_t place = x.shared ? i : x.s.order[i];

    return place < x.kept ? pool + place * 2 * x.F
                          : more + (place - x.kept) * 2 * x.F;
}

/* What `down` multiplies, of a row's layer. */
template <typename T>
static __device__ __forceinline__ float inner(const merak_mlp<T> &x,
                                              const T *layer, size_t f)
{
    return rounded<T>(
        gated(x.gates, to_f32(layer[f]), to_f32(layer[x.F + f])));
}

/* The rows of a tile of rows, all of one expert. */
struct merak_tile {
    uint32_t expert, from, to;
};

static __device__ __forceinline__ merak_tile tile_of(const merak_sorted &s,
                                                     uint32_t tile)
{
    merak_tile t = {0, 0, 0};

    for (uint32_t e = 0; e < s.E; e++) {
        uint32_t from = s.first[e], rows = s.first[e + 1] - from;
        uint32_t tiles = (rows + TILE_M - 1) / TILE_M;

        if (tile < tiles) {
            t.expert = e;
            t.from = from + tile * TILE_M;
            t.to = from +
                   (rows < (tile + 1) * TILE_M ? rows : (tile + 1) * TILE_M);
            return t;
        }
        tile -= tiles;
    }
    return t;
}

#endif
