/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/ends.h - a step before its first forward and after its
 * last backward
 */
#ifndef MERAK_PARTITIONER_SEARCH_ENDS_H
#define MERAK_PARTITIONER_SEARCH_ENDS_H

#include "partitioner/search/rate.h"

/* The end of a stage's step, after its last backward. */
struct merak_tail {
    double ready;  /* when norms can be summed over ranks */
    double tp_s;   /* part of it: collectives with tensor peers */
    double norm_s; /* part of it: norms of the parameters the stage holds */
    double update_s;
};

/* Fill rater->ends, the communication between replicas.  All fields of rater
 * before that one must be set. */
enum merak_status merak_ends_init(struct merak_rater *rater,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_ends_fini(struct merak_rater *rater);
/* Does stage s run a segment?  All run the vocabulary-parallel layers. */
bool merak_stage_runs(const struct merak_rater *rater, int segment, int s);
/* When the step that rater->player played is over; *busiest gets the tail of
 * stage `at`. */
double merak_whole_step(const struct merak_rater *rater,
                        struct merak_tail *busiest, int at);
/* When a stage's last action ends, but for sums over replicas in it. */
double merak_stage_end(const struct merak_rater *rater, int s);
/* Seconds to sum the squares of the norm over tp, dp and pp. */
double merak_norm_s(const struct merak_rater *rater);

/* --- first_forward.c --- */

/* Seconds to gather these parameters over replicas, then tensor ranks. */
double merak_gathers_s(const struct merak_rater *rater,
                       const struct merak_param_state *hold);
/* Find when parameters are gathered, for all stages. */
void merak_set_gathered(struct merak_rater *rater);
/* How much longer a part's first forward takes on stage s than the others if
 * it can begin at `at`: first_more of struct merak_play_cost. */
double merak_first_forward_more(const void *rater, int s, int part, double at);

#endif
