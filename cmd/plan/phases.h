/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/plan/phases.h - `merak plan --print` */
#ifndef MERAK_CMD_PLAN_PHASES_H
#define MERAK_CMD_PLAN_PHASES_H

#include "partitioner/plan.h"

#define PLAN_PHASE_PROGRAM (1U << 4)

/* "graph,stages": adds their bits.  MERAK_ERR_CONFIG lists what there is. */
enum merak_status plan_phases_parse(const char *list, unsigned *phases_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* Those phases of a plan with a program of each stage, on standard output. */
enum merak_status plan_phases_print(const struct merak_planned *planned,
                                    unsigned wanted,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
