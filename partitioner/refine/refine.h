/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/refine/refine.h - a device, corrected by what a run took
 *
 * Samples are of classes: calls of an op and size, copies of a size, exchanges
 * and transfers of so many bytes between so many ranks.  From each class's
 * mean (partitioner/refine/refine.c) a device is made that predicts it:
 *
 *   - the table of an op (rates.h) gets a point for each class, and its other
 *     points are scaled by what the op's classes took against what the device
 *     said of them, the median, weighted by time;
 *   - rates and the fixed cost of a kernel, where the device had no tables for
 *     the dtype, are scaled alike, each by the kernels that it decides;
 *   - what kernels lose to exchanges beside them (device.h) is in the times of
 *     a run that had such exchanges, and no longer added;
 *   - links get the latency and bandwidth that fit their classes best by
 *     relative errors, and take as long in all as the samples did: one line
 *     for transfers inside a node, one for each size of a group that
 *     exchanges, one between nodes.  Where samples do not tell both apart, both
 *     are scaled;
 *   - what goes between nodes counts as many bytes as ranks of a node shared
 *     its way meanwhile, where the device says that this was less than each
 *     one's own (node_bytes_per_s).  A node's rate stays in proportion to a
 *     rank's, but where samples of both kinds are mostly bytes: then each
 *     makes its own rate come true.
 *
 * No factor leaves [1/MERAK_REFINE_MOST, MERAK_REFINE_MOST]; no bandwidth's,
 * by less than what small messages can tell, [1/16, 16].
 */
#ifndef MERAK_PARTITIONER_REFINE_REFINE_H
#define MERAK_PARTITIONER_REFINE_REFINE_H

#include "partitioner/device/device.h"

#define MERAK_REFINE_MOST 1000.0

enum merak_sample_kind {
    MERAK_SAMPLE_KERNEL,
    MERAK_SAMPLE_COPY,
    MERAK_SAMPLE_EXCHANGE,
    MERAK_SAMPLE_TRANSFER,
};

struct merak_sample_class {
    enum merak_sample_kind kind;
    char op[32];                     /* KERNEL */
    int tp;                          /* KERNEL: tensor ranks */
    struct merak_kernel_size size;   /* KERNEL; of others bytes alone */
    enum merak_convert_kind convert; /* EXCHANGE */
    int n;                           /* EXCHANGE: members; TRANSFER: 2 */
    int inside;                      /* of these on one node */
};

struct merak_refine;

/* steps: that samples are of.  They have to be usual ones: all that they took
 * counts, so that a device predicts the step and not its kernels at their
 * best. */
enum merak_status merak_refine_create(int steps, struct merak_refine **refine_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_refine_destroy(struct merak_refine *refine);
/* The number of a class; what it is for is found there for good. */
enum merak_status merak_refine_class(struct merak_refine *refine,
                                     const struct merak_sample_class *class,
                                     int *id_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* How many ranks meet in what the class is of, 2 or more; 0: nobody. */
int merak_refine_members(const struct merak_refine *refine, int id);
/* sharers: ranks of a node that moved bytes to other nodes, or from them, at
 * the same time as what the sample is of, it counted; 1 of what stays inside a
 * node. */
void merak_refine_add(struct merak_refine *refine, int id, double seconds,
                      double sharers);

enum merak_change_unit {
    MERAK_CHANGE_SECONDS, /* of a step, on the mean rank */
    MERAK_CHANGE_LATENCY,
    MERAK_CHANGE_RATE, /* FLOP/s or bytes/s */
};

/* One thing of the device that is no longer what it was. */
struct merak_change {
    char what[48];
    enum merak_change_unit unit;
    double before, after;
    int classes;
    long samples;
};

/*
 * Correct a device.
 *
 *   ranks    that the samples are of
 *   kernels  and copies, or exchanges and transfers alone
 *   device   in, out  its tables may be allocated anew: merak_device_fini()
 *   changes_p, n_p  what was changed; free()
 *
 * MERAK_ERR_PARAM if there are no samples of what is asked for.
 */
enum merak_status merak_refine_device(const struct merak_refine *refine,
                                      enum merak_dtype dtype, int ranks,
                                      bool kernels, struct merak_device *device,
                                      struct merak_change **changes_p, int *n_p,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
