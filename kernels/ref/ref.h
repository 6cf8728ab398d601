/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/ref/ref.h - the reference kernels: plain loops, the specification
 *
 * Any operand may be f32, bf16 or f64; arithmetic is in double; one thread;
 * no scratch.  Every faster kernel is checked against these, and these
 * against formulas and finite differences.
 */
#ifndef MERAK_KERNELS_REF_REF_H
#define MERAK_KERNELS_REF_REF_H

#include "kernels/geometry.h"
#include "kernels/kernels.h"
#include "kernels/ops.h"

static inline double ref_load(const struct merak_operand *op, size_t i)
{
    switch (op->dtype) {
    case MERAK_F64:
        return ((const double *)op->data)[i];
    case MERAK_BF16:
        return (double)merak_bf16_to_f32(((const uint16_t *)op->data)[i]);
    case MERAK_I32:
        return ((const int32_t *)op->data)[i];
    default:
        return (double)((const float *)op->data)[i];
    }
}

static inline void ref_store(const struct merak_operand *op, size_t i,
                             double value)
{
    switch (op->dtype) {
    case MERAK_F64:
        ((double *)op->data)[i] = value;
        break;
    case MERAK_BF16:
        ((uint16_t *)op->data)[i] = merak_f32_to_bf16((float)value);
        break;
    default:
        ((float *)op->data)[i] = (float)value;
    }
}

/* x as an operand of this type holds it. */
static inline double ref_round(const struct merak_operand *op, double x)
{
    if (op->dtype == MERAK_BF16)
        return (double)merak_bf16_to_f32(merak_f32_to_bf16((float)x));
    return op->dtype == MERAK_F32 ? (double)(float)x : x;
}

/* Sums of neighbouring elements that are made at once: each in its own order,
 * over terms that have a factor in common. */
enum { REF_LANES = 64 };

static inline size_t ref_lanes(size_t n, size_t from)
{
    size_t left = n > from ? n - from : 0;

    return left < REF_LANES ? left : REF_LANES;
}

/* sum[d] += w x[i + d] for d < n */
static inline void ref_add_lanes(double *sum, size_t n, double w,
                                 const struct merak_operand *x, size_t i)
{
    if (x->dtype == MERAK_F32) { /* by far the most */
        const float *f = (const float *)x->data + i;

        for (size_t d = 0; d < n; d++)
            sum[d] += w * (double)f[d];
        return;
    }
    for (size_t d = 0; d < n; d++)
        sum[d] += w * ref_load(x, i + d);
}

/* Store a W-phase output, or add it. */
static inline void ref_put(const struct merak_kernel_call *call,
                           const struct merak_operand *op, size_t i,
                           double value)
{
    ref_store(op, i, call->accumulate ? ref_load(op, i) + value : value);
}

/* The score of a token's expert e, of E logits that begin at `at`: a sigmoid,
 * or its part of a softmax; and the logarithm of the sum of their exponentials.
 */
double ref_score(const struct merak_operand *z, size_t at, size_t E,
                 bool is_sigmoid, size_t e);
double ref_log_sum(const struct merak_operand *z, size_t at, size_t E);

#define REF_KERNEL(op)                                                     \
    enum merak_status merak_ref_##op(const struct merak_kernel_call *call, \
                                     struct merak_error *err)
#define REF_DECLARE(op, cpu, cuda) REF_KERNEL(op);
MERAK_KERNEL_OPS(REF_DECLARE)
#undef REF_DECLARE

#endif
