/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/channels.h - statistics of groups of channels, as norms read them
 *
 * A group is k neighbouring channels of n samples at all of their points.
 * channel_sums gives sums for each channel of each sample, in f64: what a group
 * needs of them is added here.  The equations are in ref/ref_channels.c.
 */
#ifndef MERAK_KERNELS_CHANNELS_H
#define MERAK_KERNELS_CHANNELS_H

#include <math.h>

#include "kernels/geometry.h"

struct merak_channels {
    size_t B, points, C;  /* of the operands here */
    size_t sample, first; /* number of their first sample; first channel,
                             among those that sums have */
    size_t from, all;     /* first sample that sums have; their channels */
    size_t k, n;          /* channels and samples of a group */
    double count, eps;    /* its elements */
    const double *sums, *dsums; /* [.., all, 2]; dsums of gradients only */
    const float *gamma;         /* [all], beside dsums */
};

/* Of the samples and channels of `here`, and the sums `of` them. */
static inline struct merak_channels
merak_channels_of(const struct merak_kernel_call *call,
                  const struct merak_operand *here,
                  const struct merak_operand *of)
{
    const struct merak_attrs *attrs = call->attrs;
    int last = here->local.ndim - 1;
    struct merak_channels q = {};

    q.B = here->local.dim[0];
    q.points = merak_local_span(here, 1, last);
    q.C = here->local.dim[last];
    q.sample = here->lo[0];
    q.first = here->lo[last] - of->lo[1];
    q.from = of->lo[0];
    q.all = of->local.dim[1];
    q.k = (size_t)attrs->i[0];
    q.n = (size_t)attrs->i[1];
    q.eps = attrs->f[0];
    q.sums = (const double *)of->data;
    q.count = (double)(q.k * q.n);
    for (int d = 1; d < last; d++)
        q.count *= (double)here->full.dim[d];
    return q;
}

static inline struct merak_channels
merak_channels_norm_view(const struct merak_kernel_call *call)
{
    return merak_channels_of(call, &call->operand[0], &call->operand[1]);
}

static inline struct merak_channels
merak_channels_dx_view(const struct merak_kernel_call *call)
{
    struct merak_channels q =
        merak_channels_of(call, &call->operand[0], &call->operand[2]);

    q.dsums = (const double *)call->operand[3].data;
    q.gamma = (const float *)call->operand[4].data;
    return q;
}

/* dsums of the channels here, of which operands have no points: i[3]. */
static inline struct merak_channels
merak_channels_dw_view(const struct merak_kernel_call *call)
{
    const struct merak_operand *dsums = &call->operand[1];
    struct merak_channels q = merak_channels_of(call, dsums, &call->operand[0]);

    q.C = dsums->local.dim[1];
    q.first = dsums->lo[1] - call->operand[0].lo[1];
    q.count = (double)(q.k * q.n) * (double)call->attrs->i[3];
    q.dsums = (const double *)dsums->data;
    return q;
}

/* Of a micro-batch's sums alone. */
static inline struct merak_channels
merak_channels_stats_view(const struct merak_kernel_call *call)
{
    const struct merak_operand *sums = &call->operand[0];
    struct merak_channels q = merak_channels_of(call, sums, sums);

    q.C = sums->local.dim[1];
    q.first = 0;
    q.count = (double)(q.k * q.n) * (double)call->attrs->i[3];
    return q;
}

#ifdef __CUDACC__ /* kernels on devices ask, too */
#define MERAK_CHANNELS_FN static inline __host__ __device__
#else
#define MERAK_CHANNELS_FN static inline
#endif

/* The first of a group's elements of sums, which has channel c of sample b. */
MERAK_CHANNELS_FN size_t merak_channels_at(const struct merak_channels *q,
                                           size_t b, size_t c)
{
    size_t sample = (q->sample + b) / q->n * q->n - q->from;
    size_t channel = (q->first + c) / q->k * q->k;

    return sample * q->all + channel;
}

/* Of a group's elements. */
struct merak_moments {
    double mean, variance, rstd;
};
MERAK_CHANNELS_FN struct merak_moments
merak_channels_moments(const struct merak_channels *q, size_t b, size_t c)
{
    size_t at = merak_channels_at(q, b, c);
    struct merak_moments m;
    double x = 0, xx = 0;

    for (size_t s = 0; s < q->n; s++) {
        const double *sums = q->sums + 2 * (at + s * q->all);

        for (size_t i = 0; i < q->k; i++) {
            x += sums[2 * i];
            xx += sums[2 * i + 1];
        }
    }
    m.mean = x / q->count;
    m.variance = xx / q->count - m.mean * m.mean;
    m.variance = m.variance > 0 ? m.variance : 0;
    m.rstd = 1 / sqrt(m.variance + q->eps);
    return m;
}

/* Of channel c, means over all groups of samples, and of the variances of which
 * these are samples. */
MERAK_CHANNELS_FN void merak_channels_stats(const struct merak_channels *q,
                                            size_t c, double *mean_p,
                                            double *variance_p)
{
    double groups = (double)(q->B / q->n), mean = 0, variance = 0;

    for (size_t b = 0; b < q->B; b += q->n) {
        struct merak_moments m = merak_channels_moments(q, b, c);

        mean += m.mean / groups;
        variance += m.variance / groups;
    }
    *mean_p = mean;
    *variance_p = variance * q->count / (q->count - 1);
}

/* What dx of element x has beside rstd gamma dy: -(by (x - mean) + less). */
struct merak_slopes {
    double by, less;
};
MERAK_CHANNELS_FN struct merak_slopes
merak_channels_slopes(const struct merak_channels *q, size_t b, size_t c,
                      struct merak_moments m)
{
    size_t at = merak_channels_at(q, b, c), channel = at % q->all;
    double g = 0, gx = 0;

    for (size_t s = 0; s < q->n; s++) {
        const double *dsums = q->dsums + 2 * (at + s * q->all);

        for (size_t i = 0; i < q->k; i++) {
            double gamma = (double)q->gamma[channel + i];

            g += gamma * dsums[2 * i];
            gx += gamma * dsums[2 * i + 1];
        }
    }
    return (struct merak_slopes){m.rstd * m.rstd * m.rstd * (gx - m.mean * g) /
                                     q->count,
                                 m.rstd * g / q->count};
}

/* Of gamma and beta of a channel: what all samples here add to the gradients. */
struct merak_channels_dw {
    double gamma, beta;
};
MERAK_CHANNELS_FN struct merak_channels_dw
merak_channels_dw_add(const struct merak_channels *q, size_t c,
                      struct merak_channels_dw dw)
{
    for (size_t b = 0; b < q->B; b++) {
        struct merak_moments m = merak_channels_moments(q, b, c);
        const double *dsums = q->dsums + 2 * (b * q->C + c);

        dw.gamma += m.rstd * (dsums[1] - m.mean * dsums[0]);
        dw.beta += dsums[0];
    }
    return dw;
}

#endif
