/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/time.h - how long a schedule takes, by its actions
 *
 * A timetable holds the lists of all stages and, once run, when each action
 * starts and ends, by nothing but the order of the lists, what each action
 * needs (see schedule.h) and given times.  It is the quick estimate before
 * there are programs, and the proof that a schedule cannot deadlock.
 */
#ifndef MERAK_PARTITIONER_SCHEDULE_TIME_H
#define MERAK_PARTITIONER_SCHEDULE_TIME_H

#include "partitioner/schedule/schedule.h"

/* One stage's list.  Its actions may be overwritten before a run. */
struct merak_timetable_row {
    int n;
    struct merak_action *action;
    double *start, *end; /* by action, from the step's start */
    double busy;         /* summed durations */
    bool recomputes;     /* as the schedule says */
};

/* A part's neighbours in the model, -1 where there is none. */
struct merak_timetable_part {
    int before, after;
    int block;   /* run by all stages, feeds this one */
    int tail;    /* run by all stages, follows this one */
    bool shared; /* is itself such a block */
};

struct merak_timetable {
    const struct merak_schedule *sched;
    struct merak_schedule_args args; /* with defaults; stage means nothing */
    int chain;   /* parts that are one stage's own, numbered 0 .. chain-1 */
    int n_parts; /* and the blocks run by all stages, from chain on */
    struct merak_timetable_part *part;
    int *place;                      /* [stage * chunks + chunk]: its part */
    struct merak_timetable_row *row; /* by stage */
    bool forward_only;
    double step; /* the latest end */
};

/* Any unit of time.  Arrays are by part, NULL: all 0; for one micro-batch,
 * of which a slice takes its share. */
struct merak_schedule_cost {
    const double *f;
    const double *b; /* gradient of the input */
    const double *w; /* of the weights: with B, or W where it is apart */
    const double *r; /* recomputation; 0: the part drops nothing */
    double hop;      /* a transfer between stages; none within a stage */
    /* 0: sends never hold a stage up.  Else what action i sends is taken
     * before action i + send_lag starts, and a receiver takes it once it is
     * through the action before the one that uses it: at 1 a stage stops
     * until its send is taken (rendezvous), its next receive posted. */
    int send_lag;
    bool meet; /* blocks of all stages start when the last stage has come */
};

/* The lists of all stages; MERAK_ERR_CONFIG as merak_schedule_check(). */
enum merak_status merak_timetable_create(const struct merak_schedule *sched,
                                         const struct merak_schedule_args *args,
                                         struct merak_timetable **table_p,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_timetable_destroy(struct merak_timetable *table);

/* Strike out all but the forwards: the order of evaluation. */
void merak_timetable_forward(struct merak_timetable *table);

/* Fill in start, end, busy and step.  MERAK_ERR_CONFIG if the lists are
 * incomplete or deadlock: names what each stage waits for. */
enum merak_status merak_timetable_run(struct merak_timetable *table,
                                      const struct merak_schedule_cost *cost,
                                      struct merak_error *err) MERAK_CHECKED;

/* The least send_lag at which the stages do not deadlock: how long what is
 * sent may have to be kept where sends rendezvous.  Overwrites times. */
enum merak_status
merak_timetable_send_lag(struct merak_timetable *table, int *lag_p,
                         struct merak_error *err) MERAK_CHECKED;

#endif
