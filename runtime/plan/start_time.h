/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/start_time.h - when Slurm would start a job, by `sbatch
 * --test-only`
 */
#ifndef MERAK_RUNTIME_PLAN_START_TIME_H
#define MERAK_RUNTIME_PLAN_START_TIME_H

#include "runtime/plan/plan_options.h"

#include <time.h>

enum { PLAN_START_TEXT = 20 };

struct plan_start {
    time_t at;     /* 0: not known */
    char why[160]; /* that it is not */
};

/* --sbatch needs a table of nodes, the tokens of a run, and sbatch. */
enum merak_status plan_start_check(const struct plan_options *opt,
                                   struct merak_error *err) MERAK_CHECKED;
/* Ask for a job of so many nodes, with the words of --sbatch; takes 5 s at
 * most. */
void plan_start_ask(const struct plan_options *opt, int nodes,
                    int ranks_per_node, struct plan_start *start);
/* "2026-11-28 14:02" of a time, in the user's time zone. */
const char *plan_start_text(time_t at, char text[PLAN_START_TEXT]);

#endif
