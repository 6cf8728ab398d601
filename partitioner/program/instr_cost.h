/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/instr_cost.h - what the instructions of a program take */
#ifndef MERAK_PARTITIONER_PROGRAM_INSTR_COST_H
#define MERAK_PARTITIONER_PROGRAM_INSTR_COST_H

#include "partitioner/program/program.h"

/* How many ranks of its stage, or of all stages, share its node's way with a
 * plan's rank, itself counted; 1 where nothing is known of the node. */
int merak_cost_sharers(const struct merak_cost_model *model,
                       const struct merak_plan *plan, int rank, bool stages);
/* The model of a plan's rank that shares its node's way out with the ranks of
 * its stage: they do the same at the same time. */
struct merak_cost_model merak_cost_shared(const struct merak_cost_model *model,
                                          const struct merak_plan *plan,
                                          int rank);
/* What the time of a program's KERNEL depends on. */
struct merak_kernel_size merak_instr_size(const struct merak_program *program,
                                          const struct merak_instr *instr);
/* What an instruction of a program asks for; of what has no peers fixed_s is
 * all. */
struct merak_demand merak_cost_demand(const struct merak_cost_model *model,
                                      const struct merak_program *program,
                                      const struct merak_instr *instr);
/* An instruction of a program, while other stages leave the net alone. */
double merak_cost_instr(const struct merak_cost_model *model,
                        const struct merak_program *program,
                        const struct merak_instr *instr);
/* What it takes from kernels beside it. */
struct merak_interference
merak_cost_instr_interference(const struct merak_cost_model *model,
                              const struct merak_program *program,
                              const struct merak_instr *instr);

#endif
