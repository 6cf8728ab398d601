/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/play.h - a schedule's lists of actions, played
 *
 * An action starts when its stage is free and what it needs has come; a
 * transfer starts when it was sent and its receive is posted, which programs
 * do one action ahead (emit.c), and parts of a boundary are gathered when the
 * stage is free.  An action loses what the transfers before and behind it take
 * from it (struct merak_interference).
 *
 * Of a block that all stages run together each does its share when its turn
 * comes; a head's kernels wait for one another's results, so that all begin
 * when the last stage has come.  What it makes is there when all have done
 * theirs.  Its input goes from stage to stage, on from each as soon as it is
 * there.
 */
#ifndef MERAK_PARTITIONER_SEARCH_PLAY_H
#define MERAK_PARTITIONER_SEARCH_PLAY_H

#include "partitioner/search/rate.h"

/* What all stages do of a block for a unit. */
struct merak_meeting {
    double at; /* when the last of those that have come began */
    int n;     /* so many have */
};

enum { MERAK_MEET_F, MERAK_MEET_B, MERAK_MEETS };

struct merak_meetings {
    struct merak_meeting *meeting; /* [block][unit][MERAK_MEETS] */
    double *came;                  /* [block][unit][stage]: its input, or < 0 */
    double *hop_s; /* [block][stage]: from the stage it comes over */
    bool *waits;   /* by stage: for the others, as one that has come */
};

struct merak_player {
    const struct merak_rater *r;
    const struct merak_lists *lists;
    double *up_s, *down_s; /* by part: transfers over its lower end */
    double *up_gather_s, *down_gather_s; /* parts made whole behind them */
    double *up_lost_s, *down_lost_s;     /* by kernels, beside them */
    double *f_end, *b_end; /* [part][unit][pass], [part][unit], or < 0 */
    double *made;          /* by part: gradients of weights, of all units */
    double *end, *before;  /* by stage: of the last action, and of the one
                              before it */
    int *next;
    struct merak_meetings *meetings; /* or NULL */
};

/* Fill f_end, b_end, made, end and before. */
void merak_play(struct merak_player *p);

/* --- ends.c: before the first forward, and after the last backward - */

/* Of a stage, behind its last backward. */
struct merak_tail {
    double ready;  /* norms can be summed over ranks */
    double tp_s;   /* of it, tensor peers */
    double norm_s; /* of it, to find those of what the stage holds */
    double update_s;
};

/* What replicas exchange, if there are any: the first of rater's fields, and
 * room for the others. */
enum merak_status merak_ends_init(struct merak_rater *rater,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_ends_fini(struct merak_rater *rater);
/* When parameters are gathered, of the stages there are. */
void merak_set_gathered(struct merak_rater *rater);
/* When a part's first forward on stage s ends that can begin at `at`. */
double merak_first_forward(const struct merak_rater *rater, int s, int part,
                           double at);
/* Sums of squares meet over tp, dp and pp. */
double merak_norm_s(const struct merak_rater *rater);
/* When the step is over that was played; *busiest: stage `at`'s end. */
double merak_whole_step(const struct merak_rater *rater,
                        const struct merak_player *player,
                        struct merak_tail *busiest, int at);

#endif
