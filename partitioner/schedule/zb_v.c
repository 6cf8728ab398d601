/* SPDX-License-Identifier: Apache-2.0 */
/* zb_v.c - no gap between a rank's first and last action
 *
 * Rank r has two chunks, parts r and 2p - 1 - r: the model goes down the
 * ranks and back up, and its last part is on rank 0, where a micro-batch's
 * backward can follow its forward at once.  Weight gradients are separate.
 * Rank r runs these phases, where 0 and 1 are the chunks:
 *
 *   2(p - r) - 1 times   F0          until the first micro-batch is back
 *   r times              F1 F0
 *   p - r times          F1 B1 W1
 *   m - p times          F0 B0 W0 F1 B1 W1, F0 as long as there are any
 *   r times              B0 B1       weight gradients wait
 *   p - r times          B0 W0
 *   and all weight gradients that are left, chunk 1's first
 *
 * With f = b = w a rank is never idle between its first forward and its last
 * weight gradient, from m = 2p - 1 on; a rank holds at most 2p halves of
 * micro-batches, as much as stage 0 under 1F1B.  Fewer micro-batches run the
 * same list without the missing ones.
 * Source: Qi et al. 2024 (arXiv:2405.15362), "V-ZB"; (arXiv:2401.10241).
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

/* A list being written; micro-batches ascend for each kind and chunk. */
struct writer {
    struct merak_action *action; /* the next one to write */
    int microbatches;
    int next[3][2]; /* micro-batch, by kind and chunk */
};

static int zb_v_count(const struct merak_schedule_args *args)
{
    return 6 * args->microbatches;
}

static void put(struct writer *list, enum merak_action_kind kind, int chunk)
{
    int microbatch = list->next[kind][chunk]++;

    if (microbatch < list->microbatches)
        *list->action++ = (struct merak_action){
            .kind = kind, .microbatch = microbatch, .chunk = chunk};
}

static void put_all(struct writer *list, int chunk)
{
    put(list, MERAK_ACT_F, chunk);
    put(list, MERAK_ACT_B, chunk);
    put(list, MERAK_ACT_W, chunk);
}

static void cool_down(struct writer *list, int p, int r)
{
    for (int i = 0; i < r; i++) {
        put(list, MERAK_ACT_B, 0);
        put(list, MERAK_ACT_B, 1);
    }
    for (int i = 0; i < p - r; i++) {
        put(list, MERAK_ACT_B, 0);
        put(list, MERAK_ACT_W, 0);
    }
    for (int chunk = 1; chunk >= 0; chunk--) {
        while (list->next[MERAK_ACT_W][chunk] < list->microbatches)
            put(list, MERAK_ACT_W, chunk);
    }
}

static void zb_v_fill(const struct merak_schedule_args *args,
                      struct merak_action *actions)
{
    int p = args->stages, r = args->stage, m = args->microbatches;
    int planned = m > 2 * p - 1 ? m : 2 * p - 1;
    struct writer list = {.action = actions, .microbatches = m};

    for (int i = 0; i < 2 * (p - r) - 1; i++)
        put(&list, MERAK_ACT_F, 0);
    for (int i = 0; i < r; i++) {
        put(&list, MERAK_ACT_F, 1);
        put(&list, MERAK_ACT_F, 0);
    }
    for (int i = 0; i < p - r; i++)
        put_all(&list, 1);
    for (int i = p; i < planned; i++) {
        put_all(&list, 0);
        put_all(&list, 1);
    }
    cool_down(&list, p, r);
}

static int zb_v_part(const struct merak_schedule_args *args, int chunk)
{
    return chunk == 0 ? args->stage : 2 * args->stages - 1 - args->stage;
}

/* Two chunks in a V, weight gradients apart; no bubble at f=b=w */
const struct merak_schedule merak_schedule_zb_v = {
    .name = "zb-v",
    .splits_w = true,
    .min_chunks = 2,
    .max_chunks = 2,
    .count = zb_v_count,
    .fill = zb_v_fill,
    .part = zb_v_part,
};
