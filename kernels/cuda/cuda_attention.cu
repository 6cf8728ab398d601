/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_attention.cu - causal attention with grouped queries, tile by tile
 *
 * The equations stand in ref/ref_attention.c.  Forward (Dao 2023,
 * arXiv:2307.08691): a block has 16 queries a warp and walks over the keys
 * before them; a row's maximum and sum are corrected as larger scores come.
 * Backward makes the scores again from lse, twice: once by blocks of keys,
 * which add up dk and dv over the queries behind them, once by blocks of
 * queries for dq.  That is seven products instead of five, and in return no
 * two blocks add to one number, so that results are the same to the bit.
 *
 * bf16: probabilities and gradients of scores are rounded to bf16 before they
 * are multiplied, as tensor cores want them; all sums are f32.
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_dropout.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_tiles.cuh"

#define MAX_HEAD 256 /* channels */

/* One of q, k, v, o or a gradient; struct merak_heads on the device. */
template <typename T> struct merak_head_rows {
    T *data; /* with the offset */
    size_t row, t0;
};

template <typename T> struct merak_flash {
    size_t B, T_, H, R, first;
    size_t window; /* keys that a query sees at most, its own the last */
    int D;
    float scale, cap; /* scores are cap tanh(scale q . k / cap); cap 0: scale
                         q . k */
    float inverse_cap;
    bool whole, accumulate, drops;
    merak_drop drop;
    /* of what is dropped: where this shard's heads stand among all, and the
     * positions */
    size_t group0, head0, full_R, full_T;
    merak_head_rows<const T> q, k, v, d_o, o_in;
    merak_head_rows<T> o, dq, dk, dv;
    float *lse, *delta; /* [B, T - first, H] */
};

template <typename T, typename U>
static __device__ __forceinline__ U *head_at(const merak_flash<T> &f,
                                             const merak_head_rows<U> &x,
                                             size_t b, size_t t, size_t h)
{
    return x.data + (b * f.T_ + t - x.t0) * x.row + h * f.D;
}

template <typename T>
static __device__ __forceinline__ size_t lse_at(const merak_flash<T> &f,
                                                size_t b, size_t t, size_t h)
{
    return (b * f.T_ + t - f.first) * f.H + h;
}

/* --- scores ----------------------------------------------------------------
 */

template <typename T>
static __device__ __forceinline__ float score(const merak_flash<T> &f,
                                              float product)
{
    float s = product * f.scale;

    return f.cap > 0 ? f.cap * tanhf(s * f.inverse_cap) : s;
}

/* What a score's gradient is to be multiplied by, for that of q . k; p is
 * exp(score - lse). */
template <typename T>
static __device__ __forceinline__ float score_slope(const merak_flash<T> &f,
                                                    float p, float lse)
{
    float t;

    if (!(f.cap > 0))
        return f.scale;
    if (!(p > 0))
        return 0; /* so is the gradient */
    t = (lse + logf(p)) * f.inverse_cap;
    return f.scale * (1.0f - t * t);
}

template <typename T>
static __device__ __forceinline__ bool is_seen(const merak_flash<T> &f,
                                               size_t query, size_t key)
{
    return key <= query && query - key < f.window;
}

/* The first key that queries from `query` on see. */
template <typename T>
static __device__ __forceinline__ size_t first_key(const merak_flash<T> &f,
                                                   size_t query)
{
    return query >= f.window ? query - f.window + 1 : 0;
}

/* Which stream of words says what is dropped of a head of a sample, and where
 * key 0 begins in it: merak_attention_element(). */
struct merak_mask {
    uint64_t key;
    size_t element;
};

template <typename T>
static __device__ __forceinline__ merak_mask mask_of(const merak_flash<T> &f,
                                                     size_t b, size_t h)
{
    size_t head = (f.group0 + h / f.R) * f.full_R + f.head0 + h % f.R;
    size_t row = (f.full_T + 3) / 4 * 4;

    return merak_mask{f.drops ? drop_key(f.drop, b) : 0, head * f.full_T * row};
}

/* What probability (query, key) is multiplied by. */
template <typename T>
static __device__ __forceinline__ float
kept(const merak_flash<T> &f, const merak_mask &mask, size_t query, size_t key)
{
    size_t element;
    uint32_t word[4], mine;

    if (!f.drops)
        return 1;
    element = mask.element + key * ((f.full_T + 3) / 4 * 4) + query;
    philox(mask.key, element / 4, word);
    mine = element % 4 < 2 ? (element % 4 == 0 ? word[0] : word[1])
                           : (element % 4 == 2 ? word[2] : word[3]);
    return is_kept(f.drop, mine) ? f.drop.scale : 0.0f;
}

/* --- tiles -----------------------------------------------------------------
 */

/* Columns that fit into registers and shared memory beside the rows. */
template <typename T> constexpr int flash_columns(int DP)
{
    return DP > 128 || (sizeof(T) == 4 && DP > 64) ? 32 : 64;
}

/* Tile sizes by dtype and padded head: rows of a block, which warps share,
 * and columns, which they walk over. */
template <typename T, int DP, int COLS = flash_columns<T>(DP)>
struct merak_tiling {
    static constexpr int ROWS = sizeof(T) == 4 && DP > 128 ? 32 : 64;
    static constexpr int COLUMNS = COLS;
    static constexpr int THREADS = ROWS / TILE_ROWS * WARP;
    static constexpr int LD = tile_ld<T>(DP);
    static constexpr int NT = COLUMNS / 8; /* eights of columns */
    static constexpr int ND = DP / 8;      /* eights of channels */
    static constexpr int PLD = tile_ld<T>(COLUMNS);
    /* `rows` and `columns` tiles of channels and one of probabilities */
    static constexpr size_t bytes(int rows, int columns)
    {
        return sizeof(T) * ((size_t)(rows * ROWS + columns * COLUMNS) * LD +
                            (size_t)ROWS * PLD);
    }
};

template <typename T>
static __device__ __forceinline__ float attention_exp(float x)
{
    return sizeof(T) == 2 ? rough_exp(x) : expf(x);
}

/* Over the four lanes that share rows. */
static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

static __device__ __forceinline__ int clamp_rows(size_t from, size_t end,
                                                 int most)
{
    size_t n = end > from ? end - from : 0;

    return n < (size_t)most ? (int)n : most;
}

/* 16 rows of channels, those inside, scaled. */
template <typename T, int ND>
static __device__ __forceinline__ void
store_rows(const float (&acc)[ND][4], T *to, size_t stride, int rows, int D,
           const float (&scale)[2], bool accumulate)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int n = 0; n < ND; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = g + i / 2 * 8, d = n * 8 + 2 * t + i % 2;
            float x = acc[n][i] * scale[i / 2];

            if (row >= rows || d >= D)
                continue;
            if (accumulate)
                x += to_f32(to[row * stride + d]);
            from_f32(&to[row * stride + d], x);
        }
    }
}

/* --- forward ---------------------------------------------------------------
 */

/* Products of 16 queries from `query` on with NT * 8 keys from `key` on become
 * probabilities relative to the row's new maximum, less what is dropped. */
template <typename T, int NT, int ND>
static __device__ __forceinline__ void
soften(const merak_flash<T> &f, const merak_mask &mask, float (&s)[NT][4],
       float (&o)[ND][4], float (&max)[2], float (&sum)[2], size_t query,
       size_t key)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        size_t i = query + g + half * 8;
        float top = -INFINITY, base, part = 0, correction;

#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                size_t j = key + n * 8 + 2 * t + c;
                float x = score(f, s[n][half * 2 + c]);

                x = is_seen(f, i, j) && j < f.T_ ? x : -INFINITY;
                s[n][half * 2 + c] = x;
                top = fmaxf(top, x);
            }
        }
        top = fmaxf(max[half], quad_max(top));
        base = top == -INFINITY ? 0 : top; /* its window begins later */
        correction = attention_exp<T>(max[half] - base);
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float p = attention_exp<T>(s[n][half * 2 + c] - base);

                part += p;
                s[n][half * 2 + c] =
                    p * kept(f, mask, i, key + n * 8 + 2 * t + c);
            }
        }
        sum[half] = sum[half] * correction + quad_sum(part);
        max[half] = top;
#pragma unroll
        for (int n = 0; n < ND; n++) {
            o[n][half * 2] *= correction;
            o[n][half * 2 + 1] *= correction;
        }
    }
}

/* Block (tile of queries, head, sample); the longest rows first. */
template <typename T, int DP>
static __global__ void __launch_bounds__(merak_tiling<T, DP>::THREADS)
    flash_forward(const __grid_constant__ merak_flash<T> f)
{
    typedef merak_tiling<T, DP> tiling;
    size_t h = blockIdx.y, b = blockIdx.z;
    size_t from = f.first + (size_t)(gridDim.x - 1 - blockIdx.x) * tiling::ROWS;
    size_t end = from + tiling::ROWS < f.T_ ? from + tiling::ROWS : f.T_;
    int mine = threadIdx.x / WARP * TILE_ROWS, g = threadIdx.x % WARP / 4;
    T *q = static_cast<T *>(dynamic_shared());
    T *k = q + tiling::ROWS * tiling::LD, *v = k + tiling::COLUMNS * tiling::LD;
    T *p = v + tiling::COLUMNS * tiling::LD + mine * tiling::PLD;
    float o[tiling::ND][4] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    float scale[2];
    int rows = clamp_rows(from + mine, end, TILE_ROWS);
    const merak_mask mask = mask_of(f, b, h);

    load_tile<tiling::ROWS, DP, tiling::THREADS>(q, head_at(f, f.q, b, from, h),
                                                 f.q.row, (int)(end - from),
                                                 f.D, f.whole);
    for (size_t j = first_key(f, from) / tiling::COLUMNS * tiling::COLUMNS;
         j < end; j += tiling::COLUMNS) {
        int keys = clamp_rows(j, f.T_, tiling::COLUMNS);
        float s[tiling::NT][4] = {};

        __syncthreads();
        load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
            k, head_at(f, f.k, b, j, h / f.R), f.k.row, keys, f.D, f.whole);
        load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
            v, head_at(f, f.v, b, j, h / f.R), f.v.row, keys, f.D, f.whole);
        __syncthreads();
        tile_product<DP, RIGHT_BY_COLUMN>(s, q + mine * tiling::LD, tiling::LD,
                                          k, tiling::LD);
        soften(f, mask, s, o, max, sum, from + mine, j);
        put_tile(p, tiling::PLD, s);
        __syncwarp();
        tile_product<tiling::COLUMNS, RIGHT_BY_ROW>(o, p, tiling::PLD, v,
                                                    tiling::LD);
    }
    scale[0] = 1.0f / sum[0];
    scale[1] = 1.0f / sum[1];
    if (rows > 0)
        store_rows(o, head_at(f, f.o, b, from + mine, h), f.o.row, rows, f.D,
                   scale, false);
    if (threadIdx.x % 4 == 0) {
        for (int half = 0; half < 2; half++)
            if (g + half * 8 < rows)
                f.lse[lse_at(f, b, from + mine + g + half * 8, h)] =
                    max[half] + logf(sum[half]);
    }
}

/* --- backward --------------------------------------------------------------
 */

/* delta = do . o of every query, a warp each. */
template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    flash_delta(const __grid_constant__ merak_flash<T> f)
{
    size_t row = grid_thread() / WARP, Tq = f.T_ - f.first;
    size_t h = row % f.H, t = f.first + row / f.H % Tq, b = row / f.H / Tq;
    const T *o, *d_o;
    float sum = 0;

    if (row >= f.B * Tq * f.H)
        return;
    o = head_at(f, f.o_in, b, t, h);
    d_o = head_at(f, f.d_o, b, t, h);
    for (int d = threadIdx.x % WARP; d < f.D; d += WARP)
        sum += to_f32(o[d]) * to_f32(d_o[d]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        f.delta[lse_at(f, b, t, h)] = sum;
}

/* dq of a tile of queries. */
template <typename T, int DP>
static __global__ void __launch_bounds__(merak_tiling<T, DP>::THREADS)
    flash_dq(const __grid_constant__ merak_flash<T> f)
{
    typedef merak_tiling<T, DP> tiling;
    size_t h = blockIdx.y, b = blockIdx.z;
    size_t from = f.first + (size_t)(gridDim.x - 1 - blockIdx.x) * tiling::ROWS;
    size_t end = from + tiling::ROWS < f.T_ ? from + tiling::ROWS : f.T_;
    int mine = threadIdx.x / WARP * TILE_ROWS;
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    T *q = static_cast<T *>(dynamic_shared());
    T *d_o = q + tiling::ROWS * tiling::LD,
      *k = d_o + tiling::ROWS * tiling::LD;
    T *v = k + tiling::COLUMNS * tiling::LD;
    T *ds = v + tiling::COLUMNS * tiling::LD + mine * tiling::PLD;
    float dq[tiling::ND][4] = {}, lse[2] = {}, delta[2] = {};
    const float one[2] = {1, 1};
    int rows = clamp_rows(from + mine, end, TILE_ROWS);
    const merak_mask mask = mask_of(f, b, h);

    for (int half = 0; half < 2; half++) {
        if (g + half * 8 < rows) {
            size_t at = lse_at(f, b, from + mine + g + half * 8, h);

            lse[half] = f.lse[at];
            delta[half] = f.delta[at];
        }
    }
    load_tile<tiling::ROWS, DP, tiling::THREADS>(q, head_at(f, f.q, b, from, h),
                                                 f.q.row, (int)(end - from),
                                                 f.D, f.whole);
    load_tile<tiling::ROWS, DP, tiling::THREADS>(
        d_o, head_at(f, f.d_o, b, from, h), f.d_o.row, (int)(end - from), f.D,
        f.whole);
    for (size_t j = first_key(f, from) / tiling::COLUMNS * tiling::COLUMNS;
         j < end; j += tiling::COLUMNS) {
        int keys = clamp_rows(j, f.T_, tiling::COLUMNS);
        float s[tiling::NT][4] = {}, dp[tiling::NT][4] = {};

        __syncthreads();
        load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
            k, head_at(f, f.k, b, j, h / f.R), f.k.row, keys, f.D, f.whole);
        load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
            v, head_at(f, f.v, b, j, h / f.R), f.v.row, keys, f.D, f.whole);
        __syncthreads();
        tile_product<DP, RIGHT_BY_COLUMN>(s, q + mine * tiling::LD, tiling::LD,
                                          k, tiling::LD);
        tile_product<DP, RIGHT_BY_COLUMN>(dp, d_o + mine * tiling::LD,
                                          tiling::LD, v, tiling::LD);
#pragma unroll
        for (int n = 0; n < tiling::NT; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                size_t key = j + n * 8 + 2 * t + i % 2;
                size_t query = from + mine + g + i / 2 * 8;
                bool seen = is_seen(f, query, key) && key < f.T_;
                float x = attention_exp<T>(score(f, s[n][i]) - lse[i / 2]);

                s[n][i] = 0;
                if (seen)
                    s[n][i] =
                        x *
                        (kept(f, mask, query, key) * dp[n][i] - delta[i / 2]) *
                        score_slope(f, x, lse[i / 2]);
            }
        }
        put_tile(ds, tiling::PLD, s);
        __syncwarp();
        tile_product<tiling::COLUMNS, RIGHT_BY_ROW>(dq, ds, tiling::PLD, k,
                                                    tiling::LD);
    }
    if (rows > 0)
        store_rows(dq, head_at(f, f.dq, b, from + mine, h), f.dq.row, rows, f.D,
                   one, false);
}

/* Which of dk and dv a launch is for: heads above 128 channels have not the
 * registers for both. */
enum merak_which { WHICH_BOTH, WHICH_DK, WHICH_DV };

/* What a probability is multiplied by whose bit says if it is dropped. */
template <typename T>
static __device__ __forceinline__ float factor(const merak_flash<T> &f,
                                               uint32_t dropped, int bit)
{
    if (!f.drops)
        return 1;
    return dropped >> bit & 1 ? 0.0f : f.drop.scale;
}

/* A warp holds dk and dv of its keys, so fewer columns. */
template <typename T, int DP>
using merak_key_tiling = merak_tiling<T, DP, (DP > 64 ? 32 : 64)>;

/* dk and dv of a tile of keys: scores stand transposed, a row for a key. */
template <typename T, int DP, merak_which WHICH>
static __global__ void __launch_bounds__(merak_key_tiling<T, DP>::THREADS)
    flash_dkv(const __grid_constant__ merak_flash<T> f)
{
    typedef merak_key_tiling<T, DP> tiling;
    constexpr bool DK = WHICH != WHICH_DV, DV = WHICH != WHICH_DK;
    MERAK_SHARED(float, lse, [tiling::COLUMNS]);
    MERAK_SHARED(float, delta, [tiling::COLUMNS]);
    size_t group = blockIdx.y, b = blockIdx.z;
    size_t from = (size_t)blockIdx.x * tiling::ROWS;
    size_t end = from + tiling::ROWS < f.T_ ? from + tiling::ROWS : f.T_;
    size_t start = from > f.first ? from : f.first;
    /* the queries that see the last key */
    size_t stop = f.window < f.T_ - (end - 1) ? end - 1 + f.window : f.T_;
    int mine = threadIdx.x / WARP * TILE_ROWS;
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    T *k = static_cast<T *>(dynamic_shared());
    T *v = k + tiling::ROWS * tiling::LD, *q = v + tiling::ROWS * tiling::LD;
    T *d_o = q + tiling::COLUMNS * tiling::LD;
    T *p = d_o + tiling::COLUMNS * tiling::LD + mine * tiling::PLD;
    float dk[DK ? tiling::ND : 2][4] = {}, dv[DV ? tiling::ND : 2][4] = {};
    const float one[2] = {1, 1};
    int rows = clamp_rows(from + mine, end, TILE_ROWS);

    load_tile<tiling::ROWS, DP, tiling::THREADS>(
        k, head_at(f, f.k, b, from, group), f.k.row, (int)(end - from), f.D,
        f.whole);
    load_tile<tiling::ROWS, DP, tiling::THREADS>(
        v, head_at(f, f.v, b, from, group), f.v.row, (int)(end - from), f.D,
        f.whole);
    for (size_t h = group * f.R; h < (group + 1) * f.R; h++) {
        const merak_mask mask = mask_of(f, b, h);

        for (size_t i0 = start; i0 < stop; i0 += tiling::COLUMNS) {
            uint32_t dropped = 0; /* a bit an element of s */
            int queries = clamp_rows(i0, f.T_, tiling::COLUMNS);
            float s[tiling::NT][4] = {}, dp[tiling::NT][4] = {};

            __syncthreads();
            load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
                q, head_at(f, f.q, b, i0, h), f.q.row, queries, f.D, f.whole);
            load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
                d_o, head_at(f, f.d_o, b, i0, h), f.d_o.row, queries, f.D,
                f.whole);
            for (int i = threadIdx.x; i < tiling::COLUMNS;
                 i += tiling::THREADS) {
                bool there = i < queries;
                size_t at = there ? lse_at(f, b, i0 + i, h) : 0;

                lse[i] = there ? f.lse[at] : 0.0f;
                delta[i] = there ? f.delta[at] : 0.0f;
            }
            __syncthreads();
            tile_product<DP, RIGHT_BY_COLUMN>(s, k + mine * tiling::LD,
                                              tiling::LD, q, tiling::LD);
#pragma unroll
            for (int n = 0; n < tiling::NT; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int column = n * 8 + 2 * t + i % 2;
                    size_t key = from + mine + g + i / 2 * 8;
                    bool seen =
                        is_seen(f, i0 + column, key) && column < queries;
                    float x = attention_exp<T>(score(f, s[n][i]) - lse[column]);

                    s[n][i] = seen ? x : 0.0f;
                    if (seen && kept(f, mask, i0 + column, key) == 0)
                        dropped |= 1u << (n * 4 + i);
                }
            }
            if constexpr (DV) {
                float kept_p[tiling::NT][4];

#pragma unroll
                for (int n = 0; n < tiling::NT; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        kept_p[n][i] = s[n][i] * factor(f, dropped, n * 4 + i);
                }
                put_tile(p, tiling::PLD, kept_p);
                __syncwarp();
                tile_product<tiling::COLUMNS, RIGHT_BY_ROW>(dv, p, tiling::PLD,
                                                            d_o, tiling::LD);
                __syncwarp();
            }
            if constexpr (DK) {
                tile_product<DP, RIGHT_BY_COLUMN>(dp, v + mine * tiling::LD,
                                                  tiling::LD, d_o, tiling::LD);
#pragma unroll
                for (int n = 0; n < tiling::NT; n++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int column = n * 8 + 2 * t + i % 2;

                        s[n][i] *= (factor(f, dropped, n * 4 + i) * dp[n][i] -
                                    delta[column]) *
                                   score_slope(f, s[n][i], lse[column]);
                    }
                }
                put_tile(p, tiling::PLD, s);
                __syncwarp();
                tile_product<tiling::COLUMNS, RIGHT_BY_ROW>(dk, p, tiling::PLD,
                                                            q, tiling::LD);
            }
        }
    }
    if (rows > 0 && DK)
        store_rows(dk, head_at(f, f.dk, b, from + mine, group), f.dk.row, rows,
                   f.D, one, f.accumulate);
    if (rows > 0 && DV)
        store_rows(dv, head_at(f, f.dv, b, from + mine, group), f.dv.row, rows,
                   f.D, one, f.accumulate);
}

/* --- calls -----------------------------------------------------------------
 */

/* T is the element of this side, with or without const. */
template <typename T>
static void view_side(merak_head_rows<T> *to, const struct merak_heads *from,
                      bool *whole)
{
    if (from->op == nullptr)
        return;
    to->data = static_cast<T *>(from->op->data) + from->offset;
    to->row = from->row;
    to->t0 = from->t0;
    *whole = *whole && is_aligned(to->data) && to->row * sizeof(T) % 16 == 0;
}

template <typename T>
static merak_flash<T> view(const struct merak_attention *at, void *scratch)
{
    merak_flash<T> f = {};

    f.B = at->B;
    f.T_ = at->T;
    f.H = at->G * at->R;
    f.R = at->R;
    f.first = at->first;
    f.D = (int)at->D;
    f.window = at->window;
    f.scale = (float)at->scale;
    f.cap = (float)at->cap;
    f.inverse_cap = at->cap > 0 ? (float)(1 / at->cap) : 0;
    f.drops = at->drop > 0;
    if (f.drops)
        f.drop = drop_of(at->step, at->stream, at->drop);
    f.drop.first_sample += at->lse->lo[0];
    f.group0 = at->lse->lo[2];
    f.full_R = 1;
    if (at->lse->local.ndim == 4) { /* of packed heads there is no R */
        f.head0 = at->lse->lo[3];
        f.full_R = at->lse->full.dim[3];
    }
    f.full_T = at->lse->full.dim[1];
    f.accumulate = at->accumulate;
    f.whole = at->D * sizeof(T) % 16 == 0;
    view_side(&f.q, &at->q, &f.whole);
    view_side(&f.k, &at->k, &f.whole);
    view_side(&f.v, &at->v, &f.whole);
    view_side(&f.o_in, &at->o, &f.whole);
    view_side(&f.o, &at->o, &f.whole);
    view_side(&f.d_o, &at->d_o, &f.whole);
    view_side(&f.dq, &at->dq, &f.whole);
    view_side(&f.dk, &at->dk, &f.whole);
    view_side(&f.dv, &at->dv, &f.whole);
    f.lse = static_cast<float *>(at->lse->data);
    f.delta = static_cast<float *>(scratch);
    return f;
}

template <typename T, int DP>
static merak_launch tile_launch(size_t positions, size_t heads, size_t B,
                                size_t bytes)
{
    typedef merak_tiling<T, DP> tiling;

    return merak_launch{"attention",
                        dim3((unsigned)ceil_div(positions, tiling::ROWS),
                             (unsigned)heads, (unsigned)B),
                        dim3(tiling::THREADS), bytes};
}

template <typename T, int DP>
static enum merak_status forward(const struct merak_cuda_context *cx,
                                 const merak_flash<T> &f,
                                 struct merak_error *err)
{
    return launch(cx,
                  tile_launch<T, DP>(f.T_ - f.first, f.H, f.B,
                                     merak_tiling<T, DP>::bytes(1, 2)),
                  err, flash_forward<T, DP>, f);
}

template <typename T, int DP>
static enum merak_status backward(const struct merak_cuda_context *cx,
                                  const merak_flash<T> &f,
                                  struct merak_error *err)
{
    size_t bytes = merak_tiling<T, DP>::bytes(2, 2), Tq = f.T_ - f.first;
    merak_launch keys = tile_launch<T, DP>(
        f.T_, f.H / f.R, f.B, merak_key_tiling<T, DP>::bytes(2, 2));
    enum merak_status rc;

    rc = launch(cx, row_launch("attention_dx", f.B * Tq * f.H, WARP), err,
                flash_delta<T>, f);
    if (rc == MERAK_OK)
        rc = launch(cx, tile_launch<T, DP>(Tq, f.H, f.B, bytes), err,
                    flash_dq<T, DP>, f);
    if (rc != MERAK_OK)
        return rc;
    if constexpr (DP <= 128) {
        return launch(cx, keys, err, flash_dkv<T, DP, WHICH_BOTH>, f);
    } else {
        rc = launch(cx, keys, err, flash_dkv<T, DP, WHICH_DK>, f);
        if (rc != MERAK_OK)
            return rc;
        return launch(cx, keys, err, flash_dkv<T, DP, WHICH_DV>, f);
    }
}

template <typename T, int DP>
static enum merak_status run_flash(const struct merak_cuda_context *cx,
                                   const merak_flash<T> &f, bool is_backward,
                                   struct merak_error *err)
{
    return is_backward ? backward<T, DP>(cx, f, err)
                       : forward<T, DP>(cx, f, err);
}

template <typename T>
static enum merak_status by_head(const struct merak_kernel_call *call,
                                 const struct merak_attention *at,
                                 bool is_backward, struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    merak_flash<T> f = view<T>(at, call->scratch);

    if (at->D <= 64)
        return run_flash<T, 64>(cx, f, is_backward, err);
    if (at->D <= 128)
        return run_flash<T, 128>(cx, f, is_backward, err);
    return run_flash<T, 256>(cx, f, is_backward, err);
}

static enum merak_status attend(const struct merak_kernel_call *call,
                                const struct merak_attention *at,
                                bool is_backward, struct merak_error *err)
{
    enum merak_status rc = check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    if (at->starts != nullptr) /* struct merak_backend.no_documents */
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the cuda backend's attention knows of no documents");
    if (at->D > MAX_HEAD)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "heads of %zu channels: the cuda backend's attention "
                          "has up to %d; use more heads",
                          at->D, MAX_HEAD);
    if (at->G * at->R > 65535 || at->B > 65535)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "attention of %zu samples with %zu heads: the cuda "
                          "backend has up to 65535 of each",
                          at->B, at->G * at->R);
    if (call->operand[0].dtype == MERAK_BF16)
        return by_head<merak_bf16>(call, at, is_backward, err);
    return by_head<float>(call, at, is_backward, err);
}

#define ATTENTION_KERNEL(op, view, is_backward)     \
    CUDA_KERNEL(op)                                 \
    {                                               \
        struct merak_attention at;                  \
                                                    \
        view(call, &at);                            \
        return attend(call, &at, is_backward, err); \
    }

ATTENTION_KERNEL(attention, merak_attention_view, false)
ATTENTION_KERNEL(attention_packed, merak_attention_packed_view, false)
ATTENTION_KERNEL(attention_dx, merak_attention_dx_view, true)
ATTENTION_KERNEL(attention_packed_dx, merak_attention_packed_dx_view, true)

/* delta has lse's shape. */
CUDA_SCRATCH(attention_dx)
{
    return merak_local_count(&call->operand[5]) * sizeof(float);
}

CUDA_SCRATCH(attention_packed_dx)
{
    return merak_local_count(&call->operand[3]) * sizeof(float);
}
