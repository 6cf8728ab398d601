/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/time.h - how long a schedule takes, by its actions
 *
 * A timetable holds the lists of all stages and, once run, when each action
 * starts and ends.  That follows from the order of the lists, what each action
 * needs (see schedule.h) and given times.  It is the quick estimate before
 * programs exist, and the proof that a schedule cannot deadlock.
 */
#ifndef MERAK_PARTITIONER_SCHEDULE_TIME_H
#define MERAK_PARTITIONER_SCHEDULE_TIME_H

#include "partitioner/schedule/action_lists.h"

/* One stage's list.  Its actions may be overwritten before a run. */
struct merak_timetable_row {
    int n;
    struct merak_action *action;
    double *start, *end; /* by action, from the step's start */
    double busy;         /* summed durations */
};

struct merak_timetable {
    const struct merak_schedule *sched;
    struct merak_schedule_args args; /* with defaults; stage is not used */
    struct merak_lists *lists;       /* the rows as they are played */
    struct merak_timetable_row *row; /* by stage */
    bool forward_only;
    double step; /* the latest end */
};

/* Any unit of time.  Arrays are by part, NULL: all 0; for one micro-batch,
 * divided evenly among its slices. */
struct merak_schedule_cost {
    const double *f;
    const double *b; /* gradient of the input */
    const double *w; /* of the weights: in B, or W if that is separate */
    const double *r; /* recomputation; 0: the part drops nothing */
    double hop;      /* a transfer between stages; none within a stage */
    /* 0: transfers start when they are sent.  Else as in programs: what action
     * i sends is taken before action i + send_lag starts (at 1 a stage stops
     * until its send is taken), and receives are posted one action ahead
     * (player.h). */
    int send_lag;
    bool meet; /* blocks of all stages start when the last stage is ready */
};

/* The lists of all stages; MERAK_ERR_CONFIG as merak_schedule_check(). */
enum merak_status merak_timetable_create(const struct merak_schedule *sched,
                                         const struct merak_schedule_args *args,
                                         struct merak_timetable **table_p,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_timetable_destroy(struct merak_timetable *table);

/* Remove all but the forwards: the order of evaluation. */
void merak_timetable_forward(struct merak_timetable *table);

/* Fill in start, end, busy and step.  MERAK_ERR_CONFIG if the lists are
 * incomplete or deadlock: names what each stage waits for. */
enum merak_status merak_timetable_run(struct merak_timetable *table,
                                      const struct merak_schedule_cost *cost,
                                      struct merak_error *err) MERAK_CHECKED;

/* The least send_lag at which the stages do not deadlock: how long sent values
 * may have to be kept if sends rendezvous.  Overwrites times. */
enum merak_status
merak_timetable_send_lag(struct merak_timetable *table, int *lag_p,
                         struct merak_error *err) MERAK_CHECKED;

#endif
