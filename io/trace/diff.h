/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/diff.h - comparing two traced steps */
#ifndef MERAK_IO_TRACE_DIFF_H
#define MERAK_IO_TRACE_DIFF_H

#include "io/trace/view.h"

/* Instructions of one kind, over the ranks of a stage. */
struct merak_trace_sum {
    const char *op; /* borrowed from the ranks; the instruction's name if the
                       trace does not have its op */
    int stage;
    uint8_t kind, phase;
    uint8_t again;   /* 1: recomputation */
    size_t calls;    /* in all steps, on all ranks of the stage */
    double median_s; /* of a call, without its waits */
    double total_s;  /* per step and rank */
};

struct merak_trace_change {
    const struct merak_trace_sum *a, *b; /* NULL: that run has none */
    double delta_s;                      /* total of b minus that of a */
};

/* Ordered by stage, kind, phase, again, op; free() them. */
enum merak_status merak_trace_sums(const struct merak_trace_rank *ranks, int n,
                                   const int32_t *steps, int n_steps,
                                   struct merak_trace_sum **sums_p, size_t *n_p,
                                   struct merak_error *err) MERAK_CHECKED;
/*
 * The changes between a and b, including sums that only one has, the largest
 * difference first.  The sums are borrowed; free() the changes.
 */
enum merak_status merak_trace_diff(const struct merak_trace_sum *a, size_t n_a,
                                   const struct merak_trace_sum *b, size_t n_b,
                                   struct merak_trace_change **changes_p,
                                   size_t *n_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
