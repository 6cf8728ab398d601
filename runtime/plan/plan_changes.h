/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/plan_changes.h - what a change of the request would do to a plan:
 * more nodes, memory, sequences, or faster links */
#ifndef MERAK_RUNTIME_PLAN_CHANGES_H
#define MERAK_RUNTIME_PLAN_CHANGES_H

#include "runtime/plan/advice.h"

#define PLAN_SMALL_GAIN 0.05 /* of a step: not worth buying */

/* What a step may be short of. */
enum plan_resource {
    PLAN_COMPUTE,
    PLAN_MEMORY,
    PLAN_LINKS,
    PLAN_NET,
    PLAN_BATCH,
    PLAN_RESOURCES
};

struct plan_resource_text {
    const char *binds; /* "the network" */
    const char *twice; /* "a network twice as fast" */
};
extern const struct plan_resource_text plan_resource_text[PLAN_RESOURCES];

/* What the advice is about, and how long it may take. */
struct plan_asked {
    struct plan_auto *plan;
    const struct merak_search_result *result;
    int64_t until_ns; /* INT64_MAX: as long as it takes */
    bool cut_short;   /* the latest search was */
    /* By twice as much, of the step; -1: unknown. */
    double gain[PLAN_RESOURCES];
    const struct plan_change *more_nodes; /* or NULL */
    struct plan_advice *advice;
};

/* Try all changes: fills `gain`, more_nodes and the advice's rows. */
void plan_changes_try(struct plan_asked *asked);
/* Seconds of the best plan's step, if that is shorter than most_s; 0: none was
 * found in time. */
double plan_changed_step(struct plan_asked *asked,
                         struct merak_search_input *in, double most_s);
/* What a batch counts: "sequences". */
const char *plan_batch_word(const struct plan_auto *plan);

#endif
