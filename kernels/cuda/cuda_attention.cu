/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_attention.cu - the forward of attention
 *
 * A block has tiles of queries, each warp some rows of them, and walks over
 * tiles of the keys before them; a row's maximum and sum are corrected when
 * larger scores occur.
 */
#include "config.h"

#include "kernels/cuda/cuda_attention.cuh"

/* --- forward ---------------------------------------------------------------
 */

template <typename T, int DP, bool PLAIN>
struct merak_forward_tiling
    : merak_tiling<T, DP, (sizeof(T) == 4 && DP > 128 ? 2 : 4),
                   (PLAIN && DP == 64 ? 2 : 1),
                   (DP > 128 || (sizeof(T) == 4 && DP > 64) ? 32 : 64),
                   (sizeof(T) == 2 && DP <= 128 ? 2 : 1)> {
    /* two of 255 registers a thread; no other tile leaves room for as many */
    static constexpr int BLOCKS = PLAIN && DP == 64 ? 2 : 1;
};

/* Sum over the four lanes that share rows. */
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

/* What a lane keeps of rows g and g + 8 of 16 queries. */
struct merak_soft_rows {
    unsigned query;        /* row 0 */
    unsigned seen_from[2]; /* the first key that the row sees */
    float max[2];          /* largest so far: product if PLAIN, else score */
    float sum[2];          /* this lane's, of powers relative to it */
};

/* Set scores of queries with keys that they do not see to -infinity. */
template <int NT>
static __device__ __forceinline__ void
hide(float (&s)[NT][4], const merak_soft_rows &r, unsigned key, unsigned end)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            unsigned j = key + n * 8 + 2 * t + c % 2;

            if ((j > r.query + g + c / 2 * 8) | (j < r.seen_from[c / 2]) |
                (j >= end))
                s[n][c] = -INFINITY;
        }
    }
}

/* Turn products of 16 queries with NT * 8 keys from `key` on into probabilities
 * relative to the row's new maximum, with dropout, and correct what o has. */
template <typename T, typename F, int NT, int ND>
static __device__ __forceinline__ void
soften(const F &f, const merak_mask &mask, float (&s)[NT][4], float (&o)[ND][4],
       merak_soft_rows &r, unsigned key, bool open)
{
    const float scale = F::PLAIN ? f.scale_units : 1;
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

    if (!F::PLAIN) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++)
                s[n][c] = score<T>(f, s[n][c]);
        }
    }
    if (!open)
        hide(s, r, key, f.T_);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        unsigned i = r.query + g + half * 8;
        float top = -INFINITY, base, correction, part = 0;

#pragma unroll
        for (int n = 0; n < NT; n++)
            top = fmaxf(top, fmaxf(s[n][half * 2], s[n][half * 2 + 1]));
        top = fmaxf(r.max[half], quad_max(top));
        base = top == -INFINITY ? 0 : top * scale; /* it sees no key so far */
        correction = power<T>(r.max[half] * scale - base);
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float p = power<T>(s[n][half * 2 + c] * scale - base);

                part += p;
                s[n][half * 2 + c] =
                    p * kept(f, mask, i, key + n * 8 + 2 * t + c);
            }
        }
        r.sum[half] = r.sum[half] * correction + part;
        r.max[half] = top;
#pragma unroll
        for (int n = 0; n < ND; n++) {
            o[n][half * 2] *= correction;
            o[n][half * 2 + 1] *= correction;
        }
    }
}

/* Store 16 rows and their lse. */
template <typename T, typename F, int ND>
static __device__ __forceinline__ void
finish(const F &f, const float (&o)[ND][4], const merak_soft_rows &r, size_t b,
       size_t h, int rows)
{
    int g = threadIdx.x % WARP / 4;
    float sum[2] = {quad_sum(r.sum[0]), quad_sum(r.sum[1])};
    const float scale[2] = {1.0f / sum[0], 1.0f / sum[1]};

    if (rows <= 0)
        return;
    store_rows(o, head_at(f, f.o, b, r.query, h), f.o.row, rows, f.D, scale,
               f.whole, false);
    if (threadIdx.x % 4 != 0)
        return;
    for (int half = 0; half < 2; half++) {
        /* scores are not in units of powers here */
        float max = F::PLAIN ? r.max[half] * f.scale
                             : r.max[half] * (1 / merak_power<T>::UNIT);

        if (g + half * 8 < rows)
            f.lse[lse_at(f, b, r.query + g + half * 8, h)] =
                max + logf(sum[half]);
    }
}

/* Blocks are (tile of queries, head, sample), the longest rows first. */
template <typename T, int DP, bool PLAIN>
static __global__ void
__launch_bounds__(merak_forward_tiling<T, DP, PLAIN>::THREADS,
                  merak_forward_tiling<T, DP, PLAIN>::BLOCKS)
    flash_forward(const __grid_constant__ merak_flash<T, PLAIN> f)
{
    typedef merak_forward_tiling<T, DP, PLAIN> tiling;
    constexpr int MT = tiling::MT, LD = tiling::LD, NT = tiling::COLUMNS / 8;
    size_t h = blockIdx.y, b = blockIdx.z;
    unsigned from = f.first + (gridDim.x - 1 - blockIdx.x) * tiling::ROWS;
    unsigned end = from + clamp_rows(from, f.T_, tiling::ROWS);
    unsigned mine = from + threadIdx.x / WARP * tiling::WARP_ROWS;
    unsigned key0 = first_key(f, b, from) / tiling::COLUMNS * tiling::COLUMNS;
    unsigned tiles = (end - key0 + tiling::COLUMNS - 1) / tiling::COLUMNS;
    unsigned last_from = first_key(f, b, mine + tiling::WARP_ROWS - 1);
    T *q = static_cast<T *>(dynamic_shared()), *room = room_of<tiling>(q, 1);
    const T *k = head_at(f, f.k, b, key0, h / f.R);
    const T *v = head_at(f, f.v, b, key0, h / f.R);
    merak_soft_rows r[MT];
    float o[MT][tiling::ND][4] = {};
    const merak_mask mask = mask_of(f, b, h);
    auto load = [&](unsigned i, unsigned stage) {
        unsigned j = key0 + i * tiling::COLUMNS;
        int keys = clamp_rows(j, f.T_, tiling::COLUMNS);

        load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
            column_tile<tiling>(q, 1, stage, 0), k + (j - key0) * f.k.row,
            f.k.row, keys, f.D, f.whole);
        load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
            column_tile<tiling>(q, 1, stage, 1), v + (j - key0) * f.v.row,
            f.v.row, keys, f.D, f.whole);
    };

#pragma unroll
    for (int m = 0; m < MT; m++) {
        r[m] = {mine + m * TILE_ROWS, {}, {-INFINITY, -INFINITY}, {}};
        for (int half = 0; half < 2; half++)
            r[m].seen_from[half] =
                first_key(f, b, r[m].query + threadIdx.x % WARP / 4 + half * 8);
    }
    load_tile<tiling::ROWS, DP, tiling::THREADS>(q, head_at(f, f.q, b, from, h),
                                                 f.q.row, (int)(end - from),
                                                 f.D, f.whole);
    for (unsigned i = 0; i < tiles + tiling::STAGES - 1; i++) {
        unsigned at = i - (tiling::STAGES - 1);
        unsigned j = key0 + at * tiling::COLUMNS;
        float s[MT][NT][4] = {};

        if (!next_columns<tiling>(i, tiles, load))
            continue;
        if (j >= mine + tiling::WARP_ROWS)
            continue; /* after all of this warp's queries */
        tile_product<DP, RIGHT_BY_COLUMN>(
            s, merak_left<T>{q + (mine - from) * LD, LD},
            column_tile<tiling>(q, 1, at, 0), LD);
#pragma unroll
        for (int m = 0; m < MT; m++)
            soften<T>(f, mask, s[m], o[m], r[m], j,
                      is_open(r[m].query, j, tiling::COLUMNS, last_from));
        chain_product<RIGHT_BY_ROW>(o, s, room, tiling::PLD,
                                    column_tile<tiling>(q, 1, at, 1), LD);
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
        finish<T>(f, o[m], r[m], b, h, clamp_rows(r[m].query, end, TILE_ROWS));
}

/* --- calls -----------------------------------------------------------------
 */

struct forward {
    template <typename T, int DP, bool PLAIN>
    static enum merak_status run(const struct merak_cuda_context *cx,
                                 const merak_flash<T, PLAIN> &f,
                                 struct merak_error *err)
    {
        return launch(cx,
                      tile_launch<merak_forward_tiling<T, DP, PLAIN>>(
                          f.T_ - f.first, f.H, f.B, 1),
                      err, flash_forward<T, DP, PLAIN>, f);
    }
};

CUDA_KERNEL(attention)
{
    struct merak_attention at;

    merak_attention_view(call, &at);
    return attend<forward>(call, &at, err);
}

CUDA_KERNEL(attention_packed)
{
    struct merak_attention at;

    merak_attention_packed_view(call, &at);
    return attend<forward>(call, &at, err);
}
