/* SPDX-License-Identifier: Apache-2.0 */
/* check_impl.h - for check.c: the proof about each program by itself */
#ifndef MERAK_PARTITIONER_SIMULATE_CHECK_IMPL_H
#define MERAK_PARTITIONER_SIMULATE_CHECK_IMPL_H

#include "partitioner/program/program.h"

/* check_program.c: are slots, waits and the use of memory sound? */
enum merak_status merak_check_program(const struct merak_program *program,
                                      struct merak_error *err) MERAK_CHECKED;
/* The text comes after where the instruction is: ": .." or " does ..". */
enum merak_status __attribute__((format(printf, 4, 5)))
merak_check_fail(const struct merak_program *program,
                 const struct merak_instr *instr, struct merak_error *err,
                 const char *fmt, ...);

#endif
