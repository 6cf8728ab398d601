/* SPDX-License-Identifier: Apache-2.0 */
/* mesh.c - the ranks of each stage */
#include "config.h"

#include "partitioner/plan/plan.h"

#include "base/size.h"

#include <limits.h>

/* --- a plan's list -------------------------------------------------------- */

static bool alike(const struct merak_stage_degrees *a,
                  const struct merak_stage_degrees *b)
{
    return a->dp == b->dp && a->tp == b->tp;
}

size_t merak_stages_least_samples(const struct merak_stage_degrees *stage,
                                  int n)
{
    size_t least = 1;

    for (int s = 0; s < n; s++) {
        size_t dp = (size_t)stage[s].dp;

        least *= dp / merak_size_gcd(least, dp);
        if (least > INT_MAX)
            return 0;
    }
    return least;
}

static enum merak_status fail_samples(const struct merak_plan *plan,
                                      const struct merak_stage_degrees *stage,
                                      int n, int s, struct merak_error *err)
{
    size_t samples = plan->micro_batch, dp = (size_t)stage[s].dp;
    size_t all = merak_stages_least_samples(stage, n);

    merak_fail(err, MERAK_ERR_CONFIG,
               "a micro-batch of %zu cannot be divided among %zu replicas of "
               "stage %d",
               samples, dp, s);
    if (samples > dp)
        merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu or %zu",
                        samples / dp * dp, (samples / dp + 1) * dp);
    else
        merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu", dp);
    return merak_error_fix(err, MERAK_ERR_CONFIG,
                           "; all stages: a multiple of %zu)", all);
}

enum merak_status merak_plan_set_stages(struct merak_plan *plan,
                                        const struct merak_stage_degrees *stage,
                                        int n, struct merak_error *err)
{
    bool same = true;
    long ranks = 0;

    for (int s = 0; s < n; s++) {
        if (stage[s].dp < 1 || stage[s].tp < 1)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "stage %d of %d x %d ranks: expected at least 1 "
                              "replica of 1 rank",
                              s, stage[s].dp, stage[s].tp);
        ranks += (long)stage[s].dp * stage[s].tp;
        if (ranks > INT_MAX)
            return merak_fail(err, MERAK_ERR_CONFIG,
                              "%d stages of together more than %d ranks", n,
                              INT_MAX);
        if (plan->micro_batch % (size_t)stage[s].dp != 0)
            return fail_samples(plan, stage, n, s, err);
        same = same && alike(&stage[s], &stage[0]);
    }
    plan->pp = n;
    plan->stage = same ? NULL : stage;
    plan->tp = same ? stage[0].tp : 1;
    plan->dp = same ? stage[0].dp : 1;
    plan->micro_batch /= (size_t)plan->dp;
    return MERAK_OK;
}

bool merak_plan_is_unlike(const struct merak_plan *plan, int a, int b)
{
    return plan->stage != NULL && !alike(&plan->stage[a], &plan->stage[b]);
}

/* --- ranks ---------------------------------------------------------------- */

int merak_plan_tensor_ranks(const struct merak_plan *plan)
{
    return plan->tp * (plan->cp > 1 ? plan->cp : 1) *
           (plan->ep > 1 ? plan->ep : 1);
}

int merak_stages_ranks(const struct merak_stage_degrees *stage, int n)
{
    long ranks = 0;

    for (int s = 0; s < n && ranks < INT_MAX; s++)
        ranks += (long)stage[s].dp * stage[s].tp;
    return ranks < INT_MAX ? (int)ranks : INT_MAX;
}

int merak_stages_leave_node(const struct merak_stage_degrees *stage, int n,
                            int ranks_per_node)
{
    long rank = 0;

    for (int s = 0; s < n; s++) {
        for (int d = 0; d < stage[s].dp; d++, rank += stage[s].tp) {
            if (rank / ranks_per_node !=
                (rank + stage[s].tp - 1) / ranks_per_node)
                return s;
        }
    }
    return -1;
}

int merak_plan_ranks(const struct merak_plan *plan)
{
    return plan->stage != NULL
               ? merak_stages_ranks(plan->stage, plan->pp)
               : merak_plan_tensor_ranks(plan) * plan->dp * plan->pp;
}

/* Of a plan with a list. */
static struct merak_stage_mesh mesh_of(const struct merak_plan *plan, int stage)
{
    const struct merak_stage_degrees *own = &plan->stage[stage];

    return (struct merak_stage_mesh){
        .first = merak_stages_ranks(plan->stage, stage),
        .dp = own->dp,
        .tp = own->tp,
        .stride = own->tp,
        .batch = plan->micro_batch / (size_t)own->dp};
}

struct merak_stage_mesh merak_plan_mesh(const struct merak_plan *plan,
                                        int stage)
{
    const int tp = merak_plan_tensor_ranks(plan);
    struct merak_stage_mesh mesh = {
        .dp = plan->dp, .tp = tp, .stride = tp, .batch = plan->micro_batch};

    if (plan->stage != NULL)
        return mesh_of(plan, stage);
    if (plan->order_tp_pp_dp) {
        mesh.first = stage * tp;
        mesh.stride = tp * plan->pp;
    } else {
        mesh.first = stage * tp * plan->dp;
    }
    return mesh;
}

size_t merak_plan_samples(const struct merak_plan *plan)
{
    return plan->micro_batch * (size_t)plan->dp;
}

int merak_plan_players(const struct merak_plan *plan)
{
    return plan->stage != NULL ? merak_plan_ranks(plan) : plan->pp;
}

int merak_plan_player(const struct merak_plan *plan, int tp_index, int dp_index,
                      int player)
{
    return plan->stage != NULL
               ? player
               : merak_plan_rank(plan, tp_index, dp_index, player);
}

int merak_plan_rank(const struct merak_plan *plan, int tp_index, int dp_index,
                    int stage)
{
    const struct merak_stage_mesh mesh = merak_plan_mesh(plan, stage);

    return merak_stage_rank(&mesh, tp_index, dp_index);
}

void merak_plan_coords(const struct merak_plan *plan, int rank, int *tp_index,
                       int *dp_index, int *stage)
{
    const int tp = merak_plan_tensor_ranks(plan);
    int rest = rank / tp;

    if (plan->stage != NULL) {
        const struct merak_stage_degrees *at = plan->stage;

        for (; rank >= at->dp * at->tp; at++)
            rank -= at->dp * at->tp;
        *stage = (int)(at - plan->stage);
        *dp_index = rank / at->tp;
        *tp_index = rank % at->tp;
        return;
    }
    *tp_index = rank % tp;
    if (plan->order_tp_pp_dp) {
        *stage = rest % plan->pp;
        *dp_index = rest / plan->pp;
    } else {
        *dp_index = rest % plan->dp;
        *stage = rest / plan->dp;
    }
}
