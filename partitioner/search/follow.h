/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/follow.h - as much of a plan's schedule as is played */
#ifndef MERAK_PARTITIONER_SEARCH_FOLLOW_H
#define MERAK_PARTITIONER_SEARCH_FOLLOW_H

#include "partitioner/plan/plan.h"
#include "partitioner/schedule/action_lists.h"

/* A long pipeline is followed until it repeats itself. */
struct merak_follow {
    struct merak_lists *lists; /* of all units, or as many as are worth
                                  following */
    struct merak_lists *less;  /* fewer, to carry on from; or NULL */
};

/* False when out of memory: fini() has to be called all the same. */
bool merak_follow_init(struct merak_follow *follow,
                       const struct merak_schedule *schedule,
                       const struct merak_plan *plan);
void merak_follow_fini(struct merak_follow *follow);

/* A plan's lists for so many units; NULL when out of memory. */
struct merak_lists *merak_plan_lists(const struct merak_schedule *schedule,
                                     const struct merak_plan *plan, int units);
/* Units worth following of so many: enough for a schedule to repeat itself,
 * and as many more than a multiple of `stages` as all are. */
int merak_lists_settled(const struct merak_plan *plan, int units);

#endif
