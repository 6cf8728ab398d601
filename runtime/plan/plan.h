/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/plan.h - the command that plans a run: what it would look like
 */
#ifndef MERAK_RUNTIME_PLAN_PLAN_H
#define MERAK_RUNTIME_PLAN_PLAN_H

/* `merak plan`: argv[0] is its name.  Returns the process's exit code and
 * prints its own errors, one line on standard error. */
int merak_plan_main(int argc, char **argv);

#endif
