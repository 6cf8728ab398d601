/* SPDX-License-Identifier: Apache-2.0 */
/* scp.c - shifted critical path and the schedules on the way to it
 *
 * Under 1F1B with recomputation the longest path goes down to the last stage,
 * which is busy from its first forward to its last backward, and back.  Three
 * moves shorten it; each can be left out:
 *
 *   drop-last  the last stage never recomputes: its backward follows its
 *              forward at once, so what it keeps is used at once
 *   early      a stage that would wait for a gradient recomputes meanwhile:
 *              in the cool-down, and before the first backward of a stage whose
 *              next stage runs its own first backward early
 *   third      stage p-2 swaps its first backward with its third forward,
 *              which fills the gap before that gradient: the path now turns
 *              at stage p-2, which has no gap left
 *
 * "early" is the second move alone, "last" the first two, "scp" all three.
 * With forward f, backward b, recomputation r <= f <= b, free transfers and
 * equal stages, and m >= 4, the step takes
 *
 *   1f1b   (m + p - 1)(f + b + r)
 *   early  m(f + b + r) + (p - 1)(f + b)
 *   last   m(f + b + r) + (p - 1)(f + b) - 2r
 *   scp    m(f + b + r) + (p - 1)(f + b) - 2r - min(r, b - f)
 *          (p = 2: ... - r - min(2r, b), as no stage precedes p-2)
 *
 * At b = 2f, r = f scp takes m(f + b + r) + (p - 2)(f + b): no order in
 * which stage p-2 recomputes is faster.  Stage p-2 must get past its second
 * and third forward before the last stage takes their outputs, so what it
 * sends is kept for one action longer than with synchronous sends.
 *
 * The price: every stage holds one micro-batch recomputed in full, and stage
 * p-2 has three in flight instead of two.
 * Source: Lai et al. 2023 (Merak, arXiv:2206.04959), sec. 4.
 */
#include "config.h"

#include "base/error.h"
#include "partitioner/schedule/kinds.h"

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* In the warm-up, micro-batches 0 .. n-1 are recomputed before their gradient
 * arrives. */
static int early_in_warm_up(const struct merak_schedule_args *args)
{
    int from_last = args->stages - 1 - args->stage;

    if (!(args->moves & MERAK_MOVE_EARLY))
        return 0;
    if (args->moves & MERAK_MOVE_THIRD)
        return from_last == 1 ? 2 : from_last == 2;
    return (args->moves & MERAK_MOVE_DROP_LAST) && from_last == 1;
}

/* In the cool-down, micro-batches m-n .. m-1 are.  If the last stage does not
 * recompute, stage p-2 never waits there. */
static int early_in_cool_down(const struct merak_schedule_args *args)
{
    int from_last = args->stages - 1 - args->stage;

    if (!(args->moves & MERAK_MOVE_EARLY) ||
        ((args->moves & MERAK_MOVE_DROP_LAST) && from_last == 1))
        return 0;
    return from_last;
}

static bool is_early(const struct merak_schedule_args *args, int microbatch)
{
    return microbatch < early_in_warm_up(args) ||
           microbatch >= args->microbatches - early_in_cool_down(args);
}

static int moves_count(const struct merak_schedule_args *args)
{
    int m = args->microbatches;
    int early = early_in_warm_up(args) + early_in_cool_down(args);

    return 2 * m + min(m, early);
}

/* Move the forwards and backwards of 1F1B from the end of actions[] to its
 * front, with Rs in between. */
static void insert_early(const struct merak_schedule_args *args,
                         struct merak_action *actions)
{
    int left = 2 * args->microbatches;
    int n = 0;

    for (int i = moves_count(args) - left; left > 0; left--, i++) {
        struct merak_action next = actions[i];

        if (next.kind == MERAK_ACT_B && is_early(args, next.microbatch)) {
            actions[n] = next;
            actions[n++].kind = MERAK_ACT_R;
        }
        actions[n++] = next;
    }
}

static void moves_fill(const struct merak_schedule_args *args,
                       struct merak_action *actions)
{
    int m = args->microbatches;
    struct merak_action *pairs = actions + moves_count(args) - 2 * m;

    merak_schedule_warmup_fill(args, args->stages - args->stage, pairs);
    if ((args->moves & MERAK_MOVE_THIRD) && args->stage == args->stages - 2) {
        /* F0 F1 B0 F2 becomes F0 F1 F2 B0; check() ensures m >= 4. */
        struct merak_action first_backward = pairs[2];

        pairs[2] = pairs[3];
        pairs[3] = first_backward;
    }
    insert_early(args, actions);
}

static enum merak_status moves_check(const struct merak_schedule_args *args,
                                     struct merak_error *err)
{
    int least = args->stages > 4 ? args->stages : 4;

    if ((args->moves & MERAK_MOVE_THIRD) && args->microbatches < least)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d micro-batches on %d stages given, it needs "
                          "max(4, stages) or more: run %d, or use last",
                          args->microbatches, args->stages, least);
    return MERAK_OK;
}

static bool all_but_last(const struct merak_schedule_args *args)
{
    return !(args->moves & MERAK_MOVE_DROP_LAST) ||
           args->stage < args->stages - 1;
}

/* 1f1b with these moves. */
#define MOVED(with)                                                    \
    .max_chunks = 1, .min_stages = (with) == MERAK_MOVE_EARLY ? 1 : 2, \
    .moves = (with), .count = moves_count, .fill = moves_fill,         \
    .check = moves_check, .recomputes = all_but_last

/* 1f1b that recomputes while it waits in the drain */
const struct merak_schedule merak_schedule_early = {.name = "early",
                                                    MOVED(MERAK_MOVE_EARLY)};

/* Early, and the last stage does not recompute */
const struct merak_schedule merak_schedule_last = {
    .name = "last", MOVED(MERAK_MOVE_DROP_LAST | MERAK_MOVE_EARLY)};

/* Shifted critical path: last, and stage p-2 without a gap */
const struct merak_schedule merak_schedule_scp = {.name = "scp",
                                                  MOVED(MERAK_MOVES - 1)};

static const struct merak_schedule drop_last = {
    .name = "scp:drop-last",
    /* 1f1b, and the last stage does not recompute */
    MOVED(MERAK_MOVE_DROP_LAST)};

static const struct merak_schedule third = {
    .name = "scp:third",
    /* 1f1b, and stage p-2 runs a third forward first */
    MOVED(MERAK_MOVE_THIRD)};

static const struct merak_schedule drop_last_third = {
    .name = "scp:drop-last,third",
    /* shifted critical path without early recomputation */
    MOVED(MERAK_MOVE_DROP_LAST | MERAK_MOVE_THIRD)};

static const struct merak_schedule early_third = {
    .name = "scp:early,third",
    /* shifted critical path, and the last stage recomputes */
    MOVED(MERAK_MOVE_EARLY | MERAK_MOVE_THIRD)};

const struct merak_schedule *merak_schedule_moves(unsigned moves)
{
    static const struct merak_schedule *const row[MERAK_MOVES] = {
        [0] = &merak_schedule_1f1b,
        [MERAK_MOVE_DROP_LAST] = &drop_last,
        [MERAK_MOVE_EARLY] = &merak_schedule_early,
        [MERAK_MOVE_DROP_LAST | MERAK_MOVE_EARLY] = &merak_schedule_last,
        [MERAK_MOVE_THIRD] = &third,
        [MERAK_MOVE_DROP_LAST | MERAK_MOVE_THIRD] = &drop_last_third,
        [MERAK_MOVE_EARLY | MERAK_MOVE_THIRD] = &early_third,
        [MERAK_MOVES - 1] = &merak_schedule_scp,
    };

    return row[moves];
}
