/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/node_orders.h - choose the order of nodes and the cuts for
 * given degrees
 *
 * Where a model is not a chain, a search for a plan tries all orders of nodes.
 * Here everything else is given: each order is cut evenly, as in a run without
 * given cuts, and where the search would cut it.  The resulting programs are
 * simulated.
 */
#ifndef MERAK_PARTITIONER_SEARCH_NODE_ORDERS_H
#define MERAK_PARTITIONER_SEARCH_NODE_ORDERS_H

#include "partitioner/search/search.h"

/* One step of all stages. */
struct merak_played {
    double step_s;      /* simulated */
    size_t arena_bytes; /* of the rank that takes most */
    long instrs;        /* in all stages' programs */
};

/*
 * Simulate one program of each stage: tensor and data peers have the same.
 *
 *   stages  in, out  drop[] is set as the plan specifies
 *
 * MERAK_ERR_CORRUPT if the programs would deadlock.
 */
enum merak_status merak_stages_play(const struct merak_sharded *sharded,
                                    struct merak_stages *stages,
                                    const struct merak_plan *plan,
                                    const struct merak_program_options *opt,
                                    struct merak_played *played,
                                    struct merak_error *err) MERAK_CHECKED;

/*
 * Prove that the programs of all stages, for training and for evaluation, do
 * not deadlock in a device's queues (merak_program_check_streams()).
 *
 *   stages  in, out  as above
 */
enum merak_status merak_stages_check_streams(
    const struct merak_sharded *sharded, struct merak_stages *stages,
    const struct merak_plan *plan, const struct merak_program_options *opt,
    struct merak_error *err) MERAK_CHECKED;
/* The same for the programs of `opt` alone; drops are left unchanged. */
enum merak_status merak_stages_prove_streams(
    const struct merak_sharded *sharded, const struct merak_stages *stages,
    const struct merak_plan *plan, const struct merak_program_options *opt,
    struct merak_error *err) MERAK_CHECKED;

/* For each order, an even cut and then that of the search. */
enum { MERAK_NODE_ORDERS = 2 * MERAK_BRANCHES_AUTO };

struct merak_node_order {
    enum merak_branches branches;
    int *cut; /* cut points, merak_plan_parts() - 1 of them; NULL: even */
    struct merak_played played;      /* step_s 0: there is no such order, or it
                                        cannot run */
    struct merak_search_tally tally; /* work done to rate it */
};

/*
 * Rate them.
 *
 *   graph  the model's
 *   plan   its branches, cut and scatter are not read
 *   in     the request to the search: pin.branches is not read, all else has to
 *          be pinned to the plan's; NULL: even cuts only
 *   opt    options of the programs, with cost
 *   order  out  merak_node_orders_fini() frees it
 */
enum merak_status merak_node_orders_rate(
    const struct merak_graph *graph, const struct merak_plan *plan,
    const struct merak_search_input *in, enum merak_boundary boundary,
    const struct merak_program_options *opt,
    struct merak_node_order order[MERAK_NODE_ORDERS],
    struct merak_error *err) MERAK_CHECKED;
void merak_node_orders_fini(struct merak_node_order order[MERAK_NODE_ORDERS]);

/* The fastest of those that take at most `limit` bytes (0: any), or, if none
 * does, at most what the first takes.  The first is chosen unless another's
 * step is shorter by more than the error of predictions. */
int merak_node_orders_best(
    const struct merak_node_order order[MERAK_NODE_ORDERS], size_t limit);

#endif
