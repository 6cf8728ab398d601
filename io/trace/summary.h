/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/summary.h - how traced steps spent their time */
#ifndef MERAK_IO_TRACE_SUMMARY_H
#define MERAK_IO_TRACE_SUMMARY_H

#include "io/trace/view.h"

/* Steps of one rank; the parts add up: step = compute + exposed + wait +
 * idle. */
struct merak_trace_split {
    double step_s; /* first start to last end over all ranks */
    double compute_s;
    double exposed_s; /* communication while nothing was computed */
    double hidden_s;  /* communication overlapped with compute */
    double wait_s;    /* for the last member of a collective, with nothing else
                         under way */
    double idle_s;    /* none of these: the pipeline's bubble, and stalls */
};

/* All records of an instruction, by its name, over all ranks. */
struct merak_trace_busy {
    const char *name; /* borrowed from the ranks */
    double total_s;
    size_t calls;
};

/* Means over the steps; split  out [n], by rank */
enum merak_status merak_trace_split(const struct merak_trace_rank *ranks, int n,
                                    const int32_t *steps, int n_steps,
                                    struct merak_trace_split *split,
                                    struct merak_error *err) MERAK_CHECKED;
/* The mean over ranks. */
void merak_trace_split_mean(const struct merak_trace_split *split, int n,
                            struct merak_trace_split *mean);
/* By name, longest first; free() them. */
enum merak_status merak_trace_busiest(const struct merak_trace_rank *ranks,
                                      int n, const int32_t *steps, int n_steps,
                                      struct merak_trace_busy **busy_p,
                                      size_t *n_p,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
