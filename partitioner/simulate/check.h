/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/check.h - prove that the programs of a plan are sound */
#ifndef MERAK_PARTITIONER_SIMULATE_CHECK_H
#define MERAK_PARTITIONER_SIMULATE_CHECK_H

#include "partitioner/program/program.h"

/*
 * Prove a set of programs (all ranks of a plan, or one of each stage class
 * with its peers) sound: every receive has its send with equal bytes and tag;
 * members of a group run the same exchanges in the same order; the union of
 * program orders, waits and matches is acyclic; no two live slots overlap;
 * everything read was written.  The error names ranks and instructions.
 */
enum merak_status merak_program_check(struct merak_program *const *programs,
                                      int n,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
