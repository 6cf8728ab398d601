/* SPDX-License-Identifier: Apache-2.0 */
/* io/plan_file.h - a plan as text: what `merak plan --json` saves and a run
 * replays; plan_file.c describes the format
 */
#ifndef MERAK_IO_PLAN_FILE_H
#define MERAK_IO_PLAN_FILE_H

#include "partitioner/plan/plan.h"

#include <jansson.h>

struct merak_plan_file {
    struct merak_plan plan;  /* its lists are the next two, if it was decoded;
                                threads is 1 */
    int *cut;                /* [parts - 1], or NULL */
    struct merak_drop *drop; /* [parts], or NULL */
    /* The run that it is for. */
    char model[MERAK_FINGERPRINT_TEXT];
    size_t seq, global_batch;
    uint64_t program; /* merak_program_ids() of it */
    struct merak_sent sent; /* by a link in a step; 0 where it is not known */
    /* What was predicted; 0 and "" where it was not. */
    double step_s;
    size_t memory_bytes; /* of the rank that takes most */
    char device[32];
    char id[MERAK_FINGERPRINT_TEXT]; /* of plan and run; encode fills it */
};

/* The file's object, to which a report may add keys of its own; NULL when
 * out of memory.  Fills file->id. */
json_t *merak_plan_file_object(struct merak_plan_file *file);
/*
 * Read it back; `name` is told in errors, each MERAK_ERR_CONFIG: not JSON,
 * a field that is missing or out of its bounds, a plan that was changed since
 * it was saved.
 */
enum merak_status merak_plan_file_decode(const char *text, size_t bytes,
                                         const char *name,
                                         struct merak_plan_file **file_p,
                                         struct merak_error *err) MERAK_CHECKED;
/* The same from the file at `path`. */
enum merak_status merak_plan_file_load(const char *path,
                                       struct merak_plan_file **file_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_plan_file_destroy(struct merak_plan_file *file);

/* The choices alone, as they are in a file; NULL when out of memory. */
json_t *merak_plan_object(const struct merak_plan *plan);
/* ", branches gathered", or nothing where they stand as described. */
const char *merak_plan_branches_text(const struct merak_plan *plan);
/* ", optimizer state split over dp", or nothing. */
const char *merak_plan_state_text(const struct merak_plan *plan);
/* "tp 2, pp 4, dp 1; 1f1b, 8 micro-batches of 1; ..", for people, and what
 * automatic recomputation came to.  What makes no difference is left out. */
#define MERAK_PLAN_TEXT 512
void merak_plan_describe(const struct merak_plan *plan, char *text,
                         size_t bytes);

#endif
