/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/follow.h - how much of a plan's schedule is played */
#ifndef MERAK_PARTITIONER_SEARCH_FOLLOW_H
#define MERAK_PARTITIONER_SEARCH_FOLLOW_H

#include "partitioner/plan/plan.h"
#include "partitioner/schedule/action_lists.h"

/* A long pipeline is played until it repeats itself. */
struct merak_follow {
    struct merak_lists *lists; /* for all units, or for as many as are worth
                                  playing */
    struct merak_lists *less;  /* for fewer, to extrapolate; or NULL */
};

/* False when out of memory; fini() has to be called in any case. */
bool merak_follow_init(struct merak_follow *follow,
                       const struct merak_schedule *schedule,
                       const struct merak_plan *plan);
void merak_follow_fini(struct merak_follow *follow);

/* A plan's lists for this many units; NULL when out of memory. */
struct merak_lists *merak_plan_lists(const struct merak_schedule *schedule,
                                     const struct merak_plan *plan, int units);
/* How many of `units` are worth playing: enough for a schedule to repeat
 * itself, and so that the number left out is a multiple of the stages. */
int merak_lists_settled(const struct merak_plan *plan, int units);

#endif
