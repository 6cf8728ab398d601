/* SPDX-License-Identifier: Apache-2.0 */
/* follow.c - how much of a plan's schedule is played */
#include "config.h"

#include "partitioner/search/follow.h"

int merak_lists_settled(const struct merak_plan *plan, int units)
{
    int stages = plan->pp, slices = merak_plan_slices(plan);
    int least = (merak_plan_passes(plan) + 2) * stages + 4;
    int all = units / slices; /* micro-batches or pairs */

    if (stages < 2 || all < least + stages)
        return units;
    return slices * (least + (all - least) % stages);
}

struct merak_lists *merak_plan_lists(const struct merak_schedule *schedule,
                                     const struct merak_plan *plan, int units)
{
    struct merak_schedule_args args = merak_plan_schedule_args(plan, 0);

    args.microbatches = units / merak_plan_slices(plan);
    return merak_lists_create(schedule, &args);
}

bool merak_follow_init(struct merak_follow *follow,
                       const struct merak_schedule *schedule,
                       const struct merak_plan *plan)
{
    int units = merak_plan_units(plan);
    int some = merak_lists_settled(plan, units);

    *follow =
        (struct merak_follow){.lists = merak_plan_lists(schedule, plan, some)};
    if (some < units)
        follow->less = merak_plan_lists(
            schedule, plan, some - plan->pp * merak_plan_slices(plan));
    return follow->lists != NULL && (some == units || follow->less != NULL);
}

void merak_follow_fini(struct merak_follow *follow)
{
    merak_lists_destroy(follow->lists);
    merak_lists_destroy(follow->less);
    *follow = (struct merak_follow){.lists = NULL};
}
