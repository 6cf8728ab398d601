/* SPDX-License-Identifier: Apache-2.0 */
/* ref_attention.c - causal attention with grouped queries (reference)
 *
 * For a query i of one head, with s_j = q_i . k_j / sqrt(D), j <= i:
 *   lse = log sum_j exp(s_j),  p_j = exp(s_j - lse),  o = sum_j p_j v_j
 * and, with delta = do . o:
 *   dv_j += p_j do,  ds_j = p_j (do . v_j - delta) / sqrt(D),
 *   dq += ds_j k_j,  dk_j += ds_j q
 */
#include "config.h"

#include "kernels/ref/ref.h"

#include <math.h>

static double dot(const struct merak_operand *x, size_t i,
                  const struct merak_operand *y, size_t j, size_t D)
{
    double sum = 0;

    for (size_t d = 0; d < D; d++)
        sum += ref_load(x, i + d) * ref_load(y, j + d);
    return sum;
}

/* s_j of query (b, i) of query head h. */
static double score(const struct merak_attention *at, size_t b, size_t h,
                    size_t i, size_t j)
{
    return dot(at->q.op, merak_heads_at(at, &at->q, b, i, h), at->k.op,
               merak_heads_at(at, &at->k, b, j, h / at->R), at->D) /
           sqrt((double)at->D);
}

static double log_sum_exp(const struct merak_attention *at, size_t b, size_t h,
                          size_t i)
{
    double max = -INFINITY, sum = 0;

    for (size_t j = 0; j <= i; j++)
        max = fmax(max, score(at, b, h, i, j));
    for (size_t j = 0; j <= i; j++)
        sum += exp(score(at, b, h, i, j) - max);
    return max + log(sum);
}

static void query_forward(const struct merak_attention *at, size_t b, size_t h,
                          size_t i)
{
    double lse = log_sum_exp(at, b, h, i);

    for (size_t d = 0; d < at->D; d++) {
        double sum = 0;

        for (size_t j = 0; j <= i; j++)
            sum += exp(score(at, b, h, i, j) - lse) *
                   ref_load(at->v.op,
                            merak_heads_at(at, &at->v, b, j, h / at->R) + d);
        ref_store(at->o.op, merak_heads_at(at, &at->o, b, i, h) + d, sum);
    }
    ref_store(at->lse, merak_lse_at(at, b, i, h), lse);
}

static void forward(const struct merak_attention *at)
{
    for (size_t b = 0; b < at->B; b++)
        for (size_t h = 0; h < at->G * at->R; h++)
            for (size_t i = at->first; i < at->T; i++)
                query_forward(at, b, h, i);
}

/* Probability and score gradient of pair (i, j) in query head h. */
static void pair(const struct merak_attention *at, size_t b, size_t h, size_t i,
                 size_t j, double *p, double *ds)
{
    size_t d_o = merak_heads_at(at, &at->d_o, b, i, h);
    double delta = dot(at->d_o.op, d_o, at->o.op,
                       merak_heads_at(at, &at->o, b, i, h), at->D);
    double dp = dot(at->d_o.op, d_o, at->v.op,
                    merak_heads_at(at, &at->v, b, j, h / at->R), at->D);
    double lse = ref_load(at->lse, merak_lse_at(at, b, i, h));

    *p = exp(score(at, b, h, i, j) - lse);
    *ds = *p * (dp - delta) / sqrt((double)at->D);
}

static void query_backward(const struct merak_attention *at, size_t b, size_t h,
                           size_t i)
{
    for (size_t d = 0; d < at->D; d++) {
        double sum = 0;

        for (size_t j = 0; j <= i; j++) {
            double p, ds;

            pair(at, b, h, i, j, &p, &ds);
            sum +=
                ds * ref_load(at->k.op,
                              merak_heads_at(at, &at->k, b, j, h / at->R) + d);
        }
        ref_store(at->dq.op, merak_heads_at(at, &at->dq, b, i, h) + d, sum);
    }
}

static void put_sum(const struct merak_attention *at,
                    const struct merak_heads *x, size_t i, double sum)
{
    ref_store(x->op, i, at->accumulate ? ref_load(x->op, i) + sum : sum);
}

/* Key and value (b, j) of kv head g: over the later queries of its heads. */
static void key_backward(const struct merak_attention *at, size_t b, size_t g,
                         size_t j)
{
    for (size_t d = 0; d < at->D; d++) {
        double dk = 0, dv = 0;

        for (size_t h = g * at->R; h < (g + 1) * at->R; h++) {
            for (size_t i = j > at->first ? j : at->first; i < at->T; i++) {
                double p, ds;

                pair(at, b, h, i, j, &p, &ds);
                dk += ds * ref_load(at->q.op,
                                    merak_heads_at(at, &at->q, b, i, h) + d);
                dv += p * ref_load(at->d_o.op,
                                   merak_heads_at(at, &at->d_o, b, i, h) + d);
            }
        }
        put_sum(at, &at->dk, merak_heads_at(at, &at->dk, b, j, g) + d, dk);
        put_sum(at, &at->dv, merak_heads_at(at, &at->dv, b, j, g) + d, dv);
    }
}

static void backward(const struct merak_attention *at)
{
    for (size_t b = 0; b < at->B; b++) {
        for (size_t i = 0; i < at->T; i++) {
            for (size_t h = 0; i >= at->first && h < at->G * at->R; h++)
                query_backward(at, b, h, i);
            for (size_t g = 0; g < at->G; g++)
                key_backward(at, b, g, i);
        }
    }
}

REF_KERNEL(attention)
{
    struct merak_attention at;

    (void)err;
    merak_attention_view(call, &at);
    forward(&at);
    return MERAK_OK;
}

REF_KERNEL(attention_packed)
{
    struct merak_attention at;

    (void)err;
    merak_attention_packed_view(call, &at);
    forward(&at);
    return MERAK_OK;
}

REF_KERNEL(attention_dx)
{
    struct merak_attention at;

    (void)err;
    merak_attention_dx_view(call, &at);
    backward(&at);
    return MERAK_OK;
}

REF_KERNEL(attention_packed_dx)
{
    struct merak_attention at;

    (void)err;
    merak_attention_packed_dx_view(call, &at);
    backward(&at);
    return MERAK_OK;
}
