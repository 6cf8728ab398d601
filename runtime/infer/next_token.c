/* SPDX-License-Identifier: Apache-2.0 */
/* next_token.c - choosing a token from logits */
#include "config.h"

#include "runtime/infer/next_token.h"

#include "base/error.h"
#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct candidate {
    float logit;
    int32_t id;
};

struct merak_sampler {
    struct merak_sampling how;
    size_t vocab;
    struct candidate *candidate; /* [vocab]; NULL: greedy */
    double *weight;              /* [vocab] */
};

static enum merak_status check(const struct merak_sampling *how,
                               struct merak_error *err)
{
    if (!(how->temperature >= 0 && isfinite(how->temperature)))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "temperature is %g, expected a number not below 0",
                          how->temperature);
    if (!(how->top_p > 0 && how->top_p <= 1))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "top-p is %g, expected above 0 and at most 1",
                          how->top_p);
    return MERAK_OK;
}

enum merak_status merak_sampler_create(const struct merak_sampling *how,
                                       size_t vocab,
                                       struct merak_sampler **sampler_p,
                                       struct merak_error *err)
{
    struct merak_sampler *s;
    enum merak_status rc = check(how, err);

    if (rc != MERAK_OK)
        return rc;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return merak_fail_nomem(err, sizeof(*s));
    s->how = *how;
    s->vocab = vocab;
    if (how->temperature > 0) {
        s->candidate = malloc(vocab * sizeof(*s->candidate));
        s->weight = malloc(vocab * sizeof(*s->weight));
        if (s->candidate == NULL || s->weight == NULL) {
            merak_sampler_destroy(s);
            return merak_fail_nomem(err, vocab * sizeof(*s->candidate));
        }
    }
    *sampler_p = s;
    return MERAK_OK;
}

void merak_sampler_destroy(struct merak_sampler *s)
{
    if (s == NULL)
        return;
    free(s->candidate);
    free(s->weight);
    free(s);
}

static int32_t likeliest(const float *logits, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++) {
        if (logits[i] > logits[best])
            best = i;
    }
    return (int32_t)best;
}

static int likelier_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Restore a min-heap from i down. */
static void sift(struct candidate *heap, size_t n, size_t i)
{
    for (;;) {
        struct candidate top = heap[i];
        size_t child = 2 * i + 1;

        if (child + 1 < n && likelier_first(&heap[child], &heap[child + 1]) < 0)
            child++;
        if (child >= n || likelier_first(&heap[child], &top) < 0)
            return;
        heap[i] = heap[child];
        heap[child] = top;
        i = child;
    }
}

/* Move the k likeliest to the front, in no order, with a heap of k. */
static void keep_likeliest(struct candidate *c, size_t n, size_t k)
{
    for (size_t i = k / 2; i-- > 0;)
        sift(c, k, i);
    for (size_t i = k; i < n; i++) {
        if (likelier_first(&c[i], &c[0]) < 0) {
            c[0] = c[i];
            sift(c, k, 0);
        }
    }
}

/* exp((logit - largest) / temperature); the sum of all. */
static double weigh(struct merak_sampler *s, size_t n)
{
    float top = -INFINITY;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        top = s->candidate[i].logit > top ? s->candidate[i].logit : top;
    for (size_t i = 0; i < n; i++) {
        s->weight[i] =
            exp((double)(s->candidate[i].logit - top) / s->how.temperature);
        sum += s->weight[i];
    }
    return sum;
}

/* How many of the n likeliest make up share p of their sum, at least one. */
static size_t nucleus(const struct merak_sampler *s, size_t n, double p,
                      double *sum_p)
{
    double wanted = p * *sum_p, sum = 0;
    size_t i = 0;

    while (i < n && (i == 0 || sum < wanted))
        sum += s->weight[i++];
    *sum_p = sum;
    return i;
}

int32_t merak_sampler_next(struct merak_sampler *s, const float *logits,
                           uint64_t index)
{
    size_t n = s->vocab, chosen = 0;
    double sum, at;

    if (s->how.temperature <= 0)
        return likeliest(logits, n);
    for (size_t i = 0; i < n; i++)
        s->candidate[i] = (struct candidate){logits[i], (int32_t)i};
    if (s->how.top_k > 0 && s->how.top_k < n) {
        keep_likeliest(s->candidate, n, s->how.top_k);
        n = s->how.top_k;
    }
    if (n < s->vocab || s->how.top_p < 1)
        qsort(s->candidate, n, sizeof(*s->candidate), likelier_first);
    sum = weigh(s, n);
    if (s->how.top_p < 1)
        n = nucleus(s, n, s->how.top_p, &sum);
    at = (double)merak_rng_uniform(merak_rng_key(s->how.seed, "generate"),
                                   index) *
         sum;
    while (chosen + 1 < n && at >= s->weight[chosen])
        at -= s->weight[chosen++];
    return s->candidate[chosen].id;
}
