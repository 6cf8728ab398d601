/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/search_impl.h - a search under way */
#ifndef MERAK_PARTITIONER_SEARCH_SEARCH_IMPL_H
#define MERAK_PARTITIONER_SEARCH_SEARCH_IMPL_H

#include "base/deadline.h"
#include "base/size.h"
#include "partitioner/graph/mem_pool.h"
#include "partitioner/search/graphs.h"
#include "partitioner/search/rate.h"

#include <float.h>

/* --- search.c: all candidates ---------------------------------------------
 */

#define MERAK_SEARCH_SLACK \
    1.03 /* the table may overestimate the arena by this factor */

#define MERAK_SEARCH_ERROR                                                  \
    1.05 /* of two plans' estimates, by their quotient: one that is so many \
            times another's is not named as faster or as fast */

/* Sequences of so many tokens are worth cutting; shorter ones only if memory is
 * short. */
#define MERAK_SEARCH_LONG 8192

/* Instructions; cheaper plans may be slightly too large by the table. */
#define MERAK_SEARCH_CHEAP 2000

/* Skip candidates whose lower bound is this many times the best step. */
#define MERAK_SEARCH_HOPELESS 1.25

static inline int merak_search_cp(const struct merak_search_input *in)
{
    return in->pin.cp > 1 ? in->pin.cp : 1;
}

/* Seconds from which on a step is of no interest; DBL_MAX: none are. */
static inline double merak_search_worth_s(const struct merak_search_input *in)
{
    double most_s = in->most_s > 0 ? in->most_s : in->known_s;

    return most_s > 0 ? most_s : DBL_MAX;
}

/* Ranks that tensor groups stay within, here called a node. */
static inline int merak_search_node(const struct merak_search_input *in)
{
    return in->stays_on_node ? in->ranks_per_node
                             : merak_search_tensor_ranks(in);
}

/* Do groups that exchange keys or heads leave a node?  They do where a node has
 * too few ranks for cp, or for the tp that is given beside it: then they have
 * whole nodes, and tensor groups stay within one. */
static inline bool merak_search_leaves_node(const struct merak_search_input *in)
{
    int cp = merak_search_cp(in), tp = in->pin.tp > 0 ? in->pin.tp : 1;
    int node = merak_search_node(in);

    return cp > 1 && (node % cp != 0 || tp > node / cp);
}

/* Ranks of a node that are not cp's. */
static inline int merak_search_most_tp(const struct merak_search_input *in)
{
    return merak_search_leaves_node(in)
               ? merak_search_node(in)
               : merak_search_node(in) / merak_search_cp(in);
}

/* Where cp leaves a node: do so many tensor ranks make whole nodes of it? */
static inline bool merak_search_fills_nodes(const struct merak_search_input *in,
                                            int tp)
{
    int64_t ranks = (int64_t)tp * merak_search_cp(in);
    int node = merak_search_node(in);

    return !merak_search_leaves_node(in) ||
           (node % tp == 0 && ranks % node == 0 &&
            (int64_t)in->nodes * in->ranks_per_node % ranks == 0);
}

struct merak_tried;

struct merak_search {
    const struct merak_search_input *in;
    struct merak_cost_model cost;
    double most;       /* bytes of an arena: no plan's limit is higher */
    double state;      /* bytes, by merak_search_is_hopeless() */
    int tasks, spread; /* all; of them those that tp x ep x pp x dp makes: all
                          that see the same part of a sequence */
    struct merak_graphs *graphs;
    struct merak_table **table;
    int n_tables, table_room;
    struct merak_candidate *cand; /* those that fit */
    int n_cands;
    struct merak_candidate *big; /* those that need more memory */
    int n_bigs;
    struct merak_pool *pool; /* bounds of candidates */
    double best_s;           /* shortest estimate */
    double bound_s; /* of all degrees that were looked at (least_bound.c) */
    bool relax_time_bound; /* rate slow candidates, too */
    bool shards_more;      /* levels of ZeRO below 2 are among the big */
    bool branches;         /* the model has some: try other orders */
    int n_nodes;           /* of a sharded graph */
    struct {
        double done, most; /* most: limit for hill climbing */
        double whole; /* until then candidates are built to the last stage */
    } effort;         /* instructions simulated */
    int n_rated, n_simulated;
    int64_t start_ns;
    int64_t until_ns;    /* when it is cut short; INT64_MAX: never */
    struct {             /* while a request is rated */
        int64_t from_ns; /* when its estimates began */
        int64_t none_ns; /* when it is cut short if nothing fits by then */
        bool spare; /* there is another request to try then: replicas share out
                       more, or the host has optimizer state */
        bool insists; /* it is not cut short before there is a candidate */
    } turn;
    struct { /* of candidates, which are built, and what is known of them */
        struct merak_deadline deadline; /* of the one that is built now */
        bool leaves; /* it is left at the first stage that does not fit: its
                        other cuts will not be tried */
        int64_t start_ns; /* of the latest */
        int64_t last_ns;  /* what the last one that succeeded took */
        double effort_ns; /* and each instruction of it; before, about */
        double too_much;  /* effort for which there was no time; or DBL_MAX */
        struct {                     /* candidates that were built (tried.h) */
            struct merak_tried *list;
            int n, room;
        } tried;
    } trials;
    bool over;      /* it is */
    bool cut_short; /* it was, and something was left out for that */
    bool found;     /* a plan was built that fits */
    struct merak_search_tally tally;
    struct merak_error tp_error; /* of the last tp the model does not allow; of
                                    the first beside a cp */
    int n_tp_refused;
    struct merak_error run_error; /* of the last candidate whose programs could
                                     not run; its arena is DBL_MAX */
    struct merak_error schedule_error; /* of the last schedule that could not
                                          run with a plan's numbers and the
                                          fewest chunks it takes */
    struct merak_error home_error;  /* of the last way to lay out replicas that
                                       could not be */
    struct merak_error fixed_error; /* of the first candidate that could not be
                                       cut, or recompute, as requested */
    enum merak_status rc;    /* of the first failure: from then on the functions
                                below that return no status do nothing */
    struct merak_error *err; /* its text; or NULL */
};

/* Of s->spread ranks, those in a node. */
static inline int merak_search_in_node(const struct merak_search *s)
{
    return merak_search_most_tp(s->in);
}

enum merak_status merak_search_init(struct merak_search *s,
                                    const struct merak_search_input *in,
                                    struct merak_error *err) MERAK_CHECKED;
/* The same for another request with the model of `other`: they share graphs. */
enum merak_status
merak_search_init_like(struct merak_search *s,
                       const struct merak_search_input *in,
                       const struct merak_search *other) MERAK_CHECKED;
void merak_search_fini(struct merak_search *s);
/* Fail for a reason that was kept apart from s->err. */
void merak_search_fail(struct merak_search *s, enum merak_status rc,
                       const struct merak_error *why);
void merak_search_rate_all(struct merak_search *s);
/* The factors of tp that all plans have; 0: by the heads, or to be chosen. */
int64_t merak_search_axes(const struct merak_search *s);
/* The ep that all plans have; 0: it is to be chosen. */
int merak_search_ep(const struct merak_search *s);
/* Bytes that the library of a direct transport takes beside an arena, by the
 * plan's degrees, or, if they are more, by its programs; what an arena may take
 * then. */
double merak_search_library_bytes(const struct merak_search *s,
                                  const struct merak_candidate *c);
double merak_search_limit(const struct merak_search *s,
                          const struct merak_candidate *c);
/* What an arena may take at most, whatever the plan. */
double merak_search_most_memory(const struct merak_search_input *in);
/* Append to one of the lists. */
void merak_search_keep(struct merak_search *s, struct merak_candidate **list,
                       int *n, const struct merak_candidate *cand);
/* Allocate a candidate's bounds and drops; false if the search has failed. */
bool merak_search_room(struct merak_search *s,
                       struct merak_candidate *cand) MERAK_CHECKED;
/* A copy of a candidate with bounds and drops of its own; false if the search
 * has failed. */
bool merak_search_copy(struct merak_search *s,
                       const struct merak_candidate *from,
                       struct merak_candidate *to) MERAK_CHECKED;
/* Approximate number of instructions in its programs. */
double merak_search_effort(const struct merak_candidate *c);
/* Seconds of a step as simulated, or, if it was not, as estimated. */
double merak_search_time(const struct merak_candidate *c);

/* Lower bound of a step's seconds, for a perfect cut. */
double merak_search_lower_bound(const struct merak_candidate *cand);
/* Does a plan of at least so many seconds lose for sure? */
bool merak_search_is_slow(const struct merak_search *s, double least_s);

/* --- limit.c: the end of a search's time -----------------------------------
 */

void merak_search_limit_init(struct merak_search *s);
/* A request is rated: the time that is left is shared out. */
void merak_search_limit_begin(struct merak_search *s);
bool merak_search_is_late(const struct merak_search *s);
/* The same; and if so, note that something is left out.  No more than is needed
 * for an answer is then done. */
bool merak_search_is_over(struct merak_search *s);
/* Has it neither failed nor is its time over? */
bool merak_search_goes_on(struct merak_search *s);
/* When one of `parts` parts of the time that is left for estimates ends;
 * INT64_MAX: never. */
int64_t merak_search_share_ns(const struct merak_search *s, int parts);
bool merak_search_is_past(int64_t end_ns);
/* Rate everything, or, when the time is over, only plain plans of the tensor
 * degrees that have none. */
void merak_search_rate_in_time(struct merak_search *s);
/* Is there time for another request, since nothing fits? */
bool merak_search_has_spare_time(const struct merak_search *s);
/* Is there time to build a candidate of so much effort? */
bool merak_search_limit_allows(const struct merak_search *s, double effort);
/* Shard as merak_graphs_shard() does until the time for estimates is over, or,
 * where no candidate is known, all of it: MERAK_ERR_TIMEOUT, which the search
 * then is, too.  That is no failure of it. */
enum merak_status merak_search_shard(struct merak_search *s,
                                     const struct merak_plan *plan,
                                     const struct merak_sharded **sharded_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Set s->trials.deadline for the next candidate that is built. */
void merak_search_limit_trial(struct merak_search *s);
/* It fits. */
void merak_search_limit_found(struct merak_search *s, double effort);
/* All of the time may be used, or a share of it. */
void merak_search_limit_share(struct merak_search *s, double share);
/* Leave a request whose time began at start_ns what is left of it; false: very
 * little. */
bool merak_search_time_left(struct merak_search_input *in, int64_t start_ns);
/* Since it began. */
double merak_search_seconds(const struct merak_search *s);
/* Fail where no plan was built and not all were looked at. */
enum merak_status
merak_search_no_time(const struct merak_search *s) MERAK_CHECKED;

/* --- least_step.c --------------------------------------------------------- */

/* Seconds that a step takes at least. */
double merak_search_least_step(const struct merak_search *s);

/* --- least_bound.c -------------------------------------------------------- */

/* Lower s->bound_s to what a candidate takes at least, however it is cut and
 * whatever its schedule. */
void merak_search_bound(struct merak_search *s,
                        const struct merak_candidate *cand);

/* --- variants.c ---------------------------------------------------- */

/* Rate a plan of given degrees with one and more chunks a rank, under each
 * schedule. */
void merak_search_rate_chunks(struct merak_search *s,
                              struct merak_candidate *cand);
/* If even the least that a plan of given degrees keeps is far more than there is
 * memory, under 1F1B, rate that one alone, for what a refusal says, and for
 * moves.c. */
bool merak_search_rate_far_too_big(struct merak_search *s,
                                   const struct merak_candidate *cand);
/* The same in slices of sequences, with more of them while that helps. */
void merak_search_rate_slices(struct merak_search *s,
                              const struct merak_candidate *whole);

/* --- enumerate.c --------------------------------------------------- */

/* The choices of a table of tp ranks and micro-batches of b sequences that a
 * request gives, and usual ones. */
struct merak_plan merak_search_key(const struct merak_search *s, int tp,
                                   size_t b);
/* A plan with pp stages, without a schedule; false if there is none. */
bool merak_search_start(struct merak_search *s, const struct merak_table *table,
                        int pp, struct merak_candidate *cand);
/* Set a plan's level of ZeRO, one of so many with their sums of gradients.  Is
 * that worth rating for its degrees, as ranks in this order are?  Where the
 * choice makes no difference, only the default or the requested value is;
 * levels 2 and 3 only where they are asked for. */
enum { MERAK_SEARCH_LEVELS = MERAK_MAX_ZERO + 2 };
bool merak_search_set_level(const struct merak_search *s, int level,
                            struct merak_plan *plan);
/* Rate with each way to share out (replicas.h); *recomputes_p: any recomputes.
 */
void merak_search_rate_homes(struct merak_search *s,
                             const struct merak_candidate *cand,
                             const int **initial_p, bool *recomputes_p);
/* May a plan of a request have level 2 or 3 of ZeRO? */
bool merak_search_may_be_flat(const struct merak_choices *pin);
bool merak_search_has_order(const struct merak_search *s,
                            const struct merak_plan *plan, bool order_tp_pp_dp);
/* For a small model no estimate is trusted: everything is tried. */
bool merak_search_is_small(const struct merak_search *s);
/* plan.scatter */
int merak_search_scatter(const struct merak_search *s,
                         const struct merak_candidate *cand);
/* The table of s->table that has all of this; NULL: there is none. */
struct merak_table *merak_search_find_table(const struct merak_search *s,
                                            const struct merak_plan *key,
                                            const struct merak_plan *plan,
                                            int width, int slices);
/* Add a table to s->table, unless it has it; NULL if the search has failed.
 * `key` has the choices that the graph does not specify, `plan` (or NULL) the
 * ranks that run vocabulary-parallel layers. */
struct merak_table *merak_search_add_table(struct merak_search *s,
                                           const struct merak_sharded *sharded,
                                           const struct merak_plan *key,
                                           const struct merak_plan *plan,
                                           int width, int slices);
/* Add it in any case: of nodes of another kind, whose costs s->cost has now. */
struct merak_table *merak_search_make_table(struct merak_search *s,
                                            const struct merak_sharded *sharded,
                                            const struct merak_plan *key,
                                            const struct merak_plan *plan,
                                            int width, int slices);
/* Rate with cuts that fit, or, if none do, without a limit.  *initial: in,
 * bounds to try first, or NULL; out, the bounds found. */
void merak_search_rate_variant(struct merak_search *s,
                               struct merak_candidate *cand,
                               const int **initial);
/* The shortest estimated step of candidates from `first` on. */
double merak_search_shortest(const struct merak_search *s, int first);
/* Does a micro-batch of b divide the batch for any dp of this tp? */
bool merak_search_is_size(const struct merak_search *s, int tp, size_t b);
/* Tables with the choices of `key`, without and with a sub-pipeline; NULL
 * where the model cannot be sharded like that, or it does not pay. */
void merak_search_tables(struct merak_search *s, const struct merak_plan *key,
                         struct merak_table *table[2]);
/* Rate all degrees with these tables, except those that equal `other`. */
void merak_search_rate_tables(struct merak_search *s,
                              struct merak_table *const table[2],
                              struct merak_table *const other[2]);

/* --- fewest.c ------------------------------------------------------------- */

/* Rate what differs from a candidate in that it fetches the fewest blocks with
 * which it takes `limit` bytes by the table; false if it has to fetch all, or
 * how many is given. */
bool merak_search_fewest(struct merak_search *s,
                         const struct merak_candidate *like, double limit,
                         struct merak_candidate *fewer) MERAK_CHECKED;

/* --- sample_shares.c ----------------------------------------------------- */

/* Is a table with the choices of `key`, sharded like this, worth rating? */
bool merak_search_may_pay(const struct merak_search *s,
                          const struct merak_plan *key,
                          const struct merak_sharded *sharded);
/* Rate candidates of this tp whose tensor ranks split samples. */
void merak_search_rate_samples(struct merak_search *s, int tp);

/* --- layer_splits.c ------------------------------------------------- */

/* Rate candidates whose tensor ranks split samples in some layers. */
void merak_search_rate_splits(struct merak_search *s);

/* --- grids.c -------------------------------------------------------- */

/* For --tp-axes auto: rate candidates whose tensor ranks are a grid. */
void merak_search_rate_grids(struct merak_search *s);

/* --- shared.c ------------------------------------------------------ */

/* Rate candidates with vocabulary-parallel layers, for the model and the sizes
 * of `whole`, a table without such layers. */
void merak_search_rate_shared(struct merak_search *s,
                              const struct merak_table *whole);

/* --- finalists.c ------------------------------------------------------ */

/* Simulate the best; both lists are then sorted, the chosen one first. */
void merak_search_finals(struct merak_search *s);

/* --- runners_up.c ----------------------------------------------------- */

/* Simulate runners-up that may be faster than the chosen plan, until each that
 * would be named is simulated or slower, or needs far more memory, and improve
 * the cuts of those that are nearly as fast; the list is then sorted again. */
void merak_search_try_named(struct merak_search *s);

/* May replicas share out more than the optimizer's state (search.c)?  *sharded
 * is the request with all levels of ZeRO. */
bool merak_search_may_shard_more(const struct merak_search *s,
                                 struct merak_search_input *sharded)
    MERAK_CHECKED;

/* --- means.c -------------------------------------------------------------- */

/* May optimizer state go to the host, if there is one?  *away is the request
 * with that. */
bool merak_search_may_offload(const struct merak_search *s,
                              struct merak_search_input *away) MERAK_CHECKED;

/* --- all_cp.c: search.c's search with a given cp, by all of them ------------
 */

enum merak_status
merak_search_given_means(const struct merak_search_input *input,
                         struct merak_search_result **result_p,
                         struct merak_error *err) MERAK_CHECKED;
/* The same, of all ways to have again what stages drop, with --offload auto:
 * means.c. */
enum merak_status merak_search_all_means(const struct merak_search_input *input,
                                         struct merak_search_result **result_p,
                                         struct merak_error *err) MERAK_CHECKED;
/* The same, also with more tensor ranks beside a given cp than a node has room
 * for, if tp is free and sequences are long. */
enum merak_status merak_search_given_cp(const struct merak_search_input *input,
                                        struct merak_search_result **result_p,
                                        struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_search_all_cp(const struct merak_search_input *input,
                                      struct merak_search_result **result_p,
                                      struct merak_error *err) MERAK_CHECKED;

/* --- explain.c ----------------------------------------------------- */

/* Order plans whose estimates are equal; 0 if the plans are equal, too. */
int merak_search_compare_plans(const struct merak_plan *a,
                               const struct merak_plan *b);
/* Runners-up that would be named, fit, were simulated or not, and take less
 * than `error` times the chosen plan's step. */
int merak_search_near(const struct merak_search *s, bool simulated,
                      double error,
                      struct merak_candidate *near[MERAK_SEARCH_CHOICES]);
/* Those that would be named for the memory that they need, and were not cut
 * again for less of it. */
int merak_search_near_big(const struct merak_search *s,
                          struct merak_candidate *near[MERAK_SEARCH_CHOICES]);

/* Say of a plan that lost in which part of the step it loses most, and what it
 * gains if that matters. */
void merak_search_explain_time(const struct merak_search_choice *best,
                               struct merak_search_choice *lost);
/* From the FLOPs and the step of the chosen plan. */
void merak_search_set_utilisation(const struct merak_search *s,
                                  struct merak_search_result *result);
enum merak_status
merak_search_choose(struct merak_search *s,
                    struct merak_search_result **result_p) MERAK_CHECKED;

/* --- refuse.c ------------------------------------------------------ */

/* Does the mean over ranks of what any plan keeps from step to step exceed the
 * memory, by more than a table's error?  Sets s->state. */
bool merak_search_is_hopeless(struct merak_search *s);
/* warmups.c: "eager:W-W-.." with the least micro-batches in flight that hide
 * the hops of a candidate's balanced stages; false: there are none, or no
 * memory. */
bool merak_search_least_warmups(const struct merak_search *s,
                                const struct merak_candidate *cand, char *name,
                                size_t bytes);
/* If no plan can fit, rate only the plainest ones, to find how much memory the
 * smallest takes. */
void merak_search_rate_plain(struct merak_search *s);

/* Fail, with why there is no plan and which changes would work. */
enum merak_status
merak_search_no_memory(const struct merak_search *s) MERAK_CHECKED;
enum merak_status
merak_search_no_division(const struct merak_search *s) MERAK_CHECKED;

/* The smallest candidate; NULL: none could run, whatever the memory. */
const struct merak_candidate *
merak_search_smallest(const struct merak_search *s);
/* Add to a refusal's text its changes, or that there are none. */
void merak_search_say_fixes(const struct merak_search *s,
                            const struct merak_refusal *refusal,
                            struct merak_error *err);

/* refuse_islands.c: do the given degrees leave no stages, or replicas, that are
 * whole in islands or fill several?  Then r says which. */
bool merak_search_has_no_islands(const struct merak_search *s,
                                 struct merak_refusal *r);

/* --- nearest_plan.c ----------------------------------------------------- */

/* GiB as --memory-gib takes them: four digits, rounded up. */
int merak_search_gib_text(double bytes, char text[MERAK_NUMBER_TEXT]);
/* Add the limit of memory that the smallest plan would need by its estimate,
 * which no program was built for. */
void merak_search_say_likely(const struct merak_search *s, double bytes,
                             struct merak_error *err);

/* Is there a plan for `in`, a changed request of the search `s`, among the
 * first candidates?  Their programs are built. */
bool merak_search_has_plan(const struct merak_search *s,
                           const struct merak_search_input *in);
/* Pin the choices that are free to the values most likely to fit. */
void merak_search_narrow(struct merak_choices *pin);
/* "--tp 4 --pp 2 --micro-batch 1": what to give for such a plan. */
void merak_search_name_plan(const struct merak_search *s,
                            const struct merak_plan *plan,
                            char text[MERAK_FIX_TEXT]);
/* Can the requested degrees be those of a plan? */
bool merak_search_has_degrees(const struct merak_search *s);
/* "tp 3, pp 5" */
void merak_search_name_degrees(const struct merak_choices *degrees,
                               char text[MERAK_FIX_TEXT]);
/* Append the first few single changes that give a plan: those that save memory,
 * or those that make the numbers divide. */
void merak_search_find_fixes(const struct merak_search *s,
                             struct merak_refusal *refusal);

#endif
