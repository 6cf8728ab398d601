/* SPDX-License-Identifier: Apache-2.0 */
/* ref_loss.c - cross-entropy over a vocabulary that may be split (reference)
 *
 *   nll = max + log(sum) - z,  sum = sum_v exp(l_v - max),  z = l_target
 *   dlogits = (exp(l - max) / sum - [v = target]) / (B T),
 *
 * times the weight of the position, if there are weights.
 *
 * Without a target, sum = 1 and z = max, so that nll is 0, and dlogits is 0.
 * The first part of the vocabulary sets these, others give zeros.
 */
#include "config.h"

#include "kernels/ref/ref.h"

#include <math.h>

/* Is column v of this rank's logits row i's target? */
static bool is_target(const struct merak_operand *logits,
                      const struct merak_operand *targets, size_t i, size_t v)
{
    int d = logits->local.ndim - 1;

    return (size_t)((const int32_t *)targets->data)[i] == logits->lo[d] + v;
}

static bool has_target(const struct merak_operand *targets, size_t i)
{
    return ((const int32_t *)targets->data)[i] != MERAK_NO_TARGET;
}

REF_KERNEL(xent_max)
{
    const struct merak_operand *logits = &call->operand[0];
    size_t V = merak_local_last(logits), rows = merak_local_count(logits) / V;

    (void)err;
    for (size_t i = 0; i < rows; i++) {
        double max = -INFINITY;

        for (size_t v = 0; v < V; v++)
            max = fmax(max, ref_load(logits, i * V + v));
        ref_store(merak_call_out(call, 0), i, max);
    }
    return MERAK_OK;
}

REF_KERNEL(xent_sum)
{
    const struct merak_operand *logits = &call->operand[0];
    const struct merak_operand *max = &call->operand[1];
    const struct merak_operand *targets = &call->operand[2];
    size_t V = merak_local_last(logits), rows = merak_local_count(logits) / V;
    enum merak_status rc;

    rc = merak_check_targets(targets, logits->full.dim[logits->full.ndim - 1],
                             err);
    if (rc != MERAK_OK)
        return rc;
    for (size_t i = 0; i < rows; i++) {
        double sum = 0, z = 0;

        if (!has_target(targets, i) && call->first) {
            sum = 1;
            z = ref_load(max, i);
        }
        for (size_t v = 0; v < V && has_target(targets, i); v++) {
            double l = ref_load(logits, i * V + v);

            sum += exp(l - ref_load(max, i));
            if (is_target(logits, targets, i, v))
                z = l;
        }
        ref_store(merak_call_out(call, 0), i, sum);
        ref_store(merak_call_out(call, 1), i, z);
    }
    return MERAK_OK;
}

REF_KERNEL(xent_loss)
{
    const struct merak_operand *op = call->operand;
    size_t n = merak_local_count(&op[0]);

    (void)err;
    for (size_t i = 0; i < n; i++)
        ref_store(merak_call_out(call, 0), i,
                  ref_load(&op[0], i) + log(ref_load(&op[1], i)) -
                      ref_load(&op[2], i));
    return MERAK_OK;
}

/* Positions [from, end) of a pair, whose second answer begins at `second`. */
static void ref_pair(const struct merak_kernel_call *call, size_t from,
                     size_t second, size_t end)
{
    const struct merak_operand *nll = &call->operand[0];
    const struct merak_operand *reference = &call->operand[2];
    double beta = call->attrs->f[0], margin = 0, slope, x;
    double sum[2] = {0, 0}; /* of the chosen answer, of the rejected one */

    for (size_t i = from; i < end; i++) {
        double above = ref_load(reference, i) - ref_load(nll, i);

        margin += i < second ? above : -above;
        sum[i >= second] += above;
    }
    x = -beta * margin;
    slope = beta / (1 + exp(-x));
    for (size_t i = from; i < end; i++)
        ref_store(merak_call_out(call, 1), i, i < second ? slope : -slope);
    ref_store(merak_call_out(call, 0), from, fmax(x, 0) + log1p(exp(-fabs(x))));
    ref_store(merak_call_out(call, 2), from, beta * sum[0]);
    ref_store(merak_call_out(call, 2), second, beta * sum[1]);
}

REF_KERNEL(pair_loss)
{
    const struct merak_operand *pairs = &call->operand[1];
    const int32_t *second = pairs->data;
    size_t T = merak_local_last(pairs), n = merak_local_count(pairs), end;

    (void)err;
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < 3; k++)
            ref_store(merak_call_out(call, k), i, 0);
    }
    for (size_t at = 0; at < n; at = end) {
        size_t row = at - at % T;

        for (end = at + 1; end < row + T && second[end] == second[at];)
            end++;
        if (second[at] != 0)
            ref_pair(call, at, row + (size_t)second[at], end);
    }
    return MERAK_OK;
}

/* Sums of merak_loss_part, but the first. */
static void ref_sum_rewards(const struct merak_kernel_call *call,
                            double sum[MERAK_LOSS_PARTS])
{
    const int32_t *second = call->operand[2].data;
    size_t T = merak_local_last(&call->operand[2]);
    size_t n = merak_local_count(&call->operand[2]);

    for (size_t i = 0; i < n; i++) {
        double chosen, rejected;

        if (second[i] == 0 || (i % T > 0 && second[i - 1] == second[i]))
            continue;
        chosen = ref_load(&call->operand[1], i);
        rejected = ref_load(&call->operand[1], i - i % T + (size_t)second[i]);
        sum[MERAK_LOSS_CHOSEN] += chosen;
        sum[MERAK_LOSS_REJECTED] += rejected;
        sum[MERAK_LOSS_ACCURACY] += chosen > rejected;
    }
}

REF_KERNEL(mean_loss)
{
    const struct merak_operand *nll = &call->operand[0];
    const struct merak_operand *out = merak_call_out(call, 0);
    size_t n = merak_local_count(nll);
    double sum[MERAK_LOSS_PARTS] = {0};

    (void)err;
    for (size_t i = 0; i < n; i++)
        sum[MERAK_LOSS] += ref_load(nll, i);
    if (call->n_in > 1)
        ref_sum_rewards(call, sum);
    for (size_t i = 0; i < merak_local_count(out); i++)
        ref_store(out, i, sum[i] * call->attrs->f[0]);
    return MERAK_OK;
}

static double point_loss(int64_t kind, double x, double t)
{
    switch (kind) {
    case MERAK_POINT_MSE:
        return (x - t) * (x - t);
    case MERAK_POINT_MAE:
        return fabs(x - t);
    default: /* log(1 + e^x) - t x, without overflow */
        return fmax(x, 0) - x * t + log1p(exp(-fabs(x)));
    }
}

static double point_slope(int64_t kind, double x, double t)
{
    switch (kind) {
    case MERAK_POINT_MSE:
        return 2 * (x - t);
    case MERAK_POINT_MAE:
        return (x > t) - (x < t);
    default:
        return 1 / (1 + exp(-x)) - t;
    }
}

REF_KERNEL(point_loss)
{
    const struct merak_operand *x = &call->operand[0], *t = &call->operand[1];

    (void)err;
    for (size_t i = 0; i < merak_local_count(x); i++)
        ref_store(
            merak_call_out(call, 0), i,
            point_loss(call->attrs->i[1], ref_load(x, i), ref_load(t, i)));
    return MERAK_OK;
}

REF_KERNEL(point_loss_dx)
{
    const struct merak_operand *x = &call->operand[0], *t = &call->operand[1];

    (void)err;
    for (size_t i = 0; i < merak_local_count(x); i++)
        ref_store(
            merak_call_out(call, 0), i,
            point_slope(call->attrs->i[1], ref_load(x, i), ref_load(t, i)) *
                merak_loss_scale(call));
    return MERAK_OK;
}

REF_KERNEL(losses)
{
    (void)err;
    for (int i = 0; i < call->n_in; i++)
        ref_store(merak_call_out(call, 0), (size_t)i,
                  ref_load(&call->operand[i], 0));
    return MERAK_OK;
}

REF_KERNEL(xent_dlogits)
{
    const struct merak_operand *logits = &call->operand[0];
    const struct merak_operand *max = &call->operand[1];
    const struct merak_operand *sum = &call->operand[2];
    const struct merak_operand *targets = &call->operand[3];
    size_t V = merak_local_last(logits), rows = merak_local_count(logits) / V;

    (void)err;
    for (size_t i = 0; i < rows; i++) {
        for (size_t v = 0; v < V; v++) {
            double p = exp(ref_load(logits, i * V + v) - ref_load(max, i)) /
                       ref_load(sum, i);

            if (is_target(logits, targets, i, v))
                p -= 1;
            if (!has_target(targets, i))
                p = 0;
            if (call->n_in > 4)
                p *= ref_load(&call->operand[4], i);
            ref_store(merak_call_out(call, 0), i * V + v,
                      p * merak_loss_scale(call));
        }
    }
    return MERAK_OK;
}
