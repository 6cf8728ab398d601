/* SPDX-License-Identifier: Apache-2.0 */
/* island_orders.c - search for a plan and the order of islands that suits it
 *
 * What a plan sends between islands is known once it is found, and which plan
 * is best depends on the order: a first search takes hops of a usual size, and
 * where its plan sends others for which another order is better, a second one
 * takes these.
 */
#include "config.h"

#include "partitioner/search/island_orders.h"

#include "partitioner/assembly/assembly.h"
#include "partitioner/program/instr_cost.h"

#include <string.h>

#define USUAL_BYTES 0x1p24 /* of a hop, before there is a plan */

/* --- what crosses --------------------------------------------------------- */

/* Add what a stage sends of its first micro-batch, all its ranks together. */
static void add_sent(const struct merak_links *links,
                     const struct merak_program *prog,
                     struct merak_island_hops *hops)
{
    int last = merak_links_last(links);
    int ranks = links->level[last - 1].ranks;
    const struct merak_spread sharers =
        merak_links_sharers(links, &prog->plan, prog->rank, false);

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind != MERAK_INSTR_SEND || in->microbatch != 0 ||
            prog->rank / ranks == in->peer / ranks)
            continue;
        hops->bytes[prog->rank / ranks][in->peer / ranks] +=
            (double)in->bytes * sharers.n[last - 1];
    }
}

static enum merak_status find_hops(const struct merak_search_input *in,
                                   const struct merak_search_result *result,
                                   struct merak_island_hops *hops,
                                   struct merak_error *err)
{
    const struct merak_links links = merak_search_links(in);
    const struct merak_plan *plan = &result->choice[0].plan;
    struct merak_search_input as_found = *in;
    struct merak_cost_model cost;
    const struct merak_program_options po = {
        .direct = result->direct, .memory = in->memory, .cost = &cost};
    struct merak_planned *planned = NULL;
    enum merak_status rc;

    memset(hops, 0, sizeof(*hops));
    as_found.direct = result->direct;
    merak_search_cost(&as_found, &cost);
    rc = merak_plan_build(plan, in->seq, in->describe, in->arg,
                          plan->stage != NULL ? MERAK_PLAN_ALL
                                              : MERAK_PLAN_STAGES,
                          &po, &planned, err);
    for (int i = 0; rc == MERAK_OK && i < planned->n_programs; i++) {
        const struct merak_program *prog = planned->program[i];

        if (prog->tp_index == 0 && prog->dp_index == 0)
            add_sent(&links, prog, hops);
    }
    merak_planned_destroy(planned);
    return rc;
}

/* --- order ---------------------------------------------------------------- */

/* Search once more with the order that suits a plan, if there is another, and
 * keep the better plan. */
static enum merak_status search_again(const struct merak_search_input *in,
                                      struct merak_islands *islands,
                                      struct merak_island_hops *hops,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err)
{
    struct merak_search_result *second = NULL;
    struct merak_island_hops second_hops;
    struct merak_island_order best, now;
    int at[MERAK_MOST_ISLANDS], first_at[MERAK_MOST_ISLANDS];
    enum merak_status rc;

    best = merak_islands_arrange(islands, hops, at);
    now = merak_islands_rate(islands, hops, islands->at);
    if (best.most_s >= now.most_s && best.sum_s >= now.sum_s)
        return MERAK_OK;
    memcpy(first_at, islands->at, sizeof(first_at));
    memcpy(islands->at, at, sizeof(at));
    rc = merak_search(in, &second, err);
    if (rc == MERAK_OK)
        rc = find_hops(in, second, &second_hops, err);
    if (rc == MERAK_OK &&
        second->choice[0].step_s <= (*result_p)->choice[0].step_s) {
        merak_search_destroy(*result_p);
        *result_p = second;
        *hops = second_hops;
        return MERAK_OK;
    }
    memcpy(islands->at, first_at, sizeof(first_at));
    merak_search_destroy(second);
    return rc;
}

enum merak_status merak_search_islands(const struct merak_search_input *in,
                                       struct merak_islands *islands,
                                       struct merak_island_hops *hops,
                                       struct merak_search_result **result_p,
                                       struct merak_error *err)
{
    struct merak_search_result *result = NULL;
    enum merak_status rc;

    memset(hops, 0, sizeof(*hops));
    for (int k = 0; k + 1 < islands->n; k++)
        hops->bytes[k][k + 1] = USUAL_BYTES;
    merak_islands_arrange(islands, hops, islands->at);
    rc = merak_search(in, &result, err);
    if (rc == MERAK_OK)
        rc = find_hops(in, result, hops, err);
    if (rc == MERAK_OK)
        rc = search_again(in, islands, hops, &result, err);
    if (rc == MERAK_OK)
        *result_p = result;
    else
        merak_search_destroy(result);
    return rc;
}
