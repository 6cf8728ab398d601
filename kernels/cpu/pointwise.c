/* SPDX-License-Identifier: Apache-2.0 */
/* pointwise.c - activations and residuals; the equations are in
 * ref/ref_pointwise.c */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#define GRAIN 8192 /* elements per item */

/* Inputs and outputs of one elementwise call; unused ones are NULL. */
struct pointwise {
    const void *in[3];
    void *out[2];
    size_t n;
    float f; /* f[0]: of soft caps and scales */
    bool bf16;
};

INLINE vf sigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

/* 0.5 (1 + tanh(u)) = sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3),
 * without cancellation. */
INLINE vf gelu_gate(vf x)
{
    return sigmoid(x * (1.59576912f + 0.0713548162f * x * x));
}

INLINE vf gelu_tanh(vf x)
{
    return x * gelu_gate(x);
}

INLINE vf gelu_tanh_slope(vf x)
{
    vf s = gelu_gate(x);

    return s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x * x);
}

/*
 * Phi(x), the normal distribution, and e^(-x^2/2).  With z = |x| / sqrt(2)
 * and t = 1 / (1 + z/2), erfc(z) e^(z^2) = t p(t); p is a least-squares fit in
 * relative error on z in [0, 10], within 5e-8.
 */
INLINE vf normal_cdf(vf x, vf *gauss)
{
    static const float p[] = {0.282082358f,  0.282453842f,   0.242479379f,
                              0.205360429f,  -0.0333990197f, 0.288515146f,
                              -0.496829576f, 0.289446101f,   -0.0601087077f};
    vf z = (vf)((vi)x & 0x7fffffff) * 0.707106781f;
    vf t = 1.0f / (1.0f + 0.5f * z), sum = vset(p[8]), tail;

    UNROLL
    for (int i = 7; i >= 0; i--)
        sum = sum * t + p[i];
    *gauss = vexp(-z * z);
    tail = 0.5f * *gauss * t * sum;
    return vselect(x < 0.0f, tail, 1.0f - tail);
}

INLINE vf gelu_erf(vf x)
{
    vf gauss;

    return x * normal_cdf(x, &gauss);
}

INLINE vf gelu_erf_slope(vf x)
{
    vf gauss, phi = normal_cdf(x, &gauss);

    return phi + x * gauss * 0.398942280f;
}

/* One vector of an elementwise op, from a[] to y[]; a[3] is f[0]. */
typedef void (*step_fn)(const vf *a, vf *y);

INLINE void gelu_tanh_step(const vf *a, vf *y)
{
    y[0] = gelu_tanh(a[0]);
}

INLINE void gelu_erf_step(const vf *a, vf *y)
{
    y[0] = gelu_erf(a[0]);
}

INLINE void gelu_tanh_dx_step(const vf *a, vf *y)
{
    y[0] = a[0] * gelu_tanh_slope(a[1]);
}

INLINE void gelu_erf_dx_step(const vf *a, vf *y)
{
    y[0] = a[0] * gelu_erf_slope(a[1]);
}

/* NaNs stay, as in the other activations. */
INLINE vf positive(vf x)
{
    return vselect(x < 0.0f, vset(0.0f), x);
}

INLINE void relu_step(const vf *a, vf *y)
{
    y[0] = positive(a[0]);
}

INLINE void relu_dx_step(const vf *a, vf *y)
{
    y[0] = vselect(a[1] <= 0.0f, vset(0.0f), a[0]);
}

INLINE void leaky_relu_step(const vf *a, vf *y)
{
    y[0] = vselect(a[0] < 0.0f, a[3] * a[0], a[0]);
}

INLINE void leaky_relu_dx_step(const vf *a, vf *y)
{
    y[0] = vselect(a[1] <= 0.0f, a[3] * a[0], a[0]);
}

INLINE void log1p_step(const vf *a, vf *y)
{
    for (int i = 0; i < LANES; i++)
        y[0][i] = log1pf(a[0][i]);
}

INLINE void log1p_dx_step(const vf *a, vf *y)
{
    y[0] = a[0] / (1.0f + a[1]);
}

INLINE void tanh_step(const vf *a, vf *y)
{
    y[0] = vtanh(a[0]);
}

INLINE void tanh_dx_step(const vf *a, vf *y)
{
    y[0] = a[0] * (1.0f - a[1] * a[1]);
}

INLINE void relu2_step(const vf *a, vf *y)
{
    vf p = positive(a[0]);

    y[0] = p * p;
}

INLINE void relu2_dx_step(const vf *a, vf *y)
{
    y[0] = 2.0f * a[0] * positive(a[1]);
}

INLINE void swiglu_step(const vf *a, vf *y)
{
    y[0] = a[0] * sigmoid(a[0]) * a[1];
}

INLINE void swiglu_dx_step(const vf *a, vf *y)
{
    vf s = sigmoid(a[1]);

    y[0] = a[0] * a[2] * s * (1.0f + a[1] * (1.0f - s));
    y[1] = a[0] * a[1] * s;
}

INLINE void geglu_step(const vf *a, vf *y)
{
    y[0] = gelu_tanh(a[0]) * a[1];
}

INLINE void geglu_dx_step(const vf *a, vf *y)
{
    y[0] = a[0] * a[2] * gelu_tanh_slope(a[1]);
    y[1] = a[0] * gelu_tanh(a[1]);
}

INLINE void softcap_step(const vf *a, vf *y)
{
    y[0] = a[3] * vtanh(a[0] / a[3]);
}

INLINE void softcap_dx_step(const vf *a, vf *y)
{
    vf t = a[1] / a[3];

    y[0] = a[0] * (1.0f - t * t);
}

INLINE void add_step(const vf *a, vf *y)
{
    y[0] = a[0] + a[1];
}

INLINE void scale_step(const vf *a, vf *y)
{
    y[0] = a[3] * a[0];
}

INLINE void sweep(const struct pointwise *pw, size_t item, step_fn step,
                  int n_in, int n_out, bool bf16)
{
    size_t end = cpu_range_end(item, GRAIN, pw->n);

    for (size_t i = item * GRAIN; i < end; i += LANES) {
        vf a[4], y[2];

        a[3] = vset(pw->f);
        UNROLL
        for (int k = 0; k < n_in; k++)
            a[k] = vload_n(pw->in[k], i, end - i, bf16);
        step(a, y);
        UNROLL
        for (int k = 0; k < n_out; k++)
            vstore_n(pw->out[k], i, end - i, y[k], bf16);
    }
}

#define SWEEP(name, n_in, n_out)                                 \
    static void name##_sweep(void *arg, size_t item, int thread) \
    {                                                            \
        const struct pointwise *pw = arg;                        \
                                                                 \
        (void)thread;                                            \
        if (pw->bf16)                                            \
            sweep(pw, item, name##_step, n_in, n_out, true);     \
        else                                                     \
            sweep(pw, item, name##_step, n_in, n_out, false);    \
    }
SWEEP(gelu_tanh, 1, 1)
SWEEP(gelu_erf, 1, 1)
SWEEP(gelu_tanh_dx, 2, 1)
SWEEP(gelu_erf_dx, 2, 1)
SWEEP(relu, 1, 1)
SWEEP(relu_dx, 2, 1)
SWEEP(leaky_relu, 1, 1)
SWEEP(leaky_relu_dx, 2, 1)
SWEEP(log1p, 1, 1)
SWEEP(log1p_dx, 2, 1)
SWEEP(tanh, 1, 1)
SWEEP(tanh_dx, 2, 1)
SWEEP(relu2, 1, 1)
SWEEP(relu2_dx, 2, 1)
SWEEP(swiglu, 2, 1)
SWEEP(swiglu_dx, 3, 2)
SWEEP(geglu, 2, 1)
SWEEP(geglu_dx, 3, 2)
SWEEP(softcap, 1, 1)
SWEEP(softcap_dx, 2, 1)
SWEEP(add, 2, 1)
SWEEP(scale, 1, 1)

/* From fp32 or bf16 to the other, or the same. */
INLINE void retype(const struct pointwise *pw, size_t item, bool from, bool to)
{
    size_t end = cpu_range_end(item, GRAIN, pw->n);

    for (size_t i = item * GRAIN; i < end; i += LANES)
        vstore_n(pw->out[0], i, end - i,
                 vload_n(pw->in[0], i, end - i, from), to);
}

static void widen_sweep(void *arg, size_t item, int thread)
{
    const struct pointwise *pw = arg;

    (void)thread;
    if (pw->bf16)
        retype(pw, item, true, false);
    else
        retype(pw, item, false, false);
}

static void narrow_sweep(void *arg, size_t item, int thread)
{
    const struct pointwise *pw = arg;

    (void)thread;
    if (pw->bf16)
        retype(pw, item, false, true);
    else
        retype(pw, item, false, false);
}

/* Operand `typed` has the type in which it is computed. */
static enum merak_status run_as(const struct merak_kernel_call *call, int typed,
                                merak_item_fn item, struct merak_error *err)
{
    struct pointwise pw = {.n = merak_local_count(&call->operand[0]),
                           .f = (float)call->attrs->f[0],
                           .bf16 = call->operand[typed].dtype == MERAK_BF16};
    enum merak_status rc = cpu_check_dtype(call, typed, false, err);

    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < call->n_in; i++)
        pw.in[i] = call->operand[i].data;
    for (int o = 0; o < call->n_out; o++)
        pw.out[o] = merak_call_out(call, o)->data;
    merak_pool_run(item, &pw, cpu_range_count(pw.n, GRAIN));
    return MERAK_OK;
}

static enum merak_status run(const struct merak_kernel_call *call,
                             merak_item_fn item, struct merak_error *err)
{
    return run_as(call, 0, item, err);
}

CPU_KERNEL(gelu)
{
    bool tanh_form = call->attrs->i[0] == 1;

    return run(call, tanh_form ? gelu_tanh_sweep : gelu_erf_sweep, err);
}

CPU_KERNEL(gelu_dx)
{
    bool tanh_form = call->attrs->i[0] == 1;

    return run(call, tanh_form ? gelu_tanh_dx_sweep : gelu_erf_dx_sweep, err);
}

CPU_KERNEL(relu)
{
    bool leaks = call->attrs->f[0] > 0;

    return run(call, leaks ? leaky_relu_sweep : relu_sweep, err);
}

CPU_KERNEL(relu_dx)
{
    bool leaks = call->attrs->f[0] > 0;

    return run(call, leaks ? leaky_relu_dx_sweep : relu_dx_sweep, err);
}

CPU_KERNEL(log1p)
{
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc == MERAK_OK)
        rc = merak_check_log1p(&call->operand[0], err);
    return rc == MERAK_OK ? run(call, log1p_sweep, err) : rc;
}

CPU_KERNEL(log1p_dx)
{
    return run(call, log1p_dx_sweep, err);
}

CPU_KERNEL(tanh)
{
    return run(call, tanh_sweep, err);
}

CPU_KERNEL(tanh_dx)
{
    return run(call, tanh_dx_sweep, err);
}

CPU_KERNEL(relu2)
{
    return run(call, relu2_sweep, err);
}

CPU_KERNEL(relu2_dx)
{
    return run(call, relu2_dx_sweep, err);
}

CPU_KERNEL(widen)
{
    return run(call, widen_sweep, err);
}

CPU_KERNEL(narrow)
{
    return run_as(call, 1, narrow_sweep, err);
}

CPU_KERNEL(swiglu)
{
    bool gelu_form = call->attrs->i[0] == 1;

    return run(call, gelu_form ? geglu_sweep : swiglu_sweep, err);
}

CPU_KERNEL(swiglu_dx)
{
    bool gelu_form = call->attrs->i[0] == 1;

    return run(call, gelu_form ? geglu_dx_sweep : swiglu_dx_sweep, err);
}

CPU_KERNEL(softcap)
{
    return run(call, softcap_sweep, err);
}

CPU_KERNEL(softcap_dx)
{
    return run(call, softcap_dx_sweep, err);
}

CPU_KERNEL(add)
{
    return run(call, add_sweep, err);
}

CPU_KERNEL(scale)
{
    return run(call, scale_sweep, err);
}
