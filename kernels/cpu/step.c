/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - after the last micro-batch: norm, clipping, AdamW; the equations
 * are in ref/ref_step.c.  All of it streams through memory once. */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#include <math.h>

#define GRAIN 16384      /* elements per item */
#define BLOCK 1024       /* elements of one partial sum of squares */
#define WIDE (LANES / 2) /* doubles of a vector */

struct step {
    const void *g; /* f32, or bf16: */
    bool narrow;
    float *out, *m, *v;
    uint16_t *bf16; /* the parameter in the compute dtype, or NULL */
    double *partial;
    size_t n;
    float scale, beta1, beta2, rate, root, eps, decay;
};

/* A sum in bf16 may be of what was made in f32, or of another such sum. */
struct sum {
    const void *a;
    void *out;
    bool a_bf16, out_bf16;
    size_t n;
};

INLINE void add_elements(const struct sum *s, size_t i, size_t end, bool a_bf16,
                         bool out_bf16)
{
    for (; i < end; i += LANES)
        vstore_n(s->out, i, end - i,
                 vload_n(s->out, i, end - i, out_bf16) +
                     vload_n(s->a, i, end - i, a_bf16),
                 out_bf16);
}

static void add_range(void *arg, size_t item, int thread)
{
    const struct sum *s = arg;
    size_t from = item * GRAIN, end = cpu_range_end(item, GRAIN, s->n);

    (void)thread;
    if (!s->out_bf16)
        add_elements(s, from, end, false, false);
    else if (s->a_bf16)
        add_elements(s, from, end, true, true);
    else
        add_elements(s, from, end, false, true);
}

CPU_KERNEL(grad_add)
{
    const struct merak_operand *a = &call->operand[0];
    const struct merak_operand *out = &call->operand[1];
    struct sum s = {.a = a->data,
                    .out = out->data,
                    .a_bf16 = a->dtype == MERAK_BF16,
                    .out_bf16 = out->dtype == MERAK_BF16,
                    .n = merak_local_count(a)};
    enum merak_status rc = cpu_check_dtype(call, 0, !s.out_bf16, err);

    if (rc == MERAK_OK)
        rc = cpu_check_dtype(call, 1, false, err);
    if (rc == MERAK_OK)
        merak_pool_run(add_range, &s, cpu_range_count(s.n, GRAIN));
    return rc;
}

/* Half a vector of elements in double. */
INLINE vd widen(const float *g)
{
    return __builtin_convertvector(*(const vf_half_mem *)g, vd);
}

/* Of a block in bf16, as of one in f32: in that order. */
INLINE void widen_block(const uint16_t *g, size_t n, float block[BLOCK])
{
    for (size_t i = 0; i < n; i += LANES)
        vstore_n(block, i, n - i, vload_n(g, i, n - i, true), false);
}

/* Squares of one block, in double: four vectors at a time, then one by one. */
INLINE double block_squares(const float *g, size_t n)
{
    vd s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    double total = 0;
    size_t i = 0;

    for (; i + 4 * WIDE <= n; i += 4 * WIDE) {
        vd a = widen(g + i), b = widen(g + i + WIDE);
        vd c = widen(g + i + 2 * WIDE), d = widen(g + i + 3 * WIDE);

        s0 += a * a;
        s1 += b * b;
        s2 += c * c;
        s3 += d * d;
    }
    s0 = (s0 + s1) + (s2 + s3);
    for (int k = 0; k < WIDE; k++)
        total += s0[k];
    for (; i < n; i++)
        total += (double)g[i] * (double)g[i];
    return total;
}

static void squares_range(void *arg, size_t item, int thread)
{
    const struct step *s = arg;
    size_t end = cpu_range_end(item, GRAIN, s->n);

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i += BLOCK) {
        size_t n = end - i < BLOCK ? end - i : BLOCK;
        const float *block = (const float *)s->g + i;
        float wide[BLOCK];

        if (s->narrow) {
            widen_block((const uint16_t *)s->g + i, n, wide);
            block = wide;
        }
        s->partial[i / BLOCK] = block_squares(block, n);
    }
}

CPU_SCRATCH(sumsq)
{
    return cpu_range_count(merak_local_count(&call->operand[0]), BLOCK) *
           sizeof(double);
}

CPU_KERNEL(sumsq)
{
    struct step s = {.g = call->operand[0].data,
                     .narrow = call->operand[0].dtype == MERAK_BF16,
                     .partial = call->scratch,
                     .n = merak_local_count(&call->operand[0])};
    size_t blocks = cpu_range_count(s.n, BLOCK);
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    double sum = 0;

    if (rc != MERAK_OK)
        return rc;
    merak_pool_run(squares_range, &s, cpu_range_count(s.n, GRAIN));
    for (size_t b = 0; b < blocks; b++)
        sum += s.partial[b];
    *(double *)call->operand[1].data = sum;
    return MERAK_OK;
}

CPU_KERNEL(mean_step)
{
    const float *g = call->operand[0].data;
    float *out = call->operand[1].data;
    const double *f = call->attrs->f;
    size_t n = merak_local_count(&call->operand[0]);
    enum merak_status rc = cpu_check_dtype(call, 0, true, err);

    for (size_t i = 0; i < n && rc == MERAK_OK; i++) {
        double was = (double)out[i];

        out[i] = (float)(was + f[0] * (f[1] * (double)g[i] - was));
    }
    return rc;
}

CPU_KERNEL(sign_step)
{
    const float *g = call->operand[0].data;
    float *out = call->operand[1].data, rate = (float)call->attrs->f[0];
    size_t n = merak_local_count(&call->operand[0]);
    enum merak_status rc = cpu_check_dtype(call, 0, true, err);

    for (size_t i = 0; i < n && rc == MERAK_OK; i++)
        out[i] -= rate * (float)((g[i] > 0) - (g[i] < 0));
    return rc;
}

CPU_KERNEL(clip)
{
    const double *sumsq = call->operand[0].data;
    float *out = call->operand[1].data;
    const struct merak_step *step = call->step;
    size_t n = merak_local_count(&call->operand[0]);
    double sum = 0, norm, scale = (double)step->grad_scale;

    (void)err;
    for (size_t i = 0; i < n; i++)
        sum += sumsq[i];
    norm = (double)step->grad_scale * sqrt(sum);
    if (step->clip > 0 && norm > (double)step->clip)
        scale *= (double)step->clip / norm;
    out[0] = (float)scale;
    out[1] = (float)norm;
    return MERAK_OK;
}

INLINE void adamw_vector(const struct step *s, size_t i, size_t n, bool narrow)
{
    vf g = vload_n(s->g, i, n, narrow) * s->scale;
    vf w = vload_n(s->out, i, n, false);
    vf m = vload_n(s->m, i, n, false), v = vload_n(s->v, i, n, false);

    m = m * s->beta1 + g * (1.0f - s->beta1);
    v = v * s->beta2 + g * g * (1.0f - s->beta2);
    w -= m * s->rate / (vsqrt(v) * s->root + s->eps) + w * s->decay;
    vstore_n(s->m, i, n, m, false);
    vstore_n(s->v, i, n, v, false);
    vstore_n(s->out, i, n, w, false);
    if (s->bf16 != NULL)
        vstore_n(s->bf16, i, n, w, true);
}

static void adamw_range(void *arg, size_t item, int thread)
{
    const struct step *s = arg;
    size_t end = cpu_range_end(item, GRAIN, s->n);

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i += LANES) {
        if (s->narrow)
            adamw_vector(s, i, end - i, true);
        else
            adamw_vector(s, i, end - i, false);
    }
}

CPU_KERNEL(adamw)
{
    const struct merak_operand *op = call->operand;
    const struct merak_step *p = call->step;
    double t = (double)p->step + 1, lr = (double)p->lr;
    struct step s = {.g = op[0].data,
                     .narrow = op[0].dtype == MERAK_BF16,
                     .out = op[2].data,
                     .m = op[3].data,
                     .v = op[4].data,
                     .n = merak_local_count(&op[0]),
                     .scale = ((const float *)op[1].data)[0],
                     .beta1 = p->beta1,
                     .beta2 = p->beta2,
                     .eps = p->eps};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    if (call->attrs->f[0] > 0)
        lr *= call->attrs->f[0];
    s.rate = (float)(lr / (1 - pow((double)p->beta1, t)));
    s.root = (float)(1 / sqrt(1 - pow((double)p->beta2, t)));
    if (call->attrs->i[0] == 1)
        s.decay = (float)lr * p->weight_decay;
    if (call->n_out > 3 && op[5].dtype == MERAK_BF16)
        s.bf16 = op[5].data;
    merak_pool_run(adamw_range, &s, cpu_range_count(s.n, GRAIN));
    return MERAK_OK;
}
