/* SPDX-License-Identifier: Apache-2.0 */
/* entry.c - main() of a program that describes a model: plan, or train */
#include "config.h"

#include "base/open.h"
#include "runtime/boot/boot.h"
#include "runtime/plan/plan_run.h"
#include "runtime/runtime.h"
#include "runtime/train/trainer.h"

#include <string.h>

/* `PROGRAM plan`; of several tasks only one does it. */
static int plan(int argc, char **argv, merak_describe_fn describe, void *arg)
{
    const struct merak_plan_program own = {argv[0], describe, arg};

    return merak_boot_is_first() ? merak_plan_main(argc - 1, argv + 1, &own)
                                 : MERAK_EXIT_DONE;
}

int merak_train(int argc, char **argv, merak_describe_fn describe, void *arg)
{
    merak_open_std();
    if (argc > 1 && strcmp(argv[1], "plan") == 0)
        return plan(argc, argv, describe, arg);
    return merak_trainer_main(argc, argv, describe, arg, NULL, 0);
}
