/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/assembly/assembly.h - from a description and degrees to programs,
 * in one call or in steps
 */
#ifndef MERAK_PARTITIONER_ASSEMBLY_ASSEMBLY_H
#define MERAK_PARTITIONER_ASSEMBLY_ASSEMBLY_H

#include "merak/train.h"
#include "partitioner/assembly/models.h"
#include "partitioner/program/boundary.h"
#include "partitioner/program/program.h"

/* --- the one way from a graph to stages ------------------------------------
 */

/* How far to go; each phase includes those before it. */
enum merak_assembly_phase {
    MERAK_ASSEMBLY_SHARDED,    /* layouts, nodes in the plan's order */
    MERAK_ASSEMBLY_CUT,        /* stages, and what crosses between them */
    MERAK_ASSEMBLY_RECOMPUTED, /* what stages drop and recompute */
};

/* A plan on its way to programs.  Training, prediction and search all take this
 * way. */
struct merak_assembly {
    struct merak_plan plan; /* branches, scatter are set on the way */
    const struct merak_sharded *sharded; /* `own`, or borrowed and then used
                                            as it is */
    struct merak_sharded *own;
    struct merak_stages *stages;
    struct merak_graph *packed; /* the model's with hops in part, which `own` is
                                   of then; or NULL */
    const struct merak_deadline *deadline; /* of layouts; or NULL */
};

struct merak_assembly_options {
    const struct merak_program_options *program; /* NULL: none; its cost model
                                                    balances stages, too */
    bool choose_boundary;         /* set plan.scatter according to `boundary`;
                                     else it is unchanged */
    enum merak_boundary boundary; /* if so */
    int stage; /* the one whose recomputation is chosen; -1: all */
    struct merak_models *models; /* read to shard the graphs of unlike stages */
};

/*
 * Continue from the phase reached so far up to `last`.
 *
 *   graph  the model's; not read if the assembly is sharded already, unless
 *          hops are sent in part and it is cut now, or if stages are unlike:
 *          then the first phase also chooses the parts
 *
 * MERAK_ERR_CONFIG if the plan does not fit the model.  merak_assembly_fini()
 * frees the results, also after a failure.
 */
enum merak_status merak_assemble(struct merak_assembly *assembly,
                                 const struct merak_graph *graph,
                                 const struct merak_assembly_options *opt,
                                 enum merak_assembly_phase last,
                                 struct merak_error *err) MERAK_CHECKED;
void merak_assembly_fini(struct merak_assembly *assembly);

/* Of an assembly that is cut: pack what goes over the hops that are not whole,
 * shard the model again, and cut it at the same places.  Ratios that are to be
 * found are then in the plan; `sharded` is `own`.  merak_assemble() calls it. */
enum merak_status merak_assembly_pack(struct merak_assembly *assembly,
                                      const struct merak_graph *graph,
                                      const struct merak_cost_model *cost,
                                      struct merak_error *err) MERAK_CHECKED;

/* --- all of it, from a description -----------------------------------------
 */

struct merak_planned {
    struct merak_plan plan;
    struct merak_models models;
    struct merak_graph *graph; /* the model's, as the first stage has it */
    struct merak_graph *packed; /* the same if hops are sent in part, or NULL */
    struct merak_sharded *sharded;
    struct merak_stages *stages;
    struct merak_program **program;
    int n_programs;
};

enum merak_plan_ranks {
    MERAK_PLAN_ALL,    /* a program for each rank, by logical rank */
    MERAK_PLAN_STAGES, /* only for the first rank of each stage: the others
                          differ in coordinates; costs no memory per rank */
    MERAK_PLAN_NONE,   /* no programs */
};

/*
 * Describe the model, shard it, cut it and build programs.
 *
 *   plan           degrees and choices
 *   seq            tokens of a sequence
 *   describe, arg  as for merak_train()
 *   opt            for the programs, or NULL
 *
 * MERAK_ERR_CONFIG if the degrees do not fit the model.
 */
enum merak_status merak_plan_build(const struct merak_plan *plan, size_t seq,
                                   merak_describe_fn describe, void *arg,
                                   enum merak_plan_ranks ranks,
                                   const struct merak_program_options *opt,
                                   struct merak_planned **planned_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* Build the programs of what was built without any (MERAK_PLAN_NONE).
 *
 *   opt   the options; of all kinds of nodes if there are several
 *   kind  [pp] index in opt of each stage's nodes; NULL: all have *opt
 */
enum merak_status merak_planned_build(struct merak_planned *planned,
                                      enum merak_plan_ranks ranks,
                                      const struct merak_program_options *opt,
                                      const int *kind,
                                      struct merak_error *err) MERAK_CHECKED;
/*
 * What identifies a plan: its program id (merak_program_ids()) and the model's
 * fingerprint.  Arguments as above; programs are built and freed one at a time.
 */
enum merak_status merak_plan_identify(const struct merak_plan *plan, size_t seq,
                                      merak_describe_fn describe, void *arg,
                                      const struct merak_program_options *opt,
                                      uint64_t *programs_p,
                                      struct merak_sent *sent_p,
                                      char model[MERAK_FINGERPRINT_TEXT],
                                      struct merak_error *err) MERAK_CHECKED;
/* Keep the programs of n ranks, in this order, which ascends. */
void merak_planned_keep(struct merak_planned *planned, const int *rank, int n);
void merak_planned_destroy(struct merak_planned *planned);

#endif
