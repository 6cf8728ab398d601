/* SPDX-License-Identifier: Apache-2.0 */
/* held.c - what a rank holds of a parameter, and when */
#include "config.h"

#include "partitioner/plan/held.h"

/* A visit is gathered while the one before it runs. */
#define VISITS 2

static struct merak_held param_of(const struct merak_plan *plan, bool lends)
{
    if (!lends || plan->zero < MERAK_ZERO_PARAMS)
        return (struct merak_held){.kept = true};
    return (struct merak_held){
        .kept = true, .over = MERAK_OVER_HOMES, .used = VISITS};
}

static struct merak_held grad_of(const struct merak_plan *plan, bool lends)
{
    if (!lends || !merak_plan_sums_each(plan))
        return (struct merak_held){.kept = true};
    /* One for each half of a sub-pipeline.  What each micro-batch adds goes to
     * the sum over replicas, or first to that of the homes. */
    return (struct merak_held){.kept = merak_plan_is_home_in(plan),
                               .over = MERAK_OVER_HOMES,
                               .used = VISITS * (plan->sub_pipeline ? 2 : 1)};
}

struct merak_held merak_plan_held(const struct merak_plan *plan,
                                  enum merak_held_kind kind, bool replicas,
                                  bool lends)
{
    bool flat = replicas && plan->zero > 0;
    bool host = merak_plan_offloads_state(plan);
    struct merak_held held = {.over =
                                  flat ? MERAK_OVER_REPLICAS : MERAK_OVER_NONE};
    struct merak_held grad = grad_of(plan, lends);

    switch (kind) {
    case MERAK_HELD_PARAM:
        return param_of(plan, lends);
    case MERAK_HELD_STATE:
        held.kept = true;
        held.host = host;
        held.used = host ? VISITS : 0;
        return held;
    case MERAK_HELD_SUM:
        /* in place, unless what is summed is whole only while it is used */
        held.kept = grad.used > 0;
        held.over = held.kept ? MERAK_OVER_REPLICAS : MERAK_OVER_NONE;
        return held;
    case MERAK_HELD_GRAD:
        return grad;
    case MERAK_HELD_KINDS:
        break;
    }
    return held;
}

int merak_plan_held_parts(const struct merak_plan *plan,
                          enum merak_held_over over, int dp)
{
    if (over == MERAK_OVER_NONE)
        return 1;
    return over == MERAK_OVER_HOMES && merak_plan_is_home_in(plan)
               ? merak_plan_dp_in(plan, 0)
               : dp;
}
