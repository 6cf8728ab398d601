/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_attention.cu - the forward of attention
 *
 * A block has 16 queries per warp and walks over the keys before them; a row's
 * maximum and sum are corrected when larger scores occur.
 */
#include "config.h"

#include "kernels/cuda/cuda_attention.cuh"

/* --- forward ---------------------------------------------------------------
 */

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

/* Set products of queries with keys that they do not see to -infinity, and so
 * their scores. */
template <typename F, int NT>
static __device__ __forceinline__ void
hide(const F &f, float (&s)[NT][4], const uint32_t *seen_from, size_t query,
     size_t key)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int row = g + c / 2 * 8;
            size_t j = key + n * 8 + 2 * t + c % 2;

            if (j > query + row || j < seen_from[row] || j >= f.T_)
                s[n][c] = -INFINITY;
        }
    }
}

/* Turn products of 16 queries from `query` on with NT * 8 keys from `key` on
 * into probabilities relative to the row's new maximum, with dropout.
 * seen_from: by query, the first key that it sees. */
template <typename T, typename F, int NT, int ND>
static __device__ __forceinline__ void
soften(const F &f, const merak_mask &mask, float (&s)[NT][4],
       float (&o)[ND][4], float (&max)[2], float (&sum)[2],
       const uint32_t *seen_from, size_t query, size_t key)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    bool open = is_open(f, query, TILE_ROWS, key, NT * 8,
                        seen_from[TILE_ROWS - 1]);

    if (F::PLAIN && !open)
        hide(f, s, seen_from, query, key);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        size_t i = query + g + half * 8;
        uint32_t first = seen_from[g + half * 8];
        float top = -INFINITY, base, part = 0, correction;

#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                size_t j = key + n * 8 + 2 * t + c;
                float x = score(f, s[n][half * 2 + c]);

                if (!F::PLAIN)
                    x = j <= i && j >= first && j < f.T_ ? x : -INFINITY;
                s[n][half * 2 + c] = x;
                top = fmaxf(top, x);
            }
        }
        top = fmaxf(max[half], quad_max(top));
        base = top == -INFINITY ? 0 : top; /* it sees no key so far */
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

/* Blocks are (tile of queries, head, sample), the longest rows first. */
template <typename T, int DP, bool PLAIN>
static __global__ void __launch_bounds__(merak_tiling<T, DP>::THREADS)
    flash_forward(const __grid_constant__ merak_flash<T, PLAIN> f)
{
    typedef merak_tiling<T, DP> tiling;
    MERAK_SHARED(uint32_t, seen_from, [tiling::ROWS]);
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
    for (int i = threadIdx.x; i < tiling::ROWS; i += tiling::THREADS)
        seen_from[i] = (uint32_t)first_key(f, b, from + i);
    for (size_t j = first_key(f, b, from) / tiling::COLUMNS * tiling::COLUMNS;
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
        soften<T>(f, mask, s, o, max, sum, seen_from + mine,
               from + mine,
               j);
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

/* --- calls -----------------------------------------------------------------
 */

struct forward {
    template <typename T, int DP, bool PLAIN>
    static enum merak_status run(const struct merak_cuda_context *cx,
                                 const merak_flash<T, PLAIN> &f,
                                 struct merak_error *err)
    {
        return launch(cx,
                      tile_launch<T, DP>(f.T_ - f.first, f.H, f.B,
                                         merak_tiling<T, DP>::bytes(1, 2)),
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
