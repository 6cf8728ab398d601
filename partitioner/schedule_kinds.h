/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule_kinds.h - the registry's rows; see schedule.h */
#ifndef MERAK_PARTITIONER_SCHEDULE_KINDS_H
#define MERAK_PARTITIONER_SCHEDULE_KINDS_H

#include "partitioner/schedule.h"

extern const struct merak_schedule merak_schedule_1f1b;
extern const struct merak_schedule merak_schedule_gpipe;

/* A check() for schedules without virtual stages: chunks must be 1. */
enum merak_status merak_schedule_one_chunk(
    const struct merak_schedule_args *args, struct merak_error *err);

#endif
