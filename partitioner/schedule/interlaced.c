/* SPDX-License-Identifier: Apache-2.0 */
/* interlaced.c - 1F1B with blocks that all stages run together
 *
 * For models whose embeddings are large against their layers: chunk 1 is a
 * block cut over all stages that feeds stage 0 (an embedding; an encoder's),
 * chunk 2 another that feeds stage p / 2 (a decoder's).  Chunk 0 is the
 * stage's own part.  All stages go in steps of two slots, and stage s has in
 * step t forward t - s/2 and backward t - (p - 1 - s/2), even stages the
 * forward first, odd ones the backward: 1F1B folded, with as many in flight.
 * Blocks' forwards stand at a step's start, their backwards at its end.
 *
 * A slot is as long as the longer of f and b.  With f = b, and one block of f'
 * and b', the step takes (m + p - 1)(f + b) + m(f' + b').
 * Source: Lin et al. 2024 (nnScaler; arXiv:2301.08984), "interlaced pipeline".
 */
#include "config.h"

#include "base/error.h"
#include "partitioner/schedule/kinds.h"

static int interlaced_count(const struct merak_schedule_args *args)
{
    return 2 * args->microbatches * args->chunks;
}

static int interlaced_part(const struct merak_schedule_args *args, int chunk)
{
    return chunk == 0 ? args->stage : args->stages + chunk - 1;
}

static int interlaced_feeds(const struct merak_schedule_args *args, int chunk)
{
    if (chunk == 0)
        return -1;
    return chunk == 1 ? 0 : args->stages / 2;
}

/* What step `step` has for a part of stage `stage`, if anything. */
static struct merak_action *put(const struct merak_schedule_args *args,
                                enum merak_action_kind kind, int step,
                                int stage, int chunk,
                                struct merak_action *action)
{
    int behind = kind == MERAK_ACT_F ? stage / 2 : args->stages - 1 - stage / 2;
    int microbatch = step - behind;

    if (microbatch < 0 || microbatch >= args->microbatches)
        return action;
    *action = (struct merak_action){
        .kind = kind, .microbatch = microbatch, .chunk = chunk};
    return action + 1;
}

static void interlaced_fill(const struct merak_schedule_args *args,
                            struct merak_action *actions)
{
    bool odd = args->stage % 2 != 0;
    enum merak_action_kind first = odd ? MERAK_ACT_B : MERAK_ACT_F;
    enum merak_action_kind second = odd ? MERAK_ACT_F : MERAK_ACT_B;

    for (int t = 0; t < args->microbatches + args->stages - 1; t++) {
        for (int c = 1; c < args->chunks; c++)
            actions = put(args, MERAK_ACT_F, t, interlaced_feeds(args, c), c,
                          actions);
        actions = put(args, first, t, args->stage, 0, actions);
        actions = put(args, second, t, args->stage, 0, actions);
        for (int c = args->chunks - 1; c > 0; c--)
            actions = put(args, MERAK_ACT_B, t, interlaced_feeds(args, c), c,
                          actions);
    }
}

static enum merak_status
interlaced_check(const struct merak_schedule_args *args,
                 struct merak_error *err)
{
    if (args->stages < 4)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d stages given, it needs 4 or more: set pp = 4, "
                          "or use 1f1b",
                          args->stages);
    return MERAK_OK;
}

const struct merak_schedule merak_schedule_interlaced = {
    .name = "interlaced",
    .about = "1f1b with 1 or 2 blocks (embeddings) cut over all stages",
    .min_chunks = 2,
    .max_chunks = 3,
    .count = interlaced_count,
    .fill = interlaced_fill,
    .check = interlaced_check,
    .part = interlaced_part,
    .feeds = interlaced_feeds,
};
