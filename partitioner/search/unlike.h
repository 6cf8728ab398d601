/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/unlike.h - the search for stages of unlike ranks
 *
 * For several numbers of sequences in a micro-batch of all replicas, the types
 * of stages are made that have a table, and reach.h finds stages of these with
 * the shortest period, for each number of stages.  The best by the tables are
 * built, the programs of all ranks, and simulated.
 */
#ifndef MERAK_PARTITIONER_SEARCH_UNLIKE_H
#define MERAK_PARTITIONER_SEARCH_UNLIKE_H

#include "partitioner/search/reach.h"
#include "partitioner/search/search_impl.h"

/*
 * Find stages of unlike ranks where those of equal ranks lose, do not fit or do
 * not exist.
 *
 *   found     what the search for equal stages returned, with its result, or
 *             err, which says why it found none
 *   result_p  in and out: the better one
 *
 * Returns `found`, or MERAK_OK if there is a plan only with unlike stages.
 */
enum merak_status
merak_search_unlike(const struct merak_search_input *input,
                    enum merak_status found,
                    struct merak_search_result **result_p,
                    struct merak_error *err) MERAK_CHECKED;

enum {
    MERAK_UNLIKE_TYPES = 40,
    MERAK_UNLIKE_STAGES = 32, /* of a list */
    MERAK_UNLIKE_TABLES = 32,
};

struct merak_unlike {
    struct merak_search s; /* its cost is that of the kind asked for last */
    int n_kinds;           /* of nodes, at least 1 */
    struct merak_cost_model cost[MERAK_MAX_KINDS];
    double limit[MERAK_MAX_KINDS];       /* bytes of a rank */
    int ranks[MERAK_MAX_KINDS];          /* of all nodes of a kind */
    int order[MERAK_MAX_KINDS];          /* kinds in the order of their ranks */
    struct merak_unlike_table {
        const struct merak_table *table;
        int kind;
    } table[MERAK_UNLIKE_TABLES];
    int n_tables;
    const struct merak_schedule *schedule; /* that is given, or 1f1b */
    int segments; /* of the model without tensor ranks, which cuts refer to */
    int last;     /* the last stage begins at this segment, or before: the loss
                     is in one part */
};

enum merak_status merak_unlike_init(struct merak_unlike *u,
                                    const struct merak_search_input *in,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_unlike_fini(struct merak_unlike *u);
/* Have the ranks of kinds in the next order that is tried, from that of the
 * request on: all orders of up to three kinds; of more, that one and its
 * reverse.  False: after the last, back to the first. */
bool merak_unlike_reorder(struct merak_unlike *u);

/* --- unlike_types.c: what stages can be ----------------------------------- */

/* Degrees on a kind, and what they cost, by the table of their tensor ranks
 * and of their replicas' part of the sequences. */
struct merak_unlike_type {
    struct merak_stage_degrees degrees;
    int kind;
    struct merak_candidate cand; /* as if all stages were like it; its plan,
                                    and the rest, once stages are set: */
    struct merak_rater rater;
    double *seconds[MERAK_UNLIKE_STAGES + 1]; /* by micro-batches in flight:
                          [from][to], < 0: not known yet */
};

/* All of them, for micro-batches of so many sequences. */
struct merak_unlike_types {
    struct merak_unlike *u;
    size_t samples;
    int zero, microbatches, most_stages;
    int pp;             /* stages that raters are for; 0: there are none yet */
    double more_memory; /* times the limits: to find what would do */
    int n;
    struct merak_unlike_type type[MERAK_UNLIKE_TYPES];
    int ranks[MERAK_UNLIKE_TYPES];
};

/* fini() is due even after an error. */
enum merak_status merak_unlike_types_init(struct merak_unlike_types *types,
                                          struct merak_unlike *u,
                                          size_t samples,
                                          int zero) MERAK_CHECKED;
void merak_unlike_types_fini(struct merak_unlike_types *types);
/* Rate pipelines of so many stages, which the functions below are for.  False:
 * the schedule does not run as many with these micro-batches, or the search
 * failed. */
bool merak_unlike_set_stages(struct merak_unlike_types *types, int pp);
/* Of struct merak_reach_input; arg: the types. */
double merak_unlike_seconds(void *arg, int type, int flight, int from, int to);
bool merak_unlike_may_be(const void *arg, int type, int first_rank);
/* Let ranks have `more` times the memory. */
void merak_unlike_set_memory(struct merak_unlike_types *types, double more);
/* Seconds of a step with these stages. */
double merak_unlike_rate(struct merak_unlike_types *types,
                         const struct merak_reach_stage *stage, int pp);

/* --- unlike_build.c: lists of stages, built and simulated ------------------ */

struct merak_unlike_list {
    int pp, zero;
    size_t samples;
    struct merak_stage_degrees stage[MERAK_UNLIKE_STAGES];
    const struct merak_table *table[MERAK_UNLIKE_STAGES];
    int kind[MERAK_UNLIKE_STAGES];
    int bound[MERAK_UNLIKE_STAGES + 1]; /* segments */
    struct merak_drop drop[MERAK_UNLIKE_STAGES];
    const struct merak_schedule *schedule;
    double rated_s, step_s; /* step_s: simulated; 0: not yet; DBL_MAX: its
                               programs do not run */
    double bytes;           /* of the rank that takes most of its limit */
    bool fits;
    int fullest; /* that rank's stage */
    /* Simulated, by stage: what its slowest rank takes after its last backward
     * for sums over replicas, and for the optimizer's kernels. */
    double sums_s[MERAK_UNLIKE_STAGES], update_s[MERAK_UNLIKE_STAGES];
};

struct merak_planned;
struct merak_timeline;

/* The plan of a list, with room for pp cut points. */
enum merak_status merak_unlike_plan(const struct merak_unlike *u,
                                    const struct merak_unlike_list *list,
                                    int *cut, struct merak_plan *plan,
                                    struct merak_error *err) MERAK_CHECKED;
/* Build the programs of all ranks, or of the first of each stage, with so many
 * micro-batches, and choose what stages drop. */
enum merak_status
merak_unlike_programs(struct merak_unlike *u, struct merak_unlike_list *list,
                      int microbatches, bool all,
                      struct merak_planned **planned_p,
                      struct merak_error *err) MERAK_CHECKED;
/* Build and simulate it.  A failure is the list's own, but for a lack of the
 * planner's memory. */
enum merak_status merak_unlike_try(struct merak_unlike *u,
                                   struct merak_unlike_list *list)
    MERAK_CHECKED;
/* Move its bounds, and try other schedules, while that helps. */
enum merak_status merak_unlike_climb(struct merak_unlike *u,
                                     struct merak_unlike_list *list)
    MERAK_CHECKED;
/* Has a rank one part under this schedule, which its stage alone runs? */
bool merak_unlike_has(const struct merak_schedule *schedule);
/* Does a fit and is faster, or does it lack less memory? */
bool merak_unlike_is_better(const struct merak_unlike_list *a,
                            const struct merak_unlike_list *b);

/* --- unlike_report.c ------------------------------------------------------- */

/* The result for a list; *result_p, that of equal stages or NULL, becomes its
 * runners-up. */
enum merak_status
merak_unlike_report(struct merak_unlike *u, struct merak_unlike_list *list,
                    struct merak_search_result **result_p,
                    struct merak_error *err) MERAK_CHECKED;

#endif
