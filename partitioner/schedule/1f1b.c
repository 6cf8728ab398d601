/* SPDX-License-Identifier: Apache-2.0 */
/* 1f1b.c - one forward, one backward
 *
 * Stage s of p runs min(m, p - 1 - s) forwards ahead, then pairs of a forward
 * and the oldest open backward, then the backwards that are left: at most
 * p - s micro-batches are held, whatever m is.
 * Source: Narayanan et al. 2019 (PipeDream), 2021 (arXiv:2104.04473), sec. 2.
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

static void f1b1_fill(const struct merak_schedule_args *args,
                      struct merak_action *actions)
{
    merak_schedule_warmup_fill(args, args->stages - args->stage, actions);
}

/* One forward, one backward; stage s holds p - s micro-batches */
const struct merak_schedule merak_schedule_1f1b = {
    .name = "1f1b",
    .max_chunks = 1,
    .count = merak_schedule_pairs,
    .fill = f1b1_fill,
};
