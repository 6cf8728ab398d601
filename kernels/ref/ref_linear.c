/* SPDX-License-Identifier: Apache-2.0 */
/* ref_linear.c - y = x w' + bias and its gradients (reference) */
#include "config.h"

#include "kernels/ref/ref.h"

/* Rows whose sums are made at once: no sum waits for another's addition. */
enum { ROWS = 8 };

/* sum[r] += row i + r of x times row j of w, rows of k elements; each sum in
 * ascending order */
static void add_products(double *sum, size_t rows,
                         const struct merak_operand *x, size_t i,
                         const struct merak_operand *w, size_t j, size_t k)
{
    if (rows == ROWS && x->dtype == MERAK_F32 && w->dtype == MERAK_F32) {
        const float *a = (const float *)x->data + i * k;
        const float *b = (const float *)w->data + j * k;

        for (size_t d = 0; d < k; d++) {
            for (size_t r = 0; r < ROWS; r++)
                sum[r] += (double)a[r * k + d] * (double)b[d];
        }
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t d = 0; d < k; d++)
            sum[r] += ref_load(x, (i + r) * k + d) * ref_load(w, j * k + d);
    }
}

REF_KERNEL(linear)
{
    const struct merak_operand *x = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *bias =
        call->n_in > 2 ? &call->operand[2] : NULL;
    const struct merak_operand *y = merak_call_out(call, 0);
    struct merak_gemm_sizes s = merak_linear_sizes(call);

    (void)err;
    if (!call->first)
        bias = NULL;
    for (size_t i = 0; i < s.m; i += ROWS) {
        size_t rows = s.m - i < ROWS ? s.m - i : ROWS;

        for (size_t j = 0; j < s.n; j++) {
            double sum[ROWS];

            for (size_t r = 0; r < ROWS; r++)
                sum[r] = bias != NULL ? ref_load(bias, j) : 0.0;
            add_products(sum, rows, x, i, w, j, s.k);
            for (size_t r = 0; r < rows; r++)
                ref_store(y, (i + r) * s.n + j, sum[r]);
        }
    }
    return MERAK_OK;
}

REF_KERNEL(linear_dx)
{
    const struct merak_operand *dy = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *dx = merak_call_out(call, 0);
    struct merak_gemm_sizes s = merak_linear_dx_sizes(call);

    (void)err;
    for (size_t i = 0; i < s.m; i++) {
        for (size_t k = 0; k < s.k; k += REF_LANES) {
            double sum[REF_LANES] = {0};
            size_t n = ref_lanes(s.k, k);

            for (size_t j = 0; j < s.n; j++)
                ref_add_lanes(sum, n, ref_load(dy, i * s.n + j), w,
                              j * s.k + k);
            for (size_t d = 0; d < n; d++)
                ref_store(dx, i * s.k + k + d, sum[d]);
        }
    }
    return MERAK_OK;
}

REF_KERNEL(linear_dw)
{
    const struct merak_operand *x = &call->operand[0], *dy = &call->operand[1];
    const struct merak_operand *dw = merak_call_out(call, 0);
    struct merak_gemm_sizes s = merak_linear_dw_sizes(call);

    (void)err;
    for (size_t j = 0; j < s.n; j++) {
        for (size_t k = 0; k < s.k; k += REF_LANES) {
            double sum[REF_LANES] = {0};
            size_t n = ref_lanes(s.k, k);

            for (size_t i = 0; i < s.m; i++)
                ref_add_lanes(sum, n, ref_load(dy, i * s.n + j), x,
                              i * s.k + k);
            for (size_t d = 0; d < n; d++)
                ref_put(call, dw, j * s.k + k + d, sum[d]);
        }
    }
    return MERAK_OK;
}

/* The sum of `call`'s operand over what its output does not have. */
static enum merak_status sum_rows(const struct merak_kernel_call *call)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *db = merak_call_out(call, 0);
    size_t n = merak_local_count(db), m = merak_local_count(dy) / n;

    for (size_t j = 0; j < n; j++) {
        double sum = 0;

        for (size_t i = 0; i < m; i++)
            sum += ref_load(dy, i * n + j);
        ref_put(call, db, j, sum);
    }
    return MERAK_OK;
}

REF_KERNEL(linear_db)
{
    (void)err;
    return sum_rows(call);
}

REF_KERNEL(attention_biased_dw)
{
    (void)err;
    return sum_rows(call);
}
