/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/range.h - costs of consecutive segments as one part */
#ifndef MERAK_PARTITIONER_SEARCH_RANGE_H
#define MERAK_PARTITIONER_SEARCH_RANGE_H

#include "partitioner/search/table.h"

/* Matrices that are whole only while they are used: bytes of all, of the
 * segment that has most, of a tensor rank's parts, the time to gather these
 * from tensor ranks; of what backwards read these two; the number of matrices
 * and that of segments. */
struct merak_lent {
    double bytes, most, part, gather_s, back_part, back_gather_s;
    int n, segments;
};

/* A block's first segment in a range, and the sums over the blocks before it:
 * bytes kept if nothing is dropped; bytes kept, peak and seconds of
 * recomputation if those blocks are; what they lend. */
struct merak_mark {
    int at;
    double all, least, peak, recompute_s;
    struct merak_lent lent;
};

/* A segment, and the bytes live while it runs if nothing is dropped. */
struct merak_top {
    int at;
    double bytes;
};

/* Scratch, by segment, for the marks of ranges that do not overlap. */
struct merak_marks {
    struct merak_mark *mark;
    struct merak_top *top;
};

/* Segments from .. to - 1, added one by one. */
struct merak_range {
    int from, to, n_blocks, n_tops, n_kept;
    double f_s, b_s, x_s, w_s, kernel_s;
    /* For each way to keep: bytes kept, peak of live bytes, live bytes to be
     * dropped at the block's end, seconds to recompute. */
    double kept[MERAK_KEEPS], peak[MERAK_KEEPS], dropped[MERAK_KEEPS];
    double recompute_s[MERAK_KEEPS];
    double largest, late;
    double most_lent, most_lent_grad; /* bytes of a segment: with ZeRO-3, 2 */
    /* Bytes kept whatever is dropped (need.c): total, before the latest block,
     * all that this block makes, and the peak of live bytes. */
    double retained, retained_before, block_all, retained_peak;
    struct merak_mark *mark; /* by block */
    struct merak_top *top;   /* segments that no later one exceeds */
    struct merak_param_state hold;
    double tied, shared_later_elems; /* elements of parameters that an earlier,
                          or a later, part holds, too */
};

/* A part with its drops. */
struct merak_keeps {
    double kept, peak; /* bytes, as in struct merak_range */
    double recompute_s; /* or, of what is brought back, that kernels wait */
    double away;        /* bytes in the host's memory, of a micro-batch */
};

void merak_param_state_add(struct merak_param_state *to,
                           const struct merak_param_state *what);
/* Subtract what another part holds, too: bytes, elements and the number of
 * parameters, but not seconds and gradients. */
void merak_param_state_drop(struct merak_param_state *from,
                            const struct merak_param_state *what);
/* The state with or without ZeRO-1; with it, what tensor ranks split of the
 * parameters they replicate is subtracted. */
static inline struct merak_param_state
merak_param_state_of(const struct merak_param_state *hold, bool flat)
{
    /* in the header, because a search asks so often that copies count */
    struct merak_param_state of = *hold;

    if (flat) {
        of.bf16_elems -= hold->bf16_elems_saved;
        of.f32_elems -= hold->f32_elems_saved;
        of.convert_s -= hold->convert_saved_s;
    } else {
        of.gather_s = 0;
    }
    return of;
}
/* Bytes of the optimizer's state: moments and, in bf16, master copies. */
double merak_param_state_optimizer(const struct merak_param_state *hold);
/* Bytes of a gradient of each parameter. */
double merak_param_state_grads(const struct merak_param_state *hold,
                               const struct merak_plan *plan);
/* Bytes that AdamW reads and writes. */
double merak_param_state_touched(const struct merak_param_state *hold,
                                 const struct merak_plan *plan);
void merak_range_start(struct merak_range *range, int from,
                       struct merak_marks *marks);
/* Append segment range->to. */
void merak_range_add(const struct merak_table *table,
                     struct merak_range *range);
/* Bytes that a segment keeps at least, whatever is dropped. */
double merak_segment_least(const struct merak_segment *s);
/* What a range lends with ZeRO-3 if the first `blocks` are fetched; 0: all. */
struct merak_lent merak_range_fetched_to(const struct merak_range *range,
                                         int blocks);
/* Bytes and seconds of the range with this drop. */
struct merak_keeps merak_range_keeps(const struct merak_range *range,
                                     struct merak_drop drop);

#endif
