/* SPDX-License-Identifier: Apache-2.0 */
/* io/plan_file.h - a plan as text: what `merak plan --json` saves and a run
 * replays; plan_file.c describes the format
 */
#ifndef MERAK_IO_PLAN_FILE_H
#define MERAK_IO_PLAN_FILE_H

#include "partitioner/plan/plan.h"

#include <jansson.h>

enum { MERAK_PLAN_KINDS = 8 };

/* Nodes of one kind, of several that a plan's stages are on. */
struct merak_plan_kind {
    char device[32];
    int nodes;
    double flops_per_s; /* of a rank; 0: not known */
};

struct merak_plan_file {
    struct merak_plan plan;  /* if decoded, its lists are the next three;
                                threads is 1 */
    int *cut;                /* [parts - 1], or NULL */
    struct merak_drop *drop; /* [parts], or NULL */
    struct merak_stage_degrees *stage; /* [pp], or NULL */
    /* The run it is for. */
    char model[MERAK_FINGERPRINT_TEXT];
    size_t seq, global_batch;
    uint64_t program;       /* merak_program_ids() of it */
    struct merak_sent sent; /* over a link in a step; 0: not known */
    /* What was predicted; 0 and "": not predicted. */
    double step_s;
    size_t memory_bytes; /* of the rank that needs most */
    char device[32];
    struct merak_plan_kind kind[MERAK_PLAN_KINDS]; /* in the order of their
                                                      ranks */
    int n_kinds;                                   /* 0: all nodes are alike */
    int ranks_per_node, rack_nodes; /* it was searched for; 0: not known.  Only
                                       read: a report adds them, and: */
    char islands[2048]; /* names of the nodes of islands, in the order of ranks,
                           "n[5-8];n[1-4]"; "": not named, or none */
    bool has_islands;   /* it was searched for; likewise only read */
    char levels[192]; /* as --levels has them; "": not those of a device */
    char id[MERAK_FINGERPRINT_TEXT]; /* of plan and run; encode fills it */
};

/* The file's object, to which a report may add its own keys; NULL when out of
 * memory.  Fills file->id. */
json_t *merak_plan_file_object(struct merak_plan_file *file);
/*
 * Parse a file; errors mention `name` and are MERAK_ERR_CONFIG: not JSON, a
 * field that is missing or out of range, a plan that was edited after it was
 * saved.
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

/* Only the choices, as in a file; NULL when out of memory. */
json_t *merak_plan_object(const struct merak_plan *plan);
/* ", branches gathered", or "" if nodes are in the described order. */
const char *merak_plan_branches_text(const struct merak_plan *plan);
/* ", optimizer state sharded over dp", or "". */
const char *merak_plan_state_text(const struct merak_plan *plan);
/* "fp32", "bf16", or "bf16 with gradients in bf16". */
const char *merak_plan_dtype_text(const struct merak_plan *plan);
/* "tp 2, pp 4, dp 1; 1f1b, 8 micro-batches of 1; ..", for users, with the
 * result of automatic recomputation.  Choices without effect are left out. */
#define MERAK_PLAN_TEXT 768
void merak_plan_describe(const struct merak_plan *plan, char *text,
                         size_t bytes);

#endif
