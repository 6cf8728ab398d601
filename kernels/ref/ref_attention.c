/* SPDX-License-Identifier: Apache-2.0 */
/* ref_attention.c - attention with grouped queries (reference)
 *
 * For a query i of one head, with s_j = a q_i . k_j over the keys j that it
 * sees (geometry.h), a = 1/sqrt(D) unless given, and m_j = 1, or with dropout
 * 0 or 1/(1-p):
 *   lse = log sum_j exp(s_j),  p_j = exp(s_j - lse),  o = sum_j m_j p_j v_j
 * and, with delta = do . o:
 *   dv_j += m_j p_j do,  ds_j = p_j (m_j do . v_j - delta) a,
 *   dq += ds_j k_j,  dk_j += ds_j q
 * A soft cap c makes s_j = c tanh(a q_i . k_j / c), and gives ds_j the factor
 * 1 - (s_j / c)^2.  (Bello et al. 2016, arXiv:1611.09940, sec. 5.1, as in
 * Gemma 2, arXiv:2408.00118.)  A bias by distance is added to s_j, and its
 * gradient is the sum of ds_j / a over the pairs of a bucket.  A sink z of the
 * head is one more score, without a key and a value of 0:
 *   lse = log(exp(z) + sum_j exp(s_j)),  dz = - sum_i exp(z - lse_i) delta_i
 * and all else is as it was.
 */
#include "config.h"

#include "kernels/ref/ref.h"

#include "base/rng.h"

#include <math.h>

static void store_lanes(const struct merak_heads *x, size_t i, size_t n,
                        const double *sum)
{
    for (size_t d = 0; d < n; d++)
        ref_store(x->op, i + d, sum[d]);
}

static double dot(const struct merak_operand *x, size_t i,
                  const struct merak_operand *y, size_t j, size_t D)
{
    double sum = 0;

    for (size_t d = 0; d < D; d++)
        sum += ref_load(x, i + d) * ref_load(y, j + d);
    return sum;
}

/* The element of the table for query i of query head h and key j. */
static size_t table_element(const struct merak_attention *at, size_t h,
                            size_t i, size_t j)
{
    const struct merak_relative *r = &at->bias;

    return merak_relative_at(r, merak_relative_bucket(r, merak_lag(r, i, j)),
                             h);
}

/* s_j for query (b, i) of query head h. */
static double score(const struct merak_attention *at, size_t b, size_t h,
                    size_t i, size_t j)
{
    double s =
        at->scale * dot(at->q.op, merak_heads_at(at, &at->q, b, i, h), at->k.op,
                        merak_heads_at(at, &at->k, b, j, h / at->R), at->D);

    if (at->bias.table != NULL)
        return s + ref_load(at->bias.table, table_element(at, h, i, j));
    return at->cap > 0 ? at->cap * tanh(s / at->cap) : s;
}

/* m_j for it. */
static double kept(const struct merak_attention *at, size_t b, size_t h,
                   size_t i, size_t j)
{
    uint64_t element;

    if (at->drop == 0)
        return 1;
    element = merak_attention_element(at, h, j) + i;
    if ((double)merak_rng_uniform(merak_attention_key(at, b), element) <
        at->drop)
        return 0;
    return 1 / (1 - at->drop);
}

static double log_sum_exp(const struct merak_attention *at, size_t b, size_t h,
                          size_t i)
{
    size_t first = merak_first_key(at, b, i), end = merak_end_key(at, b, i);
    double sink = at->sinks == NULL ? -INFINITY : ref_load(at->sinks, h);
    double max = sink, sum = 0;

    for (size_t j = first; j < end; j++)
        max = fmax(max, score(at, b, h, i, j));
    for (size_t j = first; j < end; j++)
        sum += exp(score(at, b, h, i, j) - max);
    if (at->sinks != NULL)
        sum += exp(sink - max);
    return max + log(sum); /* -INFINITY if it sees no key, and has no sink */
}

static void query_forward(const struct merak_attention *at, size_t b, size_t h,
                          size_t i)
{
    double lse = log_sum_exp(at, b, h, i);
    size_t first = merak_first_key(at, b, i), end = merak_end_key(at, b, i);

    for (size_t d = 0; d < at->E; d += REF_LANES) {
        double sum[REF_LANES] = {0};

        for (size_t j = first; j < end; j++)
            ref_add_lanes(
                sum, ref_lanes(at->E, d),
                kept(at, b, h, i, j) * exp(score(at, b, h, i, j) - lse),
                at->v.op, merak_heads_at(at, &at->v, b, j, h / at->R) + d);
        store_lanes(&at->o, merak_heads_at(at, &at->o, b, i, h) + d,
                    ref_lanes(at->E, d), sum);
    }
    ref_store(at->lse, merak_lse_at(at, b, i, h), lse);
}

static enum merak_status forward(struct merak_attention *at,
                                 struct merak_error *err)
{
    enum merak_status rc = merak_attention_check(at, err);

    if (rc != MERAK_OK)
        return rc;
    do {
        for (size_t b = 0; b < at->B; b++)
            for (size_t h = 0; h < at->G * at->R; h++)
                for (size_t i = at->first; i < at->end; i++)
                    query_forward(at, b, h, i);
    } while (merak_attention_next(at));
    return MERAK_OK;
}

/* The weight m p of a value in the output, and the score gradient, for pair
 * (i, j) in query head h. */
static void pair(const struct merak_attention *at, size_t b, size_t h, size_t i,
                 size_t j, double *mp, double *ds)
{
    size_t d_o = merak_heads_at(at, &at->d_o, b, i, h);
    double delta = dot(at->d_o.op, d_o, at->o.op,
                       merak_heads_at(at, &at->o, b, i, h), at->E);
    double dp = dot(at->d_o.op, d_o, at->v.op,
                    merak_heads_at(at, &at->v, b, j, h / at->R), at->E);
    double s = score(at, b, h, i, j), m = kept(at, b, h, i, j);
    double p = exp(s - ref_load(at->lse, merak_lse_at(at, b, i, h)));

    *mp = m * p;
    *ds = p * (m * dp - delta) * at->scale;
    if (at->cap > 0)
        *ds *= 1 - s / at->cap * (s / at->cap);
}

static void query_backward(const struct merak_attention *at, size_t b, size_t h,
                           size_t i)
{
    size_t first = merak_first_key(at, b, i), end = merak_end_key(at, b, i);

    for (size_t d = 0; d < at->D; d += REF_LANES) {
        double sum[REF_LANES] = {0};

        for (size_t j = first; j < end; j++) {
            double mp, ds;

            pair(at, b, h, i, j, &mp, &ds);
            ref_add_lanes(sum, ref_lanes(at->D, d), ds, at->k.op,
                          merak_heads_at(at, &at->k, b, j, h / at->R) + d);
        }
        store_lanes(&at->dq, merak_heads_at(at, &at->dq, b, i, h) + d,
                    ref_lanes(at->D, d), sum);
    }
}

static void put_sums(const struct merak_attention *at,
                     const struct merak_heads *x, size_t i, size_t n,
                     double *sum)
{
    if (at->accumulate)
        ref_add_lanes(sum, n, 1, x->op, i);
    store_lanes(x, i, n, sum);
}

/* The first query that may see a key. */
static size_t first_query(const struct merak_attention *at, size_t b, size_t j)
{
    size_t i = at->first;

    while (i < at->end && merak_end_key(at, b, i) <= j)
        i++;
    return i;
}

/* Gradients of key and value (b, j) of kv head g, over the queries that see it.
 */
static void key_backward(const struct merak_attention *at, size_t b, size_t g,
                         size_t j)
{
    size_t first = first_query(at, b, j);

    for (size_t d = 0; d < at->D || d < at->E; d += REF_LANES) {
        double dk[REF_LANES] = {0}, dv[REF_LANES] = {0};
        size_t n = ref_lanes(at->D, d), e = ref_lanes(at->E, d);

        for (size_t h = g * at->R; h < (g + 1) * at->R; h++) {
            for (size_t i = first;
                 i < at->end && merak_first_key(at, b, i) <= j; i++) {
                double mp, ds;

                pair(at, b, h, i, j, &mp, &ds);
                ref_add_lanes(dk, n, ds, at->q.op,
                              merak_heads_at(at, &at->q, b, i, h) + d);
                ref_add_lanes(dv, e, mp, at->d_o.op,
                              merak_heads_at(at, &at->d_o, b, i, h) + d);
            }
        }
        put_sums(at, &at->dk, merak_heads_at(at, &at->dk, b, j, g) + d, n, dk);
        put_sums(at, &at->dv, merak_heads_at(at, &at->dv, b, j, g) + d, e, dv);
    }
}

/* Gradients of the table for sample b and query head h. */
static void table_backward(const struct merak_attention *at, size_t b, size_t h)
{
    double sum[MERAK_MAX_BUCKETS] = {0};
    size_t heads = at->G * at->R, n = at->bias.table->local.dim[0];

    for (size_t i = at->first; i < at->end; i++) {
        size_t end = merak_end_key(at, b, i);

        for (size_t j = merak_first_key(at, b, i); j < end; j++) {
            double mp, ds;

            pair(at, b, h, i, j, &mp, &ds);
            sum[table_element(at, h, i, j) / heads] += ds / at->scale;
        }
    }
    for (size_t k = 0; k < n; k++)
        put_sums(at, &(struct merak_heads){.op = at->bias.sums},
                 (b * n + k) * heads + h, 1, &sum[k]);
}

static enum merak_status backward(struct merak_attention *at,
                                  struct merak_error *err)
{
    enum merak_status rc = merak_attention_check(at, err);

    if (rc != MERAK_OK)
        return rc;
    do {
        for (size_t b = 0; b < at->B; b++) {
            for (size_t i = at->first; i < at->end; i++)
                for (size_t h = 0; h < at->G * at->R; h++)
                    query_backward(at, b, h, i);
            for (size_t j = 0; j < at->T; j++)
                for (size_t g = 0; g < at->G; g++)
                    key_backward(at, b, g, j);
            for (size_t h = 0; at->bias.table != NULL && h < at->G * at->R; h++)
                table_backward(at, b, h);
        }
        at->accumulate = true; /* to what the first queries gave */
    } while (merak_attention_next(at));
    return MERAK_OK;
}

REF_KERNEL(attention)
{
    struct merak_attention at;

    merak_attention_view(call, &at);
    return forward(&at, err);
}

REF_KERNEL(attention_packed)
{
    struct merak_attention at;

    merak_attention_packed_view(call, &at);
    return forward(&at, err);
}

REF_KERNEL(attention_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return backward(&at, err);
}

REF_KERNEL(attention_packed_dx)
{
    struct merak_attention at;

    merak_attention_packed_dx_view(call, &at);
    return backward(&at, err);
}

REF_KERNEL(attention_biased)
{
    struct merak_attention at;

    merak_attention_view(call, &at);
    return forward(&at, err);
}

REF_KERNEL(attention_biased_dx)
{
    struct merak_attention at;

    merak_attention_dx_view(call, &at);
    return backward(&at, err);
}

/* Operands are do, o, lse and sinks; rows are those of all heads. */
REF_KERNEL(attention_sinks_dw)
{
    const struct merak_operand *op = call->operand;
    size_t E = merak_local_last(&op[0]), heads = merak_local_count(&op[3]);
    size_t rows = merak_local_count(&op[2]);

    (void)err;
    for (size_t h = 0; h < heads; h++) {
        double sum = 0;

        for (size_t i = h; i < rows; i += heads)
            sum -= exp(ref_load(&op[3], h) - ref_load(&op[2], i)) *
                   dot(&op[0], i * E, &op[1], i * E, E);
        ref_put(call, merak_call_out(call, 0), h, sum);
    }
    return MERAK_OK;
}
