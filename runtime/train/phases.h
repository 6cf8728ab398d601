/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/phases.h - `--print` of `merak plan` and of runs */
#ifndef MERAK_RUNTIME_TRAIN_PHASES_H
#define MERAK_RUNTIME_TRAIN_PHASES_H

#include "partitioner/assembly/assembly.h"

#define MERAK_PHASES_PROGRAM (1U << 5)

/* Parse "graph,stages" and add the bits.  MERAK_ERR_CONFIG lists the names. */
enum merak_status merak_phases_parse(const char *list, unsigned *phases_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Print those phases on standard output, for a plan with one program per
 * stage. */
enum merak_status merak_phases_print(const struct merak_planned *planned,
                                     unsigned wanted,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
