/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/kinds.h - the registry's rows; see schedule.h */
#ifndef MERAK_PARTITIONER_SCHEDULE_KINDS_H
#define MERAK_PARTITIONER_SCHEDULE_KINDS_H

#include "partitioner/schedule/schedule.h"

/* Every schedule, in the order in which messages list them. */
#define MERAK_SCHEDULES(as)                                       \
    as(merak_schedule_1f1b), as(merak_schedule_gpipe),            \
        as(merak_schedule_early), as(merak_schedule_last),        \
        as(merak_schedule_scp), as(merak_schedule_eager),         \
        as(merak_schedule_interleaved), as(merak_schedule_zb_h1), \
        as(merak_schedule_zb_v), as(merak_schedule_sliced),       \
        as(merak_schedule_interlaced), as(merak_schedule_nf1b),   \
        as(merak_schedule_forward)

#define MERAK_AS_NAME(schedule) schedule
extern const struct merak_schedule MERAK_SCHEDULES(MERAK_AS_NAME);

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
