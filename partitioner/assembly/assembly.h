/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/assembly/assembly.h - from a description and degrees to programs, in one
 * call
 */
#ifndef MERAK_PARTITIONER_ASSEMBLY_ASSEMBLY_H
#define MERAK_PARTITIONER_ASSEMBLY_ASSEMBLY_H

#include "merak/train.h"
#include "partitioner/program/program.h"

struct merak_planned {
    struct merak_plan plan;
    struct merak_model *model;
    struct merak_graph *graph; /* the model's */
    struct merak_sharded *sharded;
    struct merak_stages *stages;
    struct merak_program **program;
    int n_programs;
};

enum merak_plan_ranks {
    MERAK_PLAN_ALL,    /* a program for each rank, by logical rank */
    MERAK_PLAN_STAGES, /* for the first rank of each stage only: the others
                          differ in coordinates; costs no memory per rank */
    MERAK_PLAN_NONE,   /* no programs */
};

/*
 * Describe the model, shard it, cut it and build programs.
 *
 *   plan           degrees and choices
 *   seq            tokens of a sequence
 *   describe, arg  as for merak_train()
 *   opt            of the programs, or NULL
 *
 * MERAK_ERR_CONFIG if the degrees do not fit the model.
 */
enum merak_status merak_plan_build(const struct merak_plan *plan, size_t seq,
                                   merak_describe_fn describe, void *arg,
                                   enum merak_plan_ranks ranks,
                                   const struct merak_program_options *opt,
                                   struct merak_planned **planned_p,
                                   struct merak_error *err) MERAK_CHECKED;
/*
 * What tells plans apart: the id of the programs (merak_program_ids) and the
 * model's fingerprint.  Arguments as above; programs are built and let go of
 * one at a time.
 */
enum merak_status merak_plan_identify(const struct merak_plan *plan, size_t seq,
                                      merak_describe_fn describe, void *arg,
                                      const struct merak_program_options *opt,
                                      uint64_t *programs_p,
                                      char model[MERAK_FINGERPRINT_TEXT],
                                      struct merak_error *err) MERAK_CHECKED;
void merak_planned_destroy(struct merak_planned *planned);

#endif
