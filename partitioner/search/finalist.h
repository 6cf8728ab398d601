/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/finalist.h - candidates as programs: simulated, and
 * reported on
 */
#ifndef MERAK_PARTITIONER_SEARCH_FINALIST_H
#define MERAK_PARTITIONER_SEARCH_FINALIST_H

#include "partitioner/search/graphs.h"
#include "partitioner/search/rate.h"

/* A candidate's stages as programs of the first rank of each. */
struct merak_built {
    const struct merak_search_input *in;
    struct merak_program_options opt;
    const struct merak_sharded *sharded; /* of merak_graphs_shard() */
    struct merak_stages *stages;
    const struct merak_schedule *schedule;
    struct merak_plan plan;
    struct merak_program **program; /* [pp] */
};

enum merak_status merak_built_init(struct merak_built *b,
                                   const struct merak_search_input *in,
                                   const struct merak_cost_model *cost,
                                   struct merak_graphs *graphs,
                                   const struct merak_candidate *cand,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_built_fini(struct merak_built *b);
/* Build, or build again, with b->plan.microbatches and b->stages->drop. */
enum merak_status merak_built_stage(struct merak_built *b, int stage,
                                    struct merak_error *err) MERAK_CHECKED;
/* Micro-batches to build it with: a few more than are in flight at once, if
 * that is settled, else a few more than there are stages; and so many that
 * all are a multiple of the stages more. */
enum merak_status merak_built_enough(const struct merak_candidate *cand,
                                     int *microbatches_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Build and simulate: step_s and arena of the candidate.  Where it may
 * choose, each stage then drops as little as fits in `limit`. */
enum merak_status merak_search_try(const struct merak_search_input *in,
                                   const struct merak_cost_model *cost,
                                   struct merak_graphs *graphs, double limit,
                                   struct merak_candidate *cand,
                                   struct merak_error *err) MERAK_CHECKED;

/* The stages of a plan as a report wants them. */
enum merak_status merak_search_report(const struct merak_search_input *in,
                                      const struct merak_cost_model *cost,
                                      struct merak_graphs *graphs,
                                      const struct merak_candidate *cand,
                                      struct merak_search_result *result,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
