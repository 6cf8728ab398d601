/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/phases.h - `--print` of `merak plan` and of runs */
#ifndef MERAK_RUNTIME_TRAIN_PHASES_H
#define MERAK_RUNTIME_TRAIN_PHASES_H

#include "partitioner/assembly/assembly.h"

#define MERAK_PHASES_PROGRAM (1U << 5)

/* "graph,stages": adds their bits.  MERAK_ERR_CONFIG lists what there is. */
enum merak_status merak_phases_parse(const char *list, unsigned *phases_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Those phases of a plan with a program of each stage, on standard output. */
enum merak_status merak_phases_print(const struct merak_planned *planned,
                                     unsigned wanted,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
