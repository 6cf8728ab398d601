/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/pace.h - how long each rank computes, and who is slower than
 * its peers
 */
#ifndef MERAK_RUNTIME_TRAIN_PACE_H
#define MERAK_RUNTIME_TRAIN_PACE_H

#include "merak/status.h"

#include <stdbool.h>
#include <stddef.h>

struct merak_trainer;

/* Seconds that a rank's kernels took per step, over the last steps, without
 * any of its waits. */
struct merak_pace_rank {
    int stage;
    double quarter_s, median_s, three_quarters_s;
    double least_s; /* the smallest median so far; 0: none yet */
    double memory_bytes;
    double percent; /* by which it takes longer than its peers */
    bool suspect;   /* exceeded the limit in the last check */
    bool slow;      /* and also in the one before */
};

/*
 * Set percent, suspect and slow of ranks from their times.
 *
 * A rank's peers are the others of its stage, which have the same work; it
 * takes `percent` longer than the median of theirs.  A stage of one rank has
 * no peers: the ratio to its own least time is compared with the same ratio of
 * the others, so that a slowdown of the whole machine is nobody's.  A rank is
 * slow when in two successive checks three of four of its steps took more than
 * `limit` percent longer, and longer than three of four steps of its usual
 * peer: what others of a shared machine take comes and goes.  It remains slow
 * until it falls below half of `limit`.
 */
void merak_pace_find(struct merak_pace_rank *rank, int n, double limit);

/* pace.c: does nothing if --straggler-percent is 0. */
enum merak_status merak_pace_open(struct merak_trainer *t,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_pace_close(struct merak_trainer *t);
/* Record the times of a step's kernels, once they have run. */
void merak_pace_note(struct merak_trainer *t);
/* Add this rank's times to the sum over ranks that ends a step: returns how
 * many values follow the first `used` in merak_pace_sum(); mostly none. */
size_t merak_pace_fill(struct merak_trainer *t, size_t used);
/* The mean share of a step in which ranks do not compute, if the step that
 * ended last has told; else NAN.  Rank 0. */
double merak_pace_idle(const struct merak_trainer *t);
/* The buffer of that sum, or NULL if there is nothing to add. */
double *merak_pace_sum(struct merak_trainer *t);
/* Once the sum is complete, with the time of the step: rank 0 reports who is
 * slow, in the log, RUN/incidents.jsonl and RUN/ranks.json. */
void merak_pace_judge(struct merak_trainer *t, double step_s);

#endif
