/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c - layernorm and rmsnorm with their gradients; the equations are in
 * ref/ref_norm.c */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/columns.h"
#include "kernels/cpu/vec.h"

#include <math.h>

#define ROWS 8 /* per item */

/* A forward or dx call; mean and beta are NULL for rmsnorm. */
struct norm {
    const void *x, *dy;
    const float *gamma, *beta;
    float *mean, *rstd;
    void *out;
    size_t rows, C;
    float eps, offset; /* offset: added to gamma */
    bool bf16;
};

INLINE float row_sum(const void *x, size_t at, size_t C, bool bf16)
{
    vf sum = {0};

    for (size_t c = 0; c < C; c += LANES)
        sum += vload_n(x, at + c, C - c, bf16);
    return vsum(sum);
}

INLINE float row_squares(const void *x, size_t at, size_t C, float mean,
                         bool bf16)
{
    vf sum = {0};

    for (size_t c = 0; c < C; c += LANES) {
        vf d = vkeep(vload_n(x, at + c, C - c, bf16) - mean, C - c, 0.0f);

        sum += d * d;
    }
    return vsum(sum);
}

INLINE void forward_row(const struct norm *nm, size_t row, bool bf16)
{
    size_t C = nm->C, at = row * C;
    float mean = 0, rstd;

    if (nm->mean != NULL)
        mean = nm->mean[row] = row_sum(nm->x, at, C, bf16) / (float)C;
    rstd = 1.0f /
           sqrtf(row_squares(nm->x, at, C, mean, bf16) / (float)C + nm->eps);
    nm->rstd[row] = rstd;
    for (size_t c = 0; c < C; c += LANES) {
        size_t n = C - c;
        vf y = (vload_n(nm->x, at + c, n, bf16) - mean) * rstd *
               (vload_n(nm->gamma, c, n, false) + nm->offset);

        if (nm->beta != NULL)
            y += vload_n(nm->beta, c, n, false);
        vstore_n(nm->out, at + c, n, y, bf16);
    }
}

INLINE void dx_row(const struct norm *nm, size_t row, bool bf16)
{
    size_t C = nm->C, at = row * C;
    float mean = nm->mean != NULL ? nm->mean[row] : 0, rstd = nm->rstd[row];
    float g_mean, gh_mean;
    vf g_sum = {0}, gh_sum = {0};

    for (size_t c = 0; c < C; c += LANES) {
        size_t n = C - c;
        vf g = vload_n(nm->dy, at + c, n, bf16) *
               (vload_n(nm->gamma, c, n, false) + nm->offset);

        g_sum += g; /* lanes past n are 0 in dy */
        gh_sum += g * ((vload_n(nm->x, at + c, n, bf16) - mean) * rstd);
    }
    g_mean = nm->mean != NULL ? vsum(g_sum) / (float)C : 0;
    gh_mean = vsum(gh_sum) / (float)C;
    for (size_t c = 0; c < C; c += LANES) {
        size_t n = C - c;
        vf g = vload_n(nm->dy, at + c, n, bf16) *
               (vload_n(nm->gamma, c, n, false) + nm->offset);
        vf h = (vload_n(nm->x, at + c, n, bf16) - mean) * rstd;

        vstore_n(nm->out, at + c, n, rstd * (g - g_mean - h * gh_mean), bf16);
    }
}

static void forward_rows(void *arg, size_t item, int thread)
{
    const struct norm *nm = arg;
    size_t end = cpu_range_end(item, ROWS, nm->rows);

    (void)thread;
    for (size_t row = item * ROWS; row < end; row++) {
        if (nm->bf16)
            forward_row(nm, row, true);
        else
            forward_row(nm, row, false);
    }
}

static void dx_rows(void *arg, size_t item, int thread)
{
    const struct norm *nm = arg;
    size_t end = cpu_range_end(item, ROWS, nm->rows);

    (void)thread;
    for (size_t row = item * ROWS; row < end; row++) {
        if (nm->bf16)
            dx_row(nm, row, true);
        else
            dx_row(nm, row, false);
    }
}

static enum merak_status run(const struct merak_kernel_call *call,
                             const struct merak_operand *gamma, struct norm *nm,
                             merak_item_fn rows, struct merak_error *err)
{
    const struct merak_operand *x = &call->operand[0];
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    nm->C = merak_local_count(gamma);
    nm->rows = merak_local_count(x) / nm->C;
    nm->bf16 = x->dtype == MERAK_BF16;
    merak_pool_run(rows, nm, cpu_range_count(nm->rows, ROWS));
    return MERAK_OK;
}

CPU_KERNEL(layernorm)
{
    const struct merak_operand *op = call->operand;
    struct norm nm = {.x = op[0].data,
                      .gamma = op[1].data,
                      .beta = op[2].data,
                      .out = op[3].data,
                      .mean = op[4].data,
                      .rstd = op[5].data,
                      .eps = (float)call->attrs->f[0]};

    return run(call, &op[1], &nm, forward_rows, err);
}

CPU_KERNEL(rmsnorm)
{
    const struct merak_operand *op = call->operand;
    struct norm nm = {.x = op[0].data,
                      .gamma = op[1].data,
                      .out = op[2].data,
                      .rstd = op[3].data,
                      .eps = (float)call->attrs->f[0],
                      .offset = (float)call->attrs->f[1]};

    return run(call, &op[1], &nm, forward_rows, err);
}

CPU_KERNEL(layernorm_dx)
{
    const struct merak_operand *op = call->operand;
    struct norm nm = {.dy = op[0].data,
                      .x = op[1].data,
                      .gamma = op[2].data,
                      .mean = op[3].data,
                      .rstd = op[4].data,
                      .out = op[5].data};

    return run(call, &op[2], &nm, dx_rows, err);
}

CPU_KERNEL(rmsnorm_dx)
{
    const struct merak_operand *op = call->operand;
    struct norm nm = {.dy = op[0].data,
                      .x = op[1].data,
                      .gamma = op[2].data,
                      .rstd = op[3].data,
                      .out = op[4].data,
                      .offset = (float)call->attrs->f[1]};

    return run(call, &op[2], &nm, dx_rows, err);
}

INLINE vf beta_term(const struct columns *col, size_t row, size_t at, size_t n,
                    bool bf16)
{
    return vload_n(col->dy, row * col->C + at, n, bf16);
}

INLINE vf gamma_term(const struct columns *col, size_t row, size_t at, size_t n,
                     bool bf16)
{
    float mean = col->mean != NULL ? col->mean[row] : 0;
    vf x = vload_n(col->x, row * col->C + at, n, bf16);

    return vload_n(col->dy, row * col->C + at, n, bf16) *
           ((x - mean) * col->rstd[row]);
}

static void dw_slab(void *arg, size_t item, int thread)
{
    const struct columns *col = arg;

    (void)thread;
    if (col->bf16) {
        columns_slab(col, item, gamma_term, col->out, true);
        if (col->out2 != NULL)
            columns_slab(col, item, beta_term, col->out2, true);
    } else {
        columns_slab(col, item, gamma_term, col->out, false);
        if (col->out2 != NULL)
            columns_slab(col, item, beta_term, col->out2, false);
    }
}

static enum merak_status run_dw(const struct merak_kernel_call *call,
                                struct columns *col, struct merak_error *err)
{
    const struct merak_operand *dy = &call->operand[0];
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    col->dy = dy->data;
    col->x = call->operand[1].data;
    col->C = merak_local_count(merak_call_out(call, 0));
    col->rows = merak_local_count(dy) / col->C;
    col->bf16 = dy->dtype == MERAK_BF16;
    col->accumulate = call->accumulate;
    merak_pool_run(dw_slab, col, cpu_range_count(col->C, COLUMNS_SLAB));
    return MERAK_OK;
}

CPU_KERNEL(layernorm_dw)
{
    const struct merak_operand *op = call->operand;
    struct columns col = {.mean = op[2].data,
                          .rstd = op[3].data,
                          .out = op[4].data,
                          .out2 = op[5].data};

    return run_dw(call, &col, err);
}

CPU_KERNEL(rmsnorm_dw)
{
    const struct merak_operand *op = call->operand;
    struct columns col = {.rstd = op[2].data, .out = op[3].data};

    return run_dw(call, &col, err);
}
