/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/range.h - segments as a part of the model */
#ifndef MERAK_PARTITIONER_SEARCH_RANGE_H
#define MERAK_PARTITIONER_SEARCH_RANGE_H

#include "partitioner/search/table.h"

/* A block's first segment in a range, and what the blocks before it come to:
 * were all kept, or were they dropped. */
struct merak_mark {
    int at;
    double all, least, peak, recompute_s;
};

/* A segment, and what stands when it is in work and nothing is dropped. */
struct merak_top {
    int at;
    double bytes;
};

/* Room for those of ranges that do not overlap, by segment. */
struct merak_marks {
    struct merak_mark *mark;
    struct merak_top *top;
};

/* Segments i .. some end, added one by one. */
struct merak_range {
    int from, to, n_blocks, n_tops;
    double f_s, b_s, x_s, w_s, kernel_s, flops;
    /* With so much kept: bytes, the most that stands, that stands and is to
     * be dropped at the block's end, seconds to have it again. */
    double kept[MERAK_KEEPS], peak[MERAK_KEEPS], dropped[MERAK_KEEPS];
    double recompute_s[MERAK_KEEPS];
    double exchanged, largest;
    /* Of what is kept for certain (need.c): all, before the latest block, what
     * that makes, and the most that stands. */
    double retained, retained_before, block_all, retained_peak;
    struct merak_mark *mark; /* by block */
    struct merak_top *top;   /* where nothing behind is higher */
    struct merak_param_state hold;
    double tied, shared_later_elems; /* elements of parameters that an earlier,
                          a later part has, too */
};

/* A part that drops something. */
struct merak_keeps {
    double kept, peak; /* as of segments */
    double recompute_s;
};

void merak_param_state_add(struct merak_param_state *to,
                           const struct merak_param_state *what);
/* Take away what an earlier part has, too: bytes, elements and their number,
 * not the seconds. */
void merak_param_state_drop(struct merak_param_state *from,
                            const struct merak_param_state *what);
/* With and without ZeRO-1: the elements whose state is this rank's, or shared
 * out among its replicas. */
struct merak_param_state
merak_param_state_of(const struct merak_param_state *hold, bool zero1);
void merak_range_start(struct merak_range *range, int from,
                       struct merak_marks *marks);
/* Take in segment range->to. */
void merak_range_add(const struct merak_table *table,
                     struct merak_range *range);
/* With attention dropped, or so many blocks. */
struct merak_keeps merak_range_keeps(const struct merak_range *range,
                                     struct merak_drop drop);

#endif
