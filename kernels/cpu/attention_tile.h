/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tile.h - attention in tiles, for attention.c and
 * attention_dx.c; the equations are in ref/ref_attention.c
 *
 * A tile is TILE queries by TILE keys, so memory is linear in T (Dao et al.
 * 2022, arXiv:2205.14135).  Scores are kept transposed, S[key][query]: with
 * queries along the vector lanes the softmax's maxima and sums need no
 * shuffles, and keys and values are read row by row in memory order.
 *
 * All products use product() (product.h).  Tiles are f32 copies with rows
 * padded to the lanes (`pitch`), zero where there is no element, in the
 * thread's workspace; that bounds D and E, the widths of keys and values.  On
 * the diagonal of causal attention, only queries from a key's position on see
 * it: products skip what is zero there, block by block.
 *
 * Tiles are of positions in a row, also where sequences are in pieces: then
 * their rows come from two places or more, and queries from one row of
 * positions after the other.
 *
 * Tiles of keys that none of a tile's queries see are skipped, and keys at the
 * edge are masked for each query.  Keys end where the last query's do: what is
 * behind them is not read.  The mask of dropout is drawn tile by tile and never
 * stored.
 */
#ifndef MERAK_KERNELS_CPU_ATTENTION_TILE_H
#define MERAK_KERNELS_CPU_ATTENTION_TILE_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/transpose.h"
#include "kernels/cpu/vec.h"

#include <math.h>

#define TILE ((size_t)64)
#define CACHE_LINE 64
#define MAX_D 384 /* eight tiles and three of scores fill the workspace */

static inline size_t pad(size_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* A tile's rows; those of positions lo .. hi - 1 exist. */
struct span {
    size_t t; /* of the tile's first row */
    size_t lo, hi;
};

static inline struct span span_of(size_t t, size_t first, size_t T)
{
    return (struct span){t, t > first ? t : first, T - t < TILE ? T : t + TILE};
}

/* How far, up to `end`, the rows from position t on lie one behind the other.
 */
static inline size_t end_of_rows(const struct merak_attention *at, size_t t,
                                 size_t end)
{
    size_t n = at->pieces > 0 ? at->T / at->pieces : SIZE_MAX;
    size_t left = n - t % n;

    return end - t < left ? end : t + left;
}

/* Prefetch the first rows that load_tile() or store_tile() will touch: they are
 * far apart, so the hardware prefetcher misses them. */
static inline void prefetch_tile(const struct merak_attention *at,
                                 const struct merak_heads *x, size_t b,
                                 struct span s, size_t h)
{
    size_t bytes = merak_dtype_bytes(x->op->dtype);
    const char *row =
        (const char *)x->op->data + merak_heads_at(at, x, b, s.lo, h) * bytes;

    s.hi = end_of_rows(at, s.lo, s.hi);
    for (size_t t = s.lo; t < s.hi; t++, row += x->row * bytes)
        for (size_t i = 0; i < x->D * bytes; i += CACHE_LINE)
            __builtin_prefetch(row + i, 0, 2);
}

INLINE void load_rows(const struct merak_heads *x, size_t from, size_t D,
                      size_t rows, float *tile, bool bf16)
{
    for (size_t i = 0; i < rows; i++, from += x->row, tile += pad(D))
        for (size_t d = 0; d < D; d += LANES)
            vstore_f32(tile + d, vload_n(x->op->data, from + d, D - d, bf16));
}

/* Load rows (b, h) of heads x as a tile [TILE][pad(x->D)]; others are zero. */
static inline void load_tile(const struct merak_attention *at,
                             const struct merak_heads *x, size_t b,
                             struct span s, size_t h, float *tile)
{
    size_t pitch = pad(x->D), begin = s.lo - s.t, end = s.hi - s.t, next;

    memset(tile, 0, begin * pitch * sizeof(float));
    for (size_t t = s.lo; t < s.hi; t = next) {
        size_t from = merak_heads_at(at, x, b, t, h);
        float *to = tile + (t - s.t) * pitch;

        next = end_of_rows(at, t, s.hi);
        if (x->op->dtype == MERAK_BF16)
            load_rows(x, from, x->D, next - t, to, true);
        else
            load_rows(x, from, x->D, next - t, to, false);
    }
    memset(tile + end * pitch, 0, (TILE - end) * pitch * sizeof(float));
}

/* Store a tile's rows to heads x, or add them. */
static inline void store_tile(const struct merak_attention *at,
                              const struct merak_heads *x, size_t b,
                              struct span s, size_t h, const float *tile,
                              bool add)
{
    size_t pitch = pad(x->D);
    bool bf16 = x->op->dtype == MERAK_BF16;

    for (size_t i = s.lo - s.t; i < s.hi - s.t; i++) {
        size_t to = merak_heads_at(at, x, b, s.t + i, h);

        for (size_t d = 0; d < x->D; d += LANES) {
            vf row = vload_f32(tile + i * pitch + d);

            if (add)
                row += vload_n(x->op->data, to + d, x->D - d, bf16);
            vstore_n(x->op->data, to + d, x->D - d, row, bf16);
        }
    }
}

/* An item's tiles, carved from the thread's workspace. */
struct tiles {
    float *row;         /* [TILE][D or E] being loaded or stored */
    float *q_t, *d_o_t; /* [D][TILE], [E][TILE] */
    float *k, *v;       /* [TILE][D], [TILE][E] */
    float *q, *d_o;     /* the same; backward */
    float *s, *ds;      /* [TILE keys][TILE queries] */
    float *kept;        /* dropout mask, likewise: 0, or 1/(1-p) */
    float *out;         /* forward o_t [E][TILE]; backward dq */
};

static inline void carve(struct tiles *x, const struct merak_attention *at,
                         int thread)
{
    float *p = merak_pool_workspace(thread);
    size_t size = TILE * pad(at->D > at->E ? at->D : at->E);

    x->row = p;
    x->q_t = p + size;
    x->d_o_t = p + 2 * size;
    x->k = p + 3 * size;
    x->v = p + 4 * size;
    x->q = p + 5 * size;
    x->d_o = p + 6 * size;
    x->out = p + 7 * size;
    x->s = p + 8 * size;
    x->ds = x->s + TILE * TILE;
    x->kept = x->ds + TILE * TILE;
}

/* Load a tile of keys and values; prefetch the next one, up to `end`. */
static inline void load_keys(const struct merak_attention *at, struct tiles *x,
                             size_t b, struct span s, size_t g, size_t end)
{
    load_tile(at, &at->k, b, s, g, x->k);
    load_tile(at, &at->v, b, s, g, x->v);
    if (s.t + TILE < end) {
        s = span_of(s.t + TILE, 0, end);
        prefetch_tile(at, &at->k, b, s, g);
        prefetch_tile(at, &at->v, b, s, g);
    }
}

/* Which keys of a tile its queries see. */
enum sight { ALL, UP_TO_OWN, IN_WINDOW, IN_RANGE };

/* A tile of queries. */
struct queries {
    struct span rows;
    size_t key0, end; /* the tiles of keys that they see begin here, and end */
    bool ranges;      /* below is set: windows of a causal attention need not */
    int32_t first_key[TILE], end_key[TILE]; /* what each sees; none: 0, 0 */
};

static inline struct queries queries_of(const struct merak_attention *at,
                                        size_t b, size_t t)
{
    struct span rows = span_of(t, at->first, at->end);
    struct queries q = {.rows = rows,
                        .key0 = merak_first_key(at, b, rows.lo) / TILE * TILE,
                        .end = merak_end_key(at, b, rows.hi - 1),
                        .ranges = at->starts != NULL ||
                                  !merak_attention_is_causal(at)};

    if (!q.ranges)
        return q;
    memset(q.first_key, 0, sizeof(q.first_key));
    memset(q.end_key, 0, sizeof(q.end_key));
    for (size_t i = rows.lo; i < rows.hi; i++) {
        q.first_key[i - t] = (int32_t)merak_first_key(at, b, i);
        q.end_key[i - t] = (int32_t)merak_end_key(at, b, i);
    }
    return q;
}

/* A tile of keys at k with a tile of queries at t, for query head h. */
struct meeting {
    size_t b, h, k, t;
    size_t keys, queries; /* number of rows that exist */
    size_t from;          /* first query computed: a multiple of LANES */
    bool diagonal;        /* causal, and each query's own key is in the tile */
    enum sight sight;
    int32_t ahead, window;              /* ahead: first query minus first key */
    const int32_t *first_key, *end_key; /* IN_RANGE */
};

static inline struct meeting meet(const struct merak_attention *at, size_t b,
                                  size_t h, const struct span *keys,
                                  const struct queries *queries)
{
    size_t t = queries->rows.t, k = keys->t;
    bool causal = merak_attention_is_causal(at), own = causal && k == t;
    struct meeting m = {.b = b,
                        .h = h,
                        .k = k,
                        .t = t,
                        .keys = keys->hi - k,
                        .queries = queries->rows.hi - t,
                        .diagonal = own,
                        .sight = own ? UP_TO_OWN : ALL};

    if (merak_first_key(at, b, queries->rows.hi - 1) <= k &&
        (causal || merak_end_key(at, b, queries->rows.lo) >= keys->hi))
        return m;
    m.sight = queries->ranges ? IN_RANGE : IN_WINDOW;
    m.ahead = (int32_t)(t - k);
    m.window = (int32_t)at->window;
    m.first_key = queries->first_key;
    m.end_key = queries->end_key;
    return m;
}

/* s in lanes whose query sees the key, else fill.  On the diagonal query i sees
 * keys up to i. */
INLINE vf mask_unseen(vf s, const struct meeting *m, enum sight sight,
                      size_t key, size_t query, float fill)
{
    const vi lane = {LANE_IDS};
    vi behind, first, end;

    if (sight == ALL)
        return s;
    if (sight == UP_TO_OWN)
        return vselect(lane + (int32_t)query >= (int32_t)key, s, vset(fill));
    if (sight == IN_RANGE) {
        memcpy(&first, m->first_key + query, sizeof(first));
        memcpy(&end, m->end_key + query, sizeof(end));
        return vselect((first <= (int32_t)(m->k + key)) &
                           (end > (int32_t)(m->k + key)),
                       s, vset(fill));
    }
    behind = lane + (int32_t)query - (int32_t)key + m->ahead;
    return vselect((behind >= 0) & (behind < m->window), s, vset(fill));
}

/* Draw a tile's dropout mask; on the diagonal from a key's own query on. */
static inline void draw_kept(const struct merak_attention *at,
                             const struct meeting *m, float *kept)
{
    uint64_t key = merak_attention_key(at, m->b);
    uint32_t threshold = (uint32_t)ceil(at->drop * 0x1p24);
    vf scale = vset((float)(1 / (1 - at->drop)));

    for (size_t j = 0; j < m->keys; j++) {
        uint64_t row = (merak_attention_element(at, m->h, m->k + j) + m->t) / 4;
        size_t i = m->diagonal ? j / PHILOX_WORDS * PHILOX_WORDS : 0;

        for (; i < m->queries; i += PHILOX_WORDS) {
            uint32_t word[PHILOX_WORDS];

            philox(key, row + i / 4, word);
            UNROLL
            for (size_t l = 0; l < PHILOX_WORDS; l += LANES) {
                vu w;

                memcpy(&w, word + l, sizeof(w));
                vstore_f32(
                    kept + j * TILE + i + l,
                    vselect((vi)((w >> 8) >= threshold), scale, vset(0)));
            }
        }
    }
}

/* Apply the dropout mask to s.  On the diagonal only from the block of a key's
 * own query on: products skip the others. */
static inline void drop(const struct meeting *m, const float *kept, float *s)
{
    for (size_t j = 0; j < m->keys; j++) {
        size_t i = m->diagonal ? j / PHILOX_WORDS * PHILOX_WORDS : 0;

        for (; i < m->queries; i += LANES)
            vstore_f32(s + j * TILE + i, vload_f32(s + j * TILE + i) *
                                             vload_f32(kept + j * TILE + i));
    }
}

/* S[key][query] of rows of `width` channels, or with d_o_t and v the gradient
 * of the probabilities. */
static inline void score_product(const float *k, const float *q_t, size_t width,
                                 float *s, const struct meeting *m)
{
    struct product x = {.a = k,
                        .a_pitch = pad(width),
                        .b = q_t + m->from,
                        .b_pitch = TILE,
                        .c = s + m->from,
                        .c_pitch = TILE,
                        .M = m->keys,
                        .N = pad(m->queries) - m->from,
                        .K = width,
                        .column = m->from,
                        .triangle = m->diagonal ? C_UPPER : FULL};

    product(&x);
}

/* --- biases --------------------------------------------------------------- */

/* Lags of a head in memory, with room for a vector behind the last one. */
static inline size_t lag_pitch(const struct merak_attention *at)
{
    return pad(at->bias.lags) + LANES;
}

/* The place of the tile's first query with its key j, among lags of a head. */
static inline size_t lag_at(const struct merak_attention *at,
                            const struct meeting *m, size_t j)
{
    return m->t + at->bias.keys - 1 - m->k - j;
}

/* Scale scores and add the biases [query heads, lag_pitch()]. */
static inline void add_bias(const struct merak_attention *at,
                            const float *biases, float *s,
                            const struct meeting *m)
{
    float scale = (float)at->scale;

    biases += m->h * lag_pitch(at);
    for (size_t j = 0; j < m->keys; j++) {
        const float *bias = biases + lag_at(at, m, j);

        for (size_t i = m->from; i < m->queries; i += LANES) {
            float *x = s + j * TILE + i;

            vstore_f32(x, vload_f32(x) * scale + vload_f32(bias + i));
        }
    }
}

/* The table's number of each head and lag. */
static inline void spread_bias(const struct merak_attention *at, float *biases)
{
    const struct merak_relative *r = &at->bias;
    size_t pitch = lag_pitch(at);
    bool bf16 = r->table->dtype == MERAK_BF16;

    for (size_t lag = 0; lag < pitch; lag++) {
        size_t bucket = merak_relative_bucket(r, lag);

        for (size_t h = 0; h < at->G * at->R; h++) {
            size_t i = merak_relative_at(r, bucket, h);

            biases[h * pitch + lag] =
                bf16 ? merak_bf16_to_f32(((const uint16_t *)r->table->data)[i])
                     : ((const float *)r->table->data)[i];
        }
    }
}

/* Bytes of spread biases. */
static inline size_t bias_bytes(const struct merak_attention *at)
{
    return at->G * at->R * lag_pitch(at) * sizeof(float);
}

/* --- a call ----------------------------------------------------------------
 */

/* The tiles that hold queries; tiles begin at multiples of TILE even if the
 * queries do not, so that a slice's results equal the whole's bit for bit. */
static inline size_t first_tile(const struct merak_attention *at)
{
    return at->first / TILE;
}

static inline size_t query_tiles(const struct merak_attention *at)
{
    return cpu_range_count(at->end, TILE) - first_tile(at);
}

static inline enum merak_status check(const struct merak_kernel_call *call,
                                      const struct merak_attention *at,
                                      struct merak_error *err)
{
    enum merak_status rc;

    if (at->D > MAX_D || at->E > MAX_D)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "attention heads of %zu dims; the cpu backend takes "
                          "at most %d",
                          at->D > at->E ? at->D : at->E, MAX_D);
    rc = merak_attention_check(at, err);
    return rc != MERAK_OK ? rc : cpu_check_dtype(call, 0, false, err);
}

#endif
