/* SPDX-License-Identifier: Apache-2.0 */
/* ref_pointwise.c - activations, residuals, dropout (reference) */
#include "config.h"

#include "kernels/ref/ref.h"

#include "base/rng.h"

#include <math.h>

#define SQRT_2_OVER_PI 0.79788456080286535588
#define SQRT_1_OVER_2 0.70710678118654752440
#define INV_SQRT_2PI 0.39894228040143267794
#define GELU_CUBIC 0.044715

/* Hendrycks and Gimpel 2016 (arXiv:1606.08415): x Phi(x), or its tanh form. */
static double gelu(double x, bool tanh_form)
{
    if (tanh_form)
        return 0.5 * x *
               (1 + tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)));
    return 0.5 * x * (1 + erf(x * SQRT_1_OVER_2));
}

static double gelu_slope(double x, bool tanh_form)
{
    double t;

    if (!tanh_form)
        return 0.5 * (1 + erf(x * SQRT_1_OVER_2)) +
               x * INV_SQRT_2PI * exp(-0.5 * x * x);
    t = tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI *
                               (1 + 3 * GELU_CUBIC * x * x);
}

REF_KERNEL(gelu)
{
    const struct merak_operand *x = &call->operand[0];
    size_t n = merak_local_count(x);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i,
                  gelu(ref_load(x, i), call->attrs->i[0] == 1));
    return MERAK_OK;
}

REF_KERNEL(gelu_dx)
{
    const struct merak_operand *dy = &call->operand[0], *x = &call->operand[1];
    size_t n = merak_local_count(x);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i,
                  ref_load(dy, i) *
                      gelu_slope(ref_load(x, i), call->attrs->i[0] == 1));
    return MERAK_OK;
}

REF_KERNEL(mean)
{
    const struct merak_operand *x = &call->operand[0];
    struct merak_along a = merak_along_of(call, x);

    (void)err;
    for (size_t i = 0; i < a.outer * a.inner; i++) {
        size_t first = i / a.inner * a.n * a.inner + i % a.inner;
        double sum = 0;

        for (size_t k = 0; k < a.n; k++)
            sum += ref_load(x, first + k * a.inner);
        ref_store(merak_call_out(call, 0), i, sum / (double)a.n);
    }
    return MERAK_OK;
}

REF_KERNEL(mean_dx)
{
    const struct merak_operand *dx = merak_call_out(call, 0);
    struct merak_along a = merak_along_of(call, dx);

    (void)err;
    for (size_t i = 0; i < a.outer * a.n * a.inner; i++)
        ref_store(dx, i,
                  ref_load(&call->operand[0],
                           i / (a.n * a.inner) * a.inner + i % a.inner) /
                      (double)call->attrs->i[1]);
    return MERAK_OK;
}

/* Below 0 f[0] times x: Maas et al. 2013 (ICML workshop), eq. 2. */
REF_KERNEL(relu)
{
    const struct merak_operand *x = &call->operand[0];
    double slope = call->attrs->f[0];

    (void)err;
    for (size_t i = 0; i < merak_local_count(x); i++) {
        double v = ref_load(x, i);

        if (v < 0)
            v = slope == 0 ? 0 : slope * v;
        ref_store(merak_call_out(call, 0), i, v);
    }
    return MERAK_OK;
}

REF_KERNEL(relu_dx)
{
    const struct merak_operand *dy = &call->operand[0], *x = &call->operand[1];
    double slope = call->attrs->f[0];

    (void)err;
    for (size_t i = 0; i < merak_local_count(x); i++)
        ref_store(merak_call_out(call, 0), i,
                  ref_load(x, i) > 0 ? ref_load(dy, i)
                  : slope == 0       ? 0
                                     : slope * ref_load(dy, i));
    return MERAK_OK;
}

REF_KERNEL(log1p)
{
    const struct merak_operand *x = &call->operand[0];
    enum merak_status rc = merak_check_log1p(x, err);

    for (size_t i = 0; rc == MERAK_OK && i < merak_local_count(x); i++)
        ref_store(merak_call_out(call, 0), i, log1p(ref_load(x, i)));
    return rc;
}

REF_KERNEL(log1p_dx)
{
    const struct merak_operand *dy = &call->operand[0], *x = &call->operand[1];

    (void)err;
    for (size_t i = 0; i < merak_local_count(x); i++)
        ref_store(merak_call_out(call, 0), i,
                  ref_load(dy, i) / (1 + ref_load(x, i)));
    return MERAK_OK;
}

REF_KERNEL(tanh)
{
    const struct merak_operand *x = &call->operand[0];

    (void)err;
    for (size_t i = 0; i < merak_local_count(x); i++)
        ref_store(merak_call_out(call, 0), i, tanh(ref_load(x, i)));
    return MERAK_OK;
}

REF_KERNEL(tanh_dx)
{
    const struct merak_operand *dy = &call->operand[0], *y = &call->operand[1];

    (void)err;
    for (size_t i = 0; i < merak_local_count(y); i++) {
        double v = ref_load(y, i);

        ref_store(merak_call_out(call, 0), i, ref_load(dy, i) * (1 - v * v));
    }
    return MERAK_OK;
}

/* So et al. 2021 (arXiv:2109.08668), sec. 4. */
REF_KERNEL(relu2)
{
    const struct merak_operand *x = &call->operand[0];
    size_t n = merak_local_count(x);

    (void)err;
    for (size_t i = 0; i < n; i++) {
        double p = fmax(ref_load(x, i), 0);

        ref_store(merak_call_out(call, 0), i, p * p);
    }
    return MERAK_OK;
}

REF_KERNEL(relu2_dx)
{
    const struct merak_operand *dy = &call->operand[0], *x = &call->operand[1];
    size_t n = merak_local_count(x);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i,
                  2 * ref_load(dy, i) * fmax(ref_load(x, i), 0));
    return MERAK_OK;
}

/* Input 0 in the type of the output. */
static enum merak_status retype(const struct merak_kernel_call *call)
{
    size_t n = merak_local_count(&call->operand[0]);

    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i, ref_load(&call->operand[0], i));
    return MERAK_OK;
}

REF_KERNEL(widen)
{
    (void)err;
    return retype(call);
}

REF_KERNEL(narrow)
{
    (void)err;
    return retype(call);
}

/* The activation of a gate and its slope, Shazeer 2020 (arXiv:2002.05202):
 * x sigmoid(x), or GELU's tanh form. */
static double gate_of(double x, bool gelu_form)
{
    return gelu_form ? gelu(x, true) : x / (1 + exp(-x));
}

static double gate_slope(double x, bool gelu_form)
{
    double s = 1 / (1 + exp(-x));

    return gelu_form ? gelu_slope(x, true) : s * (1 + x * (1 - s));
}

REF_KERNEL(swiglu)
{
    const struct merak_operand *gate = &call->operand[0];
    const struct merak_operand *up = &call->operand[1];
    size_t n = merak_local_count(gate);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i,
                  gate_of(ref_load(gate, i), call->attrs->i[0] == 1) *
                      ref_load(up, i));
    return MERAK_OK;
}

REF_KERNEL(swiglu_dx)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *gate = &call->operand[1];
    const struct merak_operand *up = &call->operand[2];
    bool gelu_form = call->attrs->i[0] == 1;
    size_t n = merak_local_count(gate);

    (void)err;
    for (size_t i = 0; i < n; i++) {
        double g = ref_load(gate, i);
        double d = ref_load(dy, i), u = ref_load(up, i);

        ref_store(merak_call_out(call, 0), i, d * u * gate_slope(g, gelu_form));
        ref_store(merak_call_out(call, 1), i, d * gate_of(g, gelu_form));
    }
    return MERAK_OK;
}

/* y = c tanh(x / c) */
REF_KERNEL(softcap)
{
    const struct merak_operand *x = &call->operand[0];
    double cap = call->attrs->f[0];
    size_t n = merak_local_count(x);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i, cap * tanh(ref_load(x, i) / cap));
    return MERAK_OK;
}

/* dx = dy (1 - (y / c)^2) */
REF_KERNEL(softcap_dx)
{
    const struct merak_operand *dy = &call->operand[0], *y = &call->operand[1];
    size_t n = merak_local_count(y);

    (void)err;
    for (size_t i = 0; i < n; i++) {
        double t = ref_load(y, i) / call->attrs->f[0];

        ref_store(merak_call_out(call, 0), i, ref_load(dy, i) * (1 - t * t));
    }
    return MERAK_OK;
}

REF_KERNEL(add)
{
    const struct merak_operand *a = &call->operand[0], *b = &call->operand[1];
    size_t n = merak_local_count(a);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i, ref_load(a, i) + ref_load(b, i));
    return MERAK_OK;
}

REF_KERNEL(scale)
{
    const struct merak_operand *x = &call->operand[0];
    size_t n = merak_local_count(x);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i,
                  call->attrs->f[0] * ref_load(x, i));
    return MERAK_OK;
}

REF_KERNEL(dropout)
{
    const struct merak_operand *x = &call->operand[0];
    double p = call->step->train ? call->attrs->f[0] : 0.0;
    size_t length = merak_run_length(x, call->pieces);
    size_t runs = merak_run_count(x, call->pieces);

    (void)err;
    for (size_t r = 0; r < runs; r++) {
        size_t sample, element;
        uint64_t key;

        merak_run_place(x, call->pieces, r, &sample, &element);
        key = merak_dropout_key(call->step, sample, call->attrs->i[0]);
        for (size_t i = 0; i < length; i++) {
            bool keep = (double)merak_rng_uniform(key, element + i) >= p;

            ref_store(merak_call_out(call, 0), r * length + i,
                      keep ? ref_load(x, r * length + i) / (1 - p) : 0.0);
        }
    }
    return MERAK_OK;
}
