/* SPDX-License-Identifier: Apache-2.0 */
/* sliced.c - 1F1B over slices of sequences
 *
 * A causal model can run a sequence in K slices, each reading the keys and
 * values of those before it; the pipeline then fills and drains in slices.
 * Stage s of p has K + p - 1 - s slices in flight, 1 + (p - 1 - s)/K
 * micro-batches: less than 1F1B.  With slices that take equal times t/K the
 * step takes (m + (p - 1)/K) t; where attention is a large share of a layer,
 * later slices take longer and the bubble is larger.  Gradients are summed in
 * descending order of slices within a micro-batch.
 * Source: Li et al. 2021 (TeraPipe, arXiv:2102.07988), whose order is all
 * forwards, then all backwards.
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

static void sliced_fill(const struct merak_schedule_args *args,
                        struct merak_action *actions)
{
    merak_schedule_warmup_fill(
        args, args->slices + args->stages - 1 - args->stage, actions);
}

/* 1f1b over slices of sequences (causal models); bubble 1/slices */
const struct merak_schedule merak_schedule_sliced = {
    .name = "sliced",
    .max_chunks = 1,
    .takes_slices = true,
    .count = merak_schedule_pairs,
    .fill = sliced_fill,
};
