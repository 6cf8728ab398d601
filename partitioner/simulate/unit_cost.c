/* SPDX-License-Identifier: Apache-2.0 */
/* unit_cost.c - predicted durations of an ideal pipeline
 *
 * For schedules to be held against closed forms all stages must be alike:
 * a stage's forward and recomputation of a micro-batch take one unit, its
 * backward two, shared out over kernels as the cost model would have it; what
 * ends a step takes nothing.
 */
#include "config.h"

#include "partitioner/program/build.h"

/* Kernels that make up one F, R, B or W of a chunk. */
static int kind_of(const struct merak_build *b, const struct merak_instr *in)
{
    if (in->phase == MERAK_PHASE_F)
        return in->again ? MERAK_ACT_R : MERAK_ACT_F;
    return in->phase == MERAK_PHASE_W && b->schedule->splits_w ? MERAK_ACT_W
                                                               : MERAK_ACT_B;
}

static double units_of(const struct merak_build *b, int kind)
{
    return kind == MERAK_ACT_B && !b->schedule->splits_w ? 2.0 : 1.0;
}

void merak_build_unit_costs(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    size_t n = (size_t)b->n_chunks * MERAK_ACTIONS;
    double *sum = merak_build_alloc(b, n * sizeof(*sum));
    int pieces = b->n_chunks * (prog->plan.sub_pipeline ? 2 : 1);

    if (b->opt->unit_s <= 0 || sum == NULL)
        return;
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_KERNEL && in->microbatch == 0)
            sum[in->chunk * MERAK_ACTIONS + kind_of(b, in)] += in->cost_s;
    }
    for (int i = 0; i < prog->n_instrs; i++) {
        struct merak_instr *in = &prog->instr[i];
        int kind = kind_of(b, in);

        if (in->queue != MERAK_QUEUE_COMPUTE)
            continue;
        if (in->kind == MERAK_INSTR_KERNEL && in->microbatch >= 0)
            in->cost_s *= units_of(b, kind) * b->opt->unit_s / pieces /
                          sum[in->chunk * MERAK_ACTIONS + kind];
        else
            in->cost_s = 0;
    }
}
