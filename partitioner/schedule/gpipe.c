/* SPDX-License-Identifier: Apache-2.0 */
/* gpipe.c - all forwards, then all backwards
 *
 * Backwards run in ascending order of micro-batches, not in reverse order as
 * in Huang et al. 2019 (arXiv:1811.06965): weight gradients are summed in
 * ascending order under every schedule, so that all give the same bits.  The
 * step takes as long either way.
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

static void gpipe_fill(const struct merak_schedule_args *args,
                       struct merak_action *actions)
{
    merak_schedule_warmup_fill(args, args->microbatches, actions);
}

/* All forwards, then all backwards; holds m micro-batches */
const struct merak_schedule merak_schedule_gpipe = {
    .name = "gpipe",
    .max_chunks = 1,
    .count = merak_schedule_pairs,
    .fill = gpipe_fill,
};
