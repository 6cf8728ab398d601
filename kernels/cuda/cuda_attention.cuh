/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_attention.cuh - causal attention by tiles: common code of
 * forward and backward
 *
 * The equations are in ref/ref_attention.c.  Queries, keys and scores are tiles
 * in registers and shared memory (cuda_tiles.cuh), never whole matrices
 * (Dao 2023, arXiv:2307.08691).
 *
 * bf16: probabilities and gradients of scores are rounded to bf16 before they
 * are multiplied, as tensor cores need them; all sums are f32.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_ATTENTION_CUH
#define MERAK_KERNELS_CUDA_CUDA_ATTENTION_CUH

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

/* PLAIN: without dropout and cap, so that a kernel has no code or registers for
 * them. */
template <typename T, bool PLAIN_> struct merak_flash {
    static constexpr bool PLAIN = PLAIN_;
    size_t B, T_, H, R, first;
    size_t window; /* most keys that a query sees, its own being the last */
    int D;
    float scale, cap; /* scores are cap tanh(scale q . k / cap); cap 0: scale
                         q . k */
    float inverse_cap;
    bool whole, accumulate, drops;
    merak_drop drop;
    /* for dropout: this rank's first head among all heads, and the number of
     * positions */
    size_t group0, head0, full_R, full_T;
    merak_head_rows<const T> q, k, v, d_o, o_in;
    merak_head_rows<T> o, dq, dk, dv;
    float *lse, *delta;    /* [B, T - first, H] */
    const int32_t *starts; /* [B, T - first], starts of the queries' documents;
                              NULL: all 0 */
};

template <typename F, typename U>
static __device__ __forceinline__ U *head_at(const F &f,
                                             const merak_head_rows<U> &x,
                                             size_t b, size_t t, size_t h)
{
    return x.data + (b * f.T_ + t - x.t0) * x.row + h * f.D;
}

template <typename F>
static __device__ __forceinline__ size_t lse_at(const F &f, size_t b, size_t t,
                                                size_t h)
{
    return (b * f.T_ + t - f.first) * f.H + h;
}

/* --- scores ----------------------------------------------------------------
 */

template <typename F>
static __device__ __forceinline__ float score(const F &f, float product)
{
    float s = product * f.scale;

    return !F::PLAIN && f.cap > 0 ? f.cap * tanhf(s * f.inverse_cap) : s;
}

/* The first key that a query of a sample sees; it sees all from there up to its
 * own.  It never decreases for later queries. */
template <typename F>
static __device__ __forceinline__ size_t first_key(const F &f, size_t b,
                                                   size_t query)
{
    size_t first = query >= f.window ? query - f.window + 1 : 0, start = 0;

    if (f.starts != nullptr && query < f.T_)
        start =
            (size_t)f.starts[b * (f.T_ - f.first) + query - f.first];
    return first > start ? first : start;
}

/* The random stream for dropout of a head of a sample, and where key 0 begins
 * in it: merak_attention_element(). */
struct merak_mask {
    uint64_t key;
    size_t element;
};

template <typename F>
static __device__ __forceinline__ merak_mask mask_of(const F &f, size_t b,
                                                     size_t h)
{
    size_t head = (f.group0 + h / f.R) * f.full_R + f.head0 + h % f.R;
    size_t row = (f.full_T + 3) / 4 * 4;

    return merak_mask{!F::PLAIN && f.drops ? drop_key(f.drop, b) : 0,
                      head * f.full_T * row};
}

/* The factor of dropout for probability (query, key). */
template <typename F>
static __device__ __forceinline__ float kept(const F &f, const merak_mask &mask,
                                             size_t query, size_t key)
{
    size_t element;
    uint32_t word[4], mine;

    if (F::PLAIN || !f.drops)
        return 1;
    element = mask.element + key * ((f.full_T + 3) / 4 * 4) + query;
    philox(mask.key, element / 4, word);
    mine = element % 4 < 2 ? (element % 4 == 0 ? word[0] : word[1])
                           : (element % 4 == 2 ? word[2] : word[3]);
    return is_kept(f.drop, mine) ? f.drop.scale : 0.0f;
}

/* Do all `rows` queries see all `columns` keys?  Most tiles do, and need no
 * mask.  seen_from: the first key that the last query sees.  Kernels that are
 * not PLAIN have no registers left for this test. */
template <typename F>
static __device__ __forceinline__ bool is_open(const F &f, size_t query,
                                               int rows, size_t key,
                                               int columns, size_t seen_from)
{
    return F::PLAIN && key + columns <= query + 1 && key >= seen_from &&
           query + rows <= f.T_;
}

/* --- tiles -----------------------------------------------------------------
 */

/* Columns that fit into registers and shared memory together with the rows. */
template <typename T> constexpr int flash_columns(int DP)
{
    return DP > 128 || (sizeof(T) == 4 && DP > 64) ? 32 : 64;
}

/* Tile sizes by dtype and padded head: rows of a block, divided among warps,
 * and columns, which they walk over. */
template <typename T, int DP, int COLS = flash_columns<T>(DP)>
struct merak_tiling {
    static constexpr int ROWS = sizeof(T) == 4 && DP > 128 ? 32 : 64;
    static constexpr int COLUMNS = COLS;
    static constexpr int THREADS = ROWS / TILE_ROWS * WARP;
    static constexpr int LD = tile_ld<T>(DP);
    static constexpr int NT = COLUMNS / 8; /* groups of 8 columns */
    static constexpr int ND = DP / 8;      /* groups of 8 channels */
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

static __device__ __forceinline__ int clamp_rows(size_t from, size_t end,
                                                 int most)
{
    size_t n = end > from ? end - from : 0;

    return n < (size_t)most ? (int)n : most;
}

/* Store up to 16 rows of channels, scaled; only `rows` of them exist. */
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

template <typename T, bool PLAIN>
static merak_flash<T, PLAIN> view(const struct merak_attention *at,
                                  void *scratch)
{
    merak_flash<T, PLAIN> f = {};

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
    if (at->lse->local.ndim == 4) { /* packed heads have no R */
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
    if (at->starts != nullptr)
        f.starts = static_cast<const int32_t *>(at->starts->data);
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

/* Do these kernels support the call? */
static enum merak_status check_attention(const struct merak_kernel_call *call,
                                         const struct merak_attention *at,
                                         struct merak_error *err)
{
    enum merak_status rc = check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
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
    return MERAK_OK;
}

template <typename direction, typename T, bool PLAIN>
static enum merak_status by_head(const struct merak_kernel_call *call,
                                 const struct merak_attention *at,
                                 struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    merak_flash<T, PLAIN> f = view<T, PLAIN>(at, call->scratch);

    if (at->D <= 64)
        return direction::template run<T, 64>(cx, f, err);
    if (at->D <= 128)
        return direction::template run<T, 128>(cx, f, err);
    return direction::template run<T, 256>(cx, f, err);
}

/* Run direction::run<T, DP>(), forward or backward, for the call's dtype and
 * the narrowest tiles that its heads fit into. */
template <typename direction>
static enum merak_status attend(const struct merak_kernel_call *call,
                                const struct merak_attention *at,
                                struct merak_error *err)
{
    enum merak_status rc = check_attention(call, at, err);

    if (rc != MERAK_OK)
        return rc;
    if (call->operand[0].dtype != MERAK_BF16)
        return by_head<direction, float, false>(call, at, err);
    return at->drop > 0 || at->cap > 0
               ? by_head<direction, merak_bf16, false>(call, at, err)
               : by_head<direction, merak_bf16, true>(call, at, err);
}

#endif
