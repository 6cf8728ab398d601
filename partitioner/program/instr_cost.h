/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/instr_cost.h - the costs of a program's instructions */
#ifndef MERAK_PARTITIONER_PROGRAM_INSTR_COST_H
#define MERAK_PARTITIONER_PROGRAM_INSTR_COST_H

#include "partitioner/program/program.h"

/* How many ranks of its stage, or of all stages, share a rank's way out of its
 * domain of each level (from its node to others), itself included; 1 if nothing
 * is known of the domain. */
struct merak_spread merak_links_sharers(const struct merak_links *links,
                                        const struct merak_plan *plan, int rank,
                                        bool stages);
/* The links of a plan's rank that shares these ways with the ranks of its
 * stage: they do the same at the same time. */
struct merak_links merak_links_shared(const struct merak_links *links,
                                      const struct merak_plan *plan, int rank);
/* What the time of a program's KERNEL depends on. */
struct merak_kernel_size merak_instr_size(const struct merak_program *program,
                                          const struct merak_instr *instr);
/* Does it take place where experts are loaded so?  Not an exchange for rows
 * that are left, where all have a place. */
bool merak_instr_may_run(const struct merak_cost_model *model,
                         const struct merak_instr *instr);
/* The demand of an instruction; fixed_s is all of it if there are no peers. */
struct merak_demand merak_cost_demand(const struct merak_cost_model *model,
                                      const struct merak_program *program,
                                      const struct merak_instr *instr);
/* The highest load of experts (merak_cost_model) that a rank can have: with all
 * rows that can be theirs; 1 if experts are not divided. */
double merak_program_most_load(const struct merak_program *program);
/* Seconds of an instruction while other stages do not use the network. */
double merak_cost_instr(const struct merak_cost_model *model,
                        const struct merak_program *program,
                        const struct merak_instr *instr);
/* How it slows down kernels that run at the same time. */
struct merak_interference
merak_cost_instr_interference(const struct merak_cost_model *model,
                              const struct merak_program *program,
                              const struct merak_instr *instr);

#endif
