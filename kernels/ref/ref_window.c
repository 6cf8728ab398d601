/* SPDX-License-Identifier: Apache-2.0 */
/* ref_window.c - convolution and pooling over points of space, and their
 * gradients (reference) */
#include "config.h"

#include "kernels/ref/ref.h"
#include "kernels/windows.h"

/* --- convolution ---------------------------------------------------------- */

/* y[p, o] = sum over taps k, then channels i of x[p stride - pad + k dilation,
 * i] w[o, k, i] */
REF_KERNEL(conv)
{
    const struct merak_operand *x = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *bias =
        call->n_in > 2 && call->first ? &call->operand[2] : NULL;
    const struct merak_operand *y = merak_call_out(call, 0);
    struct merak_windows windows = merak_windows_of(call, 0, call->n_in);
    struct merak_patches g = merak_patches_forward(&windows, y->local.dim[0]);
    size_t I = merak_local_last(x), O = merak_local_last(y);

    (void)err;
    for (size_t row = 0; row < g.samples * g.rows; row++) {
        for (size_t o = 0; o < O; o++) {
            double sum = bias != NULL ? ref_load(bias, o) : 0;

            for (size_t k = 0; k < g.taps; k++) {
                int64_t from = merak_patch_from(&g, row, k);

                for (size_t i = 0; i < I && from >= 0; i++)
                    sum += ref_load(x, (size_t)from * I + i) *
                           ref_load(w, (o * g.taps + k) * I + i);
            }
            ref_store(y, row * O + o, sum);
        }
    }
    return MERAK_OK;
}

/* dx[x, i] = sum over taps k, then o, of dy[p, o] w[o, k, i], p being the
 * window of which x is point k */
REF_KERNEL(conv_dx)
{
    const struct merak_operand *dy = &call->operand[0], *w = &call->operand[1];
    const struct merak_operand *dx = merak_call_out(call, 0);
    struct merak_windows windows = merak_windows_of(call, 2, 0);
    const size_t in[] = {windows.dim[0].in, windows.dim[1].in,
                         windows.dim[2].in};
    const size_t size[] = {windows.dim[0].size, windows.dim[1].size,
                           windows.dim[2].size};
    size_t I = merak_local_last(dx), O = merak_local_last(dy);
    size_t taps = merak_windows_taps(&windows);

    (void)err;
    for (size_t c = 0; c < merak_windows_classes(&windows); c++) {
        struct merak_patches g =
            merak_patches_backward(&windows, dx->local.dim[0], c);

        for (size_t row = 0; row < g.samples * g.rows; row++) {
            size_t to = merak_patch_to(&g, in, row);

            for (size_t i = 0; i < I; i++) {
                double sum = 0;

                for (size_t k = 0; k < g.taps; k++) {
                    int64_t from = merak_patch_from(&g, row, k);
                    size_t tap = merak_patch_tap(&g, size, k);

                    for (size_t o = 0; o < O && from >= 0; o++)
                        sum += ref_load(dy, (size_t)from * O + o) *
                               ref_load(w, (o * taps + tap) * I + i);
                }
                ref_store(dx, to * I + i, sum);
            }
        }
    }
    return MERAK_OK;
}

REF_KERNEL(conv_dw)
{
    const struct merak_operand *x = &call->operand[0], *dy = &call->operand[1];
    const struct merak_operand *dw = merak_call_out(call, 0);
    struct merak_windows windows = merak_windows_of(call, 0, 1);
    struct merak_patches g = merak_patches_forward(&windows, x->local.dim[0]);
    size_t I = merak_local_last(x), O = merak_local_last(dy);

    (void)err;
    for (size_t o = 0; o < O; o++) {
        for (size_t k = 0; k < g.taps; k++) {
            for (size_t i = 0; i < I; i++) {
                double sum = 0;

                for (size_t row = 0; row < g.samples * g.rows; row++) {
                    int64_t from = merak_patch_from(&g, row, k);

                    if (from >= 0)
                        sum += ref_load(x, (size_t)from * I + i) *
                               ref_load(dy, row * O + o);
                }
                ref_put(call, dw, (o * g.taps + k) * I + i, sum);
            }
        }
    }
    return MERAK_OK;
}

/* --- pooling -------------------------------------------------------------- */

/* What a window's sum is divided by. */
static double mean_of(const struct merak_patches *g, int64_t kind, size_t row)
{
    size_t n = 0;

    if (kind == MERAK_POOL_SUM)
        return 1;
    if (kind == MERAK_POOL_MEAN)
        return (double)g->taps;
    for (size_t k = 0; k < g->taps; k++)
        n += merak_patch_from(g, row, k) >= 0;
    return (double)n;
}

/* A window's first largest point, in channel c.  Each has one inside, unless
 * padding behind the input is as wide as a window: then -1. */
static int64_t largest(const struct merak_patches *g,
                       const struct merak_operand *x, size_t row, size_t C,
                       size_t c)
{
    int64_t best = -1;

    for (size_t k = 0; k < g->taps; k++) {
        int64_t from = merak_patch_from(g, row, k);

        if (from >= 0 && (best < 0 || ref_load(x, (size_t)from * C + c) >
                                          ref_load(x, (size_t)best * C + c)))
            best = from;
    }
    return best;
}

REF_KERNEL(pool)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *y = merak_call_out(call, 0);
    struct merak_windows windows = merak_windows_of(call, 0, 1);
    struct merak_patches g = merak_patches_forward(&windows, y->local.dim[0]);
    size_t C = merak_local_last(x);

    (void)err;
    for (size_t row = 0; row < g.samples * g.rows; row++) {
        double n = mean_of(&g, call->attrs->i[1], row);

        for (size_t c = 0; c < C; c++) {
            int64_t best = largest(&g, x, row, C, c);
            double sum = 0;

            for (size_t k = 0; k < g.taps; k++) {
                int64_t from = merak_patch_from(&g, row, k);

                sum += from < 0 ? 0 : ref_load(x, (size_t)from * C + c);
            }
            if (call->attrs->i[1] == MERAK_POOL_MAX)
                sum = best < 0 ? 0 : ref_load(x, (size_t)best * C + c);
            else
                sum = n > 0 ? sum / n : 0;
            ref_store(y, row * C + c, sum);
        }
    }
    return MERAK_OK;
}

/* What window `row` gives to point `to` in channel c. */
static double given(const struct merak_kernel_call *call,
                    const struct merak_patches *g, size_t row, size_t to,
                    size_t C, size_t c)
{
    double dy = ref_load(&call->operand[0], row * C + c);

    if (call->attrs->i[1] != MERAK_POOL_MAX)
        return dy / mean_of(g, call->attrs->i[1], row);
    return largest(g, &call->operand[1], row, C, c) == (int64_t)to ? dy : 0;
}

REF_KERNEL(pool_dx)
{
    const struct merak_operand *dx = merak_call_out(call, 0);
    struct merak_windows windows = merak_windows_of(call, call->n_in, 0);
    const size_t in[] = {windows.dim[0].in, windows.dim[1].in,
                         windows.dim[2].in};
    struct merak_patches of = merak_patches_forward(&windows, dx->local.dim[0]);
    size_t C = merak_local_last(dx);

    (void)err;
    for (size_t k = 0; k < merak_windows_classes(&windows); k++) {
        struct merak_patches g =
            merak_patches_backward(&windows, dx->local.dim[0], k);

        for (size_t row = 0; row < g.samples * g.rows; row++) {
            size_t to = merak_patch_to(&g, in, row);

            for (size_t c = 0; c < C; c++) {
                double sum = 0;

                for (size_t t = 0; t < g.taps; t++) {
                    int64_t window = merak_patch_from(&g, row, t);

                    if (window >= 0)
                        sum += given(call, &of, (size_t)window, to, C, c);
                }
                ref_store(dx, to * C + c, sum);
            }
        }
    }
    return MERAK_OK;
}
