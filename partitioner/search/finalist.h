/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/finalist.h - building, simulating and reporting on the
 * programs of a candidate
 */
#ifndef MERAK_PARTITIONER_SEARCH_FINALIST_H
#define MERAK_PARTITIONER_SEARCH_FINALIST_H

#include "partitioner/search/search_impl.h"

/* The programs of a candidate: that of the first rank of each stage. */
struct merak_built {
    const struct merak_search *search;
    struct merak_program_options opt;
    const struct merak_sharded *sharded; /* from merak_graphs_shard() */
    struct merak_sharded *own; /* `sharded`, if hops are sent in part; or NULL */
    struct merak_stages *stages;
    const struct merak_schedule *schedule;
    struct merak_plan plan;
    double limit;                   /* bytes of an arena */
    struct merak_program **program; /* [pp] */
};

enum merak_status merak_built_init(struct merak_built *b,
                                   const struct merak_search *s,
                                   const struct merak_candidate *cand,
                                   const struct merak_deadline *deadline,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_built_fini(struct merak_built *b);
/* Build or rebuild, with b->plan.microbatches and b->stages->drop. */
enum merak_status merak_built_stage(struct merak_built *b, int stage,
                                    struct merak_error *err) MERAK_CHECKED;
/* Micro-batches to build it with: a few more than are in flight at once, or,
 * where that number grows with the micro-batches, a few more than stages; the
 * number left out is a multiple of the stages. */
enum merak_status merak_built_enough(const struct merak_candidate *cand,
                                     int *microbatches_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Build and simulate the candidate: sets its step_s and arena; step_s stays 0
 * if it was left when a stage did not fit.  Where drops are not given, each
 * stage drops as little as fits in s->limit.  A failure is the candidate's: the
 * search may go on; MERAK_ERR_TIMEOUT if s->trials.deadline is past. */
enum merak_status merak_search_try(const struct merak_search *s,
                                   struct merak_candidate *cand,
                                   struct merak_error *err) MERAK_CHECKED;

/* Count the most forwards in flight at once on each stage, over its parts. */
enum merak_status merak_search_count_in_flight(
    const struct merak_schedule *schedule, const struct merak_plan *plan,
    struct merak_search_stage *stage, struct merak_error *err) MERAK_CHECKED;
/* Fill result->stage for a report on the plan. */
enum merak_status
merak_search_report(const struct merak_search *s,
                    const struct merak_candidate *cand,
                    struct merak_search_result *result) MERAK_CHECKED;

#endif
