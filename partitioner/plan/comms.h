/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/comms.h - communicators of a direct transport's library */
#ifndef MERAK_PARTITIONER_PLAN_COMMS_H
#define MERAK_PARTITIONER_PLAN_COMMS_H

#include "partitioner/plan/plan.h"

/* What a rank joins: of all members of a group, and of a sender and a receiver
 * of one kind of message each. */
struct merak_comms {
    int groups, pairs;
};

/*
 * The most that a rank of the plan joins, in models whose parts send to the
 * next one alone.
 *
 *   schedule  of the plan; NULL: of one pass, not chosen yet
 *   axes      tensor axes of a stage, those of all roles
 *   tied      the first stage and the last one have a weight in common
 */
struct merak_comms merak_plan_comms(const struct merak_plan *plan,
                                    const struct merak_schedule *schedule,
                                    int axes, bool tied);

/* Bytes that the library takes for one, beside an arena. */
struct merak_comms_cost {
    double group, pair;
};

double merak_comms_bytes(struct merak_comms comms,
                         const struct merak_comms_cost *cost);

#endif
