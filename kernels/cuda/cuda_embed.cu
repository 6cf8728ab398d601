/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_embed.cu - token embeddings */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ids.cuh"
#include "kernels/cuda/cuda_kernels.h"

template <typename T> struct merak_gather {
    merak_ids ids;
    const T *table;
    T *y;
    size_t n, C;
    float scale;
    bool whole;
};

/* Whole pieces, of rows that exist. */
template <typename T>
static __device__ __forceinline__ void
gather_pieces(const merak_gather<T> &g, const merak_place (&p)[ROW_PIECES])
{
    constexpr int N = merak_piece<T>::N;
    size_t row[ROW_PIECES];
    uint4 raw[ROW_PIECES];

#pragma unroll
    for (int u = 0; u < ROW_PIECES; u++)
        row[u] = p[u].row < g.n ? quiet_local_id(g.ids, p[u].row) : SIZE_MAX;
#pragma unroll
    for (int u = 0; u < ROW_PIECES; u++)
        raw[u] = load_16_if(row[u] < g.ids.here,
                            g.table + (row[u] < g.ids.here ? row[u] : 0) * g.C +
                                p[u].piece * N);
#pragma unroll
    for (int u = 0; u < ROW_PIECES; u++) {
        float v[N];

        if (p[u].row >= g.n)
            break;
        unpack(raw[u], v);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] *= g.scale;
        store_16(g.y + p[u].row * g.C + p[u].piece * N, pack(v));
        if (p[u].piece == 0)
            check_id(g.ids, p[u].row);
    }
}

/* Elements of a row from `at` on. */
template <typename T>
static __device__ __forceinline__ void gather_part(const merak_gather<T> &g,
                                                   size_t i, size_t at)
{
    constexpr int N = merak_piece<T>::N;
    size_t row = local_id(g.ids, i);
    float v[N] = {};

    if (row < g.ids.here)
        read(g.table + row * g.C + at, g.C - at, false, v);
#pragma unroll
    for (int j = 0; j < N; j++)
        v[j] *= g.scale;
    write(g.y + i * g.C + at, g.C - at, false, v);
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    gather_rows(const __grid_constant__ merak_gather<T> g)
{
    constexpr int N = merak_piece<T>::N;
    size_t pieces = (g.C + N - 1) / N;
    merak_place next = place_of(grid_thread(), pieces);
    merak_place by = place_of(grid_threads(), pieces);

    while (g.whole && next.row < g.n) {
        merak_place p[ROW_PIECES];

#pragma unroll
        for (int u = 0; u < ROW_PIECES; u++) {
            p[u] = next;
            advance(&next, by, pieces);
        }
        gather_pieces(g, p);
    }
    for (; next.row < g.n; advance(&next, by, pieces))
        gather_part(g, next.row, next.piece * N);
}

/* The factor that rows are multiplied by. */
static float scale_of(const struct merak_kernel_call *call)
{
    return call->attrs->f[0] > 0 ? (float)call->attrs->f[0] : 1;
}

template <typename T>
static enum merak_status gather(const struct merak_kernel_call *call,
                                struct merak_error *err)
{
    const struct merak_operand *table = &call->operand[1];
    size_t N = merak_piece<T>::N, pieces;
    merak_gather<T> g = {};

    g.ids = view_ids(call, 0, table, 0, MERAK_CUDA_FAULT_TOKEN);
    g.table = static_cast<const T *>(table->data);
    g.y = static_cast<T *>(merak_call_out(call, 0)->data);
    g.n = merak_local_count(&call->operand[0]);
    g.C = merak_local_last(table);
    g.scale = scale_of(call);
    g.whole = g.C % N == 0 && is_aligned(g.table) && is_aligned(g.y);
    pieces = g.n * ceil_div(g.C, N);
    return launch(merak_cuda_context_of(call),
                  map_launch("embedding",
                             g.whole ? ceil_div(pieces, ROW_PIECES) : pieces),
                  err, gather_rows<T>, g);
}

CUDA_KERNEL(embedding)
{
    return by_dtype(call, 1, err,
                    [&](auto x) { return gather<decltype(x)>(call, err); });
}

/*
 * The table's gradient, only of rows that occur: tokens are sorted by (row,
 * position), and the block at the start of a row's segment sums the segment in
 * order.  So a row's bits do not depend on the device, and equal those of a sum
 * in order of positions.
 */
#define SORT_WARPS 8
#define SORT_THREADS (SORT_WARPS * WARP)
#define SORT_LANE 4                  /* tokens of a lane */
#define SORT_PART (SORT_LANE * WARP) /* of a block; also what a warp scans */
#define SORT_TILE (SORT_WARPS * SORT_PART)

#define NO_ROW 0xfffffffeu
#define NO_TOKEN 0xffffffffu /* beyond the last */

/* What a token of a local row is sorted by. */
static __device__ __forceinline__ uint32_t key_of(const merak_ids &ids,
                                                  size_t skip, size_t row)
{
    return row < ids.here && row + ids.lo != skip ? (uint32_t)row : NO_ROW;
}

/* Tokens of a part that come before the lane's.  Those of a part in front of
 * this block's (`earlier`), and only those, come before equal ones. */
static __device__ __forceinline__ void
count_part(const uint4 *part, bool earlier, const uint32_t (&mine)[SORT_LANE],
           uint32_t (&before)[SORT_LANE])
{
    uint32_t limit[SORT_LANE];

#pragma unroll
    for (int j = 0; j < SORT_LANE; j++)
        limit[j] = mine[j] + earlier;
#pragma unroll 4
    for (int k = 0; k < SORT_PART / 4; k++) {
        uint4 x = part[k];

#pragma unroll
        for (int j = 0; j < SORT_LANE; j++) {
            before[j] += x.x < limit[j];
            before[j] += x.y < limit[j];
            before[j] += x.z < limit[j];
            before[j] += x.w < limit[j];
        }
    }
}

/* The same of the part that has the block's own tokens. */
static __device__ __forceinline__ void
count_own(const merak_word *part, const uint32_t (&mine)[SORT_LANE],
          uint32_t (&before)[SORT_LANE])
{
#pragma unroll 1
    for (unsigned k = 0; k < SORT_PART; k++) {
        uint32_t x = part[k];

#pragma unroll
        for (unsigned j = 0; j < SORT_LANE; j++)
            before[j] += x < mine[j] + (k < threadIdx.x % WARP + j * WARP);
    }
}

/* Each token's place is the number of tokens before it: n^2 comparisons, which
 * for 16k tokens take less time than launching a sort in several passes.  All
 * warps of a block count for its tokens, each in one part of every tile. */
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_tokens(merak_ids ids, size_t skip, uint32_t n, uint32_t *row_at,
                uint32_t *token_at)
{
    MERAK_SHARED(uint4, tile, [SORT_TILE / 4]);
    MERAK_SHARED(uint32_t, count, [SORT_WARPS][SORT_PART]);
    merak_word *keys = reinterpret_cast<merak_word *>(&tile[0]);
    uint32_t first = blockIdx.x * SORT_PART, i = first + threadIdx.x;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint32_t mine[SORT_LANE], before[SORT_LANE] = {}, place = 0;

#pragma unroll
    for (unsigned j = 0; j < SORT_LANE; j++) {
        uint32_t t = first + j * WARP + lane;

        mine[j] = t < n ? key_of(ids, skip, quiet_local_id(ids, t)) : NO_ROW;
    }
    for (uint32_t from = 0; from < n; from += SORT_TILE) {
        uint32_t part = from + warp * SORT_PART;

        __syncthreads();
#pragma unroll
        for (uint32_t k = threadIdx.x; k < SORT_TILE; k += SORT_THREADS)
            keys[k] = from + k < n
                          ? key_of(ids, skip, quiet_local_id(ids, from + k))
                          : NO_TOKEN;
        __syncthreads();
        if (part == first)
            count_own(keys + warp * SORT_PART, mine, before);
        else if (part < n)
            count_part(tile + warp * SORT_PART / 4, part < first, mine, before);
    }
#pragma unroll
    for (unsigned j = 0; j < SORT_LANE; j++)
        count[warp][j * WARP + lane] = before[j];
    __syncthreads();
    if (threadIdx.x >= SORT_PART || i >= n)
        return;
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++)
        place += count[w][threadIdx.x];
    row_at[place] = key_of(ids, skip, local_id(ids, i));
    token_at[place] = i;
}

#define SEGMENT_THREADS 128
#define SEGMENT_ROWS 8 /* of a thread: their loads are in flight together */

template <typename T, typename D> struct merak_segments {
    const uint32_t *row_at, *token_at;
    uint32_t n;
    const T *dy;
    D *dw;
    size_t C;
    float scale;
    bool whole;
};

/* Where the segment that starts at a sorted place ends.  Most are short, and
 * the longest have a large part of all tokens. */
template <typename T, typename D>
static __device__ __forceinline__ uint32_t
segment_end(const merak_segments<T, D> &g, uint32_t row, uint32_t start)
{
    uint32_t step = 1, lo, end;

    while (step < g.n - start && g.row_at[start + step] == row)
        step *= 2;
    lo = start + step / 2; /* has the row; `end` has not */
    end = step < g.n - start ? start + step : g.n;
    while (end - lo > 1) {
        uint32_t half = lo + (end - lo) / 2;

        if (g.row_at[half] == row)
            lo = half;
        else
            end = half;
    }
    return end;
}

/* Tokens at sorted places s .., of which those before `end` are used. */
template <typename T, typename D>
static __device__ __forceinline__ void
load_tokens(const merak_segments<T, D> &g, uint32_t s, uint32_t end,
            uint32_t (&token)[SEGMENT_ROWS])
{
#pragma unroll
    for (int u = 0; u < SEGMENT_ROWS; u++)
        token[u] = g.token_at[s + u < end ? s + u : end - 1];
}

/* Add whole pieces of a segment's rows in order. */
template <typename T, typename D>
static __device__ __forceinline__ void
add_whole(const merak_segments<T, D> &g, uint32_t start, uint32_t end,
          size_t at, float (&sum)[merak_piece<T>::N])
{
    constexpr int N = merak_piece<T>::N;
    uint32_t token[SEGMENT_ROWS];

    load_tokens(g, start, end, token);
    for (uint32_t s = start; s < end; s += SEGMENT_ROWS) {
        uint4 raw[SEGMENT_ROWS];

#pragma unroll
        for (int u = 0; u < SEGMENT_ROWS; u++)
            raw[u] = load_16_if(s + u < end, g.dy + token[u] * g.C + at);
        load_tokens(g, s + SEGMENT_ROWS, end, token); /* of the next turn */
#pragma unroll
        for (int u = 0; u < SEGMENT_ROWS; u++) {
            float v[N];

            if (s + u >= end)
                break;
            unpack(raw[u], v);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] += g.scale * v[i];
        }
    }
}

/* Block (s, y) sums the segment that starts at sorted place s, if any; each
 * thread has a piece of the row, and block y the columns from
 * y SEGMENT_THREADS N on. */
template <typename T, typename D>
static __global__ void __launch_bounds__(SEGMENT_THREADS)
    add_segments(const __grid_constant__ merak_segments<T, D> g)
{
    constexpr int N = merak_piece<T>::N;
    uint32_t start = blockIdx.x, row = g.row_at[start];
    size_t at = ((size_t)blockIdx.y * SEGMENT_THREADS + threadIdx.x) * N;
    size_t left = g.C - at;
    uint32_t end;
    float sum[N];

    if (row == NO_ROW || (start > 0 && g.row_at[start - 1] == row) || at >= g.C)
        return;
    end = segment_end(g, row, start);
    read(g.dw + row * g.C + at, left, g.whole, sum);
    if (g.whole) {
        add_whole(g, start, end, at, sum);
    } else {
        for (uint32_t s = start; s < end; s++) {
            float v[N];

            read(g.dy + g.token_at[s] * g.C + at, left, false, v);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] += g.scale * v[i];
        }
    }
    write(g.dw + row * g.C + at, left, g.whole, sum);
}

/* A row's tokens are added to it in f32, and it is rounded once. */
bool merak_cuda_embedding_dw_adds_bf16(const struct merak_kernel_call *call)
{
    (void)call;
    return true;
}

CUDA_SCRATCH(embedding_dw)
{
    return merak_local_count(&call->operand[0]) * 2 * sizeof(uint32_t);
}

template <typename T, typename D>
static enum merak_status scatter(const struct merak_kernel_call *call,
                                 uint32_t n, struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    const struct merak_operand *dw = merak_call_out(call, 0);
    uint32_t *row_at = static_cast<uint32_t *>(call->scratch);
    size_t N = merak_piece<T>::N;
    size_t skip = (size_t)call->attrs->i[1] - 1; /* none: SIZE_MAX */
    merak_segments<T, D> g = {};
    enum merak_status rc;

    g.row_at = row_at;
    g.token_at = row_at + n;
    g.n = n;
    g.dy = static_cast<const T *>(call->operand[1].data);
    g.dw = static_cast<D *>(dw->data);
    g.C = merak_local_last(dw);
    g.scale = scale_of(call);
    g.whole = g.C % N == 0 && is_aligned(g.dy) && is_aligned(g.dw);
    rc = launch(
        cx,
        merak_launch{"embedding_dw", dim3((unsigned)ceil_div(n, SORT_PART)),
                     dim3(SORT_THREADS), 0},
        err, sort_tokens, view_ids(call, 0, dw, 0, MERAK_CUDA_FAULT_TOKEN),
        skip, n, row_at, row_at + n);
    if (rc != MERAK_OK)
        return rc;
    return launch(
        cx,
        merak_launch{"embedding_dw",
                     dim3(n, (unsigned)ceil_div(g.C, SEGMENT_THREADS * N)),
                     dim3(SEGMENT_THREADS), 0},
        err, add_segments<T, D>, g);
}

CUDA_KERNEL(embedding_dw)
{
    const struct merak_operand *dw = merak_call_out(call, 0);
    size_t n = merak_local_count(&call->operand[0]);
    enum merak_status rc = check_dtype(call, 1, false, err);

    if (rc == MERAK_OK && n >= NO_ROW / 2)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "embedding_dw of %zu tokens: the cuda backend sorts "
                        "up to 2^31 at once; use smaller micro-batches",
                        n);
    if (rc == MERAK_OK && !call->accumulate)
        rc = clear(merak_cuda_context_of(call), dw->data,
                   merak_local_count(dw) * merak_dtype_bytes(dw->dtype), err);
    if (rc != MERAK_OK)
        return rc;
    return by_dtype(call, 1, err, [&](auto x) {
        return merak_call_out(call, 0)->dtype == MERAK_BF16
                   ? scatter<decltype(x), merak_bf16>(call, (uint32_t)n, err)
                   : scatter<decltype(x), float>(call, (uint32_t)n, err);
    });
}
