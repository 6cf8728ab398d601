/* SPDX-License-Identifier: Apache-2.0 */
/* ref_norm.c - layernorm and rmsnorm with their gradients (reference)
 *
 * With h = (x - mean) rstd (mean 0 for rmsnorm), y = gamma h + beta:
 *   dgamma = sum dy h,  dbeta = sum dy
 *   dx = rstd (g - mean(g) - h mean(g h)),  g = dy gamma
 * without the mean(g) term for rmsnorm.
 */
#include "config.h"

#include "kernels/ref/ref.h"

#include <math.h>

static double row_mean(const struct merak_operand *x, size_t at, size_t C)
{
    double sum = 0;

    for (size_t c = 0; c < C; c++)
        sum += ref_load(x, at + c);
    return sum / (double)C;
}

static double row_rstd(const struct merak_operand *x, size_t at, size_t C,
                       double mean, double eps)
{
    double sum = 0;

    for (size_t c = 0; c < C; c++) {
        double d = ref_load(x, at + c) - mean;

        sum += d * d;
    }
    return 1.0 / sqrt(sum / (double)C + eps);
}

REF_KERNEL(layernorm)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *gamma = &call->operand[1];
    const struct merak_operand *beta = &call->operand[2];
    const struct merak_operand *y = merak_call_out(call, 0);
    size_t C = merak_local_last(x), rows = merak_local_count(x) / C;

    (void)err;
    for (size_t i = 0; i < rows; i++) {
        double mean = row_mean(x, i * C, C);
        double rstd = row_rstd(x, i * C, C, mean, call->attrs->f[0]);

        for (size_t c = 0; c < C; c++) {
            double h = (ref_load(x, i * C + c) - mean) * rstd;

            ref_store(y, i * C + c, h * ref_load(gamma, c) + ref_load(beta, c));
        }
        ref_store(merak_call_out(call, 1), i, mean);
        ref_store(merak_call_out(call, 2), i, rstd);
    }
    return MERAK_OK;
}

REF_KERNEL(rmsnorm)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *gamma = &call->operand[1];
    const struct merak_operand *y = merak_call_out(call, 0);
    size_t C = merak_local_count(gamma), rows = merak_local_count(x) / C;

    (void)err;
    for (size_t i = 0; i < rows; i++) {
        double rstd = row_rstd(x, i * C, C, 0.0, call->attrs->f[0]);

        for (size_t c = 0; c < C; c++)
            ref_store(y, i * C + c,
                      ref_load(x, i * C + c) * rstd *
                          (call->attrs->f[1] + ref_load(gamma, c)));
        ref_store(merak_call_out(call, 1), i, rstd);
    }
    return MERAK_OK;
}

/* Operands of a gradient call; mean is NULL for rmsnorm. */
struct norm_grad {
    const struct merak_operand *dy, *x, *gamma, *mean, *rstd;
    double offset; /* of gamma */
    size_t C, rows;
};

static double normed(const struct norm_grad *n, size_t i, size_t c)
{
    double mean = n->mean != NULL ? ref_load(n->mean, i) : 0.0;

    return (ref_load(n->x, i * n->C + c) - mean) * ref_load(n->rstd, i);
}

static void norm_dx(const struct norm_grad *n, const struct merak_operand *dx)
{
    size_t C = n->C;

    for (size_t i = 0; i < n->rows; i++) {
        double g_mean = 0, gh_mean = 0;

        for (size_t c = 0; c < C; c++) {
            double g = ref_load(n->dy, i * C + c) *
                       (n->offset + ref_load(n->gamma, c));

            g_mean += g / (double)C;
            gh_mean += g * normed(n, i, c) / (double)C;
        }
        if (n->mean == NULL)
            g_mean = 0;
        for (size_t c = 0; c < C; c++) {
            double g = ref_load(n->dy, i * C + c) *
                       (n->offset + ref_load(n->gamma, c));

            ref_store(dx, i * C + c,
                      ref_load(n->rstd, i) *
                          (g - g_mean - normed(n, i, c) * gh_mean));
        }
    }
}

static void norm_dw(const struct merak_kernel_call *call,
                    const struct norm_grad *n)
{
    for (size_t c = 0; c < n->C; c++) {
        double dgamma = 0, dbeta = 0;

        for (size_t i = 0; i < n->rows; i++) {
            double dy = ref_load(n->dy, i * n->C + c);

            dgamma += dy * normed(n, i, c);
            dbeta += dy;
        }
        ref_put(call, merak_call_out(call, 0), c, dgamma);
        if (n->mean != NULL)
            ref_put(call, merak_call_out(call, 1), c, dbeta);
    }
}

static struct norm_grad view(const struct merak_kernel_call *call, int gamma,
                             int mean, int rstd)
{
    const struct merak_operand *op = call->operand;
    struct norm_grad n = {.dy = &op[0], .x = &op[1], .rstd = &op[rstd]};

    n.gamma = gamma > 0 ? &op[gamma] : NULL;
    n.mean = mean > 0 ? &op[mean] : NULL;
    n.C =
        merak_local_count(n.gamma != NULL ? n.gamma : merak_call_out(call, 0));
    n.rows = merak_local_count(n.x) / n.C;
    return n;
}

REF_KERNEL(layernorm_dx)
{
    struct norm_grad n = view(call, 2, 3, 4);

    (void)err;
    norm_dx(&n, merak_call_out(call, 0));
    return MERAK_OK;
}

REF_KERNEL(layernorm_dw)
{
    struct norm_grad n = view(call, 0, 2, 3);

    (void)err;
    norm_dw(call, &n);
    return MERAK_OK;
}

REF_KERNEL(rmsnorm_dx)
{
    struct norm_grad n = view(call, 2, 0, 3);

    (void)err;
    n.offset = call->attrs->f[1];
    norm_dx(&n, merak_call_out(call, 0));
    return MERAK_OK;
}

REF_KERNEL(rmsnorm_dw)
{
    struct norm_grad n = view(call, 0, 0, 2);

    (void)err;
    norm_dw(call, &n);
    return MERAK_OK;
}
