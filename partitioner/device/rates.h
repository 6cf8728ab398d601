/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/rates.h - efficiency of kernels, as measured
 *
 * A kernel's efficiency depends on its op and on the sizes of its operands: on
 * the remainder of a product after its last full tile, on the cache that holds
 * the operands, on the overhead before the first element is touched.  Points
 * are kernels that were timed; between them the ratio of a kernel's time to its
 * roofline is interpolated.
 */
#ifndef MERAK_PARTITIONER_DEVICE_RATES_H
#define MERAK_PARTITIONER_DEVICE_RATES_H

#include <stdbool.h>

#define MERAK_RATE_OPS 48
#define MERAK_RATE_POINTS 512
#define MERAK_RATE_AXES 4

/* The op name of copies, which are not done by a kernel. */
#define MERAK_RATE_COPY "copy"

struct merak_kernel_size {
    double flops, bytes; /* from the op's cost function; not both 0 */
    double width;        /* last dim of the first operand, if that has three or
                            more: of two kernels with the same FLOPs the one
                            with narrow heads takes longer.  0: not known */
    double reuse;        /* reuse distance, bytes that were touched since its
                            inputs were: after many, these are no longer in a
                            cache.  0: not known, or irrelevant */
};

struct merak_rate_point {
    struct merak_kernel_size size;
    double seconds;
};

/* Logarithms of a point, since a search looks up rates a million times. */
struct merak_rate_logs {
    double axis[MERAK_RATE_AXES]; /* of flops + 1, bytes + 1, width, reuse; -1:
                                     not known */
    double flops, bytes, seconds;
};

struct merak_op_rates {
    char op[32];
    int n;
    struct merak_rate_point point[MERAK_RATE_POINTS];
    struct merak_rate_logs logs[MERAK_RATE_POINTS]; /* of point[] */
};

struct merak_rates {
    int n;
    struct merak_op_rates op[MERAK_RATE_OPS];
};

/* Add a point.  Points of nearly the same size become one, with their mean.
 * Without room the point is dropped and false returned. */
bool merak_rates_add(struct merak_rates *rates, const char *op,
                     const struct merak_rate_point *point);

/* Add a point, or replace the one of nearly its size, or, without room, the one
 * of the nearest size. */
void merak_rates_set(struct merak_rates *rates, const char *op,
                     const struct merak_rate_point *point);
/* Multiply the seconds of all points of an op. */
void merak_rates_scale(struct merak_rates *rates, const char *op,
                       double factor);

/*
 * Seconds of a kernel: its roofline's, times the ratio of time to roofline that
 * nearby points have.  A plane is fitted to the logarithms of these ratios over
 * (log flops, log bytes, log width, log reuse; the last two where both are
 * known), by least squares weighted by the inverse squares of distances from
 * the size.  The fit nearly passes through a timed point, and the result is
 * clamped to the efficiencies that were timed for the op.  A reuse distance
 * beyond the timed ones is replaced by the nearest of them.
 *
 *   flops_per_s, bytes_per_s   of the roofline
 *
 * Negative if the op was not measured.
 */
double merak_rates_seconds(const struct merak_rates *rates, const char *op,
                           const struct merak_kernel_size *size,
                           double flops_per_s, double bytes_per_s);

#endif
