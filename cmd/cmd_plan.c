/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan.c - `merak plan`: predict what a run would look like */
#include "config.h"

#include "cmd/cmd.h"
#include "runtime/plan/plan_run.h"

int merak_cmd_plan(int argc, char **argv)
{
    return merak_plan_main(argc, argv, NULL);
}
