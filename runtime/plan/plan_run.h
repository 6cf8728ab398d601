/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/plan_run.h - the command that plans a run: what it would look
 * like
 */
#ifndef MERAK_RUNTIME_PLAN_PLAN_H
#define MERAK_RUNTIME_PLAN_PLAN_H

#include "merak/train.h"

/* A user's program, which describes its own model. */
struct merak_plan_program {
    const char *name; /* as it was called: argv[0] */
    merak_describe_fn describe;
    void *arg;
};

/*
 * `merak plan`, which plans --model, or `PROGRAM plan`, which plans the
 * program's own model.  Returns the process's exit code and prints its own
 * errors, one line on standard error.
 *
 *   argv  [0] is "plan", options follow
 *   own   the program, or NULL
 */
int merak_plan_main(int argc, char **argv,
                    const struct merak_plan_program *own);

#endif
