/* SPDX-License-Identifier: Apache-2.0 */
/* ref_route.c - which experts a token's rows go to, and with what weights
 * (reference) */
#include "config.h"

#include "kernels/ref/ref.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

double ref_log_sum(const struct merak_operand *z, size_t at, size_t E)
{
    double max = ref_load(z, at), sum = 0;

    for (size_t i = 1; i < E; i++)
        max = fmax(max, ref_load(z, at + i));
    for (size_t i = 0; i < E; i++)
        sum += exp(ref_load(z, at + i) - max);
    return max + log(sum);
}

double ref_score(const struct merak_operand *z, size_t at, size_t E,
                 bool is_sigmoid, size_t e)
{
    double max = ref_load(z, at), sum = 0;

    if (is_sigmoid)
        return sigmoid(ref_load(z, at + e));
    for (size_t i = 1; i < E; i++)
        max = fmax(max, ref_load(z, at + i));
    for (size_t i = 0; i < E; i++)
        sum += exp(ref_load(z, at + i) - max);
    return exp(ref_load(z, at + e) - max) / sum;
}

/* Scores of a token's experts: a softmax, or sigmoids. */
static double score(const struct merak_route *r, const struct merak_operand *z,
                    size_t token, size_t e)
{
    return ref_score(z, token * r->E, r->E, r->sigmoid, e);
}

/* What experts are chosen by: logits, whose order is that of a softmax, or
 * scores with a bias. */
static double merit(const struct merak_kernel_call *call,
                    const struct merak_route *r, size_t token, size_t e)
{
    double z = ref_load(&call->operand[0], token * r->E + e);

    if (r->sigmoid)
        z = sigmoid(z);
    return call->n_in > 1 ? z + ref_load(&call->operand[1], e) : z;
}

/* The best expert in [from, to) but for those in taken[0 .. n); of equal ones
 * the first. */
static size_t best(const struct merak_kernel_call *call,
                   const struct merak_route *r, size_t token, size_t from,
                   size_t to, const int32_t *taken, size_t n)
{
    size_t found = to;

    for (size_t e = from; e < to; e++) {
        bool is_taken = false;

        for (size_t j = 0; j < n; j++)
            is_taken = is_taken || (size_t)taken[j] == e;
        if (!is_taken && (found == to || merit(call, r, token, e) >
                                             merit(call, r, token, found)))
            found = e;
    }
    return found;
}

/* The sum of a group's two best; DeepSeek-AI 2024 (arXiv:2412.19437), sec.
 * 2.1.2.  Or its best; DeepSeek-AI 2024 (arXiv:2405.04434), sec. 2.2.2. */
static double group_merit(const struct merak_kernel_call *call,
                          const struct merak_route *r, size_t token,
                          size_t group)
{
    size_t size = r->E / r->groups, from = group * size, to = from + size;
    size_t first = best(call, r, token, from, to, NULL, 0);
    const int32_t taken = (int32_t)first;
    size_t second = best(call, r, token, from, to, &taken, 1);
    double sum = merit(call, r, token, first);

    return !r->by_best && second < to ? sum + merit(call, r, token, second)
                                      : sum;
}

/* Is this group one of those that count? */
static bool is_kept(const struct merak_kernel_call *call,
                    const struct merak_route *r, size_t token, size_t group)
{
    double own = group_merit(call, r, token, group);
    size_t better = 0;

    for (size_t g = 0; g < r->groups && r->groups > 1; g++) {
        double other = group_merit(call, r, token, g);

        better += other > own || (other == own && g < group);
    }
    return better < r->kept;
}

/* The next expert of a token that has chosen taken[0 .. n). */
static size_t choose(const struct merak_kernel_call *call,
                     const struct merak_route *r, size_t token,
                     const int32_t *taken, size_t n)
{
    size_t size = r->E / r->groups, found = r->E;

    for (size_t g = 0; g < r->groups; g++) {
        size_t to = (g + 1) * size, e;

        if (!is_kept(call, r, token, g))
            continue;
        e = best(call, r, token, g * size, to, taken, n);
        if (e < to && (found == r->E ||
                       merit(call, r, token, e) > merit(call, r, token, found)))
            found = e;
    }
    return found;
}

REF_KERNEL(route)
{
    const struct merak_operand *z = &call->operand[0];
    const struct merak_operand *w = merak_call_out(call, 0);
    int32_t *id = merak_call_out(call, 1)->data;
    struct merak_route r = merak_route_view(call);

    (void)err;
    for (size_t i = 0; i < r.n; i++, id += r.K) {
        double sum = r.sigmoid ? MERAK_ROUTE_TINY : 0;

        for (size_t j = 0; j < r.K; j++) {
            id[j] = (int32_t)choose(call, &r, i, id, j);
            sum += score(&r, z, i, (size_t)id[j]);
        }
        for (size_t j = 0; j < r.K; j++) {
            double s = score(&r, z, i, (size_t)id[j]);

            s = r.scale * (r.normal ? s / sum : s);
            ref_store(w, i * r.K + j, r.rounded ? ref_round(z, s) : s);
        }
    }
    return MERAK_OK;
}

/* What a token's chosen scores s get of the gradients of its weights: their own
 * times scale, less `dot` and divided by `sum` if weights are normalised. */
struct shares {
    double sum, dot;
};

static double share(const struct merak_kernel_call *call,
                    const struct merak_route *r, const struct shares *s,
                    size_t row)
{
    double d = r->scale * ref_load(&call->operand[0], row);

    return r->normal ? (d - s->dot / s->sum) / s->sum : d;
}

REF_KERNEL(route_dx)
{
    const struct merak_operand *z = &call->operand[1];
    const int32_t *id = call->operand[2].data;
    struct merak_route r = merak_route_view(call);

    (void)err;
    for (size_t i = 0; i < r.n; i++, id += r.K) {
        struct shares t = {.sum = r.sigmoid ? MERAK_ROUTE_TINY : 0};
        double dot = 0;

        for (size_t j = 0; j < r.K; j++) {
            double s = score(&r, z, i, (size_t)id[j]);

            t.sum += s;
            t.dot += r.scale * ref_load(&call->operand[0], i * r.K + j) * s;
        }
        for (size_t j = 0; j < r.K; j++)
            dot += share(call, &r, &t, i * r.K + j) *
                   score(&r, z, i, (size_t)id[j]);
        for (size_t e = 0; e < r.E; e++) {
            double s = score(&r, z, i, e), d = 0;

            for (size_t j = 0; j < r.K; j++)
                d += (size_t)id[j] == e ? share(call, &r, &t, i * r.K + j) : 0;
            ref_store(merak_call_out(call, 0), i * r.E + e,
                      r.sigmoid ? d * s * (1 - s) : s * (d - dot));
        }
    }
    return MERAK_OK;
}
