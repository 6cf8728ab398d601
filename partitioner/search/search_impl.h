/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/search_impl.h - a search under way */
#ifndef MERAK_PARTITIONER_SEARCH_SEARCH_IMPL_H
#define MERAK_PARTITIONER_SEARCH_SEARCH_IMPL_H

#include "partitioner/graph/mem_pool.h"
#include "partitioner/search/graphs.h"
#include "partitioner/search/rate.h"

/* --- search.c: all candidates ---------------------------------------------
 */

#define MERAK_SEARCH_SLACK \
    1.03 /* the table's memory may be so far above the arena's */

/* A lower bound of a step so many times the best is no candidate's. */
#define MERAK_SEARCH_HOPELESS 1.25

struct merak_search {
    const struct merak_search_input *in;
    struct merak_cost_model cost;
    double limit;
    double state; /* bytes: merak_search_is_hopeless() */
    int tasks;
    struct merak_graphs *graphs;
    struct merak_table **table;
    int n_tables;
    struct merak_candidate *cand; /* that fit */
    int n_cands;
    struct merak_candidate *big; /* that need more memory */
    int n_bigs;
    struct merak_pool *pool; /* bounds of candidates */
    double best_s;           /* rated */
    bool relax_time_bound;   /* rate slow ones, too */
    bool branches;           /* the model has some: try other orders */
    int n_nodes;             /* of a sharded graph */
    double effort;           /* instructions simulated */
    double most_effort;      /* that a climb may come to */
    int n_rated, n_simulated;
    struct merak_search_tally tally;
    struct merak_error tp_error; /* of the last tp the model refused */
    int n_tp_refused;
    struct merak_error run_error; /* of the last candidate whose programs could
                                     not run; its arena is DBL_MAX */
    struct merak_error schedule_error; /* of the last schedule that could not
                                          run with a plan's numbers, in as
                                          few chunks as it takes */
    struct merak_error fixed_error; /* of the first candidate that could not be
                                       cut, or recompute, as is asked */
    struct merak_error *err;
};

enum merak_status merak_search_init(struct merak_search *s,
                                    const struct merak_search_input *in,
                                    struct merak_error *err) MERAK_CHECKED;
/* The same for another request with this one's model. */
enum merak_status
merak_search_init_like(struct merak_search *s,
                       const struct merak_search_input *in,
                       const struct merak_search *like) MERAK_CHECKED;
void merak_search_fini(struct merak_search *s);
enum merak_status merak_search_rate_all(struct merak_search *s) MERAK_CHECKED;
/* Append to one of the lists. */
enum merak_status
merak_search_keep(struct merak_search *s, struct merak_candidate **list, int *n,
                  const struct merak_candidate *cand) MERAK_CHECKED;
/* Give a candidate room for the bounds and drops of its parts. */
enum merak_status merak_search_room(struct merak_search *s,
                                    struct merak_candidate *cand) MERAK_CHECKED;
/* Instructions of its programs, about. */
double merak_search_effort(const struct merak_candidate *c);
/* Simulated if it was, else rated. */
double merak_search_time(const struct merak_candidate *c);

/* Seconds that a step takes at least, were it cut perfectly. */
double merak_search_lower_bound(const struct merak_candidate *cand);
/* What a table says of a plan. */
struct merak_plan merak_search_plan_of(const struct merak_table *table);

/* --- variants.c ---------------------------------------------------- */

/* Rate a plan of given degrees with so many model parts a rank, under each
 * schedule. */
enum merak_status
merak_search_rate_chunks(struct merak_search *s,
                         struct merak_candidate *cand) MERAK_CHECKED;
/* And in slices of sequences, in more for as long as that helps. */
enum merak_status
merak_search_rate_slices(struct merak_search *s,
                         const struct merak_candidate *whole) MERAK_CHECKED;

/* --- enumerate.c --------------------------------------------------- */

/* A plan of so many stages, without a schedule; false if there is none. */
bool merak_search_start(struct merak_search *s, const struct merak_table *table,
                        int pp, struct merak_candidate *cand);
/* Is a plan of these degrees worth rating with or without ZeRO-1, with ranks in
 * this order?  Where that makes no difference, only with what is the default
 * elsewhere, or is asked for. */
bool merak_search_has_zero1(const struct merak_search *s,
                            const struct merak_plan *plan, bool zero1);
bool merak_search_has_order(const struct merak_search *s,
                            const struct merak_plan *plan, bool order_tp_pp_dp);
/* Of a small model no estimate is trusted: it is tried in all ways. */
bool merak_search_is_small(const struct merak_search *s);
/* plan.scatter */
int merak_search_scatter(const struct merak_search *s,
                         const struct merak_candidate *cand);
/* A new table, kept with the others; `like` has what a graph does not say, and
 * `plan` the ranks that run blocks together, if there are any. */
enum merak_status merak_search_add_table(
    struct merak_search *s, const struct merak_sharded *sharded,
    const struct merak_table *like, const struct merak_plan *plan, int width,
    int slices, struct merak_table **table_p) MERAK_CHECKED;
/* Find cand->balanced. */
enum merak_status
merak_search_find_balance(struct merak_search *s,
                          struct merak_candidate *cand) MERAK_CHECKED;
/* Rate with cuts that fit, or without a limit; *like: bounds to try first, or
 * NULL, and those that are found. */
enum merak_status merak_search_rate_variant(struct merak_search *s,
                                            struct merak_candidate *cand,
                                            const int **like) MERAK_CHECKED;
/* The shortest rated step of candidates from `first` on. */
double merak_search_shortest(const struct merak_search *s, int first);
/* Does a micro-batch of b divide the batch for any dp of this tp? */
bool merak_search_is_size(const struct merak_search *s, int tp, size_t b);
/* Tables like this, without and with a sub-pipeline; NULLs if the model
 * cannot be cut so, or it does not pay. */
enum merak_status
merak_search_tables(struct merak_search *s, const struct merak_table *like,
                    struct merak_table *table[2]) MERAK_CHECKED;
/* Rate all degrees with them; not with those that `other` has, too. */
enum merak_status
merak_search_rate_tables(struct merak_search *s,
                         struct merak_table *const table[2],
                         struct merak_table *const other[2]) MERAK_CHECKED;

/* --- sample_shares.c ----------------------------------------------------- */

/* Is the table that is asked for worth rating, sharded so? */
bool merak_search_may_pay(const struct merak_search *s,
                          const struct merak_table *like,
                          const struct merak_sharded *sharded);
/* Candidates of this tp whose tensor ranks share out samples. */
enum merak_status merak_search_rate_samples(struct merak_search *s,
                                            int tp) MERAK_CHECKED;

/* --- shared.c ------------------------------------------------------ */

/* Candidates with blocks that all stages run, of the model and the sizes that
 * a table without such blocks is of. */
enum merak_status
merak_search_rate_shared(struct merak_search *s,
                         const struct merak_table *like) MERAK_CHECKED;

/* --- finalists.c ------------------------------------------------------ */

/* Simulate the best; both lists are then sorted, the chosen one first. */
enum merak_status merak_search_finals(struct merak_search *s) MERAK_CHECKED;
/* An order of plans whose ratings are equal; 0 if the plans are, too. */
int merak_search_compare_plans(const struct merak_plan *a,
                               const struct merak_plan *b);

/* --- explain.c ----------------------------------------------------- */

enum merak_status
merak_search_choose(struct merak_search *s,
                    struct merak_search_result **result_p) MERAK_CHECKED;

/* --- refuse.c ------------------------------------------------------ */

/* What any plan's ranks keep from step to step, as a mean over ranks: is that
 * more than the memory, and by more than tables may be off?  Sets s->state. */
bool merak_search_is_hopeless(struct merak_search *s);
/* Rate the plainest plans alone, to see what the smallest of them takes: none
 * fits. */
enum merak_status merak_search_rate_plain(struct merak_search *s) MERAK_CHECKED;

/* Say why there is no plan, and what would do. */
enum merak_status
merak_search_no_memory(const struct merak_search *s) MERAK_CHECKED;
enum merak_status
merak_search_no_division(const struct merak_search *s) MERAK_CHECKED;

/* --- nearest_plan.c ----------------------------------------------------- */

/* Is there a plan for this request, the search's with some change, among the
 * first that are rated?  Its programs are built. */
bool merak_search_has_plan(const struct merak_search *s,
                           const struct merak_search_input *in);
/* Fix what is free to what fits soonest. */
void merak_search_narrow(struct merak_choices *pin);
/* Are the degrees that are asked for those of some plan? */
bool merak_search_has_degrees(const struct merak_search *s);
/* "tp 3, pp 5" */
void merak_search_name_degrees(const struct merak_choices *degrees,
                               char text[MERAK_FIX_TEXT]);
/* Append the first few single changes with which there is a plan, of those
 * that make room or of those that make numbers divide. */
void merak_search_find_fixes(const struct merak_search *s,
                             struct merak_refusal *refusal);

#endif
