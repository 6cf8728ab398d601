/* SPDX-License-Identifier: Apache-2.0 */
/* spank_plugin/task.h - apply the plan to one task */
#ifndef MERAK_SPANK_TASK_H
#define MERAK_SPANK_TASK_H

#include <slurm/spank.h>

/* Turn the plan in a task's environment, if any, into its MERAK_* variables
 * and remove it.  Runs as the user.  Ends the task only if srun refused the
 * step. */
void task_apply_plan(spank_t sp);

#endif
