/* SPDX-License-Identifier: Apache-2.0 */
/* geometry.c - sizes for loops from a kernel call's shapes */
#include "config.h"

#include "kernels/geometry.h"

#include "base/error.h"
#include "base/rng.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

struct merak_gemm_sizes merak_linear_sizes(const struct merak_kernel_call *call)
{
    const struct merak_operand *x = &call->operand[0], *w = &call->operand[1];
    int contracted = (int)call->attrs->i[0];
    int lead = x->local.ndim - contracted, out = w->local.ndim - contracted;

    return (struct merak_gemm_sizes){
        .m = merak_local_span(x, 0, lead),
        .n = merak_local_span(w, 0, out),
        .k = merak_local_span(w, out, w->local.ndim),
    };
}

struct merak_gemm_sizes
merak_linear_dx_sizes(const struct merak_kernel_call *call)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *w = &call->operand[1];
    int out = w->local.ndim - (int)call->attrs->i[0];

    return (struct merak_gemm_sizes){
        .m = merak_local_span(dy, 0, dy->local.ndim - out),
        .n = merak_local_span(w, 0, out),
        .k = merak_local_span(w, out, w->local.ndim),
    };
}

/* The ranks of the three operands fix the number of lead dims. */
struct merak_gemm_sizes
merak_linear_dw_sizes(const struct merak_kernel_call *call)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *dy = &call->operand[1];
    const struct merak_operand *dw = merak_call_out(call, 0);
    int lead = (x->local.ndim + dy->local.ndim - dw->local.ndim) / 2;

    return (struct merak_gemm_sizes){
        .m = merak_local_span(x, 0, lead),
        .n = merak_local_span(dy, lead, dy->local.ndim),
        .k = merak_local_span(x, lead, x->local.ndim),
    };
}

static struct merak_heads heads(const struct merak_operand *op)
{
    return (struct merak_heads){.op = op,
                                .row = merak_local_span(op, 2, op->local.ndim),
                                .t0 = op->lo[1],
                                .n = op->local.dim[1],
                                .D = merak_local_last(op)};
}

static void grouped_sizes(const struct merak_operand *q,
                          const struct merak_operand *k,
                          const struct merak_operand *v,
                          struct merak_attention *at)
{
    const size_t *dim = q->local.dim;

    at->B = dim[0];
    at->T = k->local.dim[1];
    at->G = dim[2];
    at->R = dim[3];
    at->D = dim[4];
    at->E = merak_local_last(v);
}

/* A slice's qkv also holds the positions before it. */
static void packed_sizes(const struct merak_operand *qkv,
                         struct merak_attention *at)
{
    const size_t *dim = qkv->local.dim;

    at->B = dim[0];
    at->T = dim[1];
    at->G = dim[3];
    at->R = 1;
    at->D = at->E = dim[4];
}

/* Set the parameters of attention (graph.h); D is already set. */
static void set_attrs(const struct merak_kernel_call *call,
                      struct merak_attention *at)
{
    const struct merak_attrs *attrs = call->attrs;

    at->window = attrs->i[1] > 0 ? (size_t)attrs->i[1] : SIZE_MAX;
    at->scale = attrs->f[1] > 0 ? attrs->f[1] : 1 / sqrt((double)at->D);
    at->cap = attrs->f[2];
    at->stream = attrs->i[0];
    at->step = call->step;
    at->pieces = call->pieces;
    at->after = attrs->i[2] >= 0 && (size_t)attrs->i[2] < at->T
                    ? (size_t)attrs->i[2]
                    : at->T;
    if (call->step != NULL &&
        call->step->train) /* step is NULL in queries of scratch */
        at->drop = attrs->f[0];
}

/* Set the inputs that not every call has, which begin with operand `first`. */
static void set_optional(const struct merak_kernel_call *call, int first,
                         struct merak_attention *at)
{
    const struct merak_operand *op = &call->operand[first];
    int64_t has = call->attrs->i[4];

    if (has & MERAK_ATTENTION_STARTS)
        at->starts = op++;
    if (has & MERAK_ATTENTION_LENGTHS)
        at->lengths = op++;
    if (has & MERAK_ATTENTION_PREFIX)
        at->prefix = op++;
    if (has & MERAK_ATTENTION_BIAS)
        merak_relative_set(&at->bias, call->attrs, op++,
                           at->q.op->full.dim[1], at->T);
    if (has & MERAK_ATTENTION_SINKS)
        at->sinks = op;
}

static enum merak_status check_keys(const struct merak_operand *keys,
                                    const char *what, size_t least, size_t most,
                                    struct merak_error *err)
{
    for (size_t b = 0; keys != NULL && b < keys->local.dim[0]; b++) {
        int32_t n = ((const int32_t *)keys->data)[b];

        if (n < 0 || (size_t)n < least || (size_t)n > most)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "attention: %s of sample %zu of the micro-batch "
                              "is %d, expected %zu to %zu",
                              what, keys->lo[0] + b, (int)n, least, most);
    }
    return MERAK_OK;
}

enum merak_status merak_attention_check(const struct merak_attention *at,
                                        struct merak_error *err)
{
    enum merak_status rc =
        check_keys(at->lengths, "the key length", 1, at->T, err);

    return rc != MERAK_OK
               ? rc
               : check_keys(at->prefix, "the prefix length", 0, at->T, err);
}

static bool has_query(const struct merak_attention *at, size_t t)
{
    size_t i = merak_position_index(at->pieces, at->T, t);

    return i >= at->o.t0 && i - at->o.t0 < at->o.n;
}

/* Queries are cut between pieces only. */
static bool next_pieces(struct merak_attention *at)
{
    size_t n = at->T / at->pieces, first = at->end;

    while (first < at->T && !has_query(at, first))
        first += n;
    if (first >= at->T)
        return false;
    at->first = first;
    do
        first += n;
    while (first < at->T && has_query(at, first));
    at->end = first;
    return true;
}

bool merak_attention_next(struct merak_attention *at)
{
    if (at->pieces > 0)
        return next_pieces(at);
    if (at->end > 0)
        return false;
    at->first = at->o.t0;
    at->end = at->o.t0 + at->o.n;
    return at->end > at->first;
}

/* The three thirds of a packed operand's row. */
static void packed_heads(const struct merak_operand *qkv, size_t third,
                         struct merak_heads *q, struct merak_heads *k,
                         struct merak_heads *v)
{
    const size_t n = qkv->local.dim[1], D = merak_local_last(qkv);

    *q = (struct merak_heads){qkv, 0, 3 * third, 0, n, D};
    *k = (struct merak_heads){qkv, third, 3 * third, 0, n, D};
    *v = (struct merak_heads){qkv, 2 * third, 3 * third, 0, n, D};
}

void merak_attention_view(const struct merak_kernel_call *call,
                          struct merak_attention *at)
{
    const struct merak_operand *op = call->operand;

    *at = (struct merak_attention){0};
    grouped_sizes(&op[0], &op[1], &op[2], at);
    set_attrs(call, at);
    at->q = heads(&op[0]);
    at->k = heads(&op[1]);
    at->v = heads(&op[2]);
    set_optional(call, 3, at);
    op += call->n_in;
    at->o = heads(&op[0]);
    at->lse = &op[1];
    (void)merak_attention_next(at);
}

void merak_attention_packed_view(const struct merak_kernel_call *call,
                                 struct merak_attention *at)
{
    const struct merak_operand *op = call->operand;
    size_t third;

    *at = (struct merak_attention){0};
    packed_sizes(&op[0], at);
    set_attrs(call, at);
    third = at->G * at->D;
    packed_heads(&op[0], third, &at->q, &at->k, &at->v);
    set_optional(call, 1, at);
    op += call->n_in;
    at->o = heads(&op[0]);
    at->lse = &op[1];
    (void)merak_attention_next(at);
}

void merak_attention_dx_view(const struct merak_kernel_call *call,
                             struct merak_attention *at)
{
    const struct merak_operand *op = call->operand;

    *at = (struct merak_attention){0};
    at->accumulate = call->accumulate;
    grouped_sizes(&op[1], &op[2], &op[3], at);
    set_attrs(call, at);
    at->d_o = heads(&op[0]);
    at->q = heads(&op[1]);
    at->k = heads(&op[2]);
    at->v = heads(&op[3]);
    at->o = heads(&op[4]);
    at->lse = &op[5];
    set_optional(call, 6, at);
    op += call->n_in;
    if (at->bias.table != NULL)
        at->bias.sums = &op[3];
    at->dq = heads(&op[0]);
    at->dk = heads(&op[1]);
    at->dv = heads(&op[2]);
    (void)merak_attention_next(at);
}

void merak_attention_packed_dx_view(const struct merak_kernel_call *call,
                                    struct merak_attention *at)
{
    const struct merak_operand *op = call->operand;
    size_t third;

    *at = (struct merak_attention){0};
    at->accumulate = call->accumulate;
    packed_sizes(&op[1], at);
    set_attrs(call, at);
    third = at->G * at->D;
    at->d_o = heads(&op[0]);
    packed_heads(&op[1], third, &at->q, &at->k, &at->v);
    at->o = heads(&op[2]);
    at->lse = &op[3];
    set_optional(call, 4, at);
    packed_heads(&op[call->n_in], third, &at->dq, &at->dk, &at->dv);
    (void)merak_attention_next(at);
}

/* The first dim of the longest tail whose other dims are whole, and which is
 * not of positions in pieces. */
static int run_dim(const struct merak_operand *op, size_t pieces)
{
    int d = op->local.ndim - 1, least = pieces > 0 ? 2 : 1;

    while (d > least && op->local.dim[d] == op->full.dim[d])
        d--;
    return d;
}

size_t merak_run_length(const struct merak_operand *op, size_t pieces)
{
    int d = run_dim(op, pieces);

    return merak_local_span(op, d > 0 ? d : 1, op->local.ndim);
}

size_t merak_run_count(const struct merak_operand *op, size_t pieces)
{
    int d = run_dim(op, pieces);

    return merak_local_span(op, 0, d > 0 ? d : 1);
}

void merak_run_place(const struct merak_operand *op, size_t pieces, size_t run,
                     size_t *sample_p, size_t *element_p)
{
    int first = run_dim(op, pieces) > 0 ? run_dim(op, pieces) : 1;
    size_t stride = 1, element = 0;

    for (int d = op->local.ndim - 1; d >= first; d--) {
        element += op->lo[d] * stride;
        stride *= op->full.dim[d];
    }
    for (int d = first - 1; d >= 1; d--) {
        size_t i = op->lo[d] + run % op->local.dim[d];

        element +=
            (d == 1 ? merak_position(pieces, op->full.dim[1], i) : i) * stride;
        stride *= op->full.dim[d];
        run /= op->local.dim[d];
    }
    *sample_p = op->lo[0] + run;
    *element_p = element;
}

uint64_t merak_dropout_key(const struct merak_step *step, size_t sample,
                           int64_t stream)
{
    uint64_t key =
        merak_rng_mix(merak_rng_key(step->seed, "dropout"), step->step);

    key = merak_rng_mix(key, step->sample + sample);
    key = merak_rng_mix(key, (uint64_t)stream);
    return step->pass == 0 ? key : merak_rng_mix(key, (uint64_t)step->pass);
}

uint64_t merak_attention_key(const struct merak_attention *at, size_t b)
{
    return merak_dropout_key(at->step, at->lse->lo[0] + b, at->stream);
}

/* Statistics of packed heads have one dim of heads, of grouped ones two. */
uint64_t merak_attention_element(const struct merak_attention *at, size_t h,
                                 size_t j)
{
    const struct merak_operand *lse = at->lse;
    uint64_t queries = lse->full.dim[1], keys = at->k.op->full.dim[1];
    uint64_t head = lse->lo[2] + h / at->R;

    if (lse->local.ndim == 4)
        head = head * lse->full.dim[3] + lse->lo[3] + h % at->R;
    return (head * keys + j) * ((queries + 3) / 4 * 4);
}

static enum merak_status check_from(const struct merak_operand *ids,
                                    int32_t least, size_t n, const char *what,
                                    struct merak_error *err)
{
    const int32_t *id = ids->data;
    size_t count = merak_local_count(ids);

    for (size_t i = 0; i < count; i++)
        if (id[i] < least || (id[i] >= 0 && (size_t)id[i] >= n))
            return merak_fail(err, MERAK_ERR_PARAM,
                              "%s %d is outside the vocabulary of %zu; the "
                              "data was made with another tokenizer",
                              what, (int)id[i], n);
    return MERAK_OK;
}

enum merak_status merak_check_ids(const struct merak_operand *ids, size_t n,
                                  const char *what, struct merak_error *err)
{
    return check_from(ids, 0, n, what, err);
}

enum merak_status merak_check_targets(const struct merak_operand *ids, size_t n,
                                      struct merak_error *err)
{
    return check_from(ids, MERAK_NO_TARGET, n, "target", err);
}

/* The first of n elements that is -1 or less, or no number; or n. */
static size_t first_below(const struct merak_operand *x, size_t n)
{
    const double *d = x->data;
    const float *f = x->data;
    const uint16_t *h = x->data;
    size_t i = 0;

    if (x->dtype == MERAK_F64)
        for (; i < n && d[i] > -1; i++)
            ;
    else if (x->dtype == MERAK_BF16)
        for (; i < n && merak_bf16_to_f32(h[i]) > -1; i++)
            ;
    else
        for (; i < n && f[i] > -1; i++)
            ;
    return i;
}

enum merak_status merak_check_log1p(const struct merak_operand *x,
                                    struct merak_error *err)
{
    size_t n = merak_local_count(x), i = first_below(x, n);

    return i == n ? MERAK_OK
                  : merak_fail(err, MERAK_ERR_PARAM,
                               "log1p: element %zu of %zu is -1, less, or not "
                               "a number: expected counts, from 0",
                               i, n);
}
