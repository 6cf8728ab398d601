/* SPDX-License-Identifier: Apache-2.0 */
/* ref_step.c - after the last micro-batch: norm, clipping, AdamW (reference) */
#include "config.h"

#include "kernels/ref/ref.h"

#include <math.h>

#define BLOCK 1024 /* elements of one partial sum of squares */

REF_KERNEL(grad_add)
{
    const struct merak_operand *a = &call->operand[0];
    const struct merak_operand *out = merak_call_out(call, 0);
    size_t n = merak_local_count(a);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(out, i, ref_load(out, i) + ref_load(a, i));
    return MERAK_OK;
}

REF_KERNEL(sumsq)
{
    const struct merak_operand *g = &call->operand[0];
    size_t n = merak_local_count(g);
    double sum = 0, block = 0;

    (void)err;
    for (size_t i = 0; i < n; i++) {
        block += ref_load(g, i) * ref_load(g, i);
        if ((i + 1) % BLOCK == 0 || i + 1 == n) {
            sum += block;
            block = 0;
        }
    }
    ref_store(merak_call_out(call, 0), 0, sum);
    return MERAK_OK;
}

REF_KERNEL(clip)
{
    const struct merak_operand *sumsq = &call->operand[0];
    const struct merak_operand *out = merak_call_out(call, 0);
    const struct merak_step *step = call->step;
    size_t n = merak_local_count(sumsq);
    double sum = 0, norm, scale = (double)step->grad_scale;

    (void)err;
    for (size_t i = 0; i < n; i++)
        sum += ref_load(sumsq, i);
    norm = (double)step->grad_scale * sqrt(sum);
    if (step->clip > 0 && norm > (double)step->clip)
        scale *= (double)step->clip / norm;
    ref_store(out, 0, scale);
    ref_store(out, 1, norm);
    return MERAK_OK;
}

/* Wang et al. 2024 (arXiv:2408.15664), alg. 1, line 5. */
/* An average over steps of what g is the mean of, f[1] being one part. */
REF_KERNEL(mean_step)
{
    const struct merak_operand *g = &call->operand[0];
    const struct merak_operand *master = merak_call_out(call, 0);
    const double *f = call->attrs->f;

    (void)err;
    for (size_t i = 0; i < merak_local_count(g); i++) {
        double was = ref_load(master, i);

        ref_store(master, i, was + f[0] * (f[1] * ref_load(g, i) - was));
    }
    return MERAK_OK;
}

REF_KERNEL(sign_step)
{
    const struct merak_operand *g = &call->operand[0];
    const struct merak_operand *master = merak_call_out(call, 0);
    size_t n = merak_local_count(g);

    (void)err;
    for (size_t i = 0; i < n; i++) {
        double x = ref_load(g, i);
        double sign = (double)(x > 0) - (double)(x < 0);

        ref_store(master, i,
                  ref_load(master, i) - (double)(float)call->attrs->f[0] * sign);
    }
    return MERAK_OK;
}

/*
 * Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2, with
 * t = step + 1:
 *   m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
 *   w -= lr (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay w)
 */
REF_KERNEL(adamw)
{
    const struct merak_operand *g = &call->operand[0];
    const struct merak_operand *master = merak_call_out(call, 0);
    const struct merak_operand *m = merak_call_out(call, 1);
    const struct merak_operand *v = merak_call_out(call, 2);
    const struct merak_step *s = call->step;
    double t = (double)s->step + 1, b1 = (double)s->beta1;
    double b2 = (double)s->beta2, scale = ref_load(&call->operand[1], 0);
    double decay = call->attrs->i[0] == 1 ? (double)s->weight_decay : 0.0;
    double lr = (double)s->lr;
    size_t n = merak_local_count(g);

    (void)err;
    if (call->attrs->f[0] > 0)
        lr *= call->attrs->f[0];
    for (size_t i = 0; i < n; i++) {
        double grad = ref_load(g, i) * scale, w = ref_load(master, i);
        double m1 = b1 * ref_load(m, i) + (1 - b1) * grad;
        double v1 = b2 * ref_load(v, i) + (1 - b2) * grad * grad;
        double step = m1 / (1 - pow(b1, t)) /
                      (sqrt(v1 / (1 - pow(b2, t))) + (double)s->eps);

        w -= lr * (step + decay * w);
        ref_store(m, i, m1);
        ref_store(v, i, v1);
        ref_store(master, i, w);
        if (call->n_out > 3)
            ref_store(merak_call_out(call, 3), i, ref_load(master, i));
    }
    return MERAK_OK;
}
