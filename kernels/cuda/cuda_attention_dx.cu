/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_attention_dx.cu - the backward of attention
 *
 * Scores are recomputed from lse twice: by blocks of keys, which sum dk and dv
 * over the queries that see them, and by blocks of queries for dq.  That takes
 * seven products instead of five, but no two blocks add to one number, so that
 * results are the same bit for bit.
 */
#include "config.h"

#include "kernels/cuda/cuda_attention.cuh"

/* --- backward --------------------------------------------------------------
 */

/* What the two passes need of a query: delta = do . o, by LANES lanes, and lse
 * times LOG_E, both by head, so that a tile's queries are neighbors. */
template <typename T, bool PLAIN, int LANES>
static __global__ void __launch_bounds__(ROW_BLOCK)
    flash_delta(const __grid_constant__ merak_flash<T, PLAIN> f)
{
    constexpr int N = merak_piece<T>::N;
    size_t row = grid_thread() / LANES, Tq = f.end - f.first;
    size_t t = f.first + row % Tq, h = row / Tq % f.H, b = row / Tq / f.H;
    bool there = row < f.B * Tq * f.H;
    const T *o = nullptr, *d_o = nullptr;
    float sum = 0;

    if (there) {
        o = head_at(f.o_in, b, t, h);
        d_o = head_at(f.d_o, b, t, h);
    }
    for (int d = threadIdx.x % LANES * N; there && d < f.o_in.D; d += LANES * N) {
        float x[N], y[N];

        read(o + d, f.o_in.D - d, f.whole, x);
        read(d_o + d, f.o_in.D - d, f.whole, y);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += x[i] * y[i];
    }
#pragma unroll
    for (int d = LANES / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, d);
    if (there && threadIdx.x % LANES == 0) {
        f.delta[row] = sum;
        f.scaled_lse[row] =
            f.lse[lse_at(f, b, t, h)] * merak_exp_base<T>::LOG_E;
    }
}

/* The factor from a score's gradient to that of q . k, without scale; p is
 * exp(score - lse). */
template <typename T, typename F>
static __device__ __forceinline__ float score_slope(const F &f, float p,
                                                    float scaled_lse)
{
    float t;

    if (F::PLAIN || !(f.cap > 0))
        return 1;
    if (!(p > 0))
        return 0; /* the gradient is 0, too */
    t = (scaled_lse * (1 / merak_exp_base<T>::LOG_E) + logf(p)) * f.inverse_cap;
    return 1.0f - t * t;
}

/* Rows of a warp as a left operand of products; KT > 0: held in registers, as
 * 16 KT channels. */
template <typename T, int MT, int KT> struct merak_flash_rows {
    merak_left_held<MT, KT> left;

    __device__ __forceinline__ void take(const T *rows, int ld)
    {
        hold(left, merak_left<T>{rows, ld});
    }
};

template <typename T, int MT> struct merak_flash_rows<T, MT, 0> {
    merak_left<T> left;

    __device__ __forceinline__ void take(const T *rows, int ld)
    {
        left = {rows, ld};
    }
};

/* Fewer where rows are long, so that most GPUs have the shared memory. */
template <typename T, int DP> constexpr int flash_dx_warps()
{
    return DP > 128 || (sizeof(T) == 4 && DP > 64) ? 2 : 4;
}

/* HOLD: pieces of 16 channels of rows in registers; SUB: columns at once. */
template <typename T, int DP, bool PLAIN>
struct merak_backward_tiling
    : merak_tiling<T, DP, flash_dx_warps<T, DP>(), (PLAIN && DP == 64 ? 2 : 1),
                   (DP > 64 ? 32 : 64), (sizeof(T) == 2 && DP <= 128 ? 2 : 1)> {
    static constexpr int HOLD = sizeof(T) == 2 && DP == 64 ? DP / 16 : 0;
    static constexpr int SUB = PLAIN && DP == 64 ? 16 : 32;
    static constexpr int BLOCKS = PLAIN && DP == 64 ? 2 : 1;
};

/* --- dq --------------------------------------------------------------------
 */

/* Turn products of 16 queries with NT * 8 keys from `key` on, and of their
 * gradients with values, into gradients of scores, without scale. */
template <typename T, typename F, int NT>
static __device__ __forceinline__ void
slope_of_queries(const F &f, const merak_sample_keys &of,
                 const merak_mask &mask, float (&s)[NT][4],
                 const float (&dp)[NT][4], unsigned query, unsigned key,
                 const float (&scaled_lse)[2], const float (&delta)[2],
                 const unsigned (&seen_from)[2], bool open)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned row = query + g + i / 2 * 8,
                     j = key + n * 8 + 2 * t + i % 2;
            float p = softmax_exp<T>(score<T>(f, mask, s[n][i], row, j) -
                                     scaled_lse[i / 2]);

            s[n][i] = p * (kept(f, mask, row, j) * dp[n][i] - delta[i / 2]) *
                      score_slope<T>(f, p, scaled_lse[i / 2]);
        }
    }
    if (!open)
        hide(f, of, s, query, key, seen_from, 0);
}

/* dq of a tile of queries; blocks as in the forward. */
template <typename T, int DP, int D, int E, bool PLAIN>
static __global__ void
__launch_bounds__(merak_backward_tiling<T, DP, PLAIN>::THREADS,
                  merak_backward_tiling<T, DP, PLAIN>::BLOCKS)
    flash_dq(const __grid_constant__ merak_flash<T, PLAIN> f)
{
    typedef merak_backward_tiling<T, DP, PLAIN> tiling;
    constexpr int MT = tiling::MT, LD = tiling::LD, SUB = tiling::SUB;
    T *q = static_cast<T *>(dynamic_shared()), *room = room_of<tiling>(q, 2);
    T *d_o = q + tiling::ROWS * LD;
    const merak_query_walk<tiling, DP, T, merak_flash<T, PLAIN>> walk(f, q, 2);
    merak_flash_rows<T, MT, tiling::HOLD> my_q = {}, my_d_o = {};
    float dq[MT][D / 8][4] = {}, scaled_lse[MT][2] = {}, delta[MT][2] = {};
    const float scale[2] = {f.scale, f.scale};
    unsigned seen_from[MT][2];
    const merak_mask mask = mask_of(f, walk.b, walk.h);
    float *sums = behind_tiles<tiling>(q, 2);

    if (mask.bias != nullptr)
        clear_buckets(f.lags, sums);
    walk.load_queries(q, f.q);
    walk.load_queries(d_o, f.d_o);
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned row =
                walk.mine + m * TILE_ROWS + threadIdx.x % WARP / 4 + half * 8;

            seen_from[m][half] = first_key(f, walk.b, row);
            if (row < walk.end) {
                scaled_lse[m][half] =
                    f.scaled_lse[head_row_at(f, walk.b, row, walk.h)];
                delta[m][half] = f.delta[head_row_at(f, walk.b, row, walk.h)];
            }
        }
    }
    for (unsigned i = 0; i < walk.tiles + tiling::STAGES - 1; i++) {
        unsigned at = i - (tiling::STAGES - 1);
        unsigned j = walk.key0 + at * tiling::COLUMNS;
        const T *kt = column_tile<tiling>(q, 2, at, 0);
        const T *vt = column_tile<tiling>(q, 2, at, 1);
        bool there = next_columns<tiling>(i, walk.tiles, walk);

        if (i == 0) {
            copies_wait();
            __syncthreads();
            my_q.take(q + (walk.mine - walk.from) * LD, LD);
            my_d_o.take(d_o + (walk.mine - walk.from) * LD, LD);
        }
        if (!there)
            continue;
#pragma unroll 1
        for (int c = 0; c < tiling::COLUMNS; c += SUB) {
            float s[MT][SUB / 8][4] = {}, dp[MT][SUB / 8][4] = {};

            if (j + c >= walk.warp_end)
                break; /* none of this warp's queries sees them */
            tile_product<D, RIGHT_BY_COLUMN>(s, my_q.left, kt + c * LD, LD);
            tile_product<E, RIGHT_BY_COLUMN>(dp, my_d_o.left, vt + c * LD, LD);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                unsigned query = walk.mine + m * TILE_ROWS;

                slope_of_queries<T>(
                    f, walk.of, mask, s[m], dp[m], query, j + c, scaled_lse[m],
                    delta[m], seen_from[m],
                    is_open(f, walk.of, query, j + c, SUB, walk.last_from));
                if (mask.bias != nullptr)
                    add_buckets(f.lags, sums, s[m], query,
                                clamp_rows(query, walk.end, TILE_ROWS), j + c);
            }
            chain_product<RIGHT_BY_ROW>(dq, s, room, tiling::PLD, kt + c * LD,
                                        LD);
        }
    }
    copies_wait(); /* of rows that see no key */
#pragma unroll
    for (int m = 0; m < MT; m++) {
        unsigned query = walk.mine + m * TILE_ROWS;
        int rows = clamp_rows(query, walk.end, TILE_ROWS);

        if (rows > 0)
            store_rows(dq[m], head_at(f.dq, walk.b, query, walk.h), f.dq.row,
                       rows, f.dq.D, scale, f.whole, false);
    }
    if (mask.bias != nullptr)
        store_buckets(f.lags, sums,
                      f.lags.parts + ((walk.b * f.H + walk.h) * gridDim.x +
                                      gridDim.x - 1 - blockIdx.x) *
                                         f.lags.N);
}

/* --- dk, dv ----------------------------------------------------------------
 */

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

/* One past the last query from `start` on that sees a key before `end`; only
 * documents, not windows, need a search. */
template <typename F>
static __device__ __forceinline__ unsigned
last_query(const F &f, size_t b, unsigned start, unsigned end)
{
    unsigned all = f.end;
    unsigned stop =
        end <= all && f.window < all - (end - 1) ? end - 1 + f.window : all;

    while (f.starts != nullptr && start < stop) {
        unsigned middle = start + (stop - start) / 2;

        if (first_key(f, b, middle) < end)
            start = middle + 1;
        else
            stop = middle;
    }
    return stop;
}

/* The first query from f.first on that sees key `key`, or f.end. */
template <typename F>
static __device__ __forceinline__ unsigned
first_query(const F &f, const merak_sample_keys &of, unsigned key)
{
    unsigned query = key > f.after ? key - f.after : 0;

    if (key >= of.keys)
        return f.end;
    return key < of.prefix || query < f.first ? f.first : query;
}

/* What a tile of queries has beside its rows, one for each. */
template <typename tiling> struct merak_query_tile {
    float scaled_lse[tiling::COLUMNS], delta[tiling::COLUMNS];
    uint32_t seen_from[tiling::COLUMNS]; /* the first key that it sees */
};

/* Turn products of 16 keys from `key` on with NT * 8 queries, columns
 * [first, first + NT * 8) of a tile that begins with query i0, into
 * probabilities; sets the bits of those that are dropped. */
template <typename T, typename F, typename Q, int NT>
static __device__ __forceinline__ void
probabilities(const F &f, const merak_sample_keys &of, const merak_mask &mask,
              float (&s)[NT][4], const Q &tile, int first, unsigned i0,
              unsigned key, bool open, uint32_t &dropped)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = first + n * 8 + 2 * t + i % 2;
            unsigned query = i0 + column, row = key + g + i / 2 * 8;

            s[n][i] = softmax_exp<T>(score<T>(f, mask, s[n][i], query, row) -
                                     tile.scaled_lse[column]);
            if (!F::PLAIN && kept(f, mask, query, row) == 0)
                dropped |= 1u << (n * 4 + i);
        }
    }
    if (open)
        return;
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const uint32_t *from = &tile.seen_from[first + n * 8 + 2 * t];
        const unsigned seen_from[2] = {from[0], from[1]};
        const unsigned column = i0 + first + n * 8 + 2 * t;
        const unsigned seen_to[2] = {end_key(f, of, column),
                                     end_key(f, of, column + 1)};

#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned row = key + g + i / 2 * 8;

            if ((row >= seen_to[i % 2]) | (row < seen_from[i % 2]) |
                (column + i % 2 >= f.end))
                s[n][i] = 0;
        }
    }
}

/* dk and dv of a tile of keys; scores are transposed, with one row per key. */
template <typename T, int DP, int D, int E, bool PLAIN, merak_which WHICH>
static __global__ void
__launch_bounds__(merak_backward_tiling<T, DP, PLAIN>::THREADS,
                  merak_backward_tiling<T, DP, PLAIN>::BLOCKS)
    flash_dkv(const __grid_constant__ merak_flash<T, PLAIN> f)
{
    typedef merak_backward_tiling<T, DP, PLAIN> tiling;
    constexpr bool DK = WHICH != WHICH_DV, DV = WHICH != WHICH_DK;
    constexpr int MT = tiling::MT, LD = tiling::LD, SUB = tiling::SUB;
    constexpr int COLUMNS = tiling::COLUMNS, THREADS = tiling::THREADS;
    MERAK_SHARED(merak_query_tile<tiling>, beside, [tiling::STAGES]);
    size_t group = blockIdx.y, b = blockIdx.z;
    unsigned from = blockIdx.x * tiling::ROWS;
    unsigned end = from + clamp_rows(from, f.T_, tiling::ROWS);
    unsigned mine = from + threadIdx.x / WARP * tiling::WARP_ROWS;
    const merak_sample_keys of = keys_of(f, b);
    int keys = clamp_rows(from, of.keys, tiling::ROWS); /* that are read */
    unsigned start = first_query(f, of, from);
    unsigned stop = last_query(f, b, start, end);
    unsigned per_head =
        stop > start ? (stop - start + COLUMNS - 1) / COLUMNS : 0;
    unsigned tiles = per_head * (unsigned)f.R;
    T *k = static_cast<T *>(dynamic_shared()), *room = room_of<tiling>(k, 2);
    T *v = k + tiling::ROWS * LD;
    merak_flash_rows<T, MT, tiling::HOLD> my_k = {};
    /* there are no registers left to hold it */
    const merak_left<T> my_v = {v + (mine - from) * LD, LD};
    float dk[MT][DK ? D / 8 : 2][4] = {}, dv[MT][DV ? E / 8 : 2][4] = {};
    const float one[2] = {1, 1}, scale[2] = {f.scale, f.scale};
    /* what is used, and what is loaded next */
    unsigned i0 = start, next_i0 = start;
    size_t head = group * f.R, next_head = head;
    auto load = [&](unsigned, unsigned stage) {
        int queries = clamp_rows(next_i0, f.end, COLUMNS), c = threadIdx.x;
        merak_query_tile<tiling> &tile = beside[stage];

        load_tile<COLUMNS, DP, THREADS>(column_tile<tiling>(k, 2, stage, 0),
                                        head_at(f.q, b, next_i0, next_head),
                                        f.q.row, queries, f.q.D, f.whole);
        load_tile<COLUMNS, DP, THREADS>(
            column_tile<tiling>(k, 2, stage, 1),
            head_at(f.d_o, b, next_i0, next_head), f.d_o.row, queries, f.d_o.D,
            f.whole);
        if (c < COLUMNS) {
            size_t at = head_row_at(f, b, next_i0, next_head) + c;

            copy_4(&tile.scaled_lse[c], &f.scaled_lse[at], c < queries);
            copy_4(&tile.delta[c], &f.delta[at], c < queries);
            tile.seen_from[c] = first_key(f, b, next_i0 + c);
        }
        next_i0 += COLUMNS;
        if (next_i0 >= stop) {
            next_i0 = start;
            next_head++;
        }
    };

    load_tile<tiling::ROWS, DP, THREADS>(k, head_at(f.k, b, from, group),
                                         f.k.row, keys, f.k.D, f.whole);
    load_tile<tiling::ROWS, DP, THREADS>(v, head_at(f.v, b, from, group),
                                         f.v.row, keys, f.v.D, f.whole);
    for (unsigned i = 0; i < tiles + tiling::STAGES - 1; i++) {
        unsigned at = i - (tiling::STAGES - 1);
        const merak_query_tile<tiling> &tile = beside[at % tiling::STAGES];
        const T *q = column_tile<tiling>(k, 2, at, 0);
        const T *d_o = column_tile<tiling>(k, 2, at, 1);
        const merak_mask mask = mask_of(f, b, head);
        bool there = next_columns<tiling>(i, tiles, load);

        if (i == 0) {
            copies_wait();
            __syncthreads();
            my_k.take(k + (mine - from) * LD, LD);
        }
        if (!there)
            continue;
#pragma unroll 1
        for (int c = 0; c < COLUMNS; c += SUB) {
            uint32_t dropped[MT] = {};
            float s[MT][SUB / 8][4] = {}, dp[MT][SUB / 8][4] = {};

            if (end_key(f, of, i0 + c + SUB - 1) <= mine)
                continue; /* they see none of this warp's keys */
            tile_product<D, RIGHT_BY_COLUMN>(s, my_k.left, q + c * LD, LD);
            if constexpr (DK)
                tile_product<E, RIGHT_BY_COLUMN>(dp, my_v, d_o + c * LD, LD);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                unsigned key = mine + m * TILE_ROWS;

                probabilities<T>(f, of, mask, s[m], tile, c, i0, key,
                                 is_open(f, of, i0 + c, key, TILE_ROWS,
                                         tile.seen_from[c + SUB - 1]),
                                 dropped[m]);
            }
            if constexpr (DV) {
                float p[MT][SUB / 8][4];

#pragma unroll
                for (int m = 0; m < MT; m++) {
#pragma unroll
                    for (int n = 0; n < SUB / 8; n++) {
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            p[m][n][e] =
                                s[m][n][e] * factor(f, dropped[m], n * 4 + e);
                    }
                }
                chain_product<RIGHT_BY_ROW>(dv, p, room, tiling::PLD,
                                            d_o + c * LD, LD);
            }
            if constexpr (DK) {
#pragma unroll
                for (int m = 0; m < MT; m++) {
#pragma unroll
                    for (int n = 0; n < SUB / 8; n++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            int column =
                                c + n * 8 + 2 * (threadIdx.x % 4) + e % 2;

                            s[m][n][e] *=
                                (factor(f, dropped[m], n * 4 + e) *
                                     dp[m][n][e] -
                                 tile.delta[column]) *
                                score_slope<T>(f, s[m][n][e],
                                               tile.scaled_lse[column]);
                        }
                    }
                }
                chain_product<RIGHT_BY_ROW>(dk, s, room, tiling::PLD,
                                            q + c * LD, LD);
            }
        }
        i0 += COLUMNS;
        if (i0 >= stop) {
            i0 = start;
            head++;
        }
    }
    copies_wait(); /* of rows that no query sees */
#pragma unroll
    for (int m = 0; m < MT; m++) {
        unsigned key = mine + m * TILE_ROWS;
        int rows = clamp_rows(key, end, TILE_ROWS);

        if (rows > 0 && DK)
            store_rows(dk[m], head_at(f.dk, b, key, group), f.dk.row, rows,
                       f.dk.D, scale, f.whole, f.accumulate);
        if (rows > 0 && DV)
            store_rows(dv[m], head_at(f.dv, b, key, group), f.dv.row, rows,
                       f.dv.D, one, f.whole, f.accumulate);
    }
}

/* --- calls -----------------------------------------------------------------
 */

template <int LANES, typename T, bool PLAIN>
static enum merak_status launch_delta(const struct merak_cuda_context *cx,
                                      const merak_flash<T, PLAIN> &f,
                                      struct merak_error *err)
{
    return launch(
        cx, row_launch("attention_dx", f.B * (f.end - f.first) * f.H, LANES),
        err, flash_delta<T, PLAIN, LANES>, f);
}

struct backward {
    template <typename T, int DP, int D, int E, bool PLAIN>
    static enum merak_status run(const struct merak_cuda_context *cx,
                                 const merak_flash<T, PLAIN> &f,
                                 struct merak_error *err)
    {
        merak_launch queries = tile_launch<merak_backward_tiling<T, DP, PLAIN>>(
            f.end - f.first, f.H, f.B, 2);
        merak_launch keys = tile_launch<merak_backward_tiling<T, DP, PLAIN>>(
            f.T_, f.H / f.R, f.B, 2);
        enum merak_status rc = launch_delta<(DP == 64 ? 8 : 16)>(cx, f, err);
        bool biased = f.lags.bias != nullptr;

        static_assert(merak_backward_tiling<T, DP, PLAIN>::ROWS >= LEAST_TILE,
                      "scratch has a part of each tile");
        if (biased)
            queries.shared_bytes += f.lags.N * queries.block.x * sizeof(float);
        if (rc == MERAK_OK)
            rc = launch(cx, queries, err, flash_dq<T, DP, D, E, PLAIN>, f);
        if (rc == MERAK_OK && biased)
            rc = launch(cx, map_launch("attention_dx", f.B * f.lags.N * f.H),
                        err, sum_parts<float>, f.lags, f.B, f.H,
                        queries.grid.x, f.accumulate);
        if (rc != MERAK_OK)
            return rc;
        if constexpr (DP <= 128) {
            return launch(cx, keys, err,
                          flash_dkv<T, DP, D, E, PLAIN, WHICH_BOTH>, f);
        } else {
            rc = launch(cx, keys, err, flash_dkv<T, DP, D, E, PLAIN, WHICH_DK>,
                        f);
            if (rc != MERAK_OK)
                return rc;
            return launch(cx, keys, err,
                          flash_dkv<T, DP, D, E, PLAIN, WHICH_DV>, f);
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

CUDA_KERNEL(attention_biased_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return attend<backward>(call, &at, err);
}

CUDA_SCRATCH(attention_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return pieces_scratch(&at, own_scratch(&at));
}

CUDA_SCRATCH(attention_packed_dx)
{
    struct merak_attention at;

    merak_attention_packed_dx_view(call, &at);
    return pieces_scratch(&at, own_scratch(&at));
}

CUDA_SCRATCH(attention_biased_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return pieces_scratch(&at, own_scratch(&at));
}
