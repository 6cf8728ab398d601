/* SPDX-License-Identifier: Apache-2.0 */
/* mean.c - means along a dim; the equations are in ref/ref_pointwise.c
 *
 * Sums are in double, by ascending index, so a thread may take any rows. */
#include "config.h"

#include "kernels/cpu/cpu.h"

#define COLUMNS 256 /* of a row, summed at a time */

struct mean {
    const struct merak_operand *in, *out;
    struct merak_along along;
    double n; /* of the whole dim */
};

static double load(const struct merak_operand *op, size_t i)
{
    return op->dtype == MERAK_BF16
               ? (double)merak_bf16_to_f32(((const uint16_t *)op->data)[i])
               : (double)((const float *)op->data)[i];
}

static void store(const struct merak_operand *op, size_t i, double x)
{
    if (op->dtype == MERAK_BF16)
        ((uint16_t *)op->data)[i] = merak_f32_to_bf16((float)x);
    else
        ((float *)op->data)[i] = (float)x;
}

static void mean_row(void *arg, size_t row, int thread)
{
    const struct mean *m = arg;
    const struct merak_along *a = &m->along;
    double sum[COLUMNS];

    (void)thread;
    for (size_t from = 0; from < a->inner; from += COLUMNS) {
        size_t n = a->inner - from < COLUMNS ? a->inner - from : COLUMNS;

        memset(sum, 0, n * sizeof(*sum));
        for (size_t k = 0; k < a->n; k++) {
            for (size_t i = 0; i < n; i++)
                sum[i] += load(m->in, (row * a->n + k) * a->inner + from + i);
        }
        for (size_t i = 0; i < n; i++)
            store(m->out, row * a->inner + from + i, sum[i] / m->n);
    }
}

static void mean_dx_row(void *arg, size_t row, int thread)
{
    const struct mean *m = arg;
    const struct merak_along *a = &m->along;

    (void)thread;
    for (size_t k = 0; k < a->n; k++) {
        for (size_t i = 0; i < a->inner; i++)
            store(m->out, (row * a->n + k) * a->inner + i,
                  load(m->in, row * a->inner + i) / m->n);
    }
}

CPU_KERNEL(mean)
{
    struct mean m = {.in = &call->operand[0], .out = merak_call_out(call, 0)};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    m.along = merak_along_of(call, m.in);
    m.n = (double)m.along.n;
    merak_pool_run(mean_row, &m, m.along.outer);
    return MERAK_OK;
}

CPU_KERNEL(mean_dx)
{
    struct mean m = {.in = &call->operand[0],
                     .out = merak_call_out(call, 0),
                     .n = (double)call->attrs->i[1]};
    enum merak_status rc = cpu_check_dtype(call, 0, false, err);

    if (rc != MERAK_OK)
        return rc;
    m.along = merak_along_of(call, m.out);
    merak_pool_run(mean_dx_row, &m, m.along.outer);
    return MERAK_OK;
}
