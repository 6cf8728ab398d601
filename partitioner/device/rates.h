/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/rates.h - how well kernels do, as measured
 *
 * A kernel's efficiency depends on its op and on the sizes of its operands:
 * on what is left of a product behind the last full tile, on which cache the
 * operands lie in, on what is called before the first element is touched.
 * Points are kernels that were timed; between them it is interpolated how
 * much longer each took than the roofline says.
 */
#ifndef MERAK_PARTITIONER_DEVICE_RATES_H
#define MERAK_PARTITIONER_DEVICE_RATES_H

#include <stdbool.h>

#define MERAK_RATE_OPS 48
#define MERAK_RATE_POINTS 512
#define MERAK_RATE_AXES 4

/* What stands for copies, which no kernel does, among the ops. */
#define MERAK_RATE_COPY "copy"

struct merak_kernel_size {
    double flops, bytes; /* as the op's cost function has them; not both 0 */
    double width;        /* last dim of the first operand, where that has three
                            or more: of two kernels of the same FLOPs the one
                            with narrow heads takes longer.  0: not known */
    double reuse;        /* reuse distance, bytes that were touched since its
                            inputs were: what a program keeps for long is no
                            longer in a cache.  0: not known, or of no account */
};

struct merak_rate_point {
    struct merak_kernel_size size;
    double seconds;
};

/* Logarithms, so that a search, which asks a million times, takes few. */
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

/* Points of nearly the same size are one, of their mean; what there is no
 * room for is left out, and false returned. */
bool merak_rates_add(struct merak_rates *rates, const char *op,
                     const struct merak_rate_point *point);

/* The point instead of what there is of nearly its size, or of the size nearest
 * to it where there is no room. */
void merak_rates_set(struct merak_rates *rates, const char *op,
                     const struct merak_rate_point *point);
/* All points of an op times so much. */
void merak_rates_scale(struct merak_rates *rates, const char *op,
                       double factor);

/*
 * Seconds of a kernel that the roofline gives roof_s, > 0: roof_s times what
 * near points took of their rooflines.  A plane is laid through the logarithms
 * of these over (log flops, log bytes, log width, log reuse; the last two where
 * both are known), by least squares weighted by the inverse squares of
 * distances from the size.  A point itself is met, nearly; never is a kernel
 * more or less efficient than all of its op that were timed.  A distance larger
 * or smaller than all that were timed is taken for the nearest of these.
 *
 *   flops_per_s, bytes_per_s   of the roofline
 *
 * Negative if the op was not measured.
 */
double merak_rates_seconds(const struct merak_rates *rates, const char *op,
                           const struct merak_kernel_size *size,
                           double flops_per_s, double bytes_per_s);

#endif
