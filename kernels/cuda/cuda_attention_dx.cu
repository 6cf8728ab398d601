/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_attention_dx.cu - the backward of attention
 *
 * Scores are recomputed from lse twice: by blocks of keys, which sum dk and dv
 * over the queries after them, and by blocks of queries for dq.  That takes
 * seven products instead of five, but no two blocks add to one number, so that
 * results are the same bit for bit.
 */
#include "config.h"

#include "kernels/cuda/cuda_attention.cuh"

/* --- backward --------------------------------------------------------------
 */

/* delta = do . o of every query, one per warp. */
template <typename T, bool PLAIN>
static __global__ void __launch_bounds__(ROW_BLOCK)
    flash_delta(const __grid_constant__ merak_flash<T, PLAIN> f)
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

/* The factor from a score's gradient to that of q . k; p is
 * exp(score - lse). */
template <typename F>
static __device__ __forceinline__ float score_slope(const F &f, float p,
                                                    float lse)
{
    float t;

    if (F::PLAIN || !(f.cap > 0))
        return f.scale;
    if (!(p > 0))
        return 0; /* the gradient is 0, too */
    t = (lse + logf(p)) * f.inverse_cap;
    return f.scale * (1.0f - t * t);
}

/* dq of a tile of queries. */
template <typename T, int DP, bool PLAIN>
static __global__ void __launch_bounds__(merak_tiling<T, DP>::THREADS, 1)
    flash_dq(const __grid_constant__ merak_flash<T, PLAIN> f)
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
    const uint32_t first[2] = {
        (uint32_t)first_key(f, b, from + mine + g),
        (uint32_t)first_key(f, b, from + mine + g + 8)};
    const size_t first_of_last = first_key(f, b, from + mine + TILE_ROWS - 1);
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
    for (size_t j = first_key(f, b, from) / tiling::COLUMNS * tiling::COLUMNS;
         j < end; j += tiling::COLUMNS) {
        int keys = clamp_rows(j, f.T_, tiling::COLUMNS);
        bool open = is_open(f, from + mine, TILE_ROWS, j, tiling::COLUMNS,
                            first_of_last);
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
                float x = attention_exp<T>(score(f, s[n][i]) - lse[i / 2]);

                s[n][i] =
                    x * (kept(f, mask, query, key) * dp[n][i] - delta[i / 2]) *
                    score_slope(f, x, lse[i / 2]);
                if (!open && (key > query || key < first[i / 2] || key >= f.T_))
                    s[n][i] = 0;
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

/* Which of dk and dv a launch computes: with heads above 128 channels there are
 * not enough registers for both. */
enum merak_which { WHICH_BOTH, WHICH_DK, WHICH_DV };

/* Factor of a probability; bit `bit` of `dropped` is set if it is dropped. */
template <typename F>
static __device__ __forceinline__ float factor(const F &f, uint32_t dropped,
                                               int bit)
{
    if (F::PLAIN || !f.drops)
        return 1;
    return dropped >> bit & 1 ? 0.0f : f.drop.scale;
}

/* A warp holds dk and dv of its keys, so fewer columns. */
template <typename T, int DP>
using merak_key_tiling = merak_tiling<T, DP, (DP > 64 ? 32 : 64)>;

/* One past the last query from `start` on that sees a key before `end`; only
 * documents, not windows, need a search. */
template <typename F>
static __device__ __forceinline__ size_t last_query(const F &f, size_t b,
                                                    size_t start, size_t end)
{
    size_t stop = f.window < f.T_ - (end - 1) ? end - 1 + f.window : f.T_;

    while (f.starts != nullptr && start < stop) {
        size_t middle = start + (stop - start) / 2;

        if (first_key(f, b, middle) < end)
            start = middle + 1;
        else
            stop = middle;
    }
    return stop;
}

/* Three blocks of 168 registers a thread fit a multiprocessor; for sm_100 they
 * do not without spills. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define KEY_TILE_BLOCKS 2
#else
#define KEY_TILE_BLOCKS 3
#endif

/* dk and dv of a tile of keys; scores are transposed, with one row per key. */
template <typename T, int DP, bool PLAIN, merak_which WHICH>
static __global__ void __launch_bounds__(merak_key_tiling<T, DP>::THREADS,
                                         (PLAIN && DP == 64 ? KEY_TILE_BLOCKS
                                                            : 1))
    flash_dkv(const __grid_constant__ merak_flash<T, PLAIN> f)
{
    typedef merak_key_tiling<T, DP> tiling;
    constexpr bool DK = WHICH != WHICH_DV, DV = WHICH != WHICH_DK;
    MERAK_SHARED(float, lse, [tiling::COLUMNS]);
    MERAK_SHARED(float, delta, [tiling::COLUMNS]);
    MERAK_SHARED(uint32_t, seen_from, [tiling::COLUMNS]); /* key */
    size_t group = blockIdx.y, b = blockIdx.z;
    size_t from = (size_t)blockIdx.x * tiling::ROWS;
    size_t end = from + tiling::ROWS < f.T_ ? from + tiling::ROWS : f.T_;
    size_t start = from > f.first ? from : f.first;
    size_t stop = last_query(f, b, start, end);
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
            uint32_t dropped = 0; /* one bit for each element of s */
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
                seen_from[i] = (uint32_t)first_key(f, b, i0 + i);
            }
            __syncthreads();
            tile_product<DP, RIGHT_BY_COLUMN>(s, k + mine * tiling::LD,
                                              tiling::LD, q, tiling::LD);
#pragma unroll
            for (int n = 0; n < tiling::NT; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int column = n * 8 + 2 * t + i % 2;
                    uint32_t key = (uint32_t)from + mine + g + i / 2 * 8;
                    bool seen = key <= (uint32_t)i0 + column &&
                                key >= seen_from[column] && column < queries;
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

struct backward {
    template <typename T, int DP, bool PLAIN>
    static enum merak_status run(const struct merak_cuda_context *cx,
                                 const merak_flash<T, PLAIN> &f,
                                 struct merak_error *err)
    {
        size_t bytes = merak_tiling<T, DP>::bytes(2, 2), Tq = f.T_ - f.first;
        merak_launch keys = tile_launch<T, DP>(
            f.T_, f.H / f.R, f.B, merak_key_tiling<T, DP>::bytes(2, 2));
        enum merak_status rc;

        rc = launch(cx, row_launch("attention_dx", f.B * Tq * f.H, WARP), err,
                    flash_delta<T, PLAIN>, f);
        if (rc == MERAK_OK)
            rc = launch(cx, tile_launch<T, DP>(Tq, f.H, f.B, bytes), err,
                        flash_dq<T, DP, PLAIN>, f);
        if (rc != MERAK_OK)
            return rc;
        if constexpr (DP <= 128) {
            return launch(cx, keys, err, flash_dkv<T, DP, PLAIN, WHICH_BOTH>,
                          f);
        } else {
            rc = launch(cx, keys, err, flash_dkv<T, DP, PLAIN, WHICH_DK>, f);
            if (rc != MERAK_OK)
                return rc;
            return launch(cx, keys, err, flash_dkv<T, DP, PLAIN, WHICH_DV>, f);
        }
    }
};

CUDA_KERNEL(attention_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return attend<backward>(call, &at, err);
}

CUDA_KERNEL(attention_packed_dx)
{
    struct merak_attention at;

    merak_attention_packed_dx_view(call, &at);
    return attend<backward>(call, &at, err);
}

/* delta has lse's shape. */
CUDA_SCRATCH(attention_dx)
{
    return merak_local_count(&call->operand[5]) * sizeof(float);
}

CUDA_SCRATCH(attention_packed_dx)
{
    return merak_local_count(&call->operand[3]) * sizeof(float);
}
