/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/held.h - what a rank holds of a parameter, and when
 *
 * The one list of it: programs make slots and exchanges of its rows
 * (program/params.c, program/fetch.c, program/offload.c), and the search counts
 * bytes and seconds by them (search/need.c, search/rate.c, search/ends.c), so
 * that both know the same levels of ZeRO and the same offload.
 *
 *            zero 0   1          2                   3
 *   param    whole    whole      whole               a part, whole in visits
 *   state    whole    a part     a part              a part
 *   sum      in grad  in grad    a part              a part
 *   grad     whole    whole      whole in visits     whole in visits
 *
 * A part of `param`, and the parts of `grad` that are summed over some replicas
 * first, are those of the homes (zero-home), all others of all replicas.  Only
 * a matrix of one stage is whole in visits alone; what is not has the rows of
 * zero 1: an accumulator is there until the step ends, so a rank's part of the
 * sum replaces what it made of that part itself.
 */
#ifndef MERAK_PARTITIONER_PLAN_HELD_H
#define MERAK_PARTITIONER_PLAN_HELD_H

#include "partitioner/plan/plan.h"

enum merak_held_kind {
    MERAK_HELD_PARAM,
    MERAK_HELD_STATE, /* moments, and of a bf16 parameter the f32 master */
    MERAK_HELD_SUM,   /* of gradients over replicas or ranks that share them
                         out, where it has memory of its own */
    MERAK_HELD_GRAD,  /* accumulators, one for each use of the parameter */
    MERAK_HELD_KINDS
};

/* The replicas that have a part each of what is kept. */
enum merak_held_over {
    MERAK_OVER_NONE, /* every replica has all of it */
    MERAK_OVER_HOMES,
    MERAK_OVER_REPLICAS
};

struct merak_held {
    bool kept; /* from step to step */
    enum merak_held_over over;
    /* How many there are beside what is kept, while they are used: whole, for
     * visits of two blocks, or, of what the host keeps, pieces.  0: what is
     * kept is used as it is. */
    int used;
    bool host; /* it is kept in the host's memory */
};

/*
 *   replicas  the stage has several
 *   lends     it is a matrix, or its gradient, that may be whole in visits
 *             alone: several ranks share it out
 */
struct merak_held merak_plan_held(const struct merak_plan *plan,
                                  enum merak_held_kind kind, bool replicas,
                                  bool lends);
/* The ranks that divide what is kept over these, `dp` replicas being a
 * stage's. */
int merak_plan_held_parts(const struct merak_plan *plan,
                          enum merak_held_over over, int dp);

#endif
