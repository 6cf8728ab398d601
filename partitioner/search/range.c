/* SPDX-License-Identifier: Apache-2.0 */
/* range.c - costs of consecutive segments as one part of the model */
#include "config.h"

#include "partitioner/search/range.h"

#include <math.h>
#include <string.h>

void merak_param_state_add(struct merak_param_state *to,
                           const struct merak_param_state *what)
{
    to->param_bytes += what->param_bytes;
    to->grad_bytes += what->grad_bytes;
    to->bf16_elems += what->bf16_elems;
    to->f32_elems += what->f32_elems;
    to->convert_s += what->convert_s;
    to->elements += what->elements;
    to->n += what->n;
    to->bf16_elems_saved += what->bf16_elems_saved;
    to->f32_elems_saved += what->f32_elems_saved;
    to->convert_saved_s += what->convert_saved_s;
    to->gather_s += what->gather_s;
    to->lent_bytes += what->lent_bytes;
    to->lent_grad_bytes += what->lent_grad_bytes;
    to->n_lent += what->n_lent;
    to->lent_part += what->lent_part;
    to->lent_grad_part += what->lent_grad_part;
    to->lent_gather_s += what->lent_gather_s;
    to->lent_sum_s += what->lent_sum_s;
    to->lent_back_part += what->lent_back_part;
    to->lent_back_gather_s += what->lent_back_gather_s;
}

void merak_param_state_drop(struct merak_param_state *from,
                            const struct merak_param_state *what)
{
    from->param_bytes -= what->param_bytes;
    from->bf16_elems -= what->bf16_elems;
    from->f32_elems -= what->f32_elems;
    from->elements -= what->elements;
    from->n -= what->n;
    from->bf16_elems_saved -= what->bf16_elems_saved;
    from->f32_elems_saved -= what->f32_elems_saved;
    from->lent_bytes -= what->lent_bytes;
    from->n_lent -= what->n_lent;
    from->lent_part -= what->lent_part;
}

double merak_param_state_optimizer(const struct merak_param_state *hold)
{
    return 12 * hold->bf16_elems + 8 * hold->f32_elems;
}

double merak_param_state_grads(const struct merak_param_state *hold,
                               const struct merak_plan *plan)
{
    return (double)merak_dtype_bytes(plan->grad_dtype) * hold->bf16_elems +
           4 * hold->f32_elems;
}

double merak_param_state_touched(const struct merak_param_state *hold,
                                 const struct merak_plan *plan)
{
    double grad = (double)merak_dtype_bytes(plan->grad_dtype);

    return (26 + grad) * hold->bf16_elems + 28 * hold->f32_elems;
}

void merak_range_start(struct merak_range *range, int from,
                       struct merak_marks *marks)
{
    *range = (struct merak_range){.from = from,
                                  .to = from,
                                  .mark = marks->mark + from,
                                  .top = marks->top + from};
}

static void add_share(const struct merak_share *share,
                      struct merak_range *range, double *kept)
{
    double elements = share->hold.bf16_elems + share->hold.f32_elems;

    if (share->prev >= range->from) { /* both in this range */
        range->shared_later_elems -= elements;
        return;
    }
    for (int k = 0; k < MERAK_KEEPS; k++)
        kept[k] += share->kept[k];
    merak_param_state_add(&range->hold, &share->hold);
    range->tied += elements;
}

/* `bytes` are live while the segment runs if nothing is dropped; tops are the
 * segments that no later one exceeds. */
static void add_top(struct merak_range *range, double bytes)
{
    while (range->n_tops > 0 && range->top[range->n_tops - 1].bytes <= bytes)
        range->n_tops--;
    range->top[range->n_tops++] = (struct merak_top){range->to, bytes};
}

struct merak_lent merak_range_fetched_to(const struct merak_range *range,
                                         int blocks)
{
    if (blocks > 0 && blocks < range->n_blocks)
        return range->mark[blocks].lent;
    return (struct merak_lent){.bytes = range->hold.lent_bytes,
                               .most = range->most_lent,
                               .part = range->hold.lent_part,
                               .gather_s = range->hold.lent_gather_s,
                               .back_part = range->hold.lent_back_part,
                               .back_gather_s = range->hold.lent_back_gather_s,
                               .n = range->hold.n_lent,
                               .segments = range->to - range->from};
}

static void begin_block(struct merak_range *range)
{
    for (int k = 0; k < MERAK_KEEPS; k++)
        range->dropped[k] = 0;
    range->mark[range->n_blocks++] =
        (struct merak_mark){range->to,
                            range->kept[MERAK_KEEP_ALL],
                            range->kept[MERAK_KEEP_LEAST],
                            range->peak[MERAK_KEEP_LEAST],
                            range->recompute_s[MERAK_KEEP_LEAST],
                            merak_range_fetched_to(range, 0)};
    range->retained_before = range->retained;
    range->block_all = 0;
}

double merak_segment_least(const struct merak_segment *s)
{
    double least = s->kept[0];

    for (int k = 1; k < MERAK_KEEPS; k++)
        least = s->kept[k] < least ? s->kept[k] : least;
    return least;
}

/* Add to the bytes that are live or kept whatever is dropped; what an earlier
 * segment holds, too, is not counted. */
static void add_sure(struct merak_range *range, const struct merak_segment *s)
{
    double peak = range->retained_before + range->block_all + s->peak;
    range->retained_peak =
        peak > range->retained_peak ? peak : range->retained_peak;
    range->retained += merak_segment_least(s);
    range->block_all += s->kept[MERAK_KEEP_ALL];
}

/* All of a block that is recomputed is live at once, so that what it does not
 * keep is only dropped at the next block's start. */
static void add_kept(struct merak_range *range, const struct merak_segment *s,
                     const double *kept)
{
    add_top(range, range->kept[MERAK_KEEP_ALL] + s->peak);
    for (int k = 0; k < MERAK_KEEPS; k++) {
        double peak = range->kept[k] + range->dropped[k] + s->peak;

        range->peak[k] = peak > range->peak[k] ? peak : range->peak[k];
        range->kept[k] += kept[k];
        range->dropped[k] += kept[MERAK_KEEP_ALL] - kept[k];
        range->recompute_s[k] += s->recompute_s[k];
    }
}

void merak_range_add(const struct merak_table *table, struct merak_range *range)
{
    const struct merak_segment *s = &table->segment[range->to];
    double kept[MERAK_KEEPS];

    if (range->to == range->from || s->begins_block)
        begin_block(range);
    memcpy(kept, s->kept, sizeof(kept));
    range->f_s += s->f_s;
    range->b_s += s->b_s;
    range->x_s += s->x_s;
    range->w_s += s->w_s;
    range->kernel_s += s->kernel_s;
    range->late += s->late;
    range->n_kept += s->n_kept;
    if (s->largest > range->largest)
        range->largest = s->largest;
    range->most_lent = fmax(range->most_lent, s->hold.lent_bytes);
    range->most_lent_grad =
        fmax(range->most_lent_grad, s->hold.lent_grad_bytes);
    range->shared_later_elems += s->shared_later_elems;
    merak_param_state_add(&range->hold, &s->hold);
    for (int i = 0; i < s->n_shares; i++)
        add_share(&table->share[s->first_share + i], range, kept);
    add_kept(range, s, kept);
    add_sure(range, s);
    range->to++;
}

/* The peak from a segment on, if nothing is dropped. */
static double top_from(const struct merak_range *range, int segment)
{
    int at = range->n_tops - 1;

    while (at > 0 && range->top[at - 1].at >= segment)
        at--;
    return range->top[at].bytes;
}

struct merak_keeps merak_range_keeps(const struct merak_range *range,
                                     struct merak_drop drop)
{
    int keep = drop.attention     ? MERAK_KEEP_NO_ATTENTION
               : drop.blocks == 0 ? MERAK_KEEP_ALL
                                  : MERAK_KEEP_LEAST;
    const struct merak_mark *m;
    struct merak_keeps k;
    double rest;

    if (keep != MERAK_KEEP_LEAST || drop.blocks >= range->n_blocks)
        return (struct merak_keeps){.kept = range->kept[keep],
                                    .peak = range->peak[keep],
                                    .recompute_s = range->recompute_s[keep]};
    m = &range->mark[drop.blocks];
    rest = m->least - m->all; /* less than with nothing dropped */
    k = (struct merak_keeps){.kept = range->kept[MERAK_KEEP_ALL] + rest,
                             .peak = m->peak,
                             .recompute_s = m->recompute_s};
    if (top_from(range, m->at) + rest > k.peak)
        k.peak = top_from(range, m->at) + rest;
    return k;
}
