/* SPDX-License-Identifier: Apache-2.0 */
/* ref_embed.c - token and position embeddings, rotary positions (reference) */
#include "config.h"

#include "kernels/ref/ref.h"
#include "kernels/rope.h"

#include <math.h>

/* Local row of the table that token i selects, or -1 if another rank has it. */
static ptrdiff_t local_row(const struct merak_operand *tokens, size_t i,
                           const struct merak_operand *table)
{
    size_t id = (size_t)((const int32_t *)tokens->data)[i];

    if (id < table->lo[0] || id >= table->lo[0] + table->local.dim[0])
        return -1;
    return (ptrdiff_t)(id - table->lo[0]);
}

/* The factor that rows are multiplied by. */
static double scale_of(const struct merak_kernel_call *call)
{
    return call->attrs->f[0] > 0 ? call->attrs->f[0] : 1;
}

REF_KERNEL(embedding)
{
    const struct merak_operand *tokens = &call->operand[0];
    const struct merak_operand *table = &call->operand[1];
    const struct merak_operand *y = merak_call_out(call, 0);
    size_t C = merak_local_last(table), n = merak_local_count(tokens);
    double scale = scale_of(call);
    enum merak_status rc;

    rc = merak_check_ids(tokens, table->full.dim[0], "token", err);
    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < n; i++) {
        ptrdiff_t row = local_row(tokens, i, table);

        for (size_t c = 0; c < C; c++)
            ref_store(y, i * C + c,
                      row < 0 ? 0.0
                              : scale * ref_load(table, (size_t)row * C + c));
    }
    return MERAK_OK;
}

REF_KERNEL(embedding_dw)
{
    const struct merak_operand *tokens = &call->operand[0];
    const struct merak_operand *dy = &call->operand[1];
    const struct merak_operand *dw = merak_call_out(call, 0);
    size_t C = merak_local_last(dw), n = merak_local_count(tokens);
    size_t skip = (size_t)call->attrs->i[1] - 1; /* none: SIZE_MAX */
    enum merak_status rc;

    rc = merak_check_ids(tokens, dw->full.dim[0], "token", err);
    if (rc != MERAK_OK)
        return rc;
    for (size_t v = 0; v < dw->local.dim[0]; v++) {
        for (size_t c = 0; c < C; c++) {
            double sum = 0;

            for (size_t i = 0; i < n; i++)
                if (local_row(tokens, i, dw) == (ptrdiff_t)v &&
                    v + dw->lo[0] != skip)
                    sum += ref_load(dy, i * C + c);
            ref_put(call, dw, v * C + c, scale_of(call) * sum);
        }
    }
    return MERAK_OK;
}

/* The position of local token i of x. */
static size_t position_of(const struct merak_kernel_call *call,
                          const struct merak_operand *x, size_t i)
{
    return merak_position(call->pieces, x->full.dim[1],
                          x->lo[1] + i % x->local.dim[1]);
}

/* The same in its document; operand o of the call, if present, has the starts
 * of documents. */
static size_t position(const struct merak_kernel_call *call,
                       const struct merak_operand *x, int o, size_t i)
{
    size_t t = position_of(call, x, i);

    return o < call->n_in
               ? t - (size_t)((const int32_t *)call->operand[o].data)[i]
               : t;
}

REF_KERNEL(add_position)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *table = &call->operand[1];
    const struct merak_operand *y = merak_call_out(call, 0);
    size_t B = x->local.dim[0], T = x->local.dim[1], C = x->local.dim[2];

    (void)err;
    for (size_t i = 0; i < B * T; i++) {
        size_t row = position(call, x, 2, i);

        for (size_t c = 0; c < C; c++)
            ref_store(y, i * C + c,
                      ref_load(x, i * C + c) + ref_load(table, row * C + c));
    }
    return MERAK_OK;
}

REF_KERNEL(add_position_dw)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *dw = merak_call_out(call, 0);
    size_t B = dy->local.dim[0], T = dy->local.dim[1], C = dy->local.dim[2];

    (void)err;
    for (size_t p = 0; p < dw->local.dim[0]; p++) {
        for (size_t c = 0; c < C; c++) {
            double sum = 0;

            for (size_t i = 0; i < B * T; i++)
                if (position(call, dy, 1, i) == p)
                    sum += ref_load(dy, i * C + c);
            ref_put(call, dw, p * C + c, sum);
        }
    }
    return MERAK_OK;
}

/* Rotate a vector of D numbers at local element `at` to position t. */
static void rotate(const struct merak_operand *x, const struct merak_operand *y,
                   size_t at, size_t D, double t,
                   const struct merak_attrs *attrs)
{
    double m = merak_rope_amplitude(attrs);
    size_t R = merak_rope_turned(attrs, D);

    for (size_t i = 0; i < R / 2; i++) {
        double angle = t * merak_rope_frequency(attrs, R, i);
        double c = m * cos(angle), s = m * sin(angle);
        double a = ref_load(x, at + i), b = ref_load(x, at + i + R / 2);

        if (attrs->i[0] == 1)
            s = -s;
        ref_store(y, at + i, a * c - b * s);
        ref_store(y, at + i + R / 2, b * c + a * s);
    }
    for (size_t i = R; i < D; i++)
        ref_store(y, at + i, ref_load(x, at + i));
}

REF_KERNEL(rope)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *y = merak_call_out(call, 0);
    size_t D = merak_local_last(x);
    size_t inner = merak_local_span(x, 2, x->local.ndim - 1);
    size_t n = x->local.dim[0] * x->local.dim[1] * inner;

    (void)err;
    for (size_t i = 0; i < n; i++)
        rotate(x, y, i * D, D, (double)position_of(call, x, i / inner),
               call->attrs);
    return MERAK_OK;
}
