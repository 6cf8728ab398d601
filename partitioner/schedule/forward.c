/* SPDX-License-Identifier: Apache-2.0 */
/* forward.c - forwards only, for evaluation
 *
 * For models placed in one chunk per rank.  Those of a chunked schedule are
 * evaluated in that schedule's own order of forwards, on its placement:
 * merak_actions_forward().
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

static int forward_count(const struct merak_schedule_args *args)
{
    return args->microbatches;
}

static void forward_fill(const struct merak_schedule_args *args,
                         struct merak_action *actions)
{
    for (int i = 0; i < args->microbatches; i++)
        actions[i] =
            (struct merak_action){.kind = MERAK_ACT_F, .microbatch = i};
}

/* Forwards only (evaluation); holds nothing */
const struct merak_schedule merak_schedule_forward = {
    .name = "forward",
    .forward_only = true,
    .max_chunks = 1,
    .count = forward_count,
    .fill = forward_fill,
};
