/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/node_orders.h - the order of nodes, and cuts, for given
 * degrees
 *
 * A search for a plan tries all orders of nodes where a model is no chain.
 * Here everything else is given: each order is cut evenly, as a run cuts it
 * that says no more, and where the search would cut it.  Their programs are
 * played.
 */
#ifndef MERAK_PARTITIONER_SEARCH_NODE_ORDERS_H
#define MERAK_PARTITIONER_SEARCH_NODE_ORDERS_H

#include "partitioner/search/search.h"

/* One step of all stages. */
struct merak_played {
    double step_s;      /* by the costs */
    size_t arena_bytes; /* of the rank that takes most */
    long instrs;        /* of all stages' programs */
};

/*
 * Play one program of each stage: tensor and data peers do alike.
 *
 *   stages  in, out  drop[] is set as the plan says
 *
 * MERAK_ERR_CORRUPT if the programs would wait for each other for ever.
 */
enum merak_status merak_stages_play(const struct merak_sharded *sharded,
                                    struct merak_stages *stages,
                                    const struct merak_plan *plan,
                                    const struct merak_program_options *opt,
                                    struct merak_played *played,
                                    struct merak_error *err) MERAK_CHECKED;

/*
 * Prove that one program of each stage, and one for evaluation, end in a
 * device's queues (merak_program_check_streams()).
 *
 *   stages  in, out  as above
 */
enum merak_status merak_stages_check_streams(
    const struct merak_sharded *sharded, struct merak_stages *stages,
    const struct merak_plan *plan, const struct merak_program_options *opt,
    struct merak_error *err) MERAK_CHECKED;
/* The same of the programs that `opt` says, alone; drops are what they are. */
enum merak_status merak_stages_prove_streams(
    const struct merak_sharded *sharded, const struct merak_stages *stages,
    const struct merak_plan *plan, const struct merak_program_options *opt,
    struct merak_error *err) MERAK_CHECKED;

/* By order, each cut evenly and then as the search would. */
enum { MERAK_NODE_ORDERS = 2 * MERAK_BRANCHES_AUTO };

struct merak_node_order {
    enum merak_branches branches;
    int *cut; /* places, merak_plan_parts() - 1 of them; NULL: evenly */
    struct merak_played played;      /* step_s 0: there is no such order, or it
                                        cannot run */
    struct merak_search_tally tally; /* what it took to rate it */
};

/*
 * Rate them.
 *
 *   graph  the model's
 *   plan   its branches, cut and scatter are not read
 *   in     what the search is asked: pins.branches is not read, all else is to
 *          be pinned to the plan's; NULL: cut evenly only
 *   opt    of the programs, with cost
 *   order  out  merak_node_orders_fini() frees it
 */
enum merak_status merak_node_orders_rate(
    const struct merak_graph *graph, const struct merak_plan *plan,
    const struct merak_search_input *in, enum merak_boundary boundary,
    const struct merak_program_options *opt,
    struct merak_node_order order[MERAK_NODE_ORDERS],
    struct merak_error *err) MERAK_CHECKED;
void merak_node_orders_fini(struct merak_node_order order[MERAK_NODE_ORDERS]);

/* The fastest of those that take no more than `limit` bytes, 0: any; where
 * none does, no more than the first, which is left only for a step that is
 * shorter by more than predictions are good for. */
int merak_node_orders_best(
    const struct merak_node_order order[MERAK_NODE_ORDERS], size_t limit);

#endif
