/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/check_streams.h - may queues of a device run them? */
#ifndef MERAK_PARTITIONER_SIMULATE_CHECK_STREAMS_H
#define MERAK_PARTITIONER_SIMULATE_CHECK_STREAMS_H

#include "partitioner/program/program.h"

/* What is said, in front of what was found, of a schedule. */
#define MERAK_PLAN_NOT_DIRECT                                  \
    "schedule %s does not go with --transport nccl here (try " \
    "another, or --transport ucx)"

/*
 * Prove that a set of programs (of all ranks, or of those that stand for them)
 * end where transfers are matched by their order and stand in queues that end
 * in order (partitioner/program/streams.h), as NCCL has them; beside what
 * merak_program_check() proves.  MERAK_ERR_CORRUPT names ranks and
 * instructions.
 */
enum merak_status
merak_program_check_streams(struct merak_program *const *programs, int n,
                            struct merak_error *err) MERAK_CHECKED;

#endif
