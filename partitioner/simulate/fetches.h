/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/fetches.h - what gathering parameters for their uses
 * takes (ZeRO-3, partitioner/program/fetch.c), and bringing optimizer state
 * from the host's memory (partitioner/program/offload.c)
 */
#ifndef MERAK_PARTITIONER_SIMULATE_FETCHES_H
#define MERAK_PARTITIONER_SIMULATE_FETCHES_H

#include "partitioner/program/program.h"
#include "partitioner/simulate/simulate.h"

/* Does an exchange gather a parameter for its use? */
bool merak_instr_fetches(const struct merak_program *program,
                         const struct merak_instr *instr);
/* Seconds of a simulated step that compute stands still for fetches alone: of
 * the program for which that is most.  0: there are none. */
double merak_fetches_exposed(struct merak_program *const *programs,
                             const struct merak_timeline *timeline);
/* The same for copies to the host's memory and from it. */
double merak_offload_exposed(struct merak_program *const *programs,
                             const struct merak_timeline *timeline);

#endif
