/* SPDX-License-Identifier: Apache-2.0 */
/* route.c - which experts a token's rows go to, and with what weights; the
 * equations are in ref/ref_route.c */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/scores.h"

#define GRAIN 16 /* tokens per item */

struct routing {
    struct merak_route r;
    const void *z;
    bool bf16;
    const float *bias; /* or NULL */
    float *w;
    int32_t *ids;
    const float *dw;
    void *dz;
};

/* A token's scores: sigmoids, or a softmax. */
static void find_scores(const struct routing *q, size_t token, float *s)
{
    size_t E = q->r.E;

    if (q->r.sigmoid)
        find_sigmoids(q->z, q->bf16, token * E, E, s);
    else
        find_softmax(q->z, q->bf16, token * E, E, s);
}

/* What experts are chosen by: logits, whose order is that of a softmax, or
 * scores; with a bias. */
static void find_merits(const struct routing *q, size_t token, const float *s,
                        float *merit)
{
    size_t E = q->r.E;

    for (size_t e = 0; e < E; e += LANES) {
        vf x = q->r.sigmoid ? vload_f32(s + e)
                            : vload_n(q->z, token * E + e, E - e, q->bf16);

        if (q->bias != NULL)
            x += vload_n(q->bias, e, E - e, false);
        vstore_f32(merit + e, x);
    }
}

/* The best in [from, to) that may be chosen; of equal ones the first.  Nothing
 * is above a NaN. */
static size_t best(const float *merit, const bool *out, size_t from, size_t to)
{
    size_t found = to;

    for (size_t e = from; e < to; e++)
        if (!out[e] && (found == to || merit[e] > merit[found]))
            found = e;
    return found;
}

static float group_merit(const float *merit, bool *out, size_t from, size_t to,
                         bool by_best)
{
    size_t first = best(merit, out, from, to), second;

    out[first] = true;
    second = best(merit, out, from, to);
    out[first] = false;
    return !by_best && second < to ? merit[first] + merit[second]
                                   : merit[first];
}

/* Rule out the experts of groups that do not count. */
static void keep_groups(const struct merak_route *r, const float *merit,
                        bool *out, float *groups)
{
    size_t size = r->E / r->groups;

    for (size_t g = 0; g < r->groups; g++)
        groups[g] =
            group_merit(merit, out, g * size, (g + 1) * size, r->by_best);
    for (size_t g = 0; g < r->groups; g++) {
        size_t better = 0;

        for (size_t o = 0; o < r->groups; o++)
            better +=
                groups[o] > groups[g] || (groups[o] == groups[g] && o < g);
        for (size_t e = g * size; e < (g + 1) * size; e++)
            out[e] = better >= r->kept;
    }
}

static void choose(const struct routing *q, const float *s, const float *merit,
                   bool *out, float *groups, size_t token)
{
    const struct merak_route *r = &q->r;
    int32_t *id = q->ids + token * r->K;
    float *w = q->w + token * r->K;
    float sum = r->sigmoid ? (float)MERAK_ROUTE_TINY : 0;

    memset(out, 0, r->E);
    if (r->groups > 1)
        keep_groups(r, merit, out, groups);
    for (size_t j = 0; j < r->K; j++) {
        size_t e = best(merit, out, 0, r->E);

        out[e] = true;
        id[j] = (int32_t)e;
        sum += s[e];
    }
    for (size_t j = 0; j < r->K; j++) {
        float x = s[id[j]];

        x = (float)r->scale * (r->normal ? x / sum : x);
        if (r->rounded && q->bf16)
            x = merak_bf16_to_f32(merak_f32_to_bf16(x));
        w[j] = x;
    }
}

static void route_item(void *arg, size_t item, int thread)
{
    const struct routing *q = arg;
    size_t end = cpu_range_end(item, GRAIN, q->r.n), E = score_room(q->r.E);
    float *s = merak_pool_workspace(thread), *merit = s + E;
    float *groups = merit + E;
    bool *out = (bool *)(groups + E);

    for (size_t i = item * GRAIN; i < end; i++) {
        find_scores(q, i, s);
        find_merits(q, i, s, merit);
        choose(q, s, merit, out, groups, i);
    }
}

/* Three arrays of floats and one of flags. */
static enum merak_status check(const struct merak_kernel_call *call,
                               const struct routing *q, int z,
                               struct merak_error *err)
{
    enum merak_status rc = cpu_check_dtype(call, z, false, err);

    if (rc == MERAK_OK && score_room(q->r.E) * 13 > MERAK_POOL_WORKSPACE)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "route: %zu experts, the cpu backend has room for %zu",
                        q->r.E, MERAK_POOL_WORKSPACE / 13 - LANES);
    return rc;
}

CPU_KERNEL(route)
{
    const struct merak_operand *z = &call->operand[0];
    struct routing q = {.r = merak_route_view(call),
                        .z = z->data,
                        .bf16 = z->dtype == MERAK_BF16,
                        .w = merak_call_out(call, 0)->data,
                        .ids = merak_call_out(call, 1)->data};
    enum merak_status rc = check(call, &q, 0, err);

    if (rc != MERAK_OK)
        return rc;
    if (call->n_in > 1)
        q.bias = call->operand[1].data;
    merak_pool_run(route_item, &q, cpu_range_count(q.r.n, GRAIN));
    return MERAK_OK;
}

/* The gradients of a token's scores, in ds; the others are 0.  Returns their
 * sum, each times its score. */
static float score_gradients(const struct routing *q, size_t token,
                             const float *s, float *ds)
{
    const struct merak_route *r = &q->r;
    const int32_t *id = q->ids + token * r->K;
    const float *dw = q->dw + token * r->K;
    float sum = r->sigmoid ? (float)MERAK_ROUTE_TINY : 0, dot = 0, all = 0;

    memset(ds, 0, score_room(r->E) * sizeof(*ds));
    for (size_t j = 0; j < r->K; j++) {
        sum += s[id[j]];
        dot += (float)r->scale * dw[j] * s[id[j]];
    }
    for (size_t j = 0; j < r->K; j++) {
        float d = (float)r->scale * dw[j];

        if (r->normal)
            d = (d - dot / sum) / sum;
        ds[id[j]] += d;
        all += d * s[id[j]];
    }
    return r->normal && !r->sigmoid ? 0 : all; /* 0 but for rounding */
}

static void route_dx_item(void *arg, size_t item, int thread)
{
    const struct routing *q = arg;
    size_t end = cpu_range_end(item, GRAIN, q->r.n), E = q->r.E;
    float *s = merak_pool_workspace(thread), *ds = s + score_room(E);

    for (size_t i = item * GRAIN; i < end; i++) {
        float dot;

        find_scores(q, i, s);
        dot = score_gradients(q, i, s, ds);
        for (size_t e = 0; e < E; e += LANES) {
            vf p = vload_f32(s + e), d = vload_f32(ds + e);

            d = q->r.sigmoid ? d * p * (1.0f - p) : p * (d - dot);
            vstore_n(q->dz, i * E + e, E - e, d, q->bf16);
        }
    }
}

CPU_KERNEL(route_dx)
{
    const struct merak_operand *z = &call->operand[1];
    struct routing q = {.r = merak_route_view(call),
                        .z = z->data,
                        .bf16 = z->dtype == MERAK_BF16,
                        .dw = call->operand[0].data,
                        .ids = call->operand[2].data,
                        .dz = merak_call_out(call, 0)->data};
    enum merak_status rc = check(call, &q, 1, err);

    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(route_dx_item, &q, cpu_range_count(q.r.n, GRAIN));
    return MERAK_OK;
}
