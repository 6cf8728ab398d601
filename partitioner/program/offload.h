/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/offload.h - what is in the host's memory */
#ifndef MERAK_PARTITIONER_PROGRAM_OFFLOAD_H
#define MERAK_PARTITIONER_PROGRAM_OFFLOAD_H

#include "partitioner/program/program.h"

/* Elements of a parameter that are updated at a time: of f32 16 MiB, which
 * take long enough that a copy's latency does not count. */
#define MERAK_OFFLOAD_PIECE ((size_t)4 << 20)

/* MERAK_ERR_CONFIG if the plan keeps something in the host's memory, and the
 * device has no host. */
enum merak_status merak_offload_check(const struct merak_plan *plan,
                                      const struct merak_cost_model *cost,
                                      struct merak_error *err) MERAK_CHECKED;
/* The arena, and what the host has no room for. */
double merak_program_needs(const struct merak_program *program,
                           const struct merak_host *host);
/* Bytes that a step copies to the host's memory and from it, if it has `repeat`
 * times the program's micro-batches. */
double merak_offload_bytes(const struct merak_program *program, double repeat);

#endif
