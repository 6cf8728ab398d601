/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/advice.h - what to do about a plan that a search found: what
 * binds, what would change it, and what to type next */
#ifndef MERAK_RUNTIME_PLAN_ADVICE_H
#define MERAK_RUNTIME_PLAN_ADVICE_H

#include "runtime/plan/auto.h"

enum { PLAN_MOST_CHANGES = 8, PLAN_MOST_LINES = 8 };

/* A request that differs in one thing, and its best plan with the same degrees,
 * micro-batch and schedule. */
struct plan_change {
    char what[80];
    double step_s;
    double tokens_per_s; /* of the plan's: 1.9 */
    double gpu_hours;    /* for as many tokens, likewise */
};

struct plan_lines {
    char *line[PLAN_MOST_LINES];
    int n;
};

struct plan_advice {
    const char *counts;      /* "tokens": plan_rate_of() */
    struct plan_lines words; /* "what binds: ..", a statement each */
    struct plan_change change[PLAN_MOST_CHANGES];
    int n_changes;
    struct plan_lines commands; /* "# to run it", and what to type */
};

/* Make it for the plan that was chosen.  That takes searches of its own, in a
 * quarter of the time that the options allow for one; what is not found in time
 * is left out. */
enum merak_status plan_advice_make(struct plan_auto *plan,
                                   const struct merak_search_result *result,
                                   struct plan_advice *advice,
                                   struct merak_error *err) MERAK_CHECKED;
void plan_advice_fini(struct plan_advice *advice);
void plan_advice_print(const struct plan_advice *advice);

/* Add a line; MERAK_ERR_NOMEM. */
enum merak_status plan_lines_add(struct plan_lines *lines,
                                 struct merak_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4))) MERAK_CHECKED;
/* next_command.c: what to type, for a plan that was searched for. */
enum merak_status plan_commands_make(const struct plan_auto *plan,
                                     const struct merak_plan *chosen,
                                     struct plan_lines *lines,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
