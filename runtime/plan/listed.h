/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/plan/listed.h - `merak plan --stages LIST --device NAME`: stages that
 * are listed, on a machine */
#ifndef MERAK_RUNTIME_PLAN_LISTED_H
#define MERAK_RUNTIME_PLAN_LISTED_H

#include "partitioner/assembly/assembly.h"
#include "partitioner/search/search.h"
#include "runtime/plan/planned_model.h"
#include "runtime/plan/plan_options.h"

/* Are stages on nodes of several kinds? */
bool plan_listed_has_kinds(const struct plan_options *opt);
/* Load the devices, and take dtype, costs, limit of memory and nodes from it, as
 * far as they are not given.  plan_listed_fini() is due even after an error. */
enum merak_status plan_listed_take(struct plan_options *opt,
                                   struct merak_error *err) MERAK_CHECKED;
void plan_listed_fini(struct plan_options *opt);
/* The machine as a search is asked for it. */
void plan_listed_request(const struct plan_options *opt,
                         struct merak_search_input *in);
/* The kind of the nodes of a stage: ranks fill nodes in the order of --nodes. */
int plan_listed_kind(const struct plan_options *opt,
                     const struct merak_plan *plan, int stage);
/* Build the plan, with the programs of all ranks where they differ.
 *
 *   po  its cost is that of the slowest kind, its speed NULL */
enum merak_status plan_listed_build(const struct plan_options *opt,
                                    const struct plan_model *model,
                                    const struct merak_program_options *po,
                                    struct merak_planned **planned_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_CONFIG names the first stage with a rank that needs more than the
 * limit.  The plan has the programs of all ranks. */
enum merak_status
plan_listed_check_memory(const struct plan_options *opt,
                         const struct merak_planned *planned,
                         struct merak_error *err) MERAK_CHECKED;
/* The memory of a rank of a stage. */
size_t plan_listed_memory(const struct plan_options *opt,
                          const struct merak_plan *plan, int stage);
/* ", on 2 x 8 h100", or "" if the machine is not known. */
enum { PLAN_MACHINE_TEXT = 176 };
const char *plan_listed_text(const struct plan_options *opt, int ranks,
                             char text[PLAN_MACHINE_TEXT]);

#endif
