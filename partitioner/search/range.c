/* SPDX-License-Identifier: Apache-2.0 */
/* range.c - neighbouring segments as one part of the model */
#include "config.h"

#include "partitioner/search/impl.h"

void merak_hold_add(struct merak_hold *to, const struct merak_hold *what)
{
    to->param_bytes += what->param_bytes;
    to->grad_bytes += what->grad_bytes;
    to->low += what->low;
    to->full += what->full;
    to->convert_s += what->convert_s;
    to->elements += what->elements;
    to->n += what->n;
}

void merak_range_start(struct merak_range *range, int from)
{
    *range = (struct merak_range){.from = from, .to = from};
}

static void add_share(const struct merak_share *share,
                      struct merak_range *range)
{
    double elements = share->hold.low + share->hold.full;

    if (share->prev >= range->from) { /* both in here */
        range->lent -= elements;
        return;
    }
    for (int k = 0; k < MERAK_KEEPS; k++)
        range->kept[k] += share->kept[k];
    merak_hold_add(&range->hold, &share->hold);
    range->tied += elements;
}

void merak_range_add(const struct merak_table *table, struct merak_range *range)
{
    const struct merak_segment *s = &table->segment[range->to];

    range->f_s += s->f_s;
    range->b_s += s->b_s;
    range->x_s += s->x_s;
    range->w_s += s->w_s;
    range->kernel_s += s->kernel_s;
    range->flops += s->flops;
    range->exchanged += s->exchanged;
    range->n_blocks += range->to == range->from || s->begins_block;
    if (range->kept[MERAK_KEEP_ALL] + s->peak > range->peak)
        range->peak = range->kept[MERAK_KEEP_ALL] + s->peak;
    if (s->largest > range->largest)
        range->largest = s->largest;
    for (int k = 0; k < MERAK_KEEPS; k++) {
        range->kept[k] += s->kept[k];
        range->again_s[k] += s->again_s[k];
    }
    range->lent += s->lent;
    merak_hold_add(&range->hold, &s->hold);
    for (int i = 0; i < s->n_shares; i++)
        add_share(&table->share[s->first_share + i], range);
    range->to++;
}

static double kept_of(const struct merak_table *table, int from, int segment,
                      int keep)
{
    const struct merak_segment *s = &table->segment[segment];
    double kept = s->kept[keep];

    for (int i = 0; i < s->n_shares; i++) {
        const struct merak_share *share = &table->share[s->first_share + i];

        if (share->prev < from)
            kept += share->kept[keep];
    }
    return kept;
}

/* Within a block that is recomputed all of it stands at once, so that it
 * drops at the next block's start what it kept meanwhile. */
struct merak_keeps merak_range_keeps(const struct merak_table *table,
                                     const struct merak_range *range,
                                     struct merak_drop drop)
{
    struct merak_keeps k = {range->kept[MERAK_KEEP_ALL], range->peak, 0};
    double dropped = 0; /* that still stands */
    int block = -1;

    if (!drop.attention && drop.blocks == 0)
        return k;
    k.kept = k.peak = 0;
    for (int s = range->from; s < range->to; s++) {
        int keep = drop.attention ? MERAK_KEEP_NO_ATTENTION : MERAK_KEEP_ALL;
        double all = kept_of(table, range->from, s, MERAK_KEEP_ALL), least;

        if (s == range->from || table->segment[s].begins_block) {
            block++;
            dropped = 0;
        }
        if (block < drop.blocks)
            keep = MERAK_KEEP_LEAST;
        if (k.kept + dropped + table->segment[s].peak > k.peak)
            k.peak = k.kept + dropped + table->segment[s].peak;
        least = kept_of(table, range->from, s, keep);
        k.kept += least;
        dropped += all - least;
        k.again_s += table->segment[s].again_s[keep];
    }
    return k;
}
