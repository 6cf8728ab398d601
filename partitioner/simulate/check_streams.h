/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/check_streams.h - proof for the queues of a device */
#ifndef MERAK_PARTITIONER_SIMULATE_CHECK_STREAMS_H
#define MERAK_PARTITIONER_SIMULATE_CHECK_STREAMS_H

#include "partitioner/program/program.h"

/* Prefix of the error, with the schedule's name. */
#define MERAK_PLAN_NOT_DIRECT                                  \
    "schedule %s does not go with --transport nccl here (try " \
    "another, or --transport ucx)"

/*
 * Prove that a set of programs (of all ranks, or of ranks that represent them)
 * ends if transfers are matched by order and wait in queues that end in order
 * (partitioner/program/streams.h), as with NCCL.  This is in addition to what
 * merak_program_check() proves.  MERAK_ERR_CORRUPT names ranks and
 * instructions.
 */
enum merak_status
merak_program_check_streams(struct merak_program *const *programs, int n,
                            struct merak_error *err) MERAK_CHECKED;

#endif
