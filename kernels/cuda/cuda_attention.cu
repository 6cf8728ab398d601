/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_attention.cu - the forward of attention
 *
 * A block has tiles of queries, each warp some rows of them, and walks over
 * tiles of the keys that they see; a row's maximum and sum are corrected when
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
struct merak_softmax_rows {
    unsigned query;        /* row 0 */
    unsigned seen_from[2]; /* the first key that the row sees */
    float max[2];          /* largest so far: product if PLAIN, else score */
    float sum[2];          /* this lane's, of exponentials relative to it */
};

/* A sink is one more score, which comes first; its exponential is in the sum of
 * one of the lanes that share a row.  Without, no key is seen yet. */
template <typename T, typename F>
static __device__ __forceinline__ void
start_rows(const F &f, size_t h, merak_softmax_rows &r)
{
    float max = -INFINITY, sum = 0;

    if (f.sinks != nullptr) {
        max = F::PLAIN ? f.sinks[h] / f.scale
                       : f.sinks[h] * merak_exp_base<T>::LOG_E;
        sum = threadIdx.x % 4 == 0 ? 1 : 0;
    }
    for (int half = 0; half < 2; half++) {
        r.max[half] = max;
        r.sum[half] = sum;
    }
}

/* Turn products of 16 queries with NT * 8 keys from `key` on into probabilities
 * relative to the row's new maximum, with dropout, and correct what o has. */
template <typename T, typename F, int NT, int ND>
static __device__ __forceinline__ void
soften(const F &f, const merak_sample_keys &of, const merak_mask &mask,
       float (&s)[NT][4], float (&o)[ND][4], merak_softmax_rows &r,
       unsigned key, bool open)
{
    const float scale = F::PLAIN ? f.exp_scale : 1;
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

    if (!F::PLAIN) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++)
                s[n][c] = score<T>(f, mask, s[n][c], r.query + g + c / 2 * 8,
                                   key + n * 8 + 2 * t + c % 2);
        }
    }
    if (!open)
        hide(f, of, s, r.query, key, r.seen_from, -INFINITY);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        unsigned i = r.query + g + half * 8;
        float top = -INFINITY, base, correction, part = 0;

#pragma unroll
        for (int n = 0; n < NT; n++)
            top = fmaxf(top, fmaxf(s[n][half * 2], s[n][half * 2 + 1]));
        top = fmaxf(r.max[half], quad_max(top));
        base = top == -INFINITY ? 0 : top * scale; /* it sees no key so far */
        correction = softmax_exp<T>(r.max[half] * scale - base);
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float p = softmax_exp<T>(s[n][half * 2 + c] * scale - base);

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
finish(const F &f, const float (&o)[ND][4], const merak_softmax_rows &r,
       size_t b, size_t h, int rows)
{
    int g = threadIdx.x % WARP / 4;
    float sum[2] = {quad_sum(r.sum[0]), quad_sum(r.sum[1])};
    /* 0: the query sees no key */
    const float scale[2] = {sum[0] > 0 ? 1.0f / sum[0] : 0,
                            sum[1] > 0 ? 1.0f / sum[1] : 0};

    if (rows <= 0)
        return;
    store_rows(o, head_at(f.o, b, r.query, h), f.o.row, rows, f.o.D, scale,
               f.whole, false);
    if (threadIdx.x % 4 != 0)
        return;
    for (int half = 0; half < 2; half++) {
        /* without LOG_E, as lse is stored */
        float max = F::PLAIN ? r.max[half] * f.scale
                             : r.max[half] * (1 / merak_exp_base<T>::LOG_E);

        if (g + half * 8 < rows)
            f.lse[lse_at(f, b, r.query + g + half * 8, h)] =
                max + logf(sum[half]);
    }
}

/* Blocks are (tile of queries, head, sample), the longest rows first. */
template <typename T, int DP, int D, int E, bool PLAIN>
static __global__ void
__launch_bounds__(merak_forward_tiling<T, DP, PLAIN>::THREADS,
                  merak_forward_tiling<T, DP, PLAIN>::BLOCKS)
    flash_forward(const __grid_constant__ merak_flash<T, PLAIN> f)
{
    typedef merak_forward_tiling<T, DP, PLAIN> tiling;
    constexpr int MT = tiling::MT, LD = tiling::LD, NT = tiling::COLUMNS / 8;
    T *q = static_cast<T *>(dynamic_shared()), *room = room_of<tiling>(q, 1);
    const merak_query_walk<tiling, DP, T, merak_flash<T, PLAIN>> walk(f, q, 1);
    merak_softmax_rows r[MT];
    float o[MT][E / 8][4] = {};
    const merak_mask mask = mask_of(f, walk.b, walk.h);

#pragma unroll
    for (int m = 0; m < MT; m++) {
        r[m].query = walk.mine + m * TILE_ROWS;
        start_rows<T>(f, walk.h, r[m]);
        for (int half = 0; half < 2; half++)
            r[m].seen_from[half] = first_key(
                f, walk.b, r[m].query + threadIdx.x % WARP / 4 + half * 8);
    }
    walk.load_queries(q, f.q);
    for (unsigned i = 0; i < walk.tiles + tiling::STAGES - 1; i++) {
        unsigned at = i - (tiling::STAGES - 1);
        unsigned j = walk.key0 + at * tiling::COLUMNS;
        float s[MT][NT][4] = {};

        if (!next_columns<tiling>(i, walk.tiles, walk))
            continue;
        if (j >= walk.warp_end)
            continue; /* none of this warp's queries sees them */
        tile_product<D, RIGHT_BY_COLUMN>(
            s, merak_left<T>{q + (walk.mine - walk.from) * LD, LD},
            column_tile<tiling>(q, 1, at, 0), LD);
#pragma unroll
        for (int m = 0; m < MT; m++)
            soften<T>(f, walk.of, mask, s[m], o[m], r[m], j,
                      is_open(f, walk.of, r[m].query, j, tiling::COLUMNS,
                              walk.last_from));
        chain_product<RIGHT_BY_ROW>(o, s, room, tiling::PLD,
                                    column_tile<tiling>(q, 1, at, 1), LD);
    }
    copies_wait(); /* of rows that see no key */
#pragma unroll
    for (int m = 0; m < MT; m++)
        finish<T>(f, o[m], r[m], walk.b, walk.h,
                  clamp_rows(r[m].query, walk.end, TILE_ROWS));
}

/* --- calls -----------------------------------------------------------------
 */

struct forward {
    template <typename T, int DP, int D, int E, bool PLAIN>
    static enum merak_status run(const struct merak_cuda_context *cx,
                                 const merak_flash<T, PLAIN> &f,
                                 struct merak_error *err)
    {
        return launch(cx,
                      tile_launch<merak_forward_tiling<T, DP, PLAIN>>(
                          f.end - f.first, f.H, f.B, 1),
                      err, flash_forward<T, DP, D, E, PLAIN>, f);
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

CUDA_KERNEL(attention_biased)
{
    struct merak_attention at;

    merak_attention_view(call, &at);
    return attend<forward>(call, &at, err);
}

CUDA_SCRATCH(attention)
{
    struct merak_attention at;

    merak_attention_view(call, &at);
    return pieces_scratch(&at, own_scratch(&at));
}

CUDA_SCRATCH(attention_packed)
{
    struct merak_attention at;

    merak_attention_packed_view(call, &at);
    return pieces_scratch(&at, own_scratch(&at));
}

CUDA_SCRATCH(attention_biased)
{
    struct merak_attention at;

    merak_attention_view(call, &at);
    return pieces_scratch(&at, own_scratch(&at));
}
