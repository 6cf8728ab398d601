/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/refine/refine_impl.h - internal to refine/ */
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

/* A device that is being corrected. */
struct refine_run {
    const struct merak_refine *refine;
    enum merak_dtype dtype;
    int ranks;
    struct merak_device *device;
    struct merak_cost_model base; /* of the original device */
    struct merak_change *change;
    int n_changes, room;
    struct merak_error *err;
};

/* Clamp x to [1 / most, most]: a trace is not trusted beyond that. */
double merak_refine_bound(double x, double most);
/* Add a change to the list that the caller gets. */
enum merak_status
merak_refine_note(struct refine_run *run,
                  const struct merak_change *change) MERAK_CHECKED;

/* links.c: correct links by exchanges and transfers. */
enum merak_status merak_refine_links(struct refine_run *run) MERAK_CHECKED;

#endif
