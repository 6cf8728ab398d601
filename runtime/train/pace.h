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

/* What a rank's kernels took of a step, in seconds, over the last steps; none
 * of its waits are in it. */
struct merak_pace_rank {
    int stage;
    double quarter_s, median_s, three_quarters_s;
    double least_s; /* the least median so far; 0: none yet */
    double memory_bytes;
    double percent; /* longer than its peers */
    bool suspect;   /* was so in the last look */
    bool slow;      /* and in the one before */
};

/*
 * Judge ranks by the times that they have, into percent and slow.
 *
 * A rank's peers are the others of its stage, which have the same work, and it
 * is `percent` longer than the median of theirs.  A stage of one rank has no
 * peers: it is held against its own least time, as the others are against
 * theirs, so that what slows the whole machine is nobody's.  A rank is slow
 * when three of four of its steps were more than `limit` percent longer, and
 * longer than three of four steps of its usual peer: what others of a shared
 * machine take comes and goes; and so in two looks in succession.  It remains
 * slow until it is half as much.
 */
void merak_pace_find(struct merak_pace_rank *rank, int n, double limit);

/* pace.c: nothing where --straggler-percent is 0. */
enum merak_status merak_pace_open(struct merak_trainer *t,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_pace_close(struct merak_trainer *t);
/* A step's kernels have run: take their times. */
void merak_pace_note(struct merak_trainer *t);
/* What to add to the sum over ranks that ends a step: how many values of
 * merak_pace_sum() behind the first `used`; mostly none. */
size_t merak_pace_fill(struct merak_trainer *t, size_t used);
/* Room for that sum, or NULL where there is nothing to add. */
double *merak_pace_sum(struct merak_trainer *t);
/* The sum has come back, the step took so long: rank 0 says who is slow, in the
 * log, RUN/incidents.jsonl and RUN/ranks.json. */
void merak_pace_judge(struct merak_trainer *t, double step_s);

#endif
