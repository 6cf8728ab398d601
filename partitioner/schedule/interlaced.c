/* SPDX-License-Identifier: Apache-2.0 */
/* interlaced.c - 1F1B with vocabulary-parallel layers over all stages
 *
 * For models whose embeddings are large compared to their layers.  Chunk 0 is
 * the stage's own part; the others are layers cut over all stages: chunk 1
 * feeds stage 0 (an embedding; an encoder's), chunk 2 follows the last stage (a
 * head, up to the loss), chunk 3 feeds stage p / 2 (a decoder's embedding).
 * All stages run in steps of two slots.  In step t stage s runs forward t - s/2
 * and backward t - (p - 1 - s/2), even stages the forward first, odd ones the
 * backward: 1F1B folded, with as many in flight.  Embeddings run forwards at
 * the start of a step and backwards at its end.  A head runs its forward and
 * backward together, after the slot of the last stage's forward: at the step's
 * end, or between its slots if p is odd.
 *
 * A slot is as long as the longer of f and b.  With f = b, and f' and b' for
 * all layers of all stages, the step takes (m + p - 1)(f + b) + m(f' + b').
 * Source: Lin et al. 2024 (nnScaler; arXiv:2301.08984), "interlaced pipeline",
 * with embeddings only.
 */
#include "config.h"

#include "base/error.h"
#include "partitioner/schedule/kinds.h"

enum { OWN, EMBEDDING, HEAD, DECODER };

static int interlaced_count(const struct merak_schedule_args *args)
{
    return 2 * args->microbatches * args->chunks;
}

static int interlaced_part(const struct merak_schedule_args *args, int chunk)
{
    return chunk == OWN ? args->stage : args->stages + chunk - 1;
}

static int interlaced_feeds(const struct merak_schedule_args *args, int chunk)
{
    if (chunk == EMBEDDING)
        return 0;
    return chunk == DECODER ? args->stages / 2 : -1;
}

static int interlaced_follows(const struct merak_schedule_args *args, int chunk)
{
    return chunk == HEAD ? args->stages - 1 : -1;
}

/* Add an action of a chunk for a micro-batch, if both exist. */
static struct merak_action *put(const struct merak_schedule_args *args,
                                enum merak_action_kind kind, int microbatch,
                                int chunk, struct merak_action *action)
{
    if (microbatch < 0 || microbatch >= args->microbatches ||
        chunk >= args->chunks)
        return action;
    *action = (struct merak_action){
        .kind = kind, .microbatch = microbatch, .chunk = chunk};
    return action + 1;
}

/* How many steps a stage's action comes after the micro-batch's first. */
static int behind(const struct merak_schedule_args *args,
                  enum merak_action_kind kind, int stage)
{
    return kind == MERAK_ACT_F ? stage / 2 : args->stages - 1 - stage / 2;
}

static struct merak_action *
put_embedding(const struct merak_schedule_args *args,
              enum merak_action_kind kind, int step, int chunk,
              struct merak_action *action)
{
    int stage = interlaced_feeds(args, chunk);

    return put(args, kind, step - behind(args, kind, stage), chunk, action);
}

static struct merak_action *put_own(const struct merak_schedule_args *args,
                                    enum merak_action_kind kind, int step,
                                    struct merak_action *action)
{
    return put(args, kind, step - behind(args, kind, args->stage), OWN, action);
}

static struct merak_action *put_head(const struct merak_schedule_args *args,
                                     int step, struct merak_action *action)
{
    int microbatch = step - behind(args, MERAK_ACT_F, args->stages - 1);

    action = put(args, MERAK_ACT_F, microbatch, HEAD, action);
    return put(args, MERAK_ACT_B, microbatch, HEAD, action);
}

static void interlaced_fill(const struct merak_schedule_args *args,
                            struct merak_action *actions)
{
    bool odd = args->stage % 2 != 0, middle = args->stages % 2 != 0;
    enum merak_action_kind first = odd ? MERAK_ACT_B : MERAK_ACT_F;
    enum merak_action_kind second = odd ? MERAK_ACT_F : MERAK_ACT_B;

    for (int t = 0; t < args->microbatches + args->stages - 1; t++) {
        actions = put_embedding(args, MERAK_ACT_F, t, EMBEDDING, actions);
        actions = put_embedding(args, MERAK_ACT_F, t, DECODER, actions);
        actions = put_own(args, first, t, actions);
        if (middle)
            actions = put_head(args, t, actions);
        actions = put_own(args, second, t, actions);
        if (!middle)
            actions = put_head(args, t, actions);
        actions = put_embedding(args, MERAK_ACT_B, t, DECODER, actions);
        actions = put_embedding(args, MERAK_ACT_B, t, EMBEDDING, actions);
    }
}

/* 1f1b with vocabulary-parallel embedding and head */
const struct merak_schedule merak_schedule_interlaced = {
    .name = "interlaced",
    .min_chunks = 2,
    .max_chunks = 4,
    .usual_chunks = 3,
    .min_stages = 2,
    .count = interlaced_count,
    .fill = interlaced_fill,
    .part = interlaced_part,
    .feeds = interlaced_feeds,
    .follows = interlaced_follows,
};
