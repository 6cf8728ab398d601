/* SPDX-License-Identifier: Apache-2.0 */
/* linear.c - y = x w' + bias and its gradients */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/columns.h"
#include "kernels/cpu/gemm_moves.h"
#include "kernels/cpu/matvec.h"

static bool is_bf16(const struct merak_operand *op)
{
    return op->dtype == MERAK_BF16;
}

static void one_row(const struct merak_gemm *g)
{
    struct matvec mv = {.n = g->n,
                        .k = g->k,
                        .bf16 = g->bf16_ab,
                        .w = g->b,
                        .x = g->a,
                        .y = g->c,
                        .bias = g->bias};

    matvec(&mv);
}

CPU_KERNEL(linear)
{
    const struct merak_operand *x = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *y = merak_call_out(call, 0);
    struct merak_gemm_sizes s = merak_linear_sizes(call);
    struct merak_gemm g = {.m = s.m,
                           .n = s.n,
                           .k = s.k,
                           .moves = &gemm_moves,
                           .trans_b = true,
                           .bf16_ab = is_bf16(x),
                           .bf16_c = is_bf16(y),
                           .a = x->data,
                           .b = w->data,
                           .c = y->data};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    if (call->n_in > 2 && call->first)
        g.bias = call->operand[2].data;
    if (s.m == 1 && s.k <= MATVEC_MAX_K) {
        one_row(&g);
        return MERAK_OK;
    }
    return merak_gemm(&g, err);
}

CPU_KERNEL(linear_dx)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *w = &call->operand[1];
    const struct merak_operand *dx = merak_call_out(call, 0);
    struct merak_gemm_sizes s = merak_linear_dx_sizes(call);
    struct merak_gemm g = {.m = s.m,
                           .n = s.k,
                           .k = s.n,
                           .moves = &gemm_moves,
                           .bf16_ab = is_bf16(dy),
                           .bf16_c = is_bf16(dx),
                           .a = dy->data,
                           .b = w->data,
                           .c = dx->data};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    return rc == MERAK_OK ? merak_gemm(&g, err) : rc;
}

CPU_KERNEL(linear_dw)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *dy = &call->operand[1];
    struct merak_gemm_sizes s = merak_linear_dw_sizes(call);
    struct merak_gemm g = {.m = s.n,
                           .n = s.k,
                           .k = s.m,
                           .trans_a = true,
                           .moves = &gemm_moves,
                           .bf16_ab = is_bf16(x),
                           .accumulate = call->accumulate,
                           .a = dy->data,
                           .b = x->data,
                           .c = merak_call_out(call, 0)->data};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    return rc == MERAK_OK ? merak_gemm(&g, err) : rc;
}

INLINE vf plain_term(const struct columns *col, size_t row, size_t at, size_t n,
                     bool bf16)
{
    return vload_n(col->dy, row * col->C + at, n, bf16);
}

static void db_slab(void *arg, size_t item, int thread)
{
    const struct columns *col = arg;

    (void)thread;
    if (col->bf16)
        columns_slab(col, item, plain_term, col->out, true);
    else
        columns_slab(col, item, plain_term, col->out, false);
}

/* The sum of `call`'s operand over what its output does not have. */
static enum merak_status sum_rows(const struct merak_kernel_call *call,
                                  struct merak_error *err)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *db = merak_call_out(call, 0);
    struct columns col = {.dy = dy->data,
                          .out = db->data,
                          .C = merak_local_count(db),
                          .bf16 = is_bf16(dy),
                          .accumulate = call->accumulate};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    col.rows = merak_local_count(dy) / col.C;
    merak_pool_run(db_slab, &col, cpu_range_count(col.C, COLUMNS_SLAB));
    return MERAK_OK;
}

CPU_KERNEL(linear_db)
{
    return sum_rows(call, err);
}

CPU_KERNEL(attention_biased_dw)
{
    return sum_rows(call, err);
}
