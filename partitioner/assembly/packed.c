/* SPDX-License-Identifier: Apache-2.0 */
/* packed.c - a plan whose hops are sent in part
 *
 * Where stages begin follows from the model as it is, and what is packed from
 * where they begin.  So the model is sharded and cut first, then its graph gets
 * the pairs of nodes that pack and unpack, and is sharded and cut again, at the
 * same places: all that comes later (memory, schedules, messages,
 * recomputation, evaluation) has them as nodes like any other.
 */
#include "config.h"

#include "partitioner/assembly/assembly.h"

#include "partitioner/graph/pack_parts.h"
#include "partitioner/order/shard_order.h"
#include "partitioner/program/instr_cost.h"

#include "base/error.h"

#include <stdlib.h>

/* A hop from one stage to another, of the replica for which it takes longest.
 */
static double hop_s(const struct merak_links *links,
                    const struct merak_plan *plan, int from, int to,
                    double bytes)
{
    const int dp = merak_plan_mesh(plan, from).dp;
    double most_s = 0;

    for (int d = 0; d < dp; d++) {
        double s =
            merak_links_transfer_s(links, merak_plan_rank(plan, 0, d, from),
                                   merak_plan_rank(plan, 0, d, to), bytes);

        most_s = s > most_s ? s : most_s;
    }
    return most_s;
}

/* Find the ratios that are not known, by what each hop takes whole. */
static enum merak_status settle(struct merak_assembly *a,
                                const struct merak_schedule *schedule,
                                const struct merak_parts *parts,
                                const struct merak_cost_model *cost,
                                struct merak_error *err)
{
    const struct merak_plan *plan = &a->plan;
    const struct merak_links shared = merak_links_shared(&cost->links, plan, 0);
    double seconds[MERAK_LOSSY_HOPS] = {0};
    struct merak_cut_point *place = NULL;
    int n;
    enum merak_status rc;

    if (plan->lossy.most == 0)
        return MERAK_OK;
    if (plan->pp > MERAK_LOSSY_HOPS)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "--lossy-hops auto:%d for %d stages, expected up to "
                          "%d; give one ratio for all",
                          plan->lossy.most, plan->pp, MERAK_LOSSY_HOPS);
    rc = merak_stages_list(a->sharded, &place, &n, err);
    for (int p = 0; rc == MERAK_OK && p + 1 < parts->n; p++) {
        int hop = merak_plan_lossy_hop(schedule, plan, p);

        if (hop >= 0)
            seconds[hop] += hop_s(&shared, plan, hop, (hop + 1) % plan->pp,
                                  place[parts->place[p + 1] + 1].bytes);
    }
    free(place);
    if (rc == MERAK_OK)
        merak_lossy_settle(&a->plan.lossy, seconds, plan->pp);
    return rc;
}

/* Ratios by part into `ratio`; are there any? */
static bool find_ratios(const struct merak_plan *plan,
                        const struct merak_schedule *schedule, int parts,
                        int *ratio)
{
    bool any = false;

    for (int p = 0; p + 1 < parts; p++) {
        int hop = merak_plan_lossy_hop(schedule, plan, p);

        ratio[p] = hop >= 0 ? merak_lossy_ratio(&plan->lossy, hop) : 0;
        any = any || ratio[p] > 0;
    }
    return any;
}

/* From the packed graph to stages that begin where these parts do. */
static enum merak_status shard_again(struct merak_assembly *a,
                                     const struct merak_parts *parts,
                                     struct merak_error *err)
{
    struct merak_shard_options so = merak_plan_shards(&a->plan, 0);
    struct merak_sharded *sharded = NULL;
    struct merak_stages *stages = NULL;
    enum merak_status rc;

    so.deadline = a->deadline;
    rc = merak_shard(a->packed, &so, &sharded, err);
    if (rc == MERAK_OK)
        rc = merak_stages_at(sharded, parts->place + 1, parts->n, &stages, err);
    if (rc != MERAK_OK) {
        merak_sharded_destroy(sharded);
        return rc;
    }
    merak_stages_destroy(a->stages);
    merak_sharded_destroy(a->own);
    a->sharded = a->own = sharded;
    a->stages = stages;
    return MERAK_OK;
}

enum merak_status merak_assembly_pack(struct merak_assembly *a,
                                      const struct merak_graph *graph,
                                      const struct merak_cost_model *cost,
                                      struct merak_error *err)
{
    const struct merak_schedule *schedule;
    struct merak_parts *parts = NULL;
    struct merak_pack pack = {NULL, NULL};
    int *ratio = NULL;
    enum merak_status rc = merak_plan_check_lossy(&a->plan, err);

    if (rc == MERAK_OK && graph->passes > 1)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "--lossy-hops: the model has %d passes, whose values "
                        "are never sent in part; leave it out",
                        graph->passes);
    if (rc == MERAK_OK)
        rc = merak_schedule_find(a->plan.schedule, &schedule, err);
    if (rc == MERAK_OK)
        rc = merak_stages_parts(a->sharded, a->stages, &parts, err);
    if (rc == MERAK_OK)
        rc = settle(a, schedule, parts, cost, err);
    if (rc != MERAK_OK)
        goto out;
    ratio = calloc((size_t)parts->n, sizeof(*ratio));
    if (ratio == NULL) {
        rc = merak_fail_nomem(err, (size_t)parts->n * sizeof(*ratio));
        goto out;
    }
    pack = (struct merak_pack){.part = parts->of_node, .ratio = ratio};
    if (!find_ratios(&a->plan, schedule, parts->n, ratio))
        goto out;
    rc = merak_graph_pack(graph, &pack, &a->packed, err);
    if (rc == MERAK_OK)
        rc = shard_again(a, parts, err);
out:
    merak_parts_destroy(parts);
    free(ratio);
    return rc;
}
