/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - causal attention in tiles; the equations stand in
 * ref/attention.c
 *
 * A tile is TILE queries by TILE keys, so memory is linear in T (Dao et al.
 * 2022, arXiv:2205.14135).  Scores are kept transposed, S[key][query]: with
 * queries along the vector lanes the softmax's maxima and sums need no
 * shuffles, and keys and values are read row by row as they lie.
 *
 * All five products have one form, C[m][n] (+)= sum_k A(m, k) B[k][n] with n
 * along the lanes, A any strides: matmul() below.  Tiles are f32 copies with
 * rows padded to the lanes (`pitch`), zero where there is no element, in the
 * thread's workspace; that bounds D.
 *
 * Forward items are (sample, query head, tile of queries).  Backward items
 * are (sample, kv head): one item owns its dk and dv, and adds query tiles to
 * them in ascending order.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/transpose.h"
#include "kernels/cpu/vec.h"

#include <math.h>

#define TILE ((size_t)64)
#define MAX_D 384 /* eight tiles and two of scores fill the workspace */
#define STEP_M 6  /* rows of a register block; with STEP_N 24 accumulators */
#define STEP_N 4  /* vectors of a register block */

/* --- tiles ---------------------------------------------------------------- */

struct matrix {
    const float *a; /* A(m, k) = a[m * row + k * col] */
    size_t row, col;
    const float *b; /* [k][pitch] */
    size_t b_pitch;
    float *c; /* [m][pitch] */
    size_t c_pitch, K;
    bool add; /* C += */
};

/* Rows m .. m + rows - 1, vectors n .. n + cols - 1 of C. */
INLINE void block(const struct matrix *x, size_t m, size_t n, int rows,
                  int cols)
{
    vf sum[STEP_M][STEP_N];

    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
    for (int j = 0; j < cols; j++)
        sum[i][j] = vset(0);
    for (size_t k = 0; k < x->K; k++) {
        const float *b = x->b + k * x->b_pitch + n * LANES;
        const float *a = x->a + m * x->row + k * x->col;

        UNROLL
        for (int i = 0; i < rows; i++)
            UNROLL
        for (int j = 0; j < cols; j++)
            sum[i][j] +=
                a[(size_t)i * x->row] * vload_f32(b + (size_t)j * LANES);
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        float *c = x->c + (m + (size_t)i) * x->c_pitch + n * LANES;

        UNROLL
        for (int j = 0; j < cols; j++) {
            if (x->add)
                sum[i][j] += vload_f32(c + j * LANES);
            vstore_f32(c + j * LANES, sum[i][j]);
        }
    }
}

INLINE void block_column(const struct matrix *x, size_t M, size_t n, int cols)
{
    size_t m = 0;

    for (; m + STEP_M <= M; m += STEP_M)
        block(x, m, n, STEP_M, cols);
    for (; m + 2 <= M; m += 2)
        block(x, m, n, 2, cols);
    if (m < M)
        block(x, m, n, 1, cols);
}

/* C is [M][N], N a multiple of the lanes. */
static __attribute__((noinline)) void matmul(const struct matrix *x, size_t M,
                                             size_t N)
{
    size_t n = 0, vectors = N / LANES;

    for (; n + STEP_N <= vectors; n += STEP_N)
        block_column(x, M, n, STEP_N);
    for (; n + 2 <= vectors; n += 2)
        block_column(x, M, n, 2);
    if (n < vectors)
        block_column(x, M, n, 1);
}

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

/* Rows of heads x of (b, h) as a tile [TILE][pad(D)]; others are zero. */
static void load_tile(const struct merak_attention *at,
                      const struct merak_heads *x, size_t b, struct span s,
                      size_t h, float *tile)
{
    size_t pitch = pad(at->D), begin = s.lo - s.t, end = s.hi - s.t;
    bool bf16 = x->op->dtype == MERAK_BF16;

    memset(tile, 0, begin * pitch * sizeof(float));
    for (size_t i = begin; i < end; i++) {
        size_t from = merak_heads_at(at, x, b, s.t + i, h);

        for (size_t d = 0; d < at->D; d += LANES)
            vstore_f32(tile + i * pitch + d,
                       vload_n(x->op->data, from + d, at->D - d, bf16));
    }
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
}

struct running {
    vf max[TILE / LANES], sum[TILE / LANES];
};

/* Keys of a tile that query lane i of the diagonal tile may see: up to i. */
INLINE vf mask_future(vf s, size_t key, size_t query, float fill)
{
    const vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

    return vselect(lane + (int32_t)query >= (int32_t)key, s, vset(fill));
}

/* Scores of `keys` keys to probabilities relative to the running maximum;
 * returns the factor by which what was summed before shrinks. */
INLINE vf soften(float *s, size_t keys, size_t query, bool diagonal,
                 float scale, vf *max, vf *sum)
{
    vf top = *max, shrink, total = {0};

    for (size_t j = 0; j < keys; j++) {
        vf x = vload_f32(s + j * TILE + query) * scale;

        if (diagonal)
            x = mask_future(x, j, query, -INFINITY);
        vstore_f32(s + j * TILE + query, x);
        top = vmax(top, x);
    }
    shrink = vexp(*max - top);
    for (size_t j = 0; j < keys; j++) {
        vf p = vexp(vload_f32(s + j * TILE + query) - top);

        if (diagonal)
            p = mask_future(p, j, query, 0.0f);
        vstore_f32(s + j * TILE + query, p);
        total += p;
    }
    *sum = *sum * shrink + total;
    *max = top;
    return shrink;
}

/* `queries` are a multiple of the lanes. */
static void forward_pair(const struct merak_attention *at, struct tiles *x,
                         struct running *r, size_t keys, size_t queries,
                         bool diagonal)
{
    size_t pitch = pad(at->D);
    float scale = 1.0f / sqrtf((float)at->D);
    struct matrix scores = {.a = x->k,
                            .row = pitch,
                            .col = 1,
                            .b = x->q_t,
                            .b_pitch = TILE,
                            .c = x->s,
                            .c_pitch = TILE,
                            .K = at->D};
    struct matrix values = {.a = x->v,
                            .row = 1,
                            .col = pitch,
                            .b = x->s,
                            .b_pitch = TILE,
                            .c = x->out,
                            .c_pitch = TILE,
                            .K = keys,
                            .add = true};

    matmul(&scores, keys, queries);
    for (size_t i = 0; i < queries / LANES; i++) {
        vf shrink = soften(x->s, keys, i * LANES, diagonal, scale, &r->max[i],
                           &r->sum[i]);

        for (size_t d = 0; d < at->D; d++) {
            float *o = x->out + d * TILE + i * LANES;

            vstore_f32(o, vload_f32(o) * shrink);
        }
    }
    matmul(&values, at->D, queries);
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

static void forward_item(void *arg, size_t item, int thread)
{
    const struct merak_attention *at = arg;
    size_t tiles = cpu_range_count(at->T, TILE), heads = at->G * at->R;
    size_t t = (tiles - 1 - item / (heads * at->B)) * TILE; /* longest first */
    size_t h = item % heads, b = item / heads % at->B;
    struct span queries = span_of(t, at->first, at->T);
    struct running r;
    struct tiles x;

    carve(&x, at->D, thread);
    load_tile(at, &at->q, b, queries, h, x.row);
    transpose_matrix(x.row, pad(at->D), TILE, pad(at->D), x.q_t, TILE, false);
    memset(x.out, 0, pad(at->D) * TILE * sizeof(float));
    for (size_t i = 0; i < TILE / LANES; i++) {
        r.max[i] = vset(-INFINITY);
        r.sum[i] = vset(0);
    }
    for (size_t k = 0; k <= t; k += TILE) {
        struct span keys = span_of(k, 0, at->T);

        load_tile(at, &at->k, b, keys, h / at->R, x.k);
        load_tile(at, &at->v, b, keys, h / at->R, x.v);
        forward_pair(at, &x, &r, keys.hi - k, pad(queries.hi - t), k == t);
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

/* s: scores to probabilities; ds: do . v to score gradients. */
static void pair_slopes(const struct tiles *x, size_t keys, size_t queries,
                        float scale, bool diagonal, const float lse[TILE],
                        const float delta[TILE])
{
    for (size_t j = 0; j < keys; j++) {
        for (size_t i = 0; i < queries; i += LANES) {
            float *s = x->s + j * TILE + i, *ds = x->ds + j * TILE + i;
            vf p = vexp(vload_f32(s) * scale - vload_f32(lse + i));

            if (diagonal)
                p = mask_future(p, j, i, 0.0f);
            vstore_f32(s, p);
            vstore_f32(ds, p * (vload_f32(ds) - vload_f32(delta + i)) * scale);
        }
    }
}

/* dst (+)= a b for a tile of keys: a [keys][TILE], b [TILE][D]. */
static void key_gradient(const float *a, const float *b, float *dst,
                         size_t keys, size_t queries, size_t D, bool add)
{
    struct matrix x = {.a = a,
                       .row = TILE,
                       .col = 1,
                       .b = b,
                       .b_pitch = pad(D),
                       .c = dst,
                       .c_pitch = pad(D),
                       .K = queries,
                       .add = add};

    matmul(&x, keys, pad(D));
}

/* One tile of keys against the query tile in x. */
static void backward_pair(const struct merak_attention *at,
                          const struct tiles *x, size_t keys, size_t queries,
                          bool diagonal, const float *lse, const float *delta,
                          float *dk, float *dv, bool add)
{
    size_t pitch = pad(at->D);
    float scale = 1.0f / sqrtf((float)at->D);
    struct matrix scores = {.a = x->k,
                            .row = pitch,
                            .col = 1,
                            .b = x->q_t,
                            .b_pitch = TILE,
                            .c = x->s,
                            .c_pitch = TILE,
                            .K = at->D};
    struct matrix dp = scores;
    struct matrix dq = {.a = x->ds,
                        .row = 1,
                        .col = TILE,
                        .b = x->k,
                        .b_pitch = pitch,
                        .c = x->out,
                        .c_pitch = pitch,
                        .K = keys,
                        .add = true};

    dp.a = x->v;
    dp.b = x->d_o_t;
    dp.c = x->ds;
    matmul(&scores, keys, pad(queries));
    matmul(&dp, keys, pad(queries));
    pair_slopes(x, keys, queries, scale, diagonal, lse, delta);
    key_gradient(x->s, x->d_o, dv, keys, queries, at->D, add);
    key_gradient(x->ds, x->q, dk, keys, queries, at->D, add);
    matmul(&dq, queries, pitch);
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
    memset(x->out, 0, TILE * pitch * sizeof(float));
    for (size_t k = 0; k <= t; k += TILE) {
        struct span keys = span_of(k, 0, at->T);
        /* Were these keys met before? */
        bool begun = h % at->R > 0 || (k < t && t > first_tile(at) * TILE);

        load_tile(at, &at->k, b, keys, g, x->k);
        load_tile(at, &at->v, b, keys, g, x->v);
        backward_pair(at, x, keys.hi - k, queries.hi - t, k == t, lse, delta,
                      dk + k * pitch, dv + k * pitch, begun);
    }
    store_tile(at, &at->dq, b, queries, h, x->out, false);
}

static void backward_item(void *arg, size_t item, int thread)
{
    const struct backward *bw = arg;
    const struct merak_attention *at = &bw->at;
    size_t b = item / at->G, g = item % at->G, pitch = pad(at->D);
    float *dk = bw->dk + item * at->T * pitch;
    float *dv = bw->dv + item * at->T * pitch;
    struct tiles x;

    carve(&x, at->D, thread);
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
