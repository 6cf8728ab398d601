/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.c - the ranks of each stage */
#include "config.h"

#include "partitioner/plan/plan.h"

int merak_plan_ranks(const struct merak_plan *plan)
{
    return plan->tp * plan->dp * plan->pp;
}

struct merak_stage_mesh merak_plan_mesh(const struct merak_plan *plan,
                                        int stage)
{
    struct merak_stage_mesh mesh = {.dp = plan->dp,
                                    .tp = plan->tp,
                                    .stride = plan->tp,
                                    .batch = plan->micro_batch};

    if (plan->order_tp_pp_dp) {
        mesh.first = stage * plan->tp;
        mesh.stride = plan->tp * plan->pp;
    } else {
        mesh.first = stage * plan->tp * plan->dp;
    }
    return mesh;
}

size_t merak_plan_samples(const struct merak_plan *plan)
{
    return plan->micro_batch * (size_t)plan->dp;
}

int merak_plan_rank(const struct merak_plan *plan, int tp_index, int dp_index,
                    int stage)
{
    const struct merak_stage_mesh mesh = merak_plan_mesh(plan, stage);

    return merak_stage_rank(&mesh, tp_index, dp_index);
}

void merak_plan_place(const struct merak_plan *plan, int rank, int *tp_index,
                      int *dp_index, int *stage)
{
    int rest = rank / plan->tp;

    *tp_index = rank % plan->tp;
    if (plan->order_tp_pp_dp) {
        *stage = rest % plan->pp;
        *dp_index = rest / plan->pp;
    } else {
        *dp_index = rest % plan->dp;
        *stage = rest / plan->dp;
    }
}
