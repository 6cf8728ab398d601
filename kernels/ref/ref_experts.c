/* SPDX-License-Identifier: Apache-2.0 */
/* ref_experts.c - gated MLPs of chosen rows, and their gradients (reference)
 *
 * y of a token is the sum over its rows, by ascending expert, of w down
 * (silu(gate x) * (up x)), of which what `down` multiplies is rounded to the
 * compute type, as are the gate and what it is multiplied by.
 */
#include "config.h"

#include "kernels/ref/ref.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* sum over k of a[at + k] b[from + k step] */
static double dot(const struct merak_operand *a, size_t at,
                  const struct merak_operand *b, size_t from, size_t step,
                  size_t n)
{
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += ref_load(a, at + k) * ref_load(b, from + k * step);
    return sum;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Element f of row i between the two layers, from the pool. */
static double inner(const struct merak_operand *pool, size_t i, size_t F,
                    size_t f)
{
    return ref_round(pool, silu(ref_load(pool, 2 * i * F + f)) *
                               ref_load(pool, (2 * i + 1) * F + f));
}

/* y += a row's output. */
static void add_row(const struct merak_kernel_call *call,
                    const struct merak_experts *s, size_t i, double *y)
{
    const struct merak_operand *x = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *down = &call->operand[5];
    const struct merak_operand *pool = merak_call_out(call, 1);
    size_t e = (size_t)s->ids[i], C = s->C, F = s->F;

    for (int m = 0; m < 2; m++)
        for (size_t f = 0; f < F; f++)
            ref_store(pool, (2 * i + (size_t)m) * F + f,
                      dot(x, i / s->K * C, &call->operand[3 + m],
                          (e * F + f) * C, 1, C));
    for (size_t c = 0; c < C; c++) {
        double sum = 0;

        for (size_t f = 0; f < F; f++)
            sum += inner(pool, i, F, f) * ref_load(down, (e * C + c) * F + f);
        y[c] += ref_load(w, i) * sum;
    }
}

/* Adds a row of a token to its sum. */
typedef void (*row_fn)(const struct merak_kernel_call *call,
                       const struct merak_experts *s, size_t i, double *sum);

/* Output 0 of each token: its rows in the order of experts. */
static enum merak_status each_token(const struct merak_kernel_call *call,
                                    row_fn add, struct merak_error *err)
{
    struct merak_experts s = merak_experts_sizes(call);
    enum merak_status rc = merak_experts_check(&s, err);
    double *sum = rc == MERAK_OK ? malloc((s.C + 1) * sizeof(*sum)) : NULL;

    if (rc == MERAK_OK && sum == NULL)
        rc = merak_fail_nomem(err, s.C * sizeof(*sum));
    for (size_t t = 0; t < s.n && rc == MERAK_OK; t++) {
        memset(sum, 0, s.C * sizeof(*sum));
        for (size_t e = 0; e < s.E; e++)
            for (size_t i = t * s.K; i < (t + 1) * s.K; i++)
                if ((size_t)s.ids[i] == e)
                    add(call, &s, i, sum);
        for (size_t c = 0; c < s.C; c++)
            ref_store(merak_call_out(call, 0), t * s.C + c, sum[c]);
    }
    free(sum);
    return rc;
}

REF_KERNEL(experts)
{
    return each_token(call, add_row, err);
}

/* The row's gradients, and dx += its share. */
static void add_gradient(const struct merak_kernel_call *call,
                         const struct merak_experts *s, size_t i, double *dx)
{
    const struct merak_operand *dy = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *pool = &call->operand[6];
    const struct merak_operand *dpool = merak_call_out(call, 2);
    size_t e = (size_t)s->ids[i], C = s->C, F = s->F, gate = 2 * i * F;
    double dw = 0;

    for (size_t f = 0; f < F; f++) {
        double d =
            dot(dy, i / s->K * C, &call->operand[5], e * C * F + f, F, C);
        double g = ref_load(pool, gate + f), sigmoid = 1 / (1 + exp(-g));

        dw += d * inner(pool, i, F, f);
        d *= ref_load(w, i);
        ref_store(dpool, gate + f,
                  d * ref_load(pool, gate + F + f) * sigmoid *
                      (1 + g * (1 - sigmoid)));
        ref_store(dpool, gate + F + f, d * silu(g));
    }
    ref_store(merak_call_out(call, 1), i, dw);
    for (size_t c = 0; c < C; c++)
        dx[c] += dot(dpool, gate, &call->operand[3], e * F * C + c, C, F) +
                 dot(dpool, gate + F, &call->operand[4], e * F * C + c, C, F);
}

REF_KERNEL(experts_dx)
{
    return each_token(call, add_gradient, err);
}

REF_KERNEL(experts_dw)
{
    const struct merak_operand *x = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *dy = &call->operand[3];
    const struct merak_operand *pool = &call->operand[4];
    const struct merak_operand *dpool = &call->operand[5];
    struct merak_experts s = merak_experts_sizes(call);
    enum merak_status rc = merak_experts_check(&s, err);
    size_t C = s.C, F = s.F;

    for (size_t k = 0; k < s.E * F * C && rc == MERAK_OK; k++) {
        size_t e = k / (F * C), f = k / C % F, c = k % C;
        double gate = 0, up = 0, down = 0;

        for (size_t i = 0; i < s.n * s.K; i++) {
            if ((size_t)s.ids[i] != e)
                continue;
            gate +=
                ref_load(dpool, 2 * i * F + f) * ref_load(x, i / s.K * C + c);
            up += ref_load(dpool, (2 * i + 1) * F + f) *
                  ref_load(x, i / s.K * C + c);
            down +=
                ref_round(dy, ref_load(w, i) * ref_load(dy, i / s.K * C + c)) *
                inner(pool, i, F, f);
        }
        ref_put(call, merak_call_out(call, 0), k, gate);
        ref_put(call, merak_call_out(call, 1), k, up);
        ref_put(call, merak_call_out(call, 2), (e * C + c) * F + f, down);
    }
    return rc;
}
