/* SPDX-License-Identifier: Apache-2.0 */
/* attention_dx.c - attention, backward; tiles as in attention_tile.h
 *
 * Items are (sample, kv head): one item owns its dk and dv, and adds query
 * tiles to them in ascending order.
 */
#include "config.h"

#include "kernels/cpu/attention_tile.h"

struct backward {
    struct merak_attention at;
    float *dk, *dv; /* f32 [B, G, T, pad(D)] and pad(E), in scratch */
    float *biases;  /* room for spread_bias(), or NULL */
    float *lags; /* [B, query heads, lag_pitch()]: sums of gradients of scores
                  */
};

/* delta = do . o for each query, in lanes. */
static void deltas(const struct merak_attention *at, struct tiles *x,
                   float delta[TILE])
{
    size_t pitch = pad(at->E);

    for (size_t i = 0; i < TILE; i++) {
        vf sum = {0};

        for (size_t d = 0; d < pitch; d += LANES)
            sum += vload_f32(x->row + i * pitch + d) *
                   vload_f32(x->d_o + i * pitch + d);
        delta[i] = vsum(sum);
    }
}

/* Turn s from scores into probabilities, and ds from do . v into score
 * gradients; in a diagonal tile also the zeros that products may touch. */
INLINE void slopes(const struct merak_attention *at, const struct tiles *x,
                   const struct meeting *m, enum sight sight, bool capped,
                   const float lse[TILE], const float delta[TILE])
{
    float scale = (float)at->scale, cap = (float)at->cap;
    float to_cap = capped ? (float)(at->scale / at->cap) : 0;
    float to_score = at->bias.table != NULL ? 1 : scale; /* add_bias() */

    for (size_t j = 0; j < m->keys; j++) {
        size_t i =
            m->diagonal && j >= BLOCK_M ? (j - BLOCK_M) / LANES * LANES : 0;

        for (; i < m->queries; i += LANES) {
            float *s = x->s + j * TILE + i, *ds = x->ds + j * TILE + i;
            vf t = capped ? vtanh(vload_f32(s) * to_cap) : vset(0);
            vf score = capped ? cap * t : vload_f32(s) * to_score;
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
    else if (at->cap > 0 && m->sight == IN_WINDOW)
        slopes(at, x, m, IN_WINDOW, true, lse, delta);
    else if (at->cap > 0)
        slopes(at, x, m, IN_RANGE, true, lse, delta);
    else if (m->sight == ALL)
        slopes(at, x, m, ALL, false, lse, delta);
    else if (m->sight == UP_TO_OWN)
        slopes(at, x, m, UP_TO_OWN, false, lse, delta);
    else if (m->sight == IN_WINDOW)
        slopes(at, x, m, IN_WINDOW, false, lse, delta);
    else
        slopes(at, x, m, IN_RANGE, false, lse, delta);
}

/* dst (+)= a b for a tile of keys: a [keys][TILE], b [TILE][pitch]. */
static void key_gradient(const float *a, const float *b, size_t pitch,
                         float *dst, const struct meeting *m, bool add)
{
    struct product x = {.a = a,
                        .a_pitch = TILE,
                        .b = b,
                        .b_pitch = pitch,
                        .c = dst,
                        .c_pitch = pitch,
                        .M = m->keys,
                        .N = pitch,
                        .K = m->queries,
                        .add = add,
                        .triangle = m->diagonal ? A_UPPER : FULL};

    product(&x);
}

/* Add a tile's gradients of scores to the sums of their lags; as in slopes(),
 * on the diagonal there are some only from a key's own block on. */
static void add_lags(const struct merak_attention *at, const struct meeting *m,
                     const float *ds, float *lags)
{
    for (size_t j = 0; j < m->keys; j++) {
        float *sum = lags + lag_at(at, m, j);
        size_t i =
            m->diagonal && j >= BLOCK_M ? (j - BLOCK_M) / LANES * LANES : 0;

        for (; i + LANES <= m->queries; i += LANES)
            vstore_f32(sum + i,
                       vload_f32(sum + i) + vload_f32(ds + j * TILE + i));
        for (; i < m->queries; i++)
            sum[i] += ds[j * TILE + i];
    }
}

/* Sums of lags as those of buckets, for a sample and query head. */
static void store_buckets(const struct backward *bw, size_t b, size_t h)
{
    const struct merak_attention *at = &bw->at;
    const struct merak_relative *r = &at->bias;
    size_t heads = at->G * at->R, n = r->table->local.dim[0];
    const float *lags = bw->lags + (b * heads + h) * lag_pitch(at);
    double sum[MERAK_MAX_BUCKETS] = {0};

    for (size_t lag = 0; lag < r->lags; lag++)
        sum[merak_relative_bucket(r, lag)] += (double)lags[lag];
    for (size_t k = 0; k < n; k++)
        ((float *)r->sums->data)[b * n * heads + merak_relative_at(r, k, h)] =
            (float)(sum[k] / at->scale);
}

/* Process one tile of keys against the query tile in x, whose dropout mask is
 * already drawn. */
static void backward_pair(const struct backward *bw, const struct tiles *x,
                          const struct meeting *m, const float *lse,
                          const float *delta, float *dk, float *dv, bool add)
{
    const struct merak_attention *at = &bw->at;
    size_t pitch = pad(at->D);
    struct product dq = {.a = x->ds,
                         .a_turned = true,
                         .a_pitch = TILE,
                         .b = x->k,
                         .b_pitch = pitch,
                         .c = x->out,
                         .c_pitch = pitch,
                         .M = m->queries,
                         .N = pitch,
                         .K = m->keys,
                         .add = true,
                         .triangle = m->diagonal ? A_LOWER : FULL};

    score_product(x->k, x->q_t, at->D, x->s, m);
    score_product(x->v, x->d_o_t, at->E, x->ds, m);
    if (bw->biases != NULL)
        add_bias(at, bw->biases, x->s, m);
    if (at->drop > 0)
        drop(m, x->kept, x->ds);
    slopes_as_seen(at, x, m, lse, delta);
    if (bw->biases != NULL)
        add_lags(at, m, x->ds,
                 bw->lags + (m->b * at->G * at->R + m->h) * lag_pitch(at));
    if (at->drop > 0)
        drop(m, x->kept, x->s);
    key_gradient(x->s, x->d_o, pad(at->E), dv, m, add);
    key_gradient(x->ds, x->q, pitch, dk, m, add);
    product(&dq);
}

/* Load the query tile at (b, t, h) into x, with its lse and delta. */
static void load_queries(const struct merak_attention *at, struct tiles *x,
                         size_t b, size_t t, size_t h, float lse[TILE],
                         float delta[TILE])
{
    struct span s = span_of(t, at->first, at->end);
    const float *from = at->lse->data;

    load_tile(at, &at->q, b, s, h, x->q);
    load_tile(at, &at->d_o, b, s, h, x->d_o);
    load_tile(at, &at->o, b, s, h, x->row);
    transpose_matrix(x->q, pad(at->D), TILE, pad(at->D), x->q_t, TILE);
    transpose_matrix(x->d_o, pad(at->E), TILE, pad(at->E), x->d_o_t, TILE);
    deltas(at, x, delta);
    for (size_t i = 0; i < TILE; i++)
        lse[i] = t + i >= s.lo && t + i < s.hi
                     ? from[merak_lse_at(at, b, t + i, h)]
                     : 0.0f;
}

/* Are the sums of all keys begun with zeros, so that each query tile adds?  If
 * not, the first query tile after a key begins its sum. */
static bool clears_all(const struct merak_attention *at)
{
    return at->pieces > 0 || !merak_attention_is_causal(at);
}

static void backward_queries(const struct backward *bw, struct tiles *x,
                             size_t b, size_t t, size_t h, float *dk, float *dv)
{
    const struct merak_attention *at = &bw->at;
    float lse[TILE], delta[TILE];
    size_t pitch = pad(at->D), g = h / at->R;
    struct queries queries = queries_of(at, b, t);

    load_queries(at, x, b, t, h, lse, delta);
    prefetch_tile(at, &at->dq, b, queries.rows, h);
    if (queries.rows.hi < at->end) {
        struct span next = span_of(t + TILE, at->first, at->end);

        prefetch_tile(at, &at->q, b, next, h);
        prefetch_tile(at, &at->d_o, b, next, h);
        prefetch_tile(at, &at->o, b, next, h);
    }
    memset(x->out, 0, TILE * pitch * sizeof(float));
    for (size_t k = queries.key0; k < queries.end; k += TILE) {
        struct span keys = span_of(k, 0, queries.end);
        struct meeting m = meet(at, b, h, &keys, &queries);
        /* Does an earlier query tile already contribute to these keys? */
        bool begun = h % at->R > 0 || clears_all(at) ||
                     (k < t && t > first_tile(at) * TILE);

        load_keys(at, x, b, keys, g, queries.end);
        if (at->drop > 0)
            draw_kept(at, &m, x->kept);
        backward_pair(bw, x, &m, lse, delta, dk + k * pitch,
                      dv + k * pad(at->E), begun);
    }
    store_tile(at, &at->dq, b, queries.rows, h, x->out, false);
}

/* Zero dk or dv of a sample and kv head, rows of `pitch`, where no query adds
 * to them, or everywhere. */
static void clear_keys(const struct merak_attention *at, size_t b, size_t pitch,
                       float *keys)
{
    size_t unseen = at->T;

    if (!clears_all(at)) {
        unseen = merak_first_key(at, b, at->first) / TILE * TILE;
        memset(keys + at->end * pitch, 0,
               (at->T - at->end) * pitch * sizeof(float));
    }
    memset(keys, 0, unseen * pitch * sizeof(float));
}

static void clear_lags(const struct backward *bw, size_t b, size_t g)
{
    size_t R = bw->at.R, n = R * lag_pitch(&bw->at);

    memset(bw->lags + (b * bw->at.G + g) * n, 0, n * sizeof(float));
}

static void backward_item(void *arg, size_t item, int thread)
{
    struct backward bw = *(const struct backward *)arg;
    struct merak_attention *at = &bw.at;
    size_t b = item / at->G, g = item % at->G, D = pad(at->D), E = pad(at->E);
    float *dk = bw.dk + item * at->T * D;
    float *dv = bw.dv + item * at->T * E;
    struct tiles x;

    carve(&x, at, thread);
    clear_keys(at, b, D, dk);
    clear_keys(at, b, E, dv);
    if (bw.biases != NULL)
        clear_lags(&bw, b, g);
    do {
        for (size_t h = g * at->R; h < (g + 1) * at->R; h++)
            for (size_t t = first_tile(at) * TILE; t < at->end; t += TILE)
                backward_queries(&bw, &x, b, t, h, dk, dv);
    } while (merak_attention_next(at));
    for (size_t t = 0; t < at->T; t += TILE) {
        struct span keys = span_of(t, 0, at->T);

        store_tile(at, &at->dk, b, keys, g, dk + t * D, at->accumulate);
        store_tile(at, &at->dv, b, keys, g, dv + t * E, at->accumulate);
    }
    for (size_t h = g * at->R; bw.biases != NULL && h < (g + 1) * at->R; h++)
        store_buckets(&bw, b, h);
}

/* Of keys of `width` channels. */
static size_t kv_elements(const struct merak_attention *at, size_t width)
{
    return at->B * at->G * at->T * pad(width);
}

/* Room for dk and dv in f32 with padded rows. */
static size_t kv_bytes(const struct merak_attention *at)
{
    return (kv_elements(at, at->D) + kv_elements(at, at->E)) * sizeof(float);
}

static enum merak_status backward(const struct merak_kernel_call *call,
                                  struct backward *bw, struct merak_error *err)
{
    enum merak_status rc = check(call, &bw->at, err);

    if (rc != MERAK_OK)
        return rc;
    bw->dk = call->scratch;
    bw->dv = bw->dk + kv_elements(&bw->at, bw->at.D);
    if (bw->biases != NULL)
        spread_bias(&bw->at, bw->biases);
    merak_pool_run(backward_item, bw, bw->at.B * bw->at.G);
    return MERAK_OK;
}

CPU_KERNEL(attention_dx)
{
    struct backward bw = {.biases = NULL};

    merak_attention_dx_view(call, &bw.at);
    return backward(call, &bw, err);
}

CPU_KERNEL(attention_packed_dx)
{
    struct backward bw = {.biases = NULL};

    merak_attention_packed_dx_view(call, &bw.at);
    return backward(call, &bw, err);
}

CPU_KERNEL(attention_biased_dx)
{
    struct backward bw;

    merak_attention_dx_view(call, &bw.at);
    bw.biases = (float *)call->scratch + kv_bytes(&bw.at) / sizeof(float);
    bw.lags = bw.biases + bias_bytes(&bw.at) / sizeof(float);
    return backward(call, &bw, err);
}

CPU_SCRATCH(attention_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return kv_bytes(&at);
}

CPU_SCRATCH(attention_packed_dx)
{
    struct merak_attention at;

    merak_attention_packed_dx_view(call, &at);
    return kv_bytes(&at);
}

CPU_SCRATCH(attention_biased_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return kv_bytes(&at) + (1 + at.B) * bias_bytes(&at);
}

/* --- sinks ---------------------------------------------------------------- */

struct sinks {
    const struct merak_kernel_call *call;
    size_t E, heads, rows; /* rows: of all heads */
    bool bf16;
};

/* do . o of a row. */
INLINE float delta_of(const struct sinks *s, size_t row, bool bf16)
{
    const void *d_o = s->call->operand[0].data, *o = s->call->operand[1].data;
    vf sum = vset(0);

    for (size_t d = 0; d < s->E; d += LANES)
        sum += vload_n(d_o, row * s->E + d, s->E - d, bf16) *
               vload_n(o, row * s->E + d, s->E - d, bf16);
    return vsum(sum);
}

static void sink_item(void *arg, size_t h, int thread)
{
    const struct sinks *s = arg;
    const float *lse = s->call->operand[2].data;
    float z = ((const float *)s->call->operand[3].data)[h];
    float *to = (float *)merak_call_out(s->call, 0)->data + h;
    double sum = 0;

    (void)thread;
    for (size_t i = h; i < s->rows; i += s->heads)
        sum -= (double)(expf(z - lse[i]) * (s->bf16 ? delta_of(s, i, true)
                                                    : delta_of(s, i, false)));
    *to = (float)(s->call->accumulate ? (double)*to + sum : sum);
}

CPU_KERNEL(attention_sinks_dw)
{
    struct sinks s = {.call = call,
                      .E = merak_local_last(&call->operand[0]),
                      .heads = merak_local_count(&call->operand[3]),
                      .rows = merak_local_count(&call->operand[2]),
                      .bf16 = call->operand[0].dtype == MERAK_BF16};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc == MERAK_OK)
        merak_pool_run(sink_item, &s, s.heads);
    return rc;
}
