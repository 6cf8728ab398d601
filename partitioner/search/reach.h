/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/reach.h - how far stages of unlike ranks reach
 *
 * A pipeline is built from its end: the last stage takes ranks and the last
 * segments, the one before it the next, and so on until all ranks have a stage
 * and all segments are covered.  Where can the last s stages, on the last r
 * ranks, begin if none takes longer than a period P?
 *
 *   starts(0, 0) = {n}
 *   starts(s, r) = all of earliest(t, s, to) .. to - 1, for every type t of a
 *                  stage and every `to` in starts(s - 1, r - ranks(t))
 *
 * where earliest(t, s, to) is the first segment from which a stage of type t,
 * with s micro-batches in flight, takes at most P up to `to`: more segments
 * never take less.  The first start alone would not do: a slow stage may be
 * able to hold the segment before a later one.  The least P is found by
 * halving.
 */
#ifndef MERAK_PARTITIONER_SEARCH_REACH_H
#define MERAK_PARTITIONER_SEARCH_REACH_H

#include "base/error.h"

#include <stdbool.h>

/* What a stage can be. */
struct merak_reach_input {
    int n;           /* segments */
    int last;        /* the last stage begins there, or before */
    int ranks;       /* all of them have a stage */
    int most_stages; /* of a pipeline */
    int n_types;
    const int *type_ranks; /* by type */
    /* May a stage of this type begin at this rank? */
    bool (*may_be)(const void *arg, int type, int first_rank);
    /* Seconds that segments from .. to - 1 take, with `flight` micro-batches in
     * flight; DBL_MAX: they do not fit. */
    double (*seconds)(void *arg, int type, int flight, int from, int to);
    void *arg;
};

struct merak_reach_stage {
    int type, from; /* the first segment */
};

struct merak_reach;
enum merak_status merak_reach_create(const struct merak_reach_input *in,
                                     struct merak_reach **reach_p,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_reach_destroy(struct merak_reach *reach);
/* The least period of so many stages, within 0.1 %: that of the longest one of
 * those returned; DBL_MAX: there are none. */
double merak_reach_least(struct merak_reach *reach, int stages,
                         struct merak_reach_stage *stage);

#endif
