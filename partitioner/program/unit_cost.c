/* SPDX-License-Identifier: Apache-2.0 */
/* unit_cost.c - predicted durations of an ideal pipeline
 *
 * To compare schedules with closed forms all stages must be identical: a
 * stage's forward of a micro-batch takes one unit, its backward two, its
 * recomputation as much of a unit as the forward spent on what is dropped,
 * divided among kernels in the proportions of the cost model; the end of a step
 * takes no time.
 */
#include "config.h"

#include "partitioner/program/build.h"
#include "partitioner/program/closure.h"

/* The kind of action that a kernel is a part of. */
static int kind_of(const struct merak_build *b, const struct merak_instr *in)
{
    if (in->phase == MERAK_PHASE_F)
        return in->recompute ? MERAK_ACT_R : MERAK_ACT_F;
    return in->phase == MERAK_PHASE_W && b->schedule->splits_w ? MERAK_ACT_W
                                                               : MERAK_ACT_B;
}

static bool is_dropped(const struct merak_build *b,
                       const struct merak_instr *in)
{
    int part = b->chunk[in->chunk].part, block = b->stages->block[in->node];
    const struct merak_drop *drop = &b->stages->drop[part];

    for (int p = 0; p < part; p++)
        block -= b->stages->n_blocks[p];
    return block < drop->blocks ||
           (drop->attention && merak_op_is_attention(in->op));
}

/* The index of the sum for an action of a chunk; passes differ in what they
 * run. */
static int sum_of(const struct merak_build *b, const struct merak_instr *in)
{
    return (in->pass * b->n_chunks + in->chunk) * MERAK_ACTIONS +
           kind_of(b, in);
}

/* The fraction of each chunk's forward, in the last pass, that is dropped. */
static void find_fractions(const struct merak_build *b, const double *sum,
                           double *fraction)
{
    const struct merak_program *prog = b->prog;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_KERNEL && in->microbatch == 0 &&
            in->pass == b->passes - 1 && kind_of(b, in) == MERAK_ACT_F &&
            is_dropped(b, in))
            fraction[in->chunk] += in->cost_s / sum[sum_of(b, in)];
    }
}

static double units_of(const struct merak_build *b, int kind, double fraction)
{
    if (kind == MERAK_ACT_R)
        return fraction;
    return kind == MERAK_ACT_B && !b->schedule->splits_w ? 2.0 : 1.0;
}

void merak_build_unit_costs(struct merak_build *b)
{
    struct merak_program *prog = b->prog;
    size_t n = (size_t)(b->passes * b->n_chunks) * MERAK_ACTIONS;
    double *sum = merak_build_alloc(b, n * sizeof(*sum));
    double *fraction =
        merak_build_alloc(b, (size_t)b->n_chunks * sizeof(*fraction));
    int parts = b->n_chunks * (prog->plan.sub_pipeline ? 2 : 1);

    if (b->opt->unit_s <= 0 || sum == NULL || fraction == NULL)
        return;
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_KERNEL && in->microbatch == 0)
            sum[sum_of(b, in)] += in->cost_s;
    }
    find_fractions(b, sum, fraction);
    for (int i = 0; i < prog->n_instrs; i++) {
        struct merak_instr *in = &prog->instr[i];
        int kind = kind_of(b, in);

        if (in->queue != MERAK_QUEUE_COMPUTE)
            continue;
        if (in->kind == MERAK_INSTR_KERNEL && in->microbatch >= 0)
            in->cost_s *= units_of(b, kind, fraction[in->chunk]) *
                          b->opt->unit_s / parts / sum[sum_of(b, in)];
        else
            in->cost_s = 0;
    }
}
