/* SPDX-License-Identifier: Apache-2.0 */
/* ref_channels.c - norms of groups of channels with their gradients, and
 * channels beside one another (reference)
 *
 * Of the M elements of a group, k channels of n samples at all points, with
 * h = (x - mean) rstd, y = gamma h + beta:
 *   mean = sum x / M,  rstd = 1 / sqrt(sum x x / M - mean^2 + eps)
 *   dgamma = rstd (sum dy x - mean sum dy),  dbeta = sum dy
 *   dx = rstd (g - mean(g) - h mean(g h)),  g = dy gamma
 * Wu and He 2018 (arXiv:1803.08494), sec. 3; of one channel of all samples,
 * Ioffe and Szegedy 2015 (arXiv:1502.03167), algorithm 1.
 *
 * All sums are those of channel_sums: of one channel of one sample each.
 */
#include "config.h"

#include "kernels/channels.h"
#include "kernels/ref/ref.h"

#include <math.h>

REF_KERNEL(channel_sums)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *by = &call->operand[call->n_in - 1];
    const struct merak_operand *sums = merak_call_out(call, 0);
    size_t C = merak_local_last(x);
    size_t points = merak_local_span(x, 1, x->local.ndim - 1);

    (void)err;
    for (size_t i = 0; i < x->local.dim[0] * C; i++) {
        size_t at = i / C * points * C + i % C;
        double sum = 0, product = 0;

        for (size_t p = 0; p < points; p++) {
            sum += ref_load(x, at + p * C);
            product += ref_load(x, at + p * C) * ref_load(by, at + p * C);
        }
        ref_store(sums, 2 * i, sum);
        ref_store(sums, 2 * i + 1, product);
    }
    return MERAK_OK;
}

/* running: the mean and the variance to take, or NULL. */
static void norm(const struct merak_kernel_call *call,
                 const struct merak_operand *running)
{
    const struct merak_operand *x = &call->operand[0];
    const struct merak_operand *gamma = &call->operand[2];
    const struct merak_operand *beta = &call->operand[3];
    struct merak_channels q = merak_channels_norm_view(call);

    for (size_t i = 0; i < q.B * q.C; i++) {
        size_t b = i / q.C, c = i % q.C;
        struct merak_moments m = merak_channels_moments(&q, b, c);

        if (running != NULL) {
            m.mean = ref_load(&running[0], c);
            m.rstd = 1 / sqrt(ref_load(&running[1], c) + q.eps);
        }
        for (size_t p = 0; p < q.points; p++) {
            size_t at = (b * q.points + p) * q.C + c;

            ref_store(merak_call_out(call, 0), at,
                      (ref_load(x, at) - m.mean) * m.rstd * ref_load(gamma, c) +
                          ref_load(beta, c));
        }
    }
}

REF_KERNEL(channel_norm)
{
    (void)err;
    norm(call, NULL);
    return MERAK_OK;
}

REF_KERNEL(batch_norm)
{
    (void)err;
    norm(call, call->step->train ? NULL : &call->operand[4]);
    return MERAK_OK;
}

REF_KERNEL(batch_stats)
{
    struct merak_channels q = merak_channels_stats_view(call);

    (void)err;
    for (size_t c = 0; c < q.C; c++) {
        double mean, variance;

        merak_channels_stats(&q, c, &mean, &variance);
        ref_put(call, merak_call_out(call, 0), c, mean);
        ref_put(call, merak_call_out(call, 1), c, variance);
    }
    return MERAK_OK;
}

/* Means of g and of g h over the group of channel c of sample b. */
static void mean_slopes(const struct merak_channels *q,
                        const struct merak_operand *gamma, size_t b, size_t c,
                        struct merak_moments m, double mean[2])
{
    size_t at = merak_channels_at(q, b, c);

    mean[0] = mean[1] = 0;
    for (size_t i = 0; i < q->n * q->k; i++) {
        size_t from = at + i / q->k * q->all + i % q->k;
        double g = ref_load(gamma, from % q->all) / q->count;

        mean[0] += g * q->dsums[2 * from];
        mean[1] +=
            g * m.rstd * (q->dsums[2 * from + 1] - m.mean * q->dsums[2 * from]);
    }
}

REF_KERNEL(channel_norm_dx)
{
    const struct merak_operand *dy = &call->operand[0], *x = &call->operand[1];
    const struct merak_operand *gamma = &call->operand[4];
    struct merak_channels q = merak_channels_dx_view(call);

    (void)err;
    for (size_t i = 0; i < q.B * q.C; i++) {
        size_t b = i / q.C, c = i % q.C;
        struct merak_moments m = merak_channels_moments(&q, b, c);
        double mean[2];

        mean_slopes(&q, gamma, b, c, m, mean);
        for (size_t p = 0; p < q.points; p++) {
            size_t at = (b * q.points + p) * q.C + c;
            double h = (ref_load(x, at) - m.mean) * m.rstd;
            double g = ref_load(dy, at) * ref_load(gamma, q.first + c);

            ref_store(merak_call_out(call, 0), at,
                      m.rstd * (g - mean[0] - h * mean[1]));
        }
    }
    return MERAK_OK;
}

REF_KERNEL(channel_norm_dw)
{
    struct merak_channels q = merak_channels_dw_view(call);

    (void)err;
    for (size_t c = 0; c < q.C; c++) {
        double dgamma = 0, dbeta = 0;

        for (size_t b = 0; b < q.B; b++) {
            struct merak_moments m = merak_channels_moments(&q, b, c);
            const double *d = q.dsums + 2 * (b * q.C + c);

            dgamma += m.rstd * (d[1] - m.mean * d[0]);
            dbeta += d[0];
        }
        ref_put(call, merak_call_out(call, 0), c, dgamma);
        ref_put(call, merak_call_out(call, 1), c, dbeta);
    }
    return MERAK_OK;
}

/* --- beside one another -----------------------------------------------------
 */

REF_KERNEL(concat)
{
    const struct merak_operand *y = merak_call_out(call, 0);
    size_t N = merak_local_last(y), from = 0;

    (void)err;
    for (int o = 0; o < call->n_in; o++) {
        const struct merak_operand *x = &call->operand[o];
        size_t n = merak_local_last(x);

        for (size_t i = 0; i < merak_local_count(x); i++)
            ref_store(y, i / n * N + from + i % n, ref_load(x, i));
        from += n;
    }
    return MERAK_OK;
}

REF_KERNEL(concat_dx)
{
    const struct merak_operand *dx = merak_call_out(call, 0);
    size_t n = merak_local_last(dx), N = merak_local_last(&call->operand[0]);

    (void)err;
    for (size_t i = 0; i < merak_local_count(dx); i++)
        ref_store(dx, i,
                  ref_load(&call->operand[0],
                           i / n * N + (size_t)call->attrs->i[0] + i % n));
    return MERAK_OK;
}

/* y_h = (shared, x_h) of each head h */
REF_KERNEL(concat_shared)
{
    const struct merak_operand *s = &call->operand[0], *x = &call->operand[1];
    const struct merak_operand *y = merak_call_out(call, 0);
    size_t G = merak_local_last(s), R = merak_local_last(x), N = G + R;
    size_t H = x->local.dim[2];

    (void)err;
    for (size_t i = 0; i < merak_local_count(y); i++) {
        size_t row = i / N, c = i % N;

        ref_store(y, i,
                  c < G ? ref_load(s, row / H * G + c)
                        : ref_load(x, row * R + c - G));
    }
    return MERAK_OK;
}

REF_KERNEL(concat_shared_dx)
{
    const struct merak_operand *dy = &call->operand[0];
    const struct merak_operand *ds = merak_call_out(call, 0);
    const struct merak_operand *dx = merak_call_out(call, 1);
    size_t G = merak_local_last(ds), R = merak_local_last(dx), N = G + R;
    size_t H = dy->local.dim[2];

    (void)err;
    for (size_t i = 0; i < merak_local_count(ds); i++) {
        double sum = 0;

        for (size_t h = 0; h < H; h++)
            sum += ref_load(dy, (i / G * H + h) * N + i % G);
        ref_store(ds, i, sum);
    }
    for (size_t i = 0; i < merak_local_count(dx); i++)
        ref_store(dx, i, ref_load(dy, i / R * N + G + i % R));
    return MERAK_OK;
}
