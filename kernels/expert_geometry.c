/* SPDX-License-Identifier: Apache-2.0 */
/* expert_geometry.c - sizes for loops of routers and experts */
#include "config.h"

#include "kernels/geometry.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

static struct merak_gating gating_of(const struct merak_attrs *attrs)
{
    const double *f = attrs->f;

    return (struct merak_gating){.limit = f[1] > 0 ? f[1] : INFINITY,
                                 .slope = f[2] > 0 ? f[2] : 1,
                                 .shift = f[3],
                                 .plain =
                                     f[1] == 0 && f[2] == 0 && f[3] == 0};
}

struct merak_experts merak_experts_sizes(const struct merak_kernel_call *call)
{
    int biased = (int)call->attrs->i[2], n_in = call->n_in - biased;
    bool forward = call->n_out == 2;
    bool weights = !forward && (n_in == 6 || n_in == 9);
    const struct merak_operand *of = &call->operand[weights ? call->n_in : 3];
    const struct merak_operand *pool =
        &call->operand[forward   ? call->n_in + 1
                       : weights ? 4
                                 : 6];
    const struct merak_operand *ids = &call->operand[2];
    bool shared = pool->local.ndim == 4; /* [E, Q, 2, F] */

    return (struct merak_experts){
        .n = merak_local_span(ids, 0, ids->local.ndim - 1),
        .K = merak_local_last(ids),
        .from = of->lo[0],
        .E = of->local.dim[0],
        .all = of->full.dim[0],
        .F = merak_local_last(pool),
        .C = merak_local_last(&call->operand[0]),
        .bias = biased ? &call->operand[n_in] : NULL,
        .gating = gating_of(call->attrs),
        .kept = merak_local_span(pool, 0, pool->local.ndim - 2),
        .shared = shared,
        .of_weights = weights,
        .ids = ids->data};
}

enum merak_status
merak_experts_bias_check(const struct merak_kernel_call *call,
                         struct merak_error *err)
{
    const struct merak_operand *ids = &call->operand[2], *bias;
    struct merak_experts x = {.K = merak_local_last(ids), .ids = ids->data};

    /* forward has it last, _dx before ids, and _db as its output */
    bias = &call->operand[call->operand[1].local.ndim == 2 ? 1 : 3];
    x.n = merak_local_count(ids) / x.K;
    x.all = bias->full.dim[0];
    return merak_experts_check(&x, err);
}

enum merak_status merak_experts_check(const struct merak_experts *x,
                                      struct merak_error *err)
{
    for (size_t i = 0; i < x->n * x->K; i++) {
        if (x->ids[i] < MERAK_NO_EXPERT ||
            (x->ids[i] >= 0 && (size_t)x->ids[i] >= x->all))
            return merak_fail(err, MERAK_ERR_PARAM,
                              "expert %d of token %zu, expected 0 to %zu",
                              x->ids[i], i / x->K, x->all - 1);
    }
    return MERAK_OK;
}

void merak_experts_sort(const struct merak_experts *x, uint32_t *first,
                        uint32_t *order)
{
    size_t rows = x->n * x->K;
    uint32_t end = 0;

    memset(first, 0, (x->E + 1) * sizeof(*first));
    for (size_t i = 0; i < rows; i++)
        if (merak_experts_has(x, i))
            first[(size_t)x->ids[i] - x->from]++;
    for (size_t e = 0; e <= x->E; e++) { /* where each begins */
        uint32_t count = first[e];

        first[e] = end;
        end += count;
    }
    for (size_t i = 0; i < rows; i++)
        if (merak_experts_has(x, i))
            order[first[(size_t)x->ids[i] - x->from]++] = (uint32_t)i;
    for (size_t e = x->E; e > 0; e--)
        first[e] = first[e - 1];
    first[0] = 0;
}

struct merak_route merak_route_view(const struct merak_kernel_call *call)
{
    const struct merak_attrs *a = call->attrs;
    bool back = call->n_out == 1;
    const struct merak_operand *z = &call->operand[back ? 1 : 0];
    size_t E = merak_local_last(z);

    return (struct merak_route){.n = merak_local_count(z) / E,
                                .E = E,
                                .K = (size_t)a->i[0],
                                .sigmoid = a->i[1] == 1,
                                .normal = a->i[2] == 1,
                                .groups = a->i[3] > 1 ? (size_t)a->i[3] : 1,
                                .kept = a->i[3] > 1 ? (size_t)a->f[1] : 1,
                                .by_best = a->i[4] == 1,
                                .scale = a->f[0] > 0 ? a->f[0] : 1,
                                .rounded = a->f[2] == 1};
}

struct merak_overflow merak_overflow_view(const struct merak_kernel_call *call)
{
    const struct merak_operand *ids = &call->operand[0];
    const struct merak_operand *pool = &call->operand[1];

    return (struct merak_overflow){
        .ids = ids->data,
        .n = merak_local_count(ids),
        .from = pool->lo[0],
        .E = pool->local.dim[0],
        .kept = pool->local.dim[0] * pool->local.dim[1],
        .part = (double)pool->local.dim[3] / (double)pool->full.dim[3]};
}

double merak_overflow_of(const struct merak_overflow *o, size_t rows)
{
    return rows > o->kept ? (double)(rows - o->kept) * o->part : 0;
}

double merak_overflow_count(const struct merak_kernel_call *call)
{
    struct merak_overflow o = merak_overflow_view(call);
    size_t rows = 0;

    for (size_t i = 0; i < o.n; i++)
        rows += (size_t)o.ids[i] - o.from < o.E;
    return merak_overflow_of(&o, rows);
}

/* What route_load and balance_dx have in common. */
static struct merak_balance view_router(const struct merak_kernel_call *call,
                                        const struct merak_operand *load)
{
    const struct merak_operand *z = &call->operand[0];

    return (struct merak_balance){.B = z->local.dim[0],
                                  .T = z->local.dim[1],
                                  .E = z->local.dim[2],
                                  .L = merak_local_last(load),
                                  .all_b = (double)z->full.dim[0],
                                  .all_t = (double)z->full.dim[1],
                                  .sigmoid = call->attrs->i[1] == 1,
                                  .z = z,
                                  .load = load};
}

struct merak_balance merak_load_view(const struct merak_kernel_call *call)
{
    struct merak_balance b = view_router(call, merak_call_out(call, 0));

    b.ids = &call->operand[1];
    b.K = merak_local_last(b.ids);
    return b;
}

struct merak_balance merak_balance_dx_view(const struct merak_kernel_call *call)
{
    struct merak_balance b = view_router(call, &call->operand[1]);
    const double *f = call->attrs->f;
    double share = (double)call->step->token_share / (b.all_b * b.all_t);

    b.aux = f[0] * (double)b.E * share / b.all_t;
    b.square = 2 * f[1] * share;
    return b;
}

struct merak_balance merak_balance_view(const struct merak_kernel_call *call)
{
    const int64_t *i = call->attrs->i;
    const struct merak_operand *load = &call->operand[0];

    return (struct merak_balance){.B = load->local.dim[0],
                                  .T = (size_t)i[1],
                                  .E = (size_t)i[0],
                                  .K = (size_t)i[2],
                                  .L = merak_local_last(load),
                                  .all_b = (double)load->full.dim[0],
                                  .all_t = (double)i[1],
                                  .load = load};
}

void merak_balance_whole(const struct merak_balance *b, double *rows_p,
                         double *tokens_p)
{
    size_t n = b->T * b->K, by = b->E;

    while (n != 0) { /* Euclid: `by` becomes the common divisor */
        size_t rest = by % n;

        by = n;
        n = rest;
    }
    *rows_p = (double)(b->E / by);
    *tokens_p = (double)(b->T * b->K / by);
}
