/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/samples.h - measurements of the device from a traced run */
#ifndef MERAK_IO_TRACE_SAMPLES_H
#define MERAK_IO_TRACE_SAMPLES_H

#include "io/trace/trace.h"
#include "partitioner/refine/refine.h"

/* The fewest steps, besides the first, that a trace needs. */
#define MERAK_TRACE_LEAST_STEPS 3

struct merak_trace_samples {
    struct merak_refine *refine;
    enum merak_dtype dtype;
    int steps;     /* with samples: the middle third by length */
    double step_s; /* their mean */
};

/*
 * Samples of each instruction's class (partitioner/refine/refine.h).  The
 * first step, which includes first touches, is ignored, and so are unusually
 * short or long ones.
 *
 *   dir      for messages
 *   backend  that the run's kernels must be of
 *   emulated the first rank's kernels were, for messages
 *
 * MERAK_ERR_CONFIG, in one line, if the trace is of other kernels or of an
 * older merak, or has too few steps; MERAK_ERR_CORRUPT if it is inconsistent.
 */
enum merak_status merak_trace_samples(const struct merak_trace_rank *ranks,
                                      int n, const char *dir,
                                      const char *backend, bool emulated,
                                      struct merak_trace_samples *samples,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
