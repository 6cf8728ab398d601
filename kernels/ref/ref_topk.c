/* SPDX-License-Identifier: Apache-2.0 */
/* ref_topk.c - of each row the largest elements, and where they were */
#include "config.h"

#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

/* Rows of an operand of i[1] elements, or of the i[0] that are kept. */
static size_t rows_of(const struct merak_operand *op)
{
    return merak_local_span(op, 0, op->local.ndim - 1);
}

static double magnitude(double x)
{
    return isnan(x) ? INFINITY : fabs(x);
}

/* Does element j of a row come before i?  NaN is larger than infinity, and of
 * equal ones the first comes first. */
static bool is_before(const struct merak_operand *x, size_t row, size_t j,
                      size_t i)
{
    double a = ref_load(x, row + j), b = ref_load(x, row + i);

    if (isnan(a) != isnan(b))
        return isnan(a);
    if (magnitude(a) != magnitude(b))
        return magnitude(a) > magnitude(b);
    return j < i;
}

static bool has(const struct merak_operand *at, size_t row, size_t C, size_t i)
{
    const int32_t *word = (const int32_t *)at->data + row * ((C + 31) / 32);

    return (uint32_t)word[i / 32] >> i % 32 & 1;
}

REF_KERNEL(topk_pack)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *v = merak_call_out(call, 0);
    const struct merak_operand *at = merak_call_out(call, 1);
    size_t K = (size_t)call->attrs->i[0], C = (size_t)call->attrs->i[1];

    (void)err;
    memset(at->data, 0, merak_local_bytes(at));
    for (size_t r = 0; r < rows_of(x); r++) {
        uint32_t *word = (uint32_t *)at->data + r * ((C + 31) / 32);
        size_t k = 0;

        for (size_t i = 0; i < C; i++) {
            size_t before = 0;

            for (size_t j = 0; j < C; j++)
                before += j != i && is_before(x, r * C, j, i);
            if (before >= K)
                continue;
            word[i / 32] |= (uint32_t)1 << i % 32;
            ref_store(v, r * K + k++, ref_load(x, r * C + i));
        }
    }
    return MERAK_OK;
}

REF_KERNEL(topk_unpack)
{
    const struct merak_operand *v = &call->operand[0], *at = &call->operand[1];
    const struct merak_operand *y = merak_call_out(call, 0);
    size_t K = (size_t)call->attrs->i[0], C = (size_t)call->attrs->i[1];

    (void)err;
    for (size_t r = 0; r < rows_of(y); r++) {
        size_t k = 0;

        for (size_t i = 0; i < C; i++)
            ref_store(y, r * C + i,
                      has(at, r, C, i) ? ref_load(v, r * K + k++) : 0);
    }
    return MERAK_OK;
}

REF_KERNEL(topk_take)
{
    const struct merak_operand *dy = &call->operand[0], *at = &call->operand[1];
    const struct merak_operand *dv = merak_call_out(call, 0);
    size_t K = (size_t)call->attrs->i[0], C = (size_t)call->attrs->i[1];

    (void)err;
    for (size_t r = 0; r < rows_of(dy); r++) {
        size_t k = 0;

        for (size_t i = 0; i < C; i++) {
            if (has(at, r, C, i))
                ref_store(dv, r * K + k++, ref_load(dy, r * C + i));
        }
    }
    return MERAK_OK;
}
