/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule.h - the order of forwards and backwards on a stage
 *
 * A schedule is a pure function of (kind, stages, micro-batches, chunks,
 * stage); one small file each.
 */
#ifndef MERAK_PARTITIONER_SCHEDULE_H
#define MERAK_PARTITIONER_SCHEDULE_H

#include <stdbool.h>

#include "merak/status.h"

enum merak_action_kind {
    MERAK_ACT_F, /* forward */
    MERAK_ACT_B, /* gradient of the input (and, unless split, W) */
    MERAK_ACT_W, /* gradient of the weights, where a schedule parts it off */
    MERAK_ACT_R, /* recompute what the forward dropped */
};

struct merak_action {
    enum merak_action_kind kind;
    int microbatch;
    int chunk;
};

struct merak_schedule_args {
    int stages;       /* p >= 1 */
    int microbatches; /* m >= 1 */
    int chunks;       /* v >= 1 model chunks per rank */
    int stage;        /* 0 .. p-1 */
};

struct merak_schedule {
    const char *name; /* the word users type: "gpipe", "1f1b" */
    const char *about;
    bool splits_w; /* B and W are separate actions */
    /* Number of actions of a stage. */
    int (*count)(const struct merak_schedule_args *args);
    /* Fill actions[count]. */
    void (*fill)(const struct merak_schedule_args *args,
                 struct merak_action *actions);
    /* MERAK_ERR_CONFIG if it cannot run with these numbers; NULL: always. */
    enum merak_status (*check)(const struct merak_schedule_args *args,
                               struct merak_error *err);
};

/* By name; MERAK_ERR_NOT_FOUND lists the names there are. */
enum merak_status merak_schedule_find(const char *name,
                                      const struct merak_schedule **sched_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* All of them, NULL-terminated. */
const struct merak_schedule *const *merak_schedules(void);

#endif
