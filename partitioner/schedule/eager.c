/* SPDX-License-Identifier: Apache-2.0 */
/* eager.c - 1F1B with enough forwards in flight to overlap the transfers
 *
 * Stage s has up to 2(p - s) - 1 micro-batches in flight, two more than the
 * next one, so that both of a hop's transfers have a whole slot to complete: a
 * hop of up to half a forward-backward pair costs nothing in the steady
 * state, where 1F1B pays almost twice the hop for each micro-batch.
 * Source: Zhuang et al. 2023 (arXiv:2211.05322), sec. 4, "eager-1F1B".
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

static void eager_fill(const struct merak_schedule_args *args,
                       struct merak_action *actions)
{
    merak_schedule_warmup_fill(args, 2 * (args->stages - args->stage) - 1,
                               actions);
}

/* 1f1b that overlaps transfers; stage s holds 2(p - s) - 1 */
const struct merak_schedule merak_schedule_eager = {
    .name = "eager",
    .max_chunks = 1,
    .count = merak_schedule_pairs,
    .fill = eager_fill,
};
