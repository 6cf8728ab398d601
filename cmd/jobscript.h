/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/jobscript.h - `merak jobscript`: options and templates */
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

/* Texts of an option that may be repeated, in order. */
struct merak_job_words {
    const char *word[MERAK_JOB_WORDS];
    int n;
};

/* NULL and 0: not given, the template's value is kept. */
struct merak_jobscript {
    enum merak_jobscript_kind kind;
    const char *name, *partition, *account, *qos, *constraint, *reservation;
    const char *time, *mail, *array, *run_dir, *second_partition;
    int nodes, tasks, gpus, cpus, memory_gib; /* per node; cpus per task */
    int spares, save_s;
    int tp, pp;  /* MERAK_OPTION_AUTO: the planner's choice */
    int cp;      /* likewise; 0: not given */
    bool shared; /* share nodes with other jobs */
    struct merak_job_words setup, variant;
    char **program; /* [n_program] */
    int n_program;
    bool help;
};

/* jobscript_fill.c: print the template of a kind, filled in. */
void merak_jobscript_print(const struct merak_jobscript *job, FILE *out);
/* The number in a template's line "#SBATCH --KEY=N", or 0. */
long merak_jobscript_number(enum merak_jobscript_kind kind, const char *key);

#endif
