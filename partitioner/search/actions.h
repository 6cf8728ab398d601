/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/actions.h - actions of all stages of a schedule */
#ifndef MERAK_PARTITIONER_SEARCH_ACTIONS_H
#define MERAK_PARTITIONER_SEARCH_ACTIONS_H

#include "partitioner/plan/plan.h"

struct merak_step_action {
    enum merak_action_kind kind;
    bool recompute; /* does what recomputation there is: R, or a B without R */
    int chunk, unit, pass;
};

struct merak_lists {
    const struct merak_schedule *schedule;
    int stages, chunks, units; /* unit: micro-batch, pair, or slice of one */
    int slices;                /* of a micro-batch; 1: it runs whole */
    int passes;                /* forwards of a unit */
    int room;                  /* for actions of a stage */
    int *n;                    /* by stage: actions */
    struct merak_step_action *action; /* [stages][room] */
    int chain; /* parts that one stage runs; those of all stages follow */
    int *part, *in_flight; /* [stages][chunks]; micro-batches or pairs */
    int *stage_of;         /* by part; -1: all stages */
    bool *early;           /* by stage: some R has an action of its own */
    bool *recomputes;      /* by stage: it does what the plan says */
};

/* For so many units of a plan; NULL when out of memory. */
struct merak_lists *merak_lists_create(const struct merak_schedule *schedule,
                                       const struct merak_plan *plan,
                                       int units);
void merak_lists_destroy(struct merak_lists *lists);

/* A long pipeline is followed until it repeats itself. */
struct merak_follow {
    struct merak_lists *lists; /* of all units, or as many as are worth
                                  following */
    struct merak_lists *less;  /* fewer, to carry on from; or NULL */
};

/* False when out of memory: fini() has to be called all the same. */
bool merak_follow_init(struct merak_follow *follow,
                       const struct merak_schedule *schedule,
                       const struct merak_plan *plan);
void merak_follow_fini(struct merak_follow *follow);

/* The same actions for as many stages and units, R apart. */
bool merak_lists_equal(const struct merak_lists *a,
                       const struct merak_lists *b);
int merak_lists_in_flight(const struct merak_lists *lists, int stage,
                          int chunk);
/* Units worth following of so many: enough for a schedule to repeat itself,
 * and as many more than a multiple of `stages` as all are. */
int merak_lists_settled(const struct merak_plan *plan, int units);
/* Slices of a micro-batch, 1 without; units of a step, and forwards of
 * each. */
int merak_plan_slices(const struct merak_plan *plan);
int merak_plan_units(const struct merak_plan *plan);
int merak_plan_passes(const struct merak_plan *plan);

#endif
