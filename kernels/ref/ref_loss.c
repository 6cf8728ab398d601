/* SPDX-License-Identifier: Apache-2.0 */
/* ref_loss.c - cross-entropy over a vocabulary that may be split (reference)
 *
 *   nll = max + log(sum) - z,  sum = sum_v exp(l_v - max),  z = l_target
 *   dlogits = (exp(l - max) / sum - [v = target]) / (B T)
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

REF_KERNEL(mean_loss)
{
    const struct merak_operand *nll = &call->operand[0];
    size_t n = merak_local_count(nll);
    double sum = 0;

    (void)err;
    for (size_t i = 0; i < n; i++)
        sum += ref_load(nll, i);
    ref_store(merak_call_out(call, 0), 0, sum * call->attrs->f[0]);
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
            ref_store(merak_call_out(call, 0), i * V + v,
                      p * call->attrs->f[0]);
        }
    }
    return MERAK_OK;
}
