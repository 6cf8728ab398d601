/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/summary.h - where the time of a traced step went */
#ifndef MERAK_IO_TRACE_SUMMARY_H
#define MERAK_IO_TRACE_SUMMARY_H

#include "io/trace/trace.h"

/* One record, with the time it was really busy. */
struct merak_trace_span {
    const struct merak_trace_record *record;
    /* The record's start; of a receive, not before the peer began to send:
     * until then it was the peer that was waited for. */
    int64_t start_ns, end_ns;
};

/* A step of one rank; the parts add up: step = compute + exposed + idle. */
struct merak_trace_split {
    double step_s; /* first start to last end over all ranks */
    double compute_s;
    double exposed_s; /* communication while nothing was computed */
    double hidden_s;  /* communication beside compute */
    double idle_s;    /* neither: the pipeline's bubble, and stalls */
};

/* All records of an instruction, by its name, over all ranks. */
struct merak_trace_busy {
    const char *name; /* borrowed from the ranks */
    double total_s;
    size_t calls;
};

/* The steps that every rank has, ascending; free() them. */
enum merak_status merak_trace_steps(const struct merak_trace_rank *ranks, int n,
                                    int32_t **steps_p, int *n_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* The spans of rank r in a step, in the order of its records; free() them. */
enum merak_status merak_trace_spans(const struct merak_trace_rank *ranks, int n,
                                    int r, int32_t step,
                                    struct merak_trace_span **spans_p,
                                    size_t *n_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* First start and last end of a step over all ranks. */
void merak_trace_bounds(const struct merak_trace_rank *ranks, int n,
                        int32_t step, int64_t *start_ns, int64_t *end_ns);
/* split  out  [n], by rank */
enum merak_status merak_trace_split(const struct merak_trace_rank *ranks, int n,
                                    int32_t step,
                                    struct merak_trace_split *split,
                                    struct merak_error *err) MERAK_CHECKED;
/* By name, longest first; free() them. */
enum merak_status merak_trace_busiest(const struct merak_trace_rank *ranks,
                                      int n, const int32_t *steps, int n_steps,
                                      struct merak_trace_busy **busy_p,
                                      size_t *n_p,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
