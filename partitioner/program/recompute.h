/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/recompute.h - what each stage recomputes */
#ifndef MERAK_PARTITIONER_PROGRAM_RECOMPUTE_H
#define MERAK_PARTITIONER_PROGRAM_RECOMPUTE_H

#include "partitioner/program/program.h"

/*
 * Decide what `stage` (-1: every stage) drops, from plan->drop or else
 * plan->recompute.
 *
 *   opt     for the programs, or NULL; AUTO builds some to see what fits
 *   stages  in, out  drop[] of the stage's parts is set
 *
 * All ranks of a stage decide the same.  MERAK_ERR_NOMEM if plan->memory_bytes
 * is not enough even with everything recomputed: names both numbers.
 * MERAK_ERR_CONFIG if plan->drop has more blocks than a part, or anything
 * where the schedule recomputes nothing.
 */
enum merak_status merak_recompute_choose(
    const struct merak_sharded *sharded, const struct merak_plan *plan,
    int stage, const struct merak_program_options *opt,
    struct merak_stages *stages, struct merak_error *err) MERAK_CHECKED;
/* Let a stage drop this: its blocks are the first ones, part by part. */
void merak_recompute_set(struct merak_stages *stages,
                         const struct merak_schedule *schedule,
                         const struct merak_plan *plan, int stage,
                         struct merak_drop drop);

#endif
