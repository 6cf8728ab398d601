/* SPDX-License-Identifier: Apache-2.0 */
/* io/trace/bound.h - in a sentence: what bounds a step, and what changes it */
#ifndef MERAK_IO_TRACE_BOUND_H
#define MERAK_IO_TRACE_BOUND_H

#include "io/trace/summary.h"

/* A rank's seconds in a step, as in struct merak_trace_split. */
struct merak_bound_rank {
    int rank, stage;
    double compute_s;
    double load_s; /* of these, in reading samples */
    double exposed_s, wait_s, idle_s;
};

struct merak_bound_step {
    const struct merak_bound_rank *rank;
    int n;
    double step_s;
    int stages, tp, microbatches;
    bool unlike; /* stages, of unlike ranks; tp: the most of any */
    bool split;  /* false: of a rank only compute_s is known */
    /* Of communication, collectives took longer than sends between stages. */
    bool collectives;
};

enum { MERAK_BOUND_BYTES = 512 };
/* "bound by unbalanced stages: .."; "" if nothing is known. */
void merak_bound_text(const struct merak_bound_step *step,
                      char text[MERAK_BOUND_BYTES]);
/* The same of a trace's steps, of which split[n] is the mean. */
enum merak_status merak_trace_bound(const struct merak_trace_rank *ranks, int n,
                                    const int32_t *steps, int n_steps,
                                    const struct merak_trace_split *split,
                                    char text[MERAK_BOUND_BYTES],
                                    struct merak_error *err) MERAK_CHECKED;

#endif
