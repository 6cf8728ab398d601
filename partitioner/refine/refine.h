/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/refine/refine.h - correct a device by the times of a run
 *
 * Samples belong to classes: calls of an op and size, copies of a size,
 * exchanges and transfers of a size between a number of ranks.  The device is
 * changed so that it predicts the mean of each class (refine.c, links.c):
 *
 *   - the table of an op (rates.h) gets a point for each class, and its other
 *     points are scaled by the median, weighted by time, of the ratio of
 *     measured to predicted time of the op's classes;
 *   - if the device has no tables for the dtype, its rates and fixed cost of a
 *     kernel are scaled in the same way, each by the kernels that it bounds;
 *   - what kernels lose to concurrent exchanges (device.h) is included in the
 *     times of a run that had such exchanges, and no longer added;
 *   - links get the latency and bandwidth with the least relative errors for
 *     their classes, scaled to the total time of the samples: one line for
 *     transfers inside a node, one for each size of a group that exchanges, one
 *     between nodes.  If the samples do not separate latency from bandwidth,
 *     both are scaled;
 *   - bytes between nodes are multiplied for ranks that shared the node's
 *     uplink meanwhile, if by the device that leaves each less than its own
 *     rate (node_bytes_per_s).  A node's rate stays in proportion to a rank's
 *     unless the samples of both kinds are mostly bytes: then each kind sets
 *     its own rate.
 *
 * Factors are limited to [1/MERAK_REFINE_MOST, MERAK_REFINE_MOST]; the fit of a
 * bandwidth, which small messages determine poorly, to [1/16, 16].
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
    struct merak_kernel_size size;   /* KERNEL; for others only bytes */
    enum merak_convert_kind convert; /* EXCHANGE */
    int n;                           /* EXCHANGE: members; TRANSFER: 2 */
    int inside;                      /* members on the rank's node */
};

struct merak_refine;

/* steps: number of steps sampled.  They have to be typical: all their time
 * counts, so that the device predicts the step and not its kernels at their
 * best. */
enum merak_status merak_refine_create(int steps, struct merak_refine **refine_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_refine_destroy(struct merak_refine *refine);
/* The id of a class, which stays valid. */
enum merak_status merak_refine_class(struct merak_refine *refine,
                                     const struct merak_sample_class *class,
                                     int *id_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Members of the class's exchange or transfer, 2 or more; 0: of others. */
int merak_refine_members(const struct merak_refine *refine, int id);
/* sharers: ranks of the node, including the sample's, that moved bytes to or
 * from other nodes at the same time; 1 for what stays inside a node. */
void merak_refine_add(struct merak_refine *refine, int id, double seconds,
                      double sharers);

enum merak_change_unit {
    MERAK_CHANGE_SECONDS, /* of a step, on the mean rank */
    MERAK_CHANGE_LATENCY,
    MERAK_CHANGE_RATE, /* FLOP/s or bytes/s */
};

/* A value of the device that was changed. */
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
 *   ranks    number of ranks sampled
 *   kernels  also correct kernels and copies, or only exchanges and transfers
 *   device   in, out  its tables may be reallocated: merak_device_fini()
 *   changes_p, n_p  what was changed; free()
 *
 * MERAK_ERR_PARAM if there are no samples for that.
 */
enum merak_status merak_refine_device(const struct merak_refine *refine,
                                      enum merak_dtype dtype, int ranks,
                                      bool kernels, struct merak_device *device,
                                      struct merak_change **changes_p, int *n_p,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
