/* SPDX-License-Identifier: Apache-2.0 */
/* spank_plugin/task.h - what the plan means for one task */
#ifndef MERAK_SPANK_TASK_H
#define MERAK_SPANK_TASK_H

#include <slurm/spank.h>

/* Turn the plan in a task's environment, if any, into its MERAK_* variables
 * and remove it.  Runs as the user.  Ends the task if srun refused the step;
 * fails no other. */
void task_apply_plan(spank_t sp);

#endif
