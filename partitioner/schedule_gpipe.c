/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_gpipe.c - all forwards, then all backwards
 *
 * Backwards run in ascending order of micro-batches, not in the reverse as
 * in Huang et al. 2019 (arXiv:1811.06965): weight gradients are summed in
 * ascending order under every schedule, so that all give the same bits.  The
 * step takes as long either way.
 */
#include "config.h"

#include "partitioner/schedule_kinds.h"

static int gpipe_count(const struct merak_schedule_args *args)
{
    return 2 * args->microbatches;
}

static void gpipe_fill(const struct merak_schedule_args *args,
                       struct merak_action *actions)
{
    int m = args->microbatches;

    for (int i = 0; i < m; i++) {
        actions[i] = (struct merak_action){MERAK_ACT_F, i, 0};
        actions[m + i] = (struct merak_action){MERAK_ACT_B, i, 0};
    }
}

const struct merak_schedule merak_schedule_gpipe = {
    .name = "gpipe",
    .about = "all forwards, then all backwards; holds m micro-batches",
    .count = gpipe_count,
    .fill = gpipe_fill,
    .check = merak_schedule_one_chunk,
};
