/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/kinds.h - the registry's rows; see schedule.h */
#ifndef MERAK_PARTITIONER_SCHEDULE_KINDS_H
#define MERAK_PARTITIONER_SCHEDULE_KINDS_H

#include "partitioner/schedule/schedule.h"

extern const struct merak_schedule merak_schedule_1f1b;
extern const struct merak_schedule merak_schedule_gpipe;
extern const struct merak_schedule merak_schedule_eager;
extern const struct merak_schedule merak_schedule_early;
extern const struct merak_schedule merak_schedule_last;
extern const struct merak_schedule merak_schedule_scp;
extern const struct merak_schedule merak_schedule_interleaved;
extern const struct merak_schedule merak_schedule_zb_h1;
extern const struct merak_schedule merak_schedule_zb_v;
extern const struct merak_schedule merak_schedule_sliced;
extern const struct merak_schedule merak_schedule_interlaced;
extern const struct merak_schedule merak_schedule_nf1b;
extern const struct merak_schedule merak_schedule_forward;

/* Shifted critical path's moves, as bits. */
enum {
    MERAK_MOVE_DROP_LAST = 1, /* the last stage never recomputes */
    MERAK_MOVE_EARLY = 2,     /* recompute before the gradient is there */
    MERAK_MOVE_THIRD = 4,     /* stage p-2: a third forward first */
    MERAK_MOVES = 8
};
/* The schedule with exactly these moves; never NULL below MERAK_MOVES. */
const struct merak_schedule *merak_schedule_moves(unsigned moves);

/* A count() for one chunk, one forward and one backward: 2 * m * slices. */
int merak_schedule_pairs(const struct merak_schedule_args *args);

#endif
