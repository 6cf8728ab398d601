/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_attention.cuh - attention by tiles: common code of
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
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_pieces.cuh"
#include "kernels/cuda/cuda_relative.cuh"
#include "kernels/cuda/cuda_scores.cuh"
#include "kernels/cuda/cuda_tiles.cuh"

#define MAX_HEAD 256 /* channels */

/* One of q, k, v, o or a gradient; struct merak_heads on the device. */
template <typename T> struct merak_head_rows {
    T *data;           /* with the offset */
    size_t row, t0, n; /* n: positions of a sample */
    int D;             /* channels of a head */
};

/* This rank's first head among all heads, and the number of queries and keys. */
struct merak_all_pairs {
    size_t group0, head0, R, queries, keys;
};

/* PLAIN: without dropout, cap and bias, so that a kernel has no code or
 * registers for them, and scale is positive: a row's largest product has the
 * largest score.
 */
template <typename T, bool PLAIN_> struct merak_flash {
    static constexpr bool PLAIN = PLAIN_;
    size_t B, H, R;
    unsigned T_;         /* keys */
    unsigned first, end; /* queries are positions first to end - 1 */
    size_t rows, row0;   /* of each sample in lse and starts; whose first one is
                            of position row0 */
    unsigned window;     /* most keys that a query sees up to its own .. */
    unsigned after;      /* and after it */
    float scale, cap; /* scores are cap tanh(scale q . k / cap); cap 0: scale
                         q . k */
    float inverse_cap;
    float exp_scale; /* scale times LOG_E */
    bool whole, accumulate, drops;
    merak_drop drop;
    merak_all_pairs all; /* for dropout */
    merak_head_rows<const T> q, k, v, d_o, o_in;
    merak_head_rows<T> o, dq, dk, dv;
    float *lse;        /* [B, rows, H] */
    float *scaled_lse; /* lse times LOG_E, and do . o, both [B, H, end - first];
                          scratch of the backward */
    float *delta;
    const int32_t *starts; /* [B, rows], starts of the queries' documents; NULL:
                              all 0 */
    /* [B], the keys of each sample, and those that all its queries see; NULL:
     * T_, and none */
    const int32_t *lengths, *prefix;
    const float *sinks; /* [H], scores without a value; NULL: none */
    merak_lags lags;
};

template <typename U>
static __device__ __forceinline__ U *
head_at(const merak_head_rows<U> &x, size_t b, size_t t, size_t h)
{
    return x.data + (b * x.n + t - x.t0) * x.row + h * x.D;
}

template <typename F>
static __device__ __forceinline__ size_t lse_at(const F &f, size_t b, size_t t,
                                                size_t h)
{
    return (b * f.rows + t - f.row0) * f.H + h;
}

/* The same in scaled_lse and delta. */
template <typename F>
static __device__ __forceinline__ size_t head_row_at(const F &f, size_t b,
                                                     size_t t, size_t h)
{
    return (b * f.H + h) * (f.end - f.first) + t - f.first;
}

/* --- tiles -----------------------------------------------------------------
 */

/* Sizes of the tiles of a kernel: each of WARPS warps has 16 MT rows of the
 * block's, and all walk over tiles of COLS columns, of which STAGES are in
 * shared memory.  With two, one is loaded while the other is used. */
template <typename T, int DP, int WARPS, int MT_, int COLS, int STAGES_>
struct merak_tiling {
    static constexpr int MT = MT_, STAGES = STAGES_, COLUMNS = COLS;
    static constexpr int WARP_ROWS = TILE_ROWS * MT, ROWS = WARPS * WARP_ROWS;
    static constexpr int THREADS = WARPS * WARP;
    static constexpr int LD = tile_ld<T>(DP);
    /* of f32 scores, which go through shared memory (chain_product) */
    static constexpr int PLD = tile_ld<T>(COLUMNS);
    static constexpr int ROOM = sizeof(T) == 4 ? WARP_ROWS * PLD : 0;
    /* `rows` tiles of the block's rows and two of each stage's columns */
    static constexpr size_t bytes(int rows)
    {
        return sizeof(T) * ((size_t)(rows * ROWS + 2 * STAGES * COLUMNS) * LD +
                            (size_t)WARPS * ROOM);
    }
};

/* A stage's tile `i` of two, behind `rows` tiles of the block's rows. */
template <typename tiling, typename T>
static __device__ __forceinline__ T *column_tile(T *shared, int rows,
                                                 unsigned stage, int i)
{
    return shared + rows * tiling::ROWS * tiling::LD +
           (stage % tiling::STAGES * 2 + i) * tiling::COLUMNS * tiling::LD;
}

/* This warp's part of shared memory for f32 scores. */
template <typename tiling, typename T>
static __device__ __forceinline__ T *room_of(T *shared, int rows)
{
    return column_tile<tiling>(shared, rows, 0, 2 * tiling::STAGES) +
           threadIdx.x / WARP * tiling::ROOM;
}

/* Round i of a walk over n column tiles, n + STAGES - 1 rounds: load(i, stage)
 * starts to load tile i.  When this returns true, tile i - (STAGES - 1) is
 * there for all threads.  It is false in round 0 of two stages. */
template <typename tiling, typename Load>
static __device__ __forceinline__ bool next_columns(unsigned i, unsigned n,
                                                    Load &load)
{
    if (tiling::STAGES == 1) {
        if (i > 0)
            __syncthreads(); /* the previous tile has been used */
        load(i, 0);
    }
    if (tiling::STAGES == 1 || i > 0) {
        copies_wait();
        __syncthreads();
    }
    if (tiling::STAGES > 1 && i < n)
        load(i, i % tiling::STAGES);
    return tiling::STAGES == 1 || i > 0;
}

/* What a launch has room for behind all tiles. */
template <typename tiling, typename T>
static __device__ __forceinline__ float *behind_tiles(T *shared, int rows)
{
    return reinterpret_cast<float *>(
        column_tile<tiling>(shared, rows, 0, 2 * tiling::STAGES) +
        tiling::THREADS / WARP * tiling::ROOM);
}

static __device__ __forceinline__ int clamp_rows(unsigned from, unsigned end,
                                                 unsigned most)
{
    unsigned n = end > from ? end - from : 0;

    return (int)(n < most ? n : most);
}

/* A block's queries, blockIdx being (tile of queries, head, sample) with the
 * longest rows first, and its walk over the tiles of keys that they see, behind
 * `row_tiles` tiles of queries in shared memory. */
template <typename tiling, int DP, typename T, typename F>
struct merak_query_walk {
    const F &f;
    T *shared;
    int row_tiles;
    size_t b, h;
    unsigned from, end;   /* the block's queries */
    unsigned mine;        /* the warp's first */
    unsigned key0, tiles; /* the first key, and how many tiles from it on */
    unsigned last_from;   /* the first key that the warp's last query sees */
    unsigned warp_end;    /* one past the last key that it sees */
    merak_sample_keys of;
    const T *k, *v;

    __device__ __forceinline__ merak_query_walk(const F &f_, T *shared_,
                                                int row_tiles_)
        : f(f_), shared(shared_), row_tiles(row_tiles_), b(blockIdx.z),
          h(blockIdx.y)
    {
        from = f.first + (gridDim.x - 1 - blockIdx.x) * tiling::ROWS;
        end = from + clamp_rows(from, f.end, tiling::ROWS);
        mine = from + threadIdx.x / WARP * tiling::WARP_ROWS;
        key0 = first_key(f, b, from) / tiling::COLUMNS * tiling::COLUMNS;
        of = keys_of(f, b);
        tiles = (unsigned)ceil_div(
            clamp_rows(key0, end_key(f, of, end - 1), f.T_), tiling::COLUMNS);
        warp_end = end_key(f, of, mine + tiling::WARP_ROWS - 1);
        last_from = first_key(f, b, mine + tiling::WARP_ROWS - 1);
        k = head_at(f.k, b, key0, h / f.R);
        v = head_at(f.v, b, key0, h / f.R);
    }

    /* Start to load the block's rows of x. */
    __device__ __forceinline__ void
    load_queries(T *tile, const merak_head_rows<const T> &x) const
    {
        load_tile<tiling::ROWS, DP, tiling::THREADS>(
            tile, head_at(x, b, from, h), x.row, (int)(end - from), x.D,
            f.whole);
    }

    /* Start to load tile i of keys and values, for next_columns(). */
    __device__ __forceinline__ void operator()(unsigned i, unsigned stage) const
    {
        unsigned at = i * tiling::COLUMNS;
        int keys = clamp_rows(key0 + at, of.keys, tiling::COLUMNS);

        load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
            column_tile<tiling>(shared, row_tiles, stage, 0), k + at * f.k.row,
            f.k.row, keys, f.k.D, f.whole);
        load_tile<tiling::COLUMNS, DP, tiling::THREADS>(
            column_tile<tiling>(shared, row_tiles, stage, 1), v + at * f.v.row,
            f.v.row, keys, f.v.D, f.whole);
    }
};

/* Store two neighboring elements. */
static __device__ __forceinline__ void store_pair(float *to, const float *x)
{
    to[0] = x[0];
    to[1] = x[1];
}

static __device__ __forceinline__ void store_pair(merak_bf16 *to,
                                                  const float *x)
{
    *reinterpret_cast<merak_word *>(to) = pack2(x);
}

/* Store 16 rows of channels, scaled; only `rows` of them exist.  `whole`: pairs
 * of them are aligned. */
template <typename T, int ND>
static __device__ __forceinline__ void
store_rows(const float (&acc)[ND][4], T *to, size_t stride, int rows, int D,
           const float (&scale)[2], bool whole, bool accumulate)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        T *row = to + (g + half * 8) * stride + 2 * t;

        if (g + half * 8 >= rows)
            continue;
#pragma unroll
        for (int n = 0; n < ND; n++) {
            float x[2] = {acc[n][half * 2] * scale[half],
                          acc[n][half * 2 + 1] * scale[half]};
            int left = D - n * 8 - 2 * t;

            if (left > 0 && accumulate)
                x[0] += to_f32(row[n * 8]);
            if (left > 1 && accumulate)
                x[1] += to_f32(row[n * 8 + 1]);
            if (left > 1 && whole) {
                store_pair(&row[n * 8], x);
                continue;
            }
            if (left > 0)
                from_f32(&row[n * 8], x[0]);
            if (left > 1)
                from_f32(&row[n * 8 + 1], x[1]);
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
    to->n = from->n;
    to->D = (int)from->D;
    *whole = *whole && is_aligned(to->data) &&
             from->D * sizeof(T) % 16 == 0 && to->row * sizeof(T) % 16 == 0;
}

/* Two numbers for each of lse, of the backward. */
static size_t rows_scratch(const struct merak_attention *at)
{
    return at->d_o.op == nullptr
               ? 0
               : merak_local_count(at->lse) * 2 * sizeof(float);
}

/* Scratch where sequences are in order: those, then what biases need. */
static size_t own_scratch(const struct merak_attention *at)
{
    return rows_scratch(at) + (at->bias.table != nullptr ? lags_bytes(at) : 0);
}

static void *lags_at(const struct merak_attention *at, void *scratch)
{
    return static_cast<char *>(scratch) + rows_scratch(at);
}

template <typename T, bool PLAIN>
static merak_flash<T, PLAIN> view(const struct merak_attention *at,
                                  void *scratch)
{
    merak_flash<T, PLAIN> f = {};

    f.B = at->B;
    f.T_ = (unsigned)at->T;
    f.H = at->G * at->R;
    f.R = at->R;
    f.first = (unsigned)at->first;
    f.end = (unsigned)at->end;
    f.rows = at->o.n;
    f.row0 = at->o.t0;
    f.window =
        at->window < UINT32_MAX ? (unsigned)at->window : (unsigned)UINT32_MAX;
    f.after = (unsigned)at->after;
    f.scale = (float)at->scale;
    f.exp_scale = f.scale * merak_exp_base<T>::LOG_E;
    f.cap = (float)at->cap;
    f.inverse_cap = at->cap > 0 ? (float)(1 / at->cap) : 0;
    f.drops = at->drop > 0;
    if (f.drops)
        f.drop = drop_of(at->step, at->stream, at->drop);
    f.drop.first_sample += at->lse->lo[0];
    f.all.group0 = at->lse->lo[2];
    f.all.R = 1;
    if (at->lse->local.ndim == 4) { /* packed heads have no R */
        f.all.head0 = at->lse->lo[3];
        f.all.R = at->lse->full.dim[3];
    }
    f.all.queries = at->lse->full.dim[1];
    f.all.keys = at->k.op->full.dim[1];
    f.accumulate = at->accumulate;
    f.whole = true;
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
    if (at->lengths != nullptr)
        f.lengths = static_cast<const int32_t *>(at->lengths->data);
    if (at->prefix != nullptr)
        f.prefix = static_cast<const int32_t *>(at->prefix->data);
    if (at->sinks != nullptr)
        f.sinks = static_cast<const float *>(at->sinks->data);
    f.scaled_lse = static_cast<float *>(scratch);
    f.delta =
        f.scaled_lse + (scratch != nullptr ? merak_local_count(at->lse) : 0);
    if (at->bias.table != nullptr)
        f.lags = lags_of(at, lags_at(at, scratch));
    if (at->bias.sums != nullptr)
        f.lags.sums = static_cast<float *>(at->bias.sums->data);
    return f;
}

/* A block for each tile of rows among `positions`, head and sample. */
template <typename tiling>
static merak_launch tile_launch(size_t positions, size_t heads, size_t B,
                                int row_tiles)
{
    return merak_launch{"attention",
                        dim3((unsigned)ceil_div(positions, tiling::ROWS),
                             (unsigned)heads, (unsigned)B),
                        dim3(tiling::THREADS), tiling::bytes(row_tiles)};
}

/* Channels of a key or value; tiles of both are as wide. */
static size_t widest(const struct merak_attention *at)
{
    return at->D > at->E ? at->D : at->E;
}

/* Do these kernels support the call? */
static enum merak_status check_attention(const struct merak_kernel_call *call,
                                         const struct merak_attention *at,
                                         struct merak_error *err)
{
    enum merak_status rc = check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    if (widest(at) > MAX_HEAD)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "heads of %zu channels: the cuda backend's attention "
                          "has up to %d; use more heads",
                          widest(at), MAX_HEAD);
    if (at->G * at->R > 65535 || at->B > 65535)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "attention of %zu samples with %zu heads: the cuda "
                          "backend has up to 65535 of each",
                          at->B, at->G * at->R);
    if (at->T > INT32_MAX / 2 || at->end > INT32_MAX / 2)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "attention of %zu positions: the cuda backend has up "
                          "to 2^30",
                          at->T > at->end ? at->T : at->end);
    return MERAK_OK;
}

template <typename direction, typename T, bool PLAIN>
static enum merak_status by_head(const struct merak_kernel_call *call,
                                 const struct merak_attention *at,
                                 struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    merak_flash<T, PLAIN> f = view<T, PLAIN>(at, call->scratch);

    if (widest(at) <= 64)
        return direction::template run<T, 64, 64, 64>(cx, f, err);
    if (widest(at) <= 128)
        return direction::template run<T, 128, 128, 128>(cx, f, err);
    if (at->D <= 192 && at->E <= 128) /* as latent attention has */
        return direction::template run<T, 256, 192, 128>(cx, f, err);
    return direction::template run<T, 256, 256, 256>(cx, f, err);
}

template <typename direction>
static enum merak_status by_type(const struct merak_kernel_call *call,
                                 const struct merak_attention *at,
                                 struct merak_error *err)
{
    if (call->operand[0].dtype != MERAK_BF16)
        return by_head<direction, float, false>(call, at, err);
    return at->drop > 0 || at->cap > 0 || !(at->scale > 0) ||
                   at->bias.table != nullptr
               ? by_head<direction, merak_bf16, false>(call, at, err)
               : by_head<direction, merak_bf16, true>(call, at, err);
}

static enum merak_status prepare(const struct merak_kernel_call *call,
                                 const struct merak_attention *at,
                                 struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call);
    void *scratch = lags_at(at, call->scratch);

    if (at->bias.table == nullptr)
        return MERAK_OK;
    return call->operand[0].dtype == MERAK_BF16
               ? prepare_lags<merak_bf16>(
                     cx, at, scratch, merak_exp_base<merak_bf16>::LOG_E, err)
               : prepare_lags<float>(cx, at, scratch,
                                     merak_exp_base<float>::LOG_E, err);
}

/* Run direction::run<T, DP, D, E>(), forward or backward, for the call's dtype
 * and the narrowest tiles that its heads fit into, of DP channels; products are
 * of the first D of keys and E of values, the others being zero. */
template <typename direction>
static enum merak_status attend(const struct merak_kernel_call *call,
                                const struct merak_attention *at,
                                struct merak_error *err)
{
    enum merak_status rc = check_attention(call, at, err);

    if (rc == MERAK_OK)
        rc = prepare(call, at, err);
    if (rc != MERAK_OK || at->pieces == 0)
        return rc != MERAK_OK ? rc : by_type<direction>(call, at, err);
    return in_order(
        call, at, own_scratch(at),
        [&](const struct merak_attention *part, struct merak_error *e) {
            return by_type<direction>(call, part, e);
        },
        err);
}

#endif
