/* SPDX-License-Identifier: Apache-2.0 */
/* node_orders.c - choose the order of nodes and the cuts for given degrees */
#include "config.h"

#include "partitioner/search/node_orders.h"
#include "partitioner/program/recompute.h"
#include "partitioner/simulate/check_streams.h"
#include "partitioner/simulate/simulate.h"

#include "base/error.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WORTH 0.99 /* of the first's step: a smaller gain is ignored */

static enum merak_status build_stages(const struct merak_sharded *sharded,
                                      const struct merak_stages *stages,
                                      const struct merak_plan *plan,
                                      const struct merak_program_options *opt,
                                      struct merak_program **program,
                                      struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int k = 0; k < merak_plan_players(plan) && rc == MERAK_OK; k++)
        rc = merak_program_build(sharded, stages, plan,
                                 merak_plan_player(plan, 0, 0, k), opt,
                                 &program[k], err);
    return rc;
}

enum merak_status merak_stages_play(const struct merak_sharded *sharded,
                                    struct merak_stages *stages,
                                    const struct merak_plan *plan,
                                    const struct merak_program_options *opt,
                                    struct merak_played *played,
                                    struct merak_error *err)
{
    struct merak_timeline *timeline = NULL;
    int n = merak_plan_players(plan);
    struct merak_program **program = calloc((size_t)n, sizeof(*program));
    enum merak_status rc;

    if (program == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*program));
    rc = merak_recompute_choose(sharded, plan, -1, opt, stages, err);
    if (rc == MERAK_OK)
        rc = build_stages(sharded, stages, plan, opt, program, err);
    if (rc == MERAK_OK)
        rc = merak_simulate(program, n, NULL, NULL, &timeline, err);
    if (rc == MERAK_OK)
        *played = (struct merak_played){.step_s = timeline->step_s};
    for (int s = 0; s < n; s++) {
        if (rc == MERAK_OK && program[s]->arena_bytes > played->arena_bytes)
            played->arena_bytes = program[s]->arena_bytes;
        if (rc == MERAK_OK)
            played->instrs += program[s]->n_instrs;
        merak_program_destroy(program[s]);
    }
    merak_timeline_destroy(timeline);
    free(program);
    return rc;
}

enum merak_status merak_stages_prove_streams(
    const struct merak_sharded *sharded, const struct merak_stages *stages,
    const struct merak_plan *plan, const struct merak_program_options *opt,
    struct merak_error *err)
{
    int n = merak_plan_players(plan);
    struct merak_program **program = calloc((size_t)n, sizeof(*program));
    enum merak_status rc;

    if (program == NULL)
        return merak_fail_nomem(err, (size_t)n * sizeof(*program));
    rc = build_stages(sharded, stages, plan, opt, program, err);
    if (rc == MERAK_OK)
        rc = merak_program_check_streams(program, n, err);
    for (int s = 0; s < n; s++)
        merak_program_destroy(program[s]);
    free(program);
    return rc;
}

enum merak_status merak_stages_check_streams(
    const struct merak_sharded *sharded, struct merak_stages *stages,
    const struct merak_plan *plan, const struct merak_program_options *opt,
    struct merak_error *err)
{
    struct merak_program_options mine = *opt;
    enum merak_status rc =
        merak_recompute_choose(sharded, plan, -1, opt, stages, err);

    for (int eval = 0; eval < 2 && rc == MERAK_OK; eval++) {
        mine.forward_only = eval != 0;
        rc = merak_stages_prove_streams(sharded, stages, plan, &mine, err);
    }
    return rc;
}

/* Simulate a run with this order and these cuts, set up as a run would be.  One
 * that fails cannot run; the error is reported when the chosen one is set up
 * again and fails. */
static void play(const struct merak_sharded *sharded,
                 const struct merak_plan *given, enum merak_boundary boundary,
                 const struct merak_program_options *opt,
                 struct merak_node_order *order)
{
    const struct merak_assembly_options ao = {.program = opt,
                                              .choose_boundary = true,
                                              .boundary = boundary,
                                              .stage = -1};
    struct merak_assembly a = {.plan = *given, .sharded = sharded};
    struct merak_error why;
    enum merak_status rc;

    a.plan.branches = order->branches;
    a.plan.cut = order->cut;
    rc = merak_assemble(&a, NULL, &ao, MERAK_ASSEMBLY_CUT, &why);
    if (rc == MERAK_OK)
        rc = merak_stages_play(sharded, a.stages, &a.plan, opt, &order->played,
                               &why);
    if (rc == MERAK_OK && opt->direct)
        rc = merak_stages_prove_streams(sharded, a.stages, &a.plan, opt, &why);
    if (rc != MERAK_OK)
        order->played = (struct merak_played){.step_s = 0};
    order->tally.instructions += order->played.instrs;
    merak_assembly_fini(&a);
}

/* Fill order->cut if the search finds a cut into `parts` parts. */
static enum merak_status find_cuts(const struct merak_search_input *in,
                                   int parts, struct merak_node_order *order,
                                   struct merak_error *err)
{
    struct merak_search_input asked = *in;
    struct merak_search_result *result = NULL;
    const struct merak_plan *found;
    struct merak_error why;
    enum merak_status rc = MERAK_OK;

    asked.pin.given[MERAK_CHOICE_BRANCHES] = true;
    asked.pin.branches = order->branches;
    if (merak_search(&asked, &result, &why) != MERAK_OK)
        return MERAK_OK;
    order->tally = result->tally;
    found = &result->choice[0].plan;
    if (found->cut != NULL && merak_plan_parts(found) == parts) {
        size_t bytes = (size_t)parts * sizeof(*order->cut);

        order->cut = malloc(bytes);
        if (order->cut == NULL)
            rc = merak_fail_nomem(err, bytes);
        else
            memcpy(order->cut, found->cut, bytes - sizeof(*order->cut));
    }
    merak_search_destroy(result);
    return rc;
}

/* Simulate both cuts of an order. */
static enum merak_status
rate(const struct merak_sharded *sharded, const struct merak_plan *plan,
     const struct merak_search_input *in, enum merak_boundary boundary,
     const struct merak_program_options *opt, struct merak_node_order *order,
     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    play(sharded, plan, boundary, opt, &order[0]);
    if (in != NULL)
        rc = find_cuts(in, merak_plan_parts(plan), &order[1], err);
    if (order[1].cut != NULL)
        play(sharded, plan, boundary, opt, &order[1]);
    return rc;
}

enum merak_status merak_node_orders_rate(
    const struct merak_graph *graph, const struct merak_plan *plan,
    const struct merak_search_input *in, enum merak_boundary boundary,
    const struct merak_program_options *opt,
    struct merak_node_order order[MERAK_NODE_ORDERS], struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < MERAK_NODE_ORDERS; i++)
        order[i] =
            (struct merak_node_order){.branches = (enum merak_branches)(i / 2)};
    for (int i = 0; i < MERAK_NODE_ORDERS && rc == MERAK_OK; i += 2) {
        struct merak_assembly a = {.plan = *plan};

        a.plan.branches = order[i].branches;
        rc = merak_assemble(&a, graph, NULL, MERAK_ASSEMBLY_SHARDED, err);
        if (rc == MERAK_OK) {
            order[i].tally.sharded = 1;
            order[i].tally.records = a.sharded->records;
        }
        if (rc == MERAK_OK && a.sharded->order == order[i].branches)
            rc = rate(a.sharded, &a.plan, in, boundary, opt, &order[i], err);
        merak_assembly_fini(&a);
    }
    return rc;
}

void merak_node_orders_fini(struct merak_node_order order[MERAK_NODE_ORDERS])
{
    for (int i = 0; i < MERAK_NODE_ORDERS; i++)
        free(order[i].cut);
}

static bool runs(const struct merak_node_order *order)
{
    return order->played.step_s > 0;
}

int merak_node_orders_best(
    const struct merak_node_order order[MERAK_NODE_ORDERS], size_t limit)
{
    size_t most = limit == 0 ? SIZE_MAX : limit;
    int best = -1;

    for (int round = 0; round < 2 && best < 0; round++) {
        for (int i = 0; i < MERAK_NODE_ORDERS; i++) {
            const struct merak_played *p = &order[i].played;

            if (runs(&order[i]) && p->arena_bytes <= most &&
                (best < 0 || p->step_s < (best == 0 ? WORTH : 1) *
                                             order[best].played.step_s))
                best = i;
        }
        most = runs(&order[0]) ? order[0].played.arena_bytes : SIZE_MAX;
    }
    return best < 0 ? 0 : best;
}
