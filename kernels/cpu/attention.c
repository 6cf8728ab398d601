/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c - attention, forward; tiles are those of attention_tile.h
 *
 * Items are (sample, query head, tile of queries).  In the tile where a slice
 * begins, vectors without a query of the slice are skipped: for one token after
 * a KV cache, all except one.
 */
#include "config.h"

#include "kernels/cpu/attention_tile.h"

#include <float.h>
#include <math.h>

struct forward {
    struct merak_attention at;
    float *biases; /* room for spread_bias(), or NULL */
};

struct running {
    vf max[TILE / LANES], sum[TILE / LANES];
};

/* Scale and cap the scores. */
static void cap_scores(const struct merak_attention *at, float *s,
                       const struct meeting *m)
{
    float scale = (float)(at->scale / at->cap), cap = (float)at->cap;

    for (size_t j = 0; j < m->keys; j++) {
        for (size_t i = m->from; i < m->queries; i += LANES) {
            float *x = s + j * TILE + i;

            vstore_f32(x, cap * vtanh(vload_f32(x) * scale));
        }
    }
}

/* Turn scores of `keys` keys into probabilities relative to the running
 * maximum; returns the factor to scale earlier sums by. */
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

/* Replace scores by probabilities, and rescale out to the new maximum. */
INLINE void soften_all(const struct merak_attention *at, struct tiles *x,
                       struct running *r, const struct meeting *m,
                       enum sight sight, float scale)
{
    for (size_t i = m->from; i < m->queries; i += LANES) {
        size_t seen = m->diagonal ? product_columns_end(i) : m->keys;
        size_t n = i / LANES;
        vf shrink = soften(x->s, m, seen < m->keys ? seen : m->keys, i, sight,
                           scale, &r->max[n], &r->sum[n]);

        for (size_t d = 0; d < at->E; d++) {
            float *o = x->out + d * TILE + i;

            vstore_f32(o, vload_f32(o) * shrink);
        }
    }
}

static void forward_pair(const struct forward *fw, struct tiles *x,
                         struct running *r, const struct meeting *m)
{
    const struct merak_attention *at = &fw->at;
    bool scaled = at->cap > 0 || fw->biases != NULL;
    float scale = scaled ? 1.0f : (float)at->scale;
    struct product values = {.a = x->v,
                             .a_turned = true,
                             .a_pitch = pad(at->E),
                             .b = x->s + m->from,
                             .b_pitch = TILE,
                             .c = x->out + m->from,
                             .c_pitch = TILE,
                             .M = at->E,
                             .N = pad(m->queries) - m->from,
                             .K = m->keys,
                             .column = m->from,
                             .add = true,
                             .triangle = m->diagonal ? B_UPPER : FULL};

    score_product(x->k, x->q_t, at->D, x->s, m);
    if (at->cap > 0)
        cap_scores(at, x->s, m);
    if (fw->biases != NULL)
        add_bias(at, fw->biases, x->s, m);
    if (m->sight == ALL)
        soften_all(at, x, r, m, ALL, scale);
    else if (m->sight == UP_TO_OWN)
        soften_all(at, x, r, m, UP_TO_OWN, scale);
    else if (m->sight == IN_WINDOW)
        soften_all(at, x, r, m, IN_WINDOW, scale);
    else
        soften_all(at, x, r, m, IN_RANGE, scale);
    if (at->drop > 0) {
        draw_kept(at, m, x->kept);
        drop(m, x->kept, x->s);
    }
    product(&values);
}

/* A sink is one more score, which comes first.  Without, a tile may hide all
 * keys of a query. */
static void start_rows(const struct merak_attention *at, size_t h,
                       struct running *r)
{
    bool sunk = at->sinks != NULL;
    float max = sunk ? ((const float *)at->sinks->data)[h] : -FLT_MAX;

    for (size_t i = 0; i < TILE / LANES; i++) {
        r->max[i] = vset(max);
        r->sum[i] = vset(sunk ? 1 : 0);
    }
}

/* o = o_t / sum, lse = max + log(sum); 0 and -INFINITY if a query sees no key
 * and there is no sink. */
static void finish_queries(const struct merak_attention *at, struct tiles *x,
                           const struct running *r, size_t b, size_t h,
                           struct span rows)
{
    size_t first = (rows.lo - rows.t) / LANES;
    float *lse = at->lse->data;

    for (size_t d = 0; d < at->E; d++) {
        for (size_t i = first; i < pad(rows.hi - rows.t) / LANES; i++) {
            float *o = x->out + d * TILE + i * LANES;

            vstore_f32(o, vload_f32(o) /
                              vselect(r->sum[i] > vset(0), r->sum[i], vset(1)));
        }
    }
    transpose_matrix(x->out, TILE, pad(at->E), TILE, x->row, pad(at->E));
    store_tile(at, &at->o, b, rows, h, x->row, false);
    for (size_t i = rows.lo - rows.t; i < rows.hi - rows.t; i++)
        lse[merak_lse_at(at, b, rows.t + i, h)] =
            r->max[i / LANES][i % LANES] + logf(r->sum[i / LANES][i % LANES]);
}

static void forward_item(void *arg, size_t item, int thread)
{
    const struct forward *fw = arg;
    const struct merak_attention *at = &fw->at;
    size_t tiles = cpu_range_count(at->end, TILE), heads = at->G * at->R;
    size_t n = query_tiles(at);
    size_t t = (tiles - 1 - item % n) * TILE; /* longest first */
    size_t h = item / n % heads, b = item / n / heads;
    struct queries queries = queries_of(at, b, t);
    struct running r;
    struct tiles x;

    carve(&x, at, thread);
    load_tile(at, &at->q, b, queries.rows, h, x.row);
    prefetch_tile(at, &at->o, b, queries.rows, h);
    transpose_matrix(x.row, pad(at->D), TILE, pad(at->D), x.q_t, TILE);
    memset(x.out, 0, pad(at->E) * TILE * sizeof(float));
    start_rows(at, h, &r);
    for (size_t k = queries.key0; k < queries.end; k += TILE) {
        struct span keys = span_of(k, 0, queries.end);
        struct meeting m = meet(at, b, h, &keys, &queries);

        m.from = (queries.rows.lo - t) / LANES * LANES;
        load_keys(at, &x, b, keys, h / at->R, queries.end);
        forward_pair(fw, &x, &r, &m);
    }
    finish_queries(at, &x, &r, b, h, queries.rows);
}

static enum merak_status forward(const struct merak_kernel_call *call,
                                 struct forward *fw, struct merak_error *err)
{
    struct merak_attention *at = &fw->at;
    enum merak_status rc = check(call, at, err);

    if (rc != MERAK_OK)
        return rc;
    if (fw->biases != NULL)
        spread_bias(at, fw->biases);
    do
        merak_pool_run(forward_item, fw,
                       at->B * at->G * at->R * query_tiles(at));
    while (merak_attention_next(at));
    return MERAK_OK;
}

CPU_KERNEL(attention)
{
    struct forward fw = {.biases = NULL};

    merak_attention_view(call, &fw.at);
    return forward(call, &fw, err);
}

CPU_KERNEL(attention_packed)
{
    struct forward fw = {.biases = NULL};

    merak_attention_packed_view(call, &fw.at);
    return forward(call, &fw, err);
}

CPU_KERNEL(attention_biased)
{
    struct forward fw = {.biases = call->scratch};

    merak_attention_view(call, &fw.at);
    return forward(call, &fw, err);
}

CPU_SCRATCH(attention_biased)
{
    struct merak_attention at;

    merak_attention_view(call, &at);
    return bias_bytes(&at);
}
