/* SPDX-License-Identifier: Apache-2.0 */
/* loss.c - cross-entropy over a vocabulary that may be split; the equations are
 * in ref/ref_loss.c */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#include <math.h>

struct xent {
    const struct merak_operand *logits, *targets;
    const float *max, *sum;
    const float *weight; /* of each row's gradient; NULL: 1 */
    void *out;
    float *z;
    size_t rows, V, lo; /* lo: first global column on this rank */
    float scale;
    bool bf16, first;
};

static bool has_target(const struct xent *x, size_t row)
{
    return ((const int32_t *)x->targets->data)[row] != MERAK_NO_TARGET;
}

INLINE float row_max(const struct xent *x, size_t row, bool bf16)
{
    const void *l = x->logits->data;
    size_t at = row * x->V, v = 0;
    vf m[4] = {vset(-INFINITY), vset(-INFINITY), vset(-INFINITY),
               vset(-INFINITY)};

    for (; v + 4 * LANES <= x->V; v += 4 * LANES) {
        UNROLL
        for (size_t k = 0; k < 4; k++)
            m[k] = vmax(m[k], vload(l, at + v + k * LANES, bf16));
    }
    for (; v < x->V; v += LANES)
        m[0] = vmax(m[0], vkeep(vload_n(l, at + v, x->V - v, bf16), x->V - v,
                                -INFINITY));
    return vmax_lane(vmax(vmax(m[0], m[1]), vmax(m[2], m[3])));
}

static void max_row(void *arg, size_t row, int thread)
{
    const struct xent *x = arg;

    (void)thread;
    ((float *)x->out)[row] =
        x->bf16 ? row_max(x, row, true) : row_max(x, row, false);
}

INLINE float row_sum(const struct xent *x, size_t row, bool bf16)
{
    const void *l = x->logits->data;
    size_t at = row * x->V, v = 0;
    vf max = vset(x->max[row]), s[4] = {{0}};

    for (; v + 4 * LANES <= x->V; v += 4 * LANES) {
        UNROLL
        for (size_t k = 0; k < 4; k++)
            s[k] += vexp(vload(l, at + v + k * LANES, bf16) - max);
    }
    for (; v < x->V; v += LANES)
        s[0] += vkeep(vexp(vload_n(l, at + v, x->V - v, bf16) - max), x->V - v,
                      0.0f);
    return vsum((s[0] + s[1]) + (s[2] + s[3]));
}

/* This rank's column that is the row's target, or V if it has none. */
static size_t target_column(const struct xent *x, size_t row)
{
    size_t id = (size_t)((const int32_t *)x->targets->data)[row];

    return id >= x->lo && id < x->lo + x->V ? id - x->lo : x->V;
}

static void sum_row(void *arg, size_t row, int thread)
{
    const struct xent *x = arg;
    size_t v = target_column(x, row);
    float z = 0;

    (void)thread;
    if (!has_target(x, row)) { /* nll is 0: only the first rank sets it */
        x->z[row] = x->first ? x->max[row] : 0;
        ((float *)x->out)[row] = x->first ? 1 : 0;
        return;
    }
    if (v < x->V)
        z = vload_n(x->logits->data, row * x->V + v, 1, x->bf16)[0];
    x->z[row] = z;
    ((float *)x->out)[row] =
        x->bf16 ? row_sum(x, row, true) : row_sum(x, row, false);
}

static float row_scale(const struct xent *x, size_t row)
{
    return x->weight == NULL ? x->scale : x->scale * x->weight[row];
}

/* The gradients of up to LANES logits of a row from column v on. */
INLINE vf gradient(const struct xent *x, size_t row, size_t v, bool bf16)
{
    vf max = vset(x->max[row]);
    float scale = row_scale(x, row) / x->sum[row];

    return vexp(vload_n(x->logits->data, row * x->V + v, x->V - v, bf16) -
                max) *
           scale;
}

/* The vector with the target is computed first and stored last, so that the
 * loop need not check for it, and the gradient may overwrite the logits. */
INLINE void dlogits(const struct xent *x, size_t row, bool bf16)
{
    const void *l = x->logits->data;
    size_t at = row * x->V, v = 0;
    size_t target = target_column(x, row), base = target - target % LANES;
    vf max = vset(x->max[row]), d = {0};
    float whole = row_scale(x, row), scale = whole / x->sum[row];

    if (!has_target(x, row)) {
        memset((char *)x->out + at * (bf16 ? 2 : 4), 0, x->V * (bf16 ? 2 : 4));
        return;
    }
    if (target < x->V) {
        d = gradient(x, row, base, bf16);
        d[target - base] -= whole;
    }
    for (; v + 4 * LANES <= x->V; v += 4 * LANES) {
        UNROLL
        for (size_t k = 0; k < 4 * LANES; k += LANES)
            vstore(x->out, at + v + k,
                   vexp(vload(l, at + v + k, bf16) - max) * scale, bf16);
    }
    for (; v < x->V; v += LANES)
        vstore_n(x->out, at + v, x->V - v, gradient(x, row, v, bf16), bf16);
    if (target < x->V)
        vstore_n(x->out, at + base, x->V - base, d, bf16);
}

static void dlogits_row(void *arg, size_t row, int thread)
{
    const struct xent *x = arg;

    (void)thread;
    if (x->bf16)
        dlogits(x, row, true);
    else
        dlogits(x, row, false);
}

static enum merak_status run(const struct merak_kernel_call *call,
                             struct xent *x, merak_item_fn row,
                             struct merak_error *err)
{
    const struct merak_operand *l = &call->operand[0];
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);
    int last = l->local.ndim - 1;

    if (rc == MERAK_OK && x->targets != NULL)
        rc = merak_check_targets(x->targets, l->full.dim[last], err);
    if (rc != MERAK_OK)
        return rc;
    x->logits = l;
    x->V = l->local.dim[last];
    x->lo = l->lo[last];
    x->rows = merak_local_span(l, 0, last);
    x->bf16 = l->dtype == MERAK_BF16;
    merak_pool_run(row, x, x->rows);
    return MERAK_OK;
}

CPU_KERNEL(xent_max)
{
    struct xent x = {.out = call->operand[1].data};

    return run(call, &x, max_row, err);
}

CPU_KERNEL(xent_sum)
{
    struct xent x = {.max = call->operand[1].data,
                     .targets = &call->operand[2],
                     .out = call->operand[3].data,
                     .z = call->operand[4].data,
                     .first = call->first};

    return run(call, &x, sum_row, err);
}

CPU_KERNEL(xent_dlogits)
{
    struct xent x = {.max = call->operand[1].data,
                     .sum = call->operand[2].data,
                     .targets = &call->operand[3],
                     .weight = call->n_in > 4 ? call->operand[4].data : NULL,
                     .out = call->operand[call->n_in].data,
                     .scale = (float)merak_loss_scale(call)};

    return run(call, &x, dlogits_row, err);
}

/* One number per token: too little work for several threads. */
CPU_KERNEL(xent_loss)
{
    const float *max = call->operand[0].data, *sum = call->operand[1].data;
    const float *z = call->operand[2].data;
    float *nll = call->operand[3].data;
    size_t n = merak_local_count(&call->operand[0]);
    enum merak_status rc = cpu_check_dtype(call, 0, true, err);

    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        nll[i] = (float)((double)max[i] + log((double)sum[i]) - (double)z[i]);
    return MERAK_OK;
}

/* Positions [from, end) of a pair, whose second answer begins at `second`. */
static void one_pair(const struct merak_kernel_call *call, size_t from,
                     size_t second, size_t end)
{
    const float *nll = call->operand[0].data;
    const float *reference = call->operand[2].data;
    float *loss = call->operand[3].data, *weight = call->operand[4].data;
    float *reward = call->operand[5].data;
    double beta = call->attrs->f[0], margin = 0, x;
    double sum[2] = {0, 0}; /* of the chosen answer, of the rejected one */
    float slope;

    for (size_t i = from; i < end; i++) {
        double above = (double)reference[i] - (double)nll[i];

        margin += i < second ? above : -above;
        sum[i >= second] += above;
    }
    x = -beta * margin;
    slope = (float)(beta / (1 + exp(-x)));
    for (size_t i = from; i < end; i++)
        weight[i] = i < second ? slope : -slope;
    loss[from] = (float)(fmax(x, 0) + log1p(exp(-fabs(x))));
    reward[from] = (float)(beta * sum[0]);
    reward[second] = (float)(beta * sum[1]);
}

CPU_KERNEL(pair_loss)
{
    const int32_t *second = call->operand[1].data;
    size_t T = merak_local_last(&call->operand[1]);
    size_t n = merak_local_count(&call->operand[1]), end;
    enum merak_status rc = cpu_check_dtype(call, 0, true, err);

    if (rc != MERAK_OK)
        return rc;
    for (int k = 0; k < 3; k++)
        memset(call->operand[3 + k].data, 0, n * sizeof(float));
    for (size_t at = 0; at < n; at = end) {
        size_t row = at - at % T;

        for (end = at + 1; end < row + T && second[end] == second[at];)
            end++;
        if (second[at] != 0)
            one_pair(call, at, row + (size_t)second[at], end);
    }
    return MERAK_OK;
}

/* Sums of merak_loss_part, but the first. */
static void sum_rewards(const struct merak_kernel_call *call,
                        double sum[MERAK_LOSS_PARTS])
{
    const float *reward = call->operand[1].data;
    const int32_t *second = call->operand[2].data;
    size_t T = merak_local_last(&call->operand[2]);
    size_t n = merak_local_count(&call->operand[2]);

    for (size_t i = 0; i < n; i++) {
        size_t other = i - i % T + (size_t)second[i];

        if (second[i] == 0 || (i % T > 0 && second[i - 1] == second[i]))
            continue;
        sum[MERAK_LOSS_CHOSEN] += (double)reward[i];
        sum[MERAK_LOSS_REJECTED] += (double)reward[other];
        sum[MERAK_LOSS_ACCURACY] += reward[i] > reward[other];
    }
}

CPU_KERNEL(mean_loss)
{
    const float *nll = call->operand[0].data;
    size_t n = merak_local_count(&call->operand[0]);
    enum merak_status rc = cpu_check_dtype(call, 0, true, err);
    const struct merak_operand *out = &call->operand[call->n_in];
    double sum[MERAK_LOSS_PARTS] = {0};

    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        sum[MERAK_LOSS] += (double)nll[i];
    if (call->n_in > 1)
        sum_rewards(call, sum);
    for (size_t i = 0; i < merak_local_count(out); i++)
        ((double *)out->data)[i] = sum[i] * call->attrs->f[0];
    return MERAK_OK;
}

/* --- of elements ------------------------------------------------------------
 */

#define GRAIN 8192 /* elements per item */

struct points {
    const struct merak_operand *x;
    const float *t;
    const struct merak_operand *out;
    size_t n;
    int64_t kind;
    float scale; /* of gradients */
};

static float load_point(const struct points *p, size_t i)
{
    return p->x->dtype == MERAK_BF16
               ? merak_bf16_to_f32(((const uint16_t *)p->x->data)[i])
               : ((const float *)p->x->data)[i];
}

static float point_loss(int64_t kind, float x, float t)
{
    switch (kind) {
    case MERAK_POINT_MSE:
        return (x - t) * (x - t);
    case MERAK_POINT_MAE:
        return fabsf(x - t);
    default:
        return fmaxf(x, 0) - x * t + log1pf(expf(-fabsf(x)));
    }
}

static float point_slope(int64_t kind, float x, float t)
{
    switch (kind) {
    case MERAK_POINT_MSE:
        return 2 * (x - t);
    case MERAK_POINT_MAE:
        return (float)((x > t) - (x < t));
    default:
        return 1 / (1 + expf(-x)) - t;
    }
}

static void loss_item(void *arg, size_t item, int thread)
{
    const struct points *p = arg;
    float *out = p->out->data;

    (void)thread;
    for (size_t i = item * GRAIN; i < cpu_range_end(item, GRAIN, p->n); i++)
        out[i] = point_loss(p->kind, load_point(p, i), p->t[i]);
}

static void slope_item(void *arg, size_t item, int thread)
{
    const struct points *p = arg;

    (void)thread;
    for (size_t i = item * GRAIN; i < cpu_range_end(item, GRAIN, p->n); i++) {
        float d = point_slope(p->kind, load_point(p, i), p->t[i]) * p->scale;

        if (p->out->dtype == MERAK_BF16)
            ((uint16_t *)p->out->data)[i] = merak_f32_to_bf16(d);
        else
            ((float *)p->out->data)[i] = d;
    }
}

static enum merak_status run_points(const struct merak_kernel_call *call,
                                    struct points *p, merak_item_fn item,
                                    struct merak_error *err)
{
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    p->x = &call->operand[0];
    p->t = call->operand[1].data;
    p->out = merak_call_out(call, 0);
    p->n = merak_local_count(p->x);
    p->kind = call->attrs->i[1];
    merak_pool_run(item, p, cpu_range_count(p->n, GRAIN));
    return MERAK_OK;
}

CPU_KERNEL(point_loss)
{
    struct points p = {.scale = 1};

    return run_points(call, &p, loss_item, err);
}

CPU_KERNEL(point_loss_dx)
{
    struct points p = {.scale = (float)merak_loss_scale(call)};

    return run_points(call, &p, slope_item, err);
}

CPU_KERNEL(losses)
{
    double *out = merak_call_out(call, 0)->data;

    (void)err;
    for (int i = 0; i < call->n_in; i++)
        out[i] = *(const double *)call->operand[i].data;
    return MERAK_OK;
}
