/* SPDX-License-Identifier: Apache-2.0 */
/* zb_h1.c - 1F1B with weight gradients deferred to the gaps
 *
 * Other stages wait only for the gradient of a stage's input.  Stage s runs
 * 1F1B's forwards and backwards, and each micro-batch's weight gradient s
 * backwards later: later stages, which lack work at the end, have deferred
 * the most.  A micro-batch is held until its weight gradient, so every stage
 * holds p of them, as stage 0 does under 1F1B.
 *
 * The step takes m(f + b + w) + (p - 1)(f + b - w) where w <= f, w <= b
 * and m >= p.
 * Source: Qi et al. 2024 (arXiv:2401.10241), sec. 2.1, "ZB-H1".
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

static int zb_h1_count(const struct merak_schedule_args *args)
{
    return 3 * args->microbatches;
}

static void zb_h1_fill(const struct merak_schedule_args *args,
                       struct merak_action *actions)
{
    int m = args->microbatches;
    int ahead = args->stages - 1 - args->stage;
    /* Forwards, backwards and weight gradients, each shifted. */
    int shift[] = {[MERAK_ACT_F] = 0,
                   [MERAK_ACT_B] = ahead,
                   [MERAK_ACT_W] = ahead + args->stage};

    for (int i = 0; i < m + args->stages - 1; i++) {
        for (int kind = MERAK_ACT_F; kind <= MERAK_ACT_W; kind++) {
            int microbatch = i - shift[kind];

            if (microbatch >= 0 && microbatch < m)
                *actions++ =
                    (struct merak_action){.kind = (enum merak_action_kind)kind,
                                          .microbatch = microbatch};
        }
    }
}

/* 1f1b with weight gradients in its gaps; holds p micro-batches */
const struct merak_schedule merak_schedule_zb_h1 = {
    .name = "zb-h1",
    .splits_w = true,
    .max_chunks = 1,
    .count = zb_h1_count,
    .fill = zb_h1_fill,
};
