/* SPDX-License-Identifier: Apache-2.0 */
/* expert_bias.c - what is added to outputs of experts, and its gradients; the
 * equations are in ref/ref_experts.c
 */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#include <string.h>

#define GRAIN ((size_t)8)  /* tokens per item */
#define SLAB ((size_t)256) /* channels per item */

struct biases {
    const float *w;           /* [n, K] */
    const int32_t *ids;       /* the same */
    const float *bias;        /* [E, C] */
    const void *x;            /* [n, C], or dy */
    void *to;                 /* y, dw or dbias */
    size_t rows, K, C, bytes; /* rows: n K; bytes: of `to` */
    bool bf16;
};

/* Where the row's expert has its channels. */
static size_t at(const struct biases *b, size_t row)
{
    return (size_t)b->ids[row] * b->C;
}

static void bias_item(void *arg, size_t item, int thread)
{
    const struct biases *b = arg;
    size_t end = cpu_range_end(item, GRAIN, b->rows / b->K), C = b->C;

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        for (size_t c = 0; c < C; c += LANES) {
            vf sum = vload_n(b->x, i * C + c, C - c, b->bf16);

            for (size_t row = i * b->K; row < (i + 1) * b->K; row++) {
                if (b->ids[row] >= 0)
                    sum += b->w[row] * vload_n(b->bias, at(b, row) + c, C - c,
                                               false);
            }
            vstore_n(b->to, i * C + c, C - c, sum, b->bf16);
        }
    }
}

static void dx_item(void *arg, size_t item, int thread)
{
    const struct biases *b = arg;
    size_t end = cpu_range_end(item, GRAIN, b->rows), C = b->C;

    (void)thread;
    for (size_t i = item * GRAIN; i < end; i++) {
        vf sum = vset(0);

        for (size_t c = 0; c < C && b->ids[i] >= 0; c += LANES)
            sum += vload_n(b->x, i / b->K * C + c, C - c, b->bf16) *
                   vload_n(b->bias, at(b, i) + c, C - c, false);
        ((float *)b->to)[i] = vsum(sum);
    }
}

/* A slab of channels of all rows. */
static void db_item(void *arg, size_t item, int thread)
{
    const struct biases *b = arg;
    size_t end = cpu_range_end(item, SLAB, b->C), C = b->C;

    (void)thread;
    for (size_t i = 0; i < b->rows; i++) {
        for (size_t c = item * SLAB; c < end && b->ids[i] >= 0; c += LANES)
            vstore_n(b->to, at(b, i) + c, end - c,
                     vload_n(b->to, at(b, i) + c, end - c, false) +
                         b->w[i] * vload_n(b->x, i / b->K * C + c, end - c,
                                           b->bf16),
                     false);
    }
}

static enum merak_status view(const struct merak_kernel_call *call,
                              struct biases *b, struct merak_error *err)
{
    const struct merak_operand *op = call->operand;
    const struct merak_operand *to = merak_call_out(call, 0);
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    *b = (struct biases){.x = op[0].data,
                         .ids = op[2].data,
                         .to = to->data,
                         .rows = merak_local_count(&op[2]),
                         .K = merak_local_last(&op[2]),
                         .C = merak_local_last(&op[0]),
                         .bytes = merak_local_bytes(to),
                         .bf16 = op[0].dtype == MERAK_BF16};
    return rc == MERAK_OK ? merak_experts_bias_check(call, err) : rc;
}

CPU_KERNEL(experts_bias)
{
    struct biases b;
    enum merak_status rc = view(call, &b, err);

    b.w = call->operand[1].data;
    b.bias = call->operand[3].data;
    if (rc == MERAK_OK)
        merak_pool_run(bias_item, &b, cpu_range_count(b.rows / b.K, GRAIN));
    return rc;
}

CPU_KERNEL(experts_bias_dx)
{
    struct biases b;
    enum merak_status rc = view(call, &b, err);

    b.bias = call->operand[1].data;
    if (rc == MERAK_OK)
        merak_pool_run(dx_item, &b, cpu_range_count(b.rows, GRAIN));
    return rc;
}

CPU_KERNEL(experts_bias_db)
{
    struct biases b;
    enum merak_status rc = view(call, &b, err);

    b.w = call->operand[1].data;
    if (rc != MERAK_OK)
        return rc;
    if (!call->accumulate)
        memset(b.to, 0, b.bytes);
    merak_pool_run(db_item, &b, cpu_range_count(b.C, SLAB));
    return MERAK_OK;
}
