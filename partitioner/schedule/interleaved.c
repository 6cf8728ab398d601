/* SPDX-License-Identifier: Apache-2.0 */
/* interleaved.c - 1F1B over several model chunks per rank
 *
 * Chunk c of rank r is part c * p + r, so that a micro-batch goes round the
 * ranks v times.  Micro-batches go in groups of p: a rank runs one group
 * through chunk 0, the same through chunk 1, and so on; backwards run the
 * chunks from the last.  Rank r starts 2(p - r - 1) + (v - 1) p forwards ahead.
 * The pipeline fills and drains in chunks: both take 1/v of what they do under
 * 1F1B, for v times the transfers and (p - 1)/v more micro-batches in flight.
 *
 * A group's first micro-batch comes back to a rank after p forwards, so every
 * group, including the last, has p.
 * Source: Narayanan et al. 2021 (arXiv:2104.04473), sec. 2.2.
 */
#include "config.h"

#include "base/error.h"
#include "partitioner/schedule/kinds.h"

static int interleaved_count(const struct merak_schedule_args *args)
{
    return 2 * args->microbatches * args->chunks;
}

/* The i-th forward of a rank, or its i-th backward, with chunks reversed. */
static struct merak_action nth(const struct merak_schedule_args *args,
                               enum merak_action_kind kind, int i)
{
    int p = args->stages, group = i / (p * args->chunks);
    int chunk = i / p % args->chunks;

    return (struct merak_action){
        .kind = kind,
        .microbatch = group * p + i % p,
        .chunk = kind == MERAK_ACT_F ? chunk : args->chunks - 1 - chunk};
}

static void interleaved_fill(const struct merak_schedule_args *args,
                             struct merak_action *actions)
{
    int total = args->microbatches * args->chunks;
    int ahead = 2 * (args->stages - 1 - args->stage) +
                (args->chunks - 1) * args->stages;

    for (int i = 0; i < total + ahead; i++) {
        if (i < total)
            *actions++ = nth(args, MERAK_ACT_F, i);
        if (i >= ahead && i - ahead < total)
            *actions++ = nth(args, MERAK_ACT_B, i - ahead);
    }
}

static enum merak_status
interleaved_check(const struct merak_schedule_args *args,
                  struct merak_error *err)
{
    int p = args->stages, rest = args->microbatches % p;

    if (rest != 0)
        return merak_fail(
            err, MERAK_ERR_CONFIG,
            "%d micro-batches in groups of %d leave a group of %d, but each "
            "must have at least one per stage, %d: run %d micro-batches",
            args->microbatches, p, rest, p, args->microbatches + p - rest);
    return MERAK_OK;
}

/* 1f1b over v chunks per rank; bubble 1/v, transfers v times */
const struct merak_schedule merak_schedule_interleaved = {
    .name = "interleaved",
    .min_chunks = 2,
    .count = interleaved_count,
    .fill = interleaved_fill,
    .min_stages = 2,
    .check = interleaved_check,
};
