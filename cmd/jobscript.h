/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/jobscript.h - `merak jobscript`: what is asked for, and the templates */
#ifndef MERAK_CMD_JOBSCRIPT_H
#define MERAK_CMD_JOBSCRIPT_H

#include "merak/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum merak_jobscript_kind {
    MERAK_JOB_SINGLE,
    MERAK_JOB_CHAIN,
    MERAK_JOB_ARRAY,
    MERAK_JOB_HET,
    MERAK_JOB_SPARE,
    MERAK_JOB_KINDS
};

enum { MERAK_JOB_WORDS = 64 };

/* Texts that may come again, in their order. */
struct merak_job_words {
    const char *word[MERAK_JOB_WORDS];
    int n;
};

/* NULL and 0: not said, what the template has stays. */
struct merak_jobscript {
    enum merak_jobscript_kind kind;
    const char *name, *partition, *account, *qos, *constraint, *reservation;
    const char *time, *mail, *array, *run_dir, *second_partition;
    int nodes, tasks, gpus, cpus, memory_gib; /* of a node; cpus of a task */
    int spares, save_s;
    int tp, pp;  /* MERAK_OPTION_AUTO: the planner's choice */
    bool shared; /* nodes with others' jobs */
    struct merak_job_words setup, variant;
    char **program; /* [n_program] */
    int n_program;
    bool help;
};

/* jobscript_fill.c: the template of a kind, filled in. */
void merak_jobscript_print(const struct merak_jobscript *job, FILE *out);
/* The number that a template has on a line "#SBATCH --KEY=N", or 0. */
long merak_jobscript_number(enum merak_jobscript_kind kind, const char *key);

#endif
