/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - causal attention in tiles; the equations stand in
 * ref/attention.c
 *
 * A tile is TILE queries by TILE keys, so memory is linear in T (Dao et al.
 * 2022, arXiv:2205.14135).  Scores are kept transposed, S[key][query]: with
 * queries along the vector lanes the softmax's maxima and sums need no
 * shuffles, and keys and values are read row by row as they lie.
 *
 * All products are product()'s (product.h).  Tiles are f32 copies with rows
 * padded to the lanes (`pitch`), zero where there is no element, in the
 * thread's workspace; that bounds D.  Where a tile of keys meets its own
 * queries, a key is seen by later queries only: products leave out what is
 * zero there, block by block.
 *
 * Of a window the tiles of keys that none of a tile's queries sees are left
 * out, and at its edge what each does not see is masked.  What dropout keeps
 * is drawn tile by tile and never stored.
 *
 * Forward items are (sample, query head, tile of queries).  Backward items
 * are (sample, kv head): one item owns its dk and dv, and adds query tiles to
 * them in ascending order.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/transpose.h"
#include "kernels/cpu/vec.h"

#include <float.h>
#include <math.h>

#define TILE ((size_t)64)
#define CACHE_LINE 64
#define MAX_D 384 /* eight tiles and three of scores fill the workspace */

/* --- tiles ---------------------------------------------------------------- */

static size_t pad(size_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* A tile's rows, of which those of positions lo .. hi - 1 are there. */
struct span {
    size_t t; /* of the tile's first row */
    size_t lo, hi;
};

static struct span span_of(size_t t, size_t first, size_t T)
{
    return (struct span){t, t > first ? t : first, T - t < TILE ? T : t + TILE};
}

/* Ask for the rows that load_tile() or store_tile() will touch: they lie far
 * apart, so the processor does not foresee them. */
static void prefetch_tile(const struct merak_attention *at,
                          const struct merak_heads *x, size_t b, struct span s,
                          size_t h)
{
    size_t bytes = merak_dtype_bytes(x->op->dtype);
    const char *row =
        (const char *)x->op->data + merak_heads_at(at, x, b, s.lo, h) * bytes;

    for (size_t t = s.lo; t < s.hi; t++, row += x->row * bytes)
        for (size_t i = 0; i < at->D * bytes; i += CACHE_LINE)
            __builtin_prefetch(row + i, 0, 2);
}

INLINE void load_rows(const struct merak_heads *x, size_t from, size_t D,
                      size_t rows, float *tile, bool bf16)
{
    for (size_t i = 0; i < rows; i++, from += x->row, tile += pad(D))
        for (size_t d = 0; d < D; d += LANES)
            vstore_f32(tile + d, vload_n(x->op->data, from + d, D - d, bf16));
}

/* Rows of heads x of (b, h) as a tile [TILE][pad(D)]; others are zero. */
static void load_tile(const struct merak_attention *at,
                      const struct merak_heads *x, size_t b, struct span s,
                      size_t h, float *tile)
{
    size_t pitch = pad(at->D), begin = s.lo - s.t, end = s.hi - s.t;
    size_t from = merak_heads_at(at, x, b, s.lo, h);

    memset(tile, 0, begin * pitch * sizeof(float));
    if (x->op->dtype == MERAK_BF16)
        load_rows(x, from, at->D, end - begin, tile + begin * pitch, true);
    else
        load_rows(x, from, at->D, end - begin, tile + begin * pitch, false);
    memset(tile + end * pitch, 0, (TILE - end) * pitch * sizeof(float));
}

/* A tile's rows to heads x, or added to what is there. */
static void store_tile(const struct merak_attention *at,
                       const struct merak_heads *x, size_t b, struct span s,
                       size_t h, const float *tile, bool add)
{
    size_t pitch = pad(at->D);
    bool bf16 = x->op->dtype == MERAK_BF16;

    for (size_t i = s.lo - s.t; i < s.hi - s.t; i++) {
        size_t to = merak_heads_at(at, x, b, s.t + i, h);

        for (size_t d = 0; d < at->D; d += LANES) {
            vf row = vload_f32(tile + i * pitch + d);

            if (add)
                row += vload_n(x->op->data, to + d, at->D - d, bf16);
            vstore_n(x->op->data, to + d, at->D - d, row, bf16);
        }
    }
}

/* --- forward -------------------------------------------------------------- */

/* An item's tiles, carved from the thread's workspace. */
struct tiles {
    float *row;         /* [TILE][D] on its way in or out */
    float *q_t, *d_o_t; /* [D][TILE] */
    float *k, *v;       /* [TILE][D] */
    float *q, *d_o;     /* [TILE][D]; backward */
    float *s, *ds;      /* [TILE keys][TILE queries] */
    float *kept;        /* of dropout, likewise: 0, or 1/(1-p) */
    float *out;         /* forward o_t [D][TILE]; backward dq, dk, dv in turn */
};

static void carve(struct tiles *x, size_t D, int thread)
{
    float *p = merak_pool_workspace(thread);
    size_t size = TILE * pad(D);

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

/* A tile of keys and values; another one will follow if `more`. */
static void load_keys(const struct merak_attention *at, struct tiles *x,
                      size_t b, struct span s, size_t g, bool more)
{
    load_tile(at, &at->k, b, s, g, x->k);
    load_tile(at, &at->v, b, s, g, x->v);
    if (more) {
        s = span_of(s.t + TILE, 0, at->T);
        prefetch_tile(at, &at->k, b, s, g);
        prefetch_tile(at, &at->v, b, s, g);
    }
}

struct running {
    vf max[TILE / LANES], sum[TILE / LANES];
};

/* Which keys of a tile its queries see. */
enum sight { ALL, UP_TO_OWN, IN_WINDOW };

/* A tile of keys at k as a tile of queries at t meets it, of query head h. */
struct meeting {
    size_t b, h, k, t;
    size_t keys, queries; /* rows that are there */
    bool diagonal;        /* each query's own key is in the tile */
    enum sight sight;
    int32_t ahead, window; /* the first query is so far behind the first key */
};

static struct meeting meet(const struct merak_attention *at, size_t b, size_t h,
                           const struct span *keys, const struct span *queries)
{
    size_t t = queries->t, k = keys->t;
    struct meeting m = {.b = b,
                        .h = h,
                        .k = k,
                        .t = t,
                        .keys = keys->hi - k,
                        .queries = queries->hi - t,
                        .diagonal = k == t,
                        .sight = k == t ? UP_TO_OWN : ALL};

    if (merak_first_key(at, t + TILE - 1) > k) {
        m.sight = IN_WINDOW;
        m.ahead = (int32_t)(t - k);
        m.window = (int32_t)at->window;
    }
    return m;
}

/* s where query lane i sees the key, else fill.  On the diagonal that is up
 * to key i. */
INLINE vf mask_unseen(vf s, const struct meeting *m, enum sight sight,
                      size_t key, size_t query, float fill)
{
    const vi lane = {LANE_IDS};
    vi behind;

    if (sight == ALL)
        return s;
    if (sight == UP_TO_OWN)
        return vselect(lane + (int32_t)query >= (int32_t)key, s, vset(fill));
    behind = lane + (int32_t)query - (int32_t)key + m->ahead;
    return vselect((behind >= 0) & (behind < m->window), s, vset(fill));
}

/* Capped scores, scaled already. */
static void cap_scores(const struct merak_attention *at, float *s, size_t keys,
                       size_t queries)
{
    float scale = (float)(at->scale / at->cap), cap = (float)at->cap;

    for (size_t j = 0; j < keys; j++) {
        for (size_t i = 0; i < queries; i += LANES) {
            float *x = s + j * TILE + i;

            vstore_f32(x, cap * vtanh(vload_f32(x) * scale));
        }
    }
}

/* What dropout keeps of a tile; on the diagonal from a key's own query on. */
static void draw_kept(const struct merak_attention *at, const struct meeting *m,
                      float *kept)
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

/* s: what is kept of it.  On the diagonal from the blocks of own keys on:
 * products leave out the others. */
static void drop(const struct meeting *m, const float *kept, float *s)
{
    for (size_t j = 0; j < m->keys; j++) {
        size_t i = m->diagonal ? j / PHILOX_WORDS * PHILOX_WORDS : 0;

        for (; i < m->queries; i += LANES)
            vstore_f32(s + j * TILE + i, vload_f32(s + j * TILE + i) *
                                             vload_f32(kept + j * TILE + i));
    }
}

/* S[key][query], or with d_o_t and v the gradient of the probabilities. */
static void score_product(const struct merak_attention *at, const float *k,
                          const float *q_t, float *s, size_t keys,
                          size_t queries, bool diagonal)
{
    struct product x = {.a = k,
                        .a_pitch = pad(at->D),
                        .b = q_t,
                        .b_pitch = TILE,
                        .c = s,
                        .c_pitch = TILE,
                        .M = keys,
                        .N = pad(queries),
                        .K = at->D,
                        .triangle = diagonal ? C_UPPER : FULL};

    product(&x);
}

/* Scores of `keys` keys to probabilities relative to the running maximum;
 * returns the factor by which what was summed before shrinks. */
INLINE vf soften(float *s, const struct meeting *m, size_t keys, size_t query,
                 enum sight sight, float scale, vf *max, vf *sum)
{
    vf top = *max, shrink, total = {0};

    for (size_t j = 0; j < keys; j++) {
        vf x = vload_f32(s + j * TILE + query) * scale;

        x = mask_unseen(x, m, sight, j, query, -INFINITY);
        vstore_f32(s + j * TILE + query, x);
        top = vmax(top, x);
    }
    shrink = vexp(*max - top);
    for (size_t j = 0; j < keys; j++) {
        vf p = vexp(vload_f32(s + j * TILE + query) - top);

        p = mask_unseen(p, m, sight, j, query, 0.0f);
        vstore_f32(s + j * TILE + query, p);
        total += p;
    }
    *sum = *sum * shrink + total;
    *max = top;
    return shrink;
}

/* The probabilities, in place of scores; out shrinks with the maximum. */
INLINE void soften_all(const struct merak_attention *at, struct tiles *x,
                       struct running *r, const struct meeting *m,
                       enum sight sight, float scale)
{
    for (size_t i = 0; i < m->queries; i += LANES) {
        size_t seen = m->diagonal ? product_columns_end(i) : m->keys;
        size_t n = i / LANES;
        vf shrink = soften(x->s, m, seen < m->keys ? seen : m->keys, i, sight,
                           scale, &r->max[n], &r->sum[n]);

        for (size_t d = 0; d < at->D; d++) {
            float *o = x->out + d * TILE + i;

            vstore_f32(o, vload_f32(o) * shrink);
        }
    }
}

static void forward_pair(const struct merak_attention *at, struct tiles *x,
                         struct running *r, const struct meeting *m)
{
    float scale = at->cap > 0 ? 1.0f : (float)at->scale;
    struct product values = {.a = x->v,
                             .a_turned = true,
                             .a_pitch = pad(at->D),
                             .b = x->s,
                             .b_pitch = TILE,
                             .c = x->out,
                             .c_pitch = TILE,
                             .M = at->D,
                             .N = pad(m->queries),
                             .K = m->keys,
                             .add = true,
                             .triangle = m->diagonal ? B_UPPER : FULL};

    score_product(at, x->k, x->q_t, x->s, m->keys, m->queries, m->diagonal);
    if (at->cap > 0)
        cap_scores(at, x->s, m->keys, m->queries);
    if (m->sight == ALL)
        soften_all(at, x, r, m, ALL, scale);
    else if (m->sight == UP_TO_OWN)
        soften_all(at, x, r, m, UP_TO_OWN, scale);
    else
        soften_all(at, x, r, m, IN_WINDOW, scale);
    if (at->drop > 0) {
        draw_kept(at, m, x->kept);
        drop(m, x->kept, x->s);
    }
    product(&values);
}

/* o = o_t / sum, lse = max + log(sum). */
static void finish_queries(const struct merak_attention *at, struct tiles *x,
                           const struct running *r, size_t b, size_t h,
                           struct span rows)
{
    float *lse = at->lse->data;

    for (size_t d = 0; d < at->D; d++) {
        for (size_t i = 0; i < pad(rows.hi - rows.t) / LANES; i++) {
            float *o = x->out + d * TILE + i * LANES;

            vstore_f32(o, vload_f32(o) / r->sum[i]);
        }
    }
    transpose_matrix(x->out, TILE, pad(at->D), TILE, x->row, pad(at->D), false);
    store_tile(at, &at->o, b, rows, h, x->row, false);
    for (size_t i = rows.lo - rows.t; i < rows.hi - rows.t; i++)
        lse[merak_lse_at(at, b, rows.t + i, h)] =
            r->max[i / LANES][i % LANES] + logf(r->sum[i / LANES][i % LANES]);
}

/* The tiles that hold queries; tiles begin at multiples of TILE also where
 * the queries do not, so that a slice's numbers are the whole's, to the bit. */
static size_t first_tile(const struct merak_attention *at)
{
    return at->first / TILE;
}

static size_t query_tiles(const struct merak_attention *at)
{
    return cpu_range_count(at->T, TILE) - first_tile(at);
}

/* The first tile of keys that a tile of queries sees. */
static size_t first_key_tile(const struct merak_attention *at,
                             const struct span *queries)
{
    return merak_first_key(at, queries->lo) / TILE * TILE;
}

static void forward_item(void *arg, size_t item, int thread)
{
    const struct merak_attention *at = arg;
    size_t tiles = cpu_range_count(at->T, TILE), heads = at->G * at->R;
    size_t n = query_tiles(at);
    size_t t = (tiles - 1 - item % n) * TILE; /* longest first */
    size_t h = item / n % heads, b = item / n / heads;
    struct span queries = span_of(t, at->first, at->T);
    struct running r;
    struct tiles x;

    carve(&x, at->D, thread);
    load_tile(at, &at->q, b, queries, h, x.row);
    prefetch_tile(at, &at->o, b, queries, h);
    transpose_matrix(x.row, pad(at->D), TILE, pad(at->D), x.q_t, TILE, false);
    memset(x.out, 0, pad(at->D) * TILE * sizeof(float));
    for (size_t i = 0; i < TILE / LANES; i++) {
        r.max[i] = vset(-FLT_MAX); /* a tile may hide all keys of a query */
        r.sum[i] = vset(0);
    }
    for (size_t k = first_key_tile(at, &queries); k <= t; k += TILE) {
        struct span keys = span_of(k, 0, at->T);
        struct meeting m = meet(at, b, h, &keys, &queries);

        load_keys(at, &x, b, keys, h / at->R, k < t);
        forward_pair(at, &x, &r, &m);
    }
    finish_queries(at, &x, &r, b, h, queries);
}

/* --- backward ------------------------------------------------------------- */

struct backward {
    struct merak_attention at;
    float *dk, *dv; /* f32 [B, G, T, pad(D)], in scratch */
};

/* delta = do . o of each query, in lanes. */
static void deltas(const struct merak_attention *at, struct tiles *x,
                   float delta[TILE])
{
    size_t pitch = pad(at->D);

    for (size_t i = 0; i < TILE; i++) {
        vf sum = {0};

        for (size_t d = 0; d < pitch; d += LANES)
            sum += vload_f32(x->row + i * pitch + d) *
                   vload_f32(x->d_o + i * pitch + d);
        delta[i] = vsum(sum);
    }
}

/* s: scores to probabilities; ds: do . v to score gradients.  Of the diagonal
 * tile as much of what is zero as a block of the products may touch. */
INLINE void slopes(const struct merak_attention *at, const struct tiles *x,
                   const struct meeting *m, enum sight sight, bool capped,
                   const float lse[TILE], const float delta[TILE])
{
    float scale = (float)at->scale, cap = (float)at->cap;
    float to_cap = capped ? (float)(at->scale / at->cap) : 0;

    for (size_t j = 0; j < m->keys; j++) {
        size_t i =
            m->diagonal && j >= BLOCK_M ? (j - BLOCK_M) / LANES * LANES : 0;

        for (; i < m->queries; i += LANES) {
            float *s = x->s + j * TILE + i, *ds = x->ds + j * TILE + i;
            vf t = capped ? vtanh(vload_f32(s) * to_cap) : vset(0);
            vf score = capped ? cap * t : vload_f32(s) * scale;
            vf p = vexp(score - vload_f32(lse + i));
            vf slope = (vload_f32(ds) - vload_f32(delta + i)) * scale;

            if (capped)
                slope *= 1.0f - t * t;
            p = mask_unseen(p, m, sight, j, i, 0.0f);
            slope = mask_unseen(slope, m, sight, j, i, 0.0f);
            vstore_f32(s, p);
            vstore_f32(ds, p * slope);
        }
    }
}

static void slopes_as_seen(const struct merak_attention *at,
                           const struct tiles *x, const struct meeting *m,
                           const float *lse, const float *delta)
{
    if (at->cap > 0 && m->sight == ALL)
        slopes(at, x, m, ALL, true, lse, delta);
    else if (at->cap > 0 && m->sight == UP_TO_OWN)
        slopes(at, x, m, UP_TO_OWN, true, lse, delta);
    else if (at->cap > 0)
        slopes(at, x, m, IN_WINDOW, true, lse, delta);
    else if (m->sight == ALL)
        slopes(at, x, m, ALL, false, lse, delta);
    else if (m->sight == UP_TO_OWN)
        slopes(at, x, m, UP_TO_OWN, false, lse, delta);
    else
        slopes(at, x, m, IN_WINDOW, false, lse, delta);
}

/* dst (+)= a b for a tile of keys: a [keys][TILE], b [TILE][D]. */
static void key_gradient(const struct merak_attention *at, const float *a,
                         const float *b, float *dst, size_t keys,
                         size_t queries, bool diagonal, bool add)
{
    struct product x = {.a = a,
                        .a_pitch = TILE,
                        .b = b,
                        .b_pitch = pad(at->D),
                        .c = dst,
                        .c_pitch = pad(at->D),
                        .M = keys,
                        .N = pad(at->D),
                        .K = queries,
                        .add = add,
                        .triangle = diagonal ? A_UPPER : FULL};

    product(&x);
}

/* One tile of keys against the query tile in x; what dropout keeps of it is
 * there. */
static void backward_pair(const struct merak_attention *at,
                          const struct tiles *x, const struct meeting *m,
                          const float *lse, const float *delta, float *dk,
                          float *dv, bool add)
{
    size_t pitch = pad(at->D), keys = m->keys, queries = m->queries;
    bool diagonal = m->diagonal;
    struct product dq = {.a = x->ds,
                         .a_turned = true,
                         .a_pitch = TILE,
                         .b = x->k,
                         .b_pitch = pitch,
                         .c = x->out,
                         .c_pitch = pitch,
                         .M = queries,
                         .N = pitch,
                         .K = keys,
                         .add = true,
                         .triangle = diagonal ? A_LOWER : FULL};

    score_product(at, x->k, x->q_t, x->s, keys, queries, diagonal);
    score_product(at, x->v, x->d_o_t, x->ds, keys, queries, diagonal);
    if (at->drop > 0)
        drop(m, x->kept, x->ds);
    slopes_as_seen(at, x, m, lse, delta);
    if (at->drop > 0)
        drop(m, x->kept, x->s);
    key_gradient(at, x->s, x->d_o, dv, keys, queries, diagonal, add);
    key_gradient(at, x->ds, x->q, dk, keys, queries, diagonal, add);
    product(&dq);
}

/* The query tile at (b, t, h): into x, with its lse and delta. */
static void load_queries(const struct merak_attention *at, struct tiles *x,
                         size_t b, size_t t, size_t h, float lse[TILE],
                         float delta[TILE])
{
    struct span s = span_of(t, at->first, at->T);
    const float *from = at->lse->data;

    load_tile(at, &at->q, b, s, h, x->q);
    load_tile(at, &at->d_o, b, s, h, x->d_o);
    load_tile(at, &at->o, b, s, h, x->row);
    transpose_matrix(x->q, pad(at->D), TILE, pad(at->D), x->q_t, TILE, false);
    transpose_matrix(x->d_o, pad(at->D), TILE, pad(at->D), x->d_o_t, TILE,
                     false);
    deltas(at, x, delta);
    for (size_t i = 0; i < TILE; i++)
        lse[i] = t + i >= s.lo && t + i < s.hi
                     ? from[merak_lse_at(at, b, t + i, h)]
                     : 0.0f;
}

static void backward_queries(const struct backward *bw, struct tiles *x,
                             size_t b, size_t t, size_t h, float *dk, float *dv)
{
    const struct merak_attention *at = &bw->at;
    float lse[TILE], delta[TILE];
    size_t pitch = pad(at->D), g = h / at->R;
    struct span queries = span_of(t, at->first, at->T);

    load_queries(at, x, b, t, h, lse, delta);
    prefetch_tile(at, &at->dq, b, queries, h);
    if (queries.hi < at->T) {
        struct span next = span_of(t + TILE, at->first, at->T);

        prefetch_tile(at, &at->q, b, next, h);
        prefetch_tile(at, &at->d_o, b, next, h);
        prefetch_tile(at, &at->o, b, next, h);
    }
    memset(x->out, 0, TILE * pitch * sizeof(float));
    for (size_t k = first_key_tile(at, &queries); k <= t; k += TILE) {
        struct span keys = span_of(k, 0, at->T);
        struct meeting m = meet(at, b, h, &keys, &queries);
        /* Were these keys met before? */
        bool begun = h % at->R > 0 || (k < t && t > first_tile(at) * TILE);

        load_keys(at, x, b, keys, g, k < t);
        if (at->drop > 0)
            draw_kept(at, &m, x->kept);
        backward_pair(at, x, &m, lse, delta, dk + k * pitch, dv + k * pitch,
                      begun);
    }
    store_tile(at, &at->dq, b, queries, h, x->out, false);
}

static void backward_item(void *arg, size_t item, int thread)
{
    const struct backward *bw = arg;
    const struct merak_attention *at = &bw->at;
    size_t b = item / at->G, g = item % at->G, pitch = pad(at->D);
    struct span first = span_of(first_tile(at) * TILE, at->first, at->T);
    size_t unseen = first_key_tile(at, &first) * pitch * sizeof(float);
    float *dk = bw->dk + item * at->T * pitch;
    float *dv = bw->dv + item * at->T * pitch;
    struct tiles x;

    carve(&x, at->D, thread);
    memset(dk, 0, unseen);
    memset(dv, 0, unseen);
    for (size_t h = g * at->R; h < (g + 1) * at->R; h++)
        for (size_t t = first_tile(at) * TILE; t < at->T; t += TILE)
            backward_queries(bw, &x, b, t, h, dk, dv);
    for (size_t t = 0; t < at->T; t += TILE) {
        struct span keys = span_of(t, 0, at->T);

        store_tile(at, &at->dk, b, keys, g, dk + t * pitch, at->accumulate);
        store_tile(at, &at->dv, b, keys, g, dv + t * pitch, at->accumulate);
    }
}

/* --- the four ops -----------------------------------------------------------
 */

static enum merak_status check(const struct merak_kernel_call *call,
                               const struct merak_attention *at,
                               struct merak_error *err)
{
    if (at->D > MAX_D)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "attention heads of %zu dims; the cpu backend takes "
                          "at most %d",
                          at->D, MAX_D);
    return cpu_check_dtype(call, 0, false, err);
}

static enum merak_status forward(const struct merak_kernel_call *call,
                                 struct merak_attention *at,
                                 struct merak_error *err)
{
    enum merak_status rc = check(call, at, err);

    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(forward_item, at, at->B * at->G * at->R * query_tiles(at));
    return MERAK_OK;
}

static size_t kv_elements(const struct merak_attention *at)
{
    return at->B * at->G * at->T * pad(at->D);
}

static enum merak_status backward(const struct merak_kernel_call *call,
                                  struct backward *bw, struct merak_error *err)
{
    enum merak_status rc = check(call, &bw->at, err);

    if (rc != MERAK_OK)
        return rc;
    bw->dk = call->scratch;
    bw->dv = bw->dk + kv_elements(&bw->at);
    merak_pool_run(backward_item, bw, bw->at.B * bw->at.G);
    return MERAK_OK;
}

CPU_KERNEL(attention)
{
    struct merak_attention at;

    merak_attention_view(call, &at);
    return forward(call, &at, err);
}

CPU_KERNEL(attention_packed)
{
    struct merak_attention at;

    merak_attention_packed_view(call, &at);
    return forward(call, &at, err);
}

CPU_KERNEL(attention_dx)
{
    struct backward bw;

    merak_attention_dx_view(call, &bw.at);
    return backward(call, &bw, err);
}

CPU_KERNEL(attention_packed_dx)
{
    struct backward bw;

    merak_attention_packed_dx_view(call, &bw.at);
    return backward(call, &bw, err);
}

/* dk and dv in f32 with padded rows. */
CPU_SCRATCH(attention_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return 2 * kv_elements(&at) * sizeof(float);
}

CPU_SCRATCH(attention_packed_dx)
{
    struct merak_attention at;

    merak_attention_packed_dx_view(call, &at);
    return 2 * kv_elements(&at) * sizeof(float);
}
