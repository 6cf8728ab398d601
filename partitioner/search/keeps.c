/* SPDX-License-Identifier: Apache-2.0 */
/* keeps.c - what a part keeps of a forward, and what it takes to have the rest
 * again
 *
 * What is dropped is recomputed, or brought back from the host's memory: then
 * copies overlap with kernels of the forward, and of the backward, and those of
 * the next block are there early.  Of a plan that seeks the faster of the two
 * each part does some of both: as many blocks are recomputed, evenly spread, as
 * leave the link the time to copy the others (struct merak_drop).
 */
#include "config.h"

#include "partitioner/search/need.h"

#include <math.h>

/* What a block's drop saves, and how long it takes to recompute it. */
struct dropped {
    double bytes, recompute_s;
};

static struct dropped dropped_in(const struct merak_range *g, int block)
{
    const struct merak_mark *m = &g->mark[block];
    bool last = block + 1 >= g->n_blocks;
    double all = last ? g->kept[MERAK_KEEP_ALL] : m[1].all;
    double least = last ? g->kept[MERAK_KEEP_LEAST] : m[1].least;
    double end_s = last ? g->recompute_s[MERAK_KEEP_LEAST] : m[1].recompute_s;

    return (struct dropped){(all - m->all) - (least - m->least),
                            end_s - m->recompute_s};
}

/* Of the blocks that are dropped, those whose activations are copied. */
static struct dropped dropped_away(const struct merak_range *g,
                                   const struct merak_drop *drop,
                                   const struct merak_keeps *k)
{
    struct dropped away = {0};

    if (drop->attention || drop->again == 0) {
        away.bytes = g->kept[MERAK_KEEP_ALL] - k->kept;
        away.recompute_s = k->recompute_s;
        return drop->again > 0 ? (struct dropped){0} : away;
    }
    for (int b = 0; b < drop->blocks && b < g->n_blocks; b++) {
        struct dropped of = dropped_in(g, b);

        if (merak_drop_is_again(drop, b))
            continue;
        away.bytes += of.bytes;
        away.recompute_s += of.recompute_s;
    }
    return away;
}

struct merak_keeps merak_rater_keeps(const struct merak_rater *r, int part)
{
    const struct merak_range *g = &r->range[part];
    const struct merak_drop *drop = &r->drop[part];
    struct merak_keeps k = merak_range_keeps(g, *drop);
    double copies, copy_s, first_s, again_s;
    int blocks = merak_plan_blocks_away(r->plan, drop);
    struct dropped away;

    if (!merak_plan_offloads_acts(r->plan) || k.kept >= g->kept[MERAK_KEEP_ALL])
        return k;
    away = dropped_away(g, drop, &k);
    if (away.bytes <= 0)
        return k;
    again_s = k.recompute_s - away.recompute_s;
    if (blocks == 0 || blocks > g->n_blocks) /* or attention of all */
        blocks = g->n_blocks;
    k.away = away.bytes;
    k.peak += k.away / blocks;
    copies = fmax((double)g->n_kept * blocks / g->n_blocks, 1);
    copy_s = copies * merak_cost_host_copy(r->cost, k.away / copies);
    /* nothing runs before the last block's gradients, if it is one of them */
    first_s = blocks < g->n_blocks ? 0 : copy_s / blocks;
    k.recompute_s = again_s + fmax(copy_s - g->f_s, 0) + first_s +
                    fmax(copy_s - first_s - g->b_s - again_s, 0);
    return k;
}

void merak_rater_find_again(struct merak_rater *r, int part, bool all)
{
    struct merak_drop *drop = &r->drop[part];
    const int most = drop->attention ? 1 : drop->blocks;
    int best = most, some[3] = {0, 1, most};
    double best_s, copy_s;

    drop->again = most;
    if (all || most == 0)
        return;
    best_s = merak_rater_keeps(r, part).recompute_s;
    drop->again = 0;
    copy_s = merak_rater_keeps(r, part).away / r->cost->host.bytes_per_s;
    if (copy_s > r->range[part].f_s) /* what it has not the time for */
        some[2] = (int)ceil(most * (1 - r->range[part].f_s / copy_s));
    for (int i = 0; i < 3; i++) {
        double seconds;

        drop->again = some[i];
        seconds = merak_rater_keeps(r, part).recompute_s;
        if (seconds < best_s) {
            best_s = seconds;
            best = some[i];
        }
    }
    drop->again = best;
}
