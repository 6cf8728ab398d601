/* SPDX-License-Identifier: Apache-2.0 */
/* nf1b.c - several forwards, one backward
 *
 * For models that read their own output again (recycling): n - 1 forwards
 * without gradients, then one with, then its backward.  A period of a stage
 * is a forward of each pass and a backward, and pass q runs q * p periods
 * after pass 0: when stage 0 comes to a micro-batch's next pass, the last
 * stage has finished the one before.  Stage s runs the training pass p - 1 - s
 * ahead of its backwards, as 1F1B does, and holds as many micro-batches.
 *
 * The step takes m(n f + b) + (p - 1)(f + b): 1F1B's bubble over n passes.
 * Source: Lin et al. 2024 (nnScaler; arXiv:2301.08984), "3F1B".
 */
#include "config.h"

#include "base/error.h"
#include "partitioner/schedule/kinds.h"

static int nf1b_count(const struct merak_schedule_args *args)
{
    return (args->passes + 1) * args->microbatches;
}

static void nf1b_fill(const struct merak_schedule_args *args,
                      struct merak_action *actions)
{
    int m = args->microbatches, p = args->stages;
    int behind = (args->passes - 1) * p + p - 1 - args->stage;

    for (int i = 0; i < m + behind; i++) {
        for (int q = 0; q < args->passes; q++) {
            int microbatch = i - q * p;

            if (microbatch >= 0 && microbatch < m)
                *actions++ = (struct merak_action){
                    .kind = MERAK_ACT_F, .microbatch = microbatch, .pass = q};
        }
        if (i >= behind)
            *actions++ = (struct merak_action){.kind = MERAK_ACT_B,
                                               .microbatch = i - behind};
    }
}

static enum merak_status nf1b_check(const struct merak_schedule_args *args,
                                    struct merak_error *err)
{
    if (args->passes < 2) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "a model of %d forward pass given, it is for those with 2 "
                   "or more (merak_passes())",
                   args->passes);
        return merak_error_fix(err, MERAK_ERR_CONFIG, ": use 1f1b");
    }
    if (args->microbatches < args->stages)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d micro-batches on %d stages given, it needs at "
                          "least one per stage: run %d",
                          args->microbatches, args->stages, args->stages);
    return MERAK_OK;
}

/* Several forward passes (3), then a backward: recycling models */
const struct merak_schedule merak_schedule_nf1b = {
    .name = "3f1b",
    .max_chunks = 1,
    .passes = 3,
    .count = nf1b_count,
    .fill = nf1b_fill,
    .check = nf1b_check,
};
