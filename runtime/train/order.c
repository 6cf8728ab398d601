/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - the order of nodes of a run whose degrees were given
 *
 * If a model is not a chain, its nodes can be ordered in several ways before
 * stages are cut.  The balance of stages and what they send depend on the
 * order; results do not.  Rank 0 estimates the step time of each order, cut
 * evenly and as the plan search would cut it, with the cost model of the run;
 * all ranks use the best.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/log.h"
#include "partitioner/search/node_orders.h"

#include <stdio.h>
#include <stdlib.h>

bool merak_node_order_is_open(const struct merak_trainer *t)
{
    return t->chosen == NULL && t->opt.choice.branches == MERAK_BRANCHES_AUTO &&
           t->plan.pp > 1 && t->sharded->branches &&
           !merak_lossy_any(&t->plan.lossy); /* which is as described */
}

/* Everything except the cuts is pinned. */
static struct merak_search_input fill_input(const struct merak_trainer *t,
                                            size_t limit)
{
    const struct merak_plan *p = &t->plan;
    int per_node = merak_tasks_per_node(t->boot);
    struct merak_search_input in = {
        .describe = t->source.describe,
        .arg = t->source.describe_arg,
        .seq = t->opt.seq,
        .dtype = p->dtype,
        .global_batch = t->opt.global_batch,
        .nodes = t->boot->size / per_node,
        .ranks_per_node = per_node,
        .memory_bytes = limit,
        .threads = p->threads,
        .device = &t->device,
        .direct = t->linked.direct,
        .fast_sums = t->linked.direct && t->opt.reduce_fast,
        .memory = merak_backend_memory(t->compute.backend)};

    merak_choices_of(p, &in.pin);
    in.pin.list = (struct merak_given_lists){.cut = NULL};
    in.pin.boundary = t->opt.choice.boundary;
    in.pin.given[MERAK_CHOICE_BRANCHES] = false;
    return in;
}

static void log_choice(const struct merak_node_order *order, int best)
{
    static const char *const name[] = {"as described", "gathered", "in blocks"};
    char even[32] = "cannot run";

    for (int i = 0; i < MERAK_NODE_ORDERS; i++) {
        if (order[i].played.step_s > 0)
            merak_debug("train", "nodes %s, %s: step %.4g s, %.1f MiB",
                        name[order[i].branches],
                        order[i].cut != NULL ? "cut by time" : "cut evenly",
                        order[i].played.step_s,
                        (double)order[i].played.arena_bytes / 0x1p20);
    }
    if (best == 0)
        return;
    if (order[0].played.step_s > 0)
        snprintf(even, sizeof(even), "%.4g s", order[0].played.step_s);
    merak_info("train",
               "branches: nodes %s, %s: predicted step %.4g s; as described, "
               "cut evenly: %s",
               name[order[best].branches],
               order[best].cut != NULL ? "cut by time" : "cut evenly",
               order[best].played.step_s, even);
}

/* On rank 0: set t->cut and *branches_p. */
static enum merak_status choose(struct merak_trainer *t, size_t limit,
                                enum merak_branches *branches_p,
                                struct merak_error *err)
{
    const struct merak_program_options opt = merak_trainer_program_options(t);
    const struct merak_search_input in = fill_input(t, limit);
    struct merak_node_order order[MERAK_NODE_ORDERS];
    struct merak_graph *graph;
    int best;
    enum merak_status rc = merak_model_graph(t->model, &graph, err);

    if (rc != MERAK_OK)
        return rc;
    rc = merak_node_orders_rate(graph, &t->plan,
                                t->opt.emu_unit_ms > 0 ? NULL : &in,
                                t->opt.choice.boundary, &opt, order, err);
    if (rc == MERAK_OK) {
        best = merak_node_orders_best(order, limit);
        log_choice(order, best);
        *branches_p = order[best].branches;
        t->cut = order[best].cut;
        order[best].cut = NULL; /* now owned by the trainer */
    }
    merak_node_orders_fini(order);
    return rc;
}

/* Broadcast rank 0's cuts, if there are any (`cut`). */
static enum merak_status share_cut(struct merak_trainer *t, bool cut,
                                   struct merak_error *err)
{
    size_t bytes = (size_t)merak_plan_parts(&t->plan) * sizeof(*t->cut);
    enum merak_status rc = MERAK_OK;

    if (!cut)
        return MERAK_OK;
    if (t->cut == NULL)
        t->cut = calloc(1, bytes);
    if (t->cut == NULL)
        rc = merak_fail_nomem(err, bytes);
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = t->boot->ops->broadcast(t->boot, t->cut, bytes - sizeof(*t->cut),
                                     err);
    t->plan.cut = t->cut;
    return rc;
}

enum merak_status merak_node_order_choose(struct merak_trainer *t,
                                          struct merak_error *err)
{
    struct {
        enum merak_branches branches;
        bool cut;
    } found = {MERAK_BRANCHES_DESCRIBED, false};
    size_t limit = t->memory_bytes;
    enum merak_status rc = MERAK_OK;

    if (limit == 0)
        rc = merak_memory_least(t->boot, merak_task_memory(t), &limit, err);
    if (rc == MERAK_OK && t->boot->rank == 0)
        rc = choose(t, limit, &found.branches, err);
    found.cut = t->cut != NULL;
    rc = merak_boot_agree(t->boot, rc, err);
    if (rc == MERAK_OK)
        rc = t->boot->ops->broadcast(t->boot, &found, sizeof(found), err);
    if (rc == MERAK_OK)
        rc = share_cut(t, found.cut, err);
    if (rc == MERAK_OK && found.branches != MERAK_BRANCHES_DESCRIBED)
        rc = merak_trainer_shard(t, found.branches, err);
    return rc;
}
