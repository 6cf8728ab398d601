/* SPDX-License-Identifier: Apache-2.0 */
/* alias.c - whether calls may be run row by row, as one kernel
 *
 * A program's slots share memory where their lives allow it, for instructions
 * that run one after the other.  Run as one, a later call's output may be
 * written before an earlier call has read all of its inputs.
 */
#include "config.h"

#include "kernels/accel.h"
#include "kernels/geometry.h"

/* What a call reads or writes. */
struct range {
    const char *at;
    size_t bytes;
    const struct merak_operand *operand; /* NULL: scratch */
    bool written;
};

static struct range range_of(const struct merak_kernel_call *call, int i)
{
    const struct merak_operand *x = &call->operand[i];

    if (i == call->n_in + call->n_out)
        return (struct range){
            .at = call->scratch, .bytes = call->scratch_bytes, .written = true};
    return (struct range){.at = x->data,
                          .bytes = merak_local_bytes(x),
                          .operand = x,
                          .written = i >= call->n_in};
}

static size_t row_length(const struct merak_operand *x)
{
    return x->local.ndim > 0 ? merak_local_last(x) : 1;
}

static bool are_the_same_rows(const struct range *a, const struct range *b)
{
    const struct merak_operand *x = a->operand, *y = b->operand;

    return x != NULL && y != NULL && a->at == b->at && a->bytes == b->bytes &&
           x->dtype == y->dtype && row_length(x) == row_length(y) &&
           x->ld == y->ld;
}

static bool are_compatible(const struct range *a, const struct range *b)
{
    return (!a->written && !b->written) || a->bytes == 0 || b->bytes == 0 ||
           a->at + a->bytes <= b->at || b->at + b->bytes <= a->at ||
           are_the_same_rows(a, b);
}

static bool two_do_not_alias(const struct merak_kernel_call *a,
                             const struct merak_kernel_call *b)
{
    for (int i = 0; i <= a->n_in + a->n_out; i++) {
        struct range x = range_of(a, i);

        for (int k = 0; k <= b->n_in + b->n_out; k++) {
            struct range y = range_of(b, k);

            if (!are_compatible(&x, &y))
                return false;
        }
    }
    return true;
}

bool merak_calls_do_not_alias(const struct merak_kernel_call *const *call,
                              int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            if (!two_do_not_alias(call[i], call[k]))
                return false;
        }
    }
    return true;
}
