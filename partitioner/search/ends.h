/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/ends.h - a step before its first forward and after its
 * last backward
 */
#ifndef MERAK_PARTITIONER_SEARCH_ENDS_H
#define MERAK_PARTITIONER_SEARCH_ENDS_H

#include "partitioner/search/rate.h"

/* Of a stage, behind its last backward. */
struct merak_tail {
    double ready;  /* norms can be summed over ranks */
    double tp_s;   /* of it, tensor peers */
    double norm_s; /* of it, to find those of what the stage holds */
    double update_s;
};

/* What replicas exchange, if there are any: fills rater->ends; of rater's other
 * fields all up to that are set. */
enum merak_status merak_ends_init(struct merak_rater *rater,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_ends_fini(struct merak_rater *rater);
/* Has stage s a segment?  All have blocks that they run together. */
bool merak_is_on(const struct merak_rater *rater, int segment, int s);
/* n collectives over replicas of `bytes` each way in all, and what one of them
 * takes from kernels. */
double merak_over_dp(const struct merak_rater *rater, bool reduce, double bytes,
                     int n);
struct merak_interference merak_over_dp_takes(const struct merak_rater *rater,
                                              bool reduce, double bytes);
/* When the step is over that rater->player has played; *busiest: stage `at`'s
 * end. */
double merak_whole_step(const struct merak_rater *rater,
                        struct merak_tail *busiest, int at);
/* Sums of squares meet over tp, dp and pp. */
double merak_norm_s(const struct merak_rater *rater);

/* --- first_forward.c --- */

/* To gather parameters in parts, over replicas and then tensor ranks. */
double merak_gathers_s(const struct merak_rater *rater,
                       const struct merak_param_state *hold);
/* When parameters are gathered, of the stages there are. */
void merak_set_gathered(struct merak_rater *rater);
/* How much more than another a part's first forward takes on stage s that can
 * begin at `at`: struct merak_play_cost. */
double merak_first_forward_more(const void *rater, int s, int part, double at);

#endif
