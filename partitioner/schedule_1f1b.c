/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_1f1b.c - one forward, one backward
 *
 * Stage s of p runs min(m, p - 1 - s) forwards ahead, then pairs of a forward
 * and the oldest open backward, then the backwards that are left: at most
 * p - s micro-batches are held, whatever m is.
 * Source: Narayanan et al. 2019 (PipeDream), 2021 (arXiv:2104.04473), sec. 2.
 */
#include "config.h"

#include "partitioner/schedule_kinds.h"

static int f1b1_count(const struct merak_schedule_args *args)
{
    return 2 * args->microbatches;
}

static void f1b1_fill(const struct merak_schedule_args *args,
                      struct merak_action *actions)
{
    int m = args->microbatches;
    int ahead = args->stages - 1 - args->stage;
    int n = 0;

    for (int i = 0; i < m + ahead; i++) {
        if (i < m)
            actions[n++] = (struct merak_action){MERAK_ACT_F, i, 0};
        if (i >= ahead && i - ahead < m)
            actions[n++] = (struct merak_action){MERAK_ACT_B, i - ahead, 0};
    }
}

const struct merak_schedule merak_schedule_1f1b = {
    .name = "1f1b",
    .about = "one forward, one backward; stage s holds p - s micro-batches",
    .count = f1b1_count,
    .fill = f1b1_fill,
    .check = merak_schedule_one_chunk,
};
