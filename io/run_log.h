/* SPDX-License-Identifier: Apache-2.0 */
/* io/run_log.h - what a run wrote about itself: run.jsonl, metrics.jsonl,
 * incidents.jsonl and ranks.json in its directory (runtime/train/run_files.c
 * describes them)
 *
 * Incomplete lines, such as the last one of a running run, are skipped.
 *
 * Who else can write to the folder could have whoever reads it print a file of
 * their own, or wait for a pipe: only regular files, under no link, of the user
 * to whom run.jsonl belongs are read.
 */
#ifndef MERAK_IO_RUN_LOG_H
#define MERAK_IO_RUN_LOG_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "merak/status.h"

struct merak_run_step {
    uint64_t step;
    double loss, valid_loss, grad_norm, lr; /* valid_loss: NAN without one */
    double step_s;
    double samples_per_s, tokens_per_s; /* NAN: not given, has no tokens */
    double time; /* seconds since 1970, at its end; 0: not given */
    double peak_bytes;
    double mfu; /* 0: not known */
    /* Of the fullest expert its rows over the mean, its layer and number; rows
     * that found no room; NAN without experts. */
    double load_max, load_layer, load_expert, overflow_rows;
};

struct merak_run_log {
    json_t *starts; /* objects, oldest first; may be empty */
    struct merak_run_step *step;
    size_t n; /* ascending; the last record of a repeated step */
    size_t n_redone;    /* that a later start did again */
    char metrics[4096]; /* the file */
    uid_t owner;        /* who started the run; MERAK_ANY_OWNER: not known */
    char refused[256];  /* files that are there and were not read, each with the
                           reason; "": none */
    json_t *incidents;  /* objects, in file order; may be empty */
    json_t *ranks;      /* of the run's last start (runtime/train/pace.c), or
                           NULL */
};

/*
 *   dir   in  the run's; or a metrics file: then there are no starts
 *   last  in  bytes of metrics to read from their end; 0: all
 *
 * MERAK_ERR_NOT_FOUND if there is neither, MERAK_ERR_FORMAT if a file that is
 * not empty has no step.
 */
enum merak_status merak_run_log_load(const char *dir, size_t last,
                                     struct merak_run_log **log_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Open one of the run's files by the rule above; NULL if there is none, and
 * then also log->refused if there is one that is not read. */
FILE *merak_run_log_open(struct merak_run_log *log, const char *path);
void merak_run_log_destroy(struct merak_run_log *log);
/* A number in the record of the run's last start; `otherwise` if absent. */
double merak_run_log_number(const struct merak_run_log *log, const char *key,
                            double otherwise);
const char *merak_run_log_text(const struct merak_run_log *log,
                               const char *key);
/* Median of the last `last` steps' times; 0 without steps. */
double merak_run_log_step_s(const struct merak_run_log *log, size_t last);

#endif
