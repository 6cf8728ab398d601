/* SPDX-License-Identifier: Apache-2.0 */
/* forked_train.c - `merak train` on several forked ranks, without a launcher
 *
 *   forked_train N --model DIR [OPTION VALUE]..    as `srun -nN merak train`
 *
 * For machines without Slurm and PMIx, and for scripts that test no launcher.
 * Ranks fork before any library starts threads or opens a device.  The exit
 * status is 0 if every rank's is.
 */
#include "config.h"

#include "unit/forkboot.h"

#include "io/hf_config.h"
#include "runtime/runtime.h"
#include "runtime/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_S 540 /* of a run */

struct command {
    int argc;
    char **argv;
    const char *model;
};

/* As a launcher, whose variables say which task prints. */
static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

static int train(struct merak_boot *boot, void *arg)
{
    struct command *c = arg;
    struct merak_hf_config config;
    struct merak_error err;

    set_number("PMI_RANK", boot->rank);
    set_number("PMI_SIZE", boot->size);
    if (merak_hf_config_load(c->model, &config, &err) != MERAK_OK) {
        fprintf(stderr, "forked_train: %s\n", err.text);
        return 1;
    }
    merak_boot_give(boot);
    return merak_trainer_main(c->argc, c->argv, merak_hf_describe, &config,
                              c->model, config.positions);
}

int main(int argc, char **argv)
{
    struct command c = {.argc = argc - 3, .argv = argv + 3};
    int n = argc > 4 ? atoi(argv[1]) : 0;

    if (n < 1 || n > 64 || strcmp(argv[2], "--model") != 0) {
        fprintf(stderr, "usage: forked_train N --model DIR [OPTION VALUE]..\n");
        return 2;
    }
    c.model = argv[3];
    c.argv[0] = argv[0];
    return fork_ranks(n, NULL, LIMIT_S, train, &c) == 0 ? 0 : 1;
}
