/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/play.h - a schedule's lists of actions, played
 *
 * An action starts when its stage is free and what it needs has come; a
 * transfer starts when it was sent and its receive is posted, which programs
 * do one action ahead (emit.c), and parts of a boundary are gathered when the
 * stage is free.  An action loses what the transfers before and behind it take
 * from it (struct merak_beside).
 */
#ifndef MERAK_PARTITIONER_SEARCH_PLAY_H
#define MERAK_PARTITIONER_SEARCH_PLAY_H

#include "partitioner/search/impl.h"

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
};

/* Fill f_end, b_end, made, end and before. */
void merak_play(struct merak_player *p);

#endif
