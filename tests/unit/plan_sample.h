/* SPDX-License-Identifier: Apache-2.0 */
/* plan_sample.h - a plan of which every field says something */
#ifndef MERAK_TESTS_PLAN_SAMPLE_H
#define MERAK_TESTS_PLAN_SAMPLE_H

#include "io/plan_file.h"

/* Its cut and its drop are one place for all of them. */
static inline struct merak_plan_file plan_sample(void)
{
    static int places[] = {3, 7, 12};
    static struct merak_drop drops[] = {
        {true, 0, 0}, {false, 2, 1}, {true, 5, 1}, {false, 0, 0}};

    return (struct merak_plan_file){.plan = {.tp = 2,
                                             .pp = 2,
                                             .dp = 3,
                                             .cp = 2,
                                             .cp_axes = 2,
                                             .cp_form = MERAK_CP_HEADS,
                                             .cp_order = MERAK_CP_CONTIGUOUS,
                                             .tp_axes = 2,
                                             .chunks = 2,
                                             .microbatches = 8,
                                             .micro_batch = 4,
                                             .sub_pipeline = true,
                                             .schedule = "interleaved",
                                             .recompute = MERAK_RECOMPUTE_AUTO,
                                             .memory_bytes = 1234567890123,
                                             .zero = 1,
                                             .order_tp_pp_dp = true,
                                             .branches = MERAK_BRANCHES_BLOCKS,
                                             .scatter = 4,
                                             .sp = MERAK_SP_ON,
                                             .tp_batch_percent = 75,
                                             .split = {{0x6}},
                                             .tp_plan = {"a.*:0+b:rowwise"},
                                             .ep = 1,
                                             .expert_room = MERAK_EXPERT_ROOM,
                                             .dtype = MERAK_BF16,
                                             .cut = places,
                                             .drop = drops},
                                    .model = "0123456789abcdef",
                                    .seq = 512,
                                    .global_batch = 96,
                                    .program = 0xfedcba9876543210,
                                    .sent = {123456789012, 345},
                                    .step_s = 0.25,
                                    .memory_bytes = 4096,
                                    .device = "h200"};
}

#endif
