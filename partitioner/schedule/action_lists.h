/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/action_lists.h - the actions of all stages of a
 * schedule, as the player takes them
 *
 * A unit is what goes through the pipeline at a time: a micro-batch, or a slice
 * of one.  Parts that one stage runs are numbered first, in the order of the
 * model; blocks, here the vocabulary-parallel layers of all stages, follow.
 */
#ifndef MERAK_PARTITIONER_SCHEDULE_ACTION_LISTS_H
#define MERAK_PARTITIONER_SCHEDULE_ACTION_LISTS_H

#include <stddef.h>

#include "partitioner/schedule/schedule.h"

struct merak_step_action {
    enum merak_action_kind kind;
    bool recompute; /* it does the recomputation: R, or a B without R */
    int chunk, unit, pass;
};

struct merak_lists {
    const struct merak_schedule *schedule;
    int stages, chunks, units;
    int slices;                       /* of a micro-batch; 1: it runs whole */
    int passes;                       /* forwards of a unit */
    int room;                         /* for actions of a stage */
    int *n;                           /* by stage: actions */
    struct merak_step_action *action; /* [stages][room] */
    int chain;                        /* parts that one stage runs */
    int n_parts;                      /* and the blocks of all stages */
    int *part;                        /* [stages][chunks] */
    int *in_flight;                   /* [stages][chunks]: micro-batches */
    int *waiting; /* of these, most between B and W at once, B's included */
    int *stage_of;                    /* by part; -1: all stages */
    /* By part that one stage runs: the block that feeds it and the one that
     * follows it; by block: the part that it feeds, or follows; or -1. */
    int *fed_by, *followed_by;
    int *feeds, *follows;
    bool *early;      /* by stage: some R has an action of its own */
    bool *recomputes; /* by stage: it follows the plan's recompute mode */
};

/* For numbers that have passed merak_schedule_check(); NULL when out of
 * memory. */
struct merak_lists *merak_lists_create(const struct merak_schedule *schedule,
                                       const struct merak_schedule_args *args);
void merak_lists_destroy(struct merak_lists *lists);
/* Replace a stage's list by one of at most `room` actions, each of an existing
 * chunk, micro-batch, slice and pass.  False when out of memory. */
bool merak_lists_set(struct merak_lists *lists, int stage,
                     const struct merak_action *actions, int n);

/* Do both have the same stages, units and actions, except for R? */
bool merak_lists_equal(const struct merak_lists *a,
                       const struct merak_lists *b);
/* Of equal ones: do both also recompute at the same places? */
bool merak_lists_recompute_alike(const struct merak_lists *a,
                                 const struct merak_lists *b);
int merak_lists_in_flight(const struct merak_lists *lists, int stage,
                          int chunk);
int merak_lists_waiting(const struct merak_lists *lists, int stage, int chunk);

static inline const struct merak_step_action *
merak_lists_of(const struct merak_lists *lists, int stage)
{
    return &lists->action[(size_t)stage * (size_t)lists->room];
}

/* The index of a part's action on a unit in a table of the first `kinds` kinds
 * of actions; and the size of such a table. */
static inline size_t merak_lists_place(const struct merak_lists *lists,
                                       enum merak_action_kind kind, int part,
                                       int unit, int pass)
{
    size_t i = (size_t)kind * (size_t)lists->n_parts + (size_t)part;

    i = i * (size_t)lists->units + (size_t)unit;
    return i * (size_t)lists->passes + (size_t)pass;
}

static inline size_t merak_lists_places(const struct merak_lists *lists,
                                        int kinds)
{
    return merak_lists_place(lists, (enum merak_action_kind)kinds, 0, 0, 0);
}

#endif
