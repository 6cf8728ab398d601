/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/refine/refine_impl.h - what the files of refine/ share */
#ifndef MERAK_PARTITIONER_REFINE_REFINE_IMPL_H
#define MERAK_PARTITIONER_REFINE_REFINE_IMPL_H

#include "partitioner/refine/refine.h"

/* A class and its samples. */
struct refine_class {
    struct merak_sample_class what;
    long n;
    double mean; /* seconds */
    double sharers; /* mean */
    int next;       /* class of the same bucket, or -1 */
};

struct merak_refine {
    int steps;
    struct refine_class *class;
    int n, room;
    int *bucket; /* [room] classes by hash; room is a power of two */
};

/* A device on its way to what the samples say. */
struct refine_run {
    const struct merak_refine *refine;
    enum merak_dtype dtype;
    int ranks;
    struct merak_device *device;
    struct merak_cost_model base; /* of the device as it was */
    struct merak_change *change;
    int n_changes, room;
    struct merak_error *err;
};

/* x, or the nearer of 1 / most and most: a trace is not trusted with more. */
double merak_refine_bound(double x, double most);
/* Add what was changed to the list that the caller of a refinement gets. */
enum merak_status
merak_refine_note(struct refine_run *run,
                  const struct merak_change *change) MERAK_CHECKED;

/* links.c: what exchanges and transfers say. */
enum merak_status merak_refine_links(struct refine_run *run) MERAK_CHECKED;

#endif
