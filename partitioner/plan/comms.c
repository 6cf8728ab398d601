/* SPDX-License-Identifier: Apache-2.0 */
/* comms.c - communicators of a direct transport's library */
#include "config.h"

#include "partitioner/plan/comms.h"
#include "partitioner/plan/mesh.h"

/* To and from a neighbour: what forwards send, what backwards do, and which of
 * both are sent, if not all. */
static int neighbour_of(const struct merak_plan *plan)
{
    return merak_lossy_any(&plan->lossy) ? 3 : 2;
}

/* The most that a stage joins: an end, or one between both. */
static int pairs_of(const struct merak_plan *plan,
                    const struct merak_schedule *schedule, bool tied)
{
    int end = neighbour_of(plan), between = plan->pp > 2 ? 2 * end : 0;
    bool is_v = schedule != NULL && schedule->part != NULL;

    if (plan->pp == 1)
        return 0;
    if (schedule != NULL && schedule->feeds != NULL) {
        /* of each layer that all stages run, what goes in or comes out, through
         * those between */
        end += plan->chunks - 1;
        between += plan->pp > 2 ? 2 * (plan->chunks - 1) : 0;
    } else if (plan->chunks > 1) {
        /* interleaved: the last stage's parts go on at the first one; zb-v:
         * parts go down as they came up, and the first stage has the last */
        end *= 2;
        between *= is_v ? 2 : 1;
    }
    end += tied && !is_v ? 2 : 0;
    return end > between ? end : between;
}

struct merak_comms merak_plan_comms(const struct merak_plan *plan,
                                    const struct merak_schedule *schedule,
                                    int axes, bool tied)
{
    struct merak_comms comms = {.pairs = pairs_of(plan, schedule, tied)};

    comms.groups = axes + (axes > 1 ? 1 : 0) /* of all tensor ranks */ +
                   merak_plan_dp_axes(plan, 0) + (plan->pp > 1 ? 1 : 0);
    return comms;
}

double merak_comms_bytes(struct merak_comms comms,
                         const struct merak_comms_cost *cost)
{
    return comms.groups * cost->group + comms.pairs * cost->pair;
}
