/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/search_impl.h - between the files of the planner */
#ifndef MERAK_PARTITIONER_SEARCH_SEARCH_IMPL_H
#define MERAK_PARTITIONER_SEARCH_SEARCH_IMPL_H

#include "partitioner/graph/pool.h"
#include "partitioner/search/search.h"

/* --- table/: what each segment costs ------------------------------ */

/* Parameters of a segment, this rank's part. */
struct merak_param_state {
    double param_bytes; /* as kernels read them */
    double grad_bytes;  /* accumulators of all uses */
    double bf16_elems, f32_elems; /* elements with and without an f32 master */
    double convert_s;   /* gradients brought to the parameters' layout */
    double elements;    /* held by all tensor ranks together */
    int n;
    /* If tensor ranks share out the state of what they hold alike, as
     * merak_sharded_flat_axes() says: so much less of the above, and to gather
     * the parameters. */
    double bf16_elems_less, f32_elems_less, convert_less_s, gather_s;
};

/* What is kept of a forward for its backward.  Blocks are recompute.c's. */
enum merak_keep {
    MERAK_KEEP_ALL,
    MERAK_KEEP_NO_ATTENTION, /* all but what attention makes */
    MERAK_KEEP_LEAST,        /* what crosses blocks */
    MERAK_KEEPS
};

/* Something that an earlier segment (`prev`) has, too: a stage of both has
 * it once. */
struct merak_share {
    int segment, prev;
    double kept[MERAK_KEEPS];
    struct merak_param_state hold; /* grad_bytes is 0: every use has its own */
};

/* Of one micro-batch, or of a sub-pipeline's pair: see width below. */
struct merak_segment {
    double f_s, b_s; /* b_s with the weights' gradients */
    double x_s, w_s; /* the two parts of b_s, where a schedule parts them */
    double kernel_s; /* of f_s + b_s, in kernels */
    double flops;
    bool begins_block;
    double kept[MERAK_KEEPS];    /* bytes kept for the backward */
    double recompute_s[MERAK_KEEPS]; /* to have again what is not */
    double peak; /* bytes of one in work, what is kept included */
    double up_bytes, down_bytes; /* cross its lower end, there and back */
    double up_part, down_part;   /* of them, if each tensor rank sends a part of
                                    what all hold alike */
    double exchanged;            /* bytes sent to tensor peers */
    double largest;              /* elements of the largest parameter here */
    double shared_later_elems;   /* elements of those that a later segment has,
                                    too */
    /* Of a block that all stages run, f_s and b_s are a stage's kernels: from
     * when they begin, its exchanges between stages are over after so long. */
    double f_latency_s, b_latency_s;
    struct merak_param_state hold;
    int first_share, n_shares;
};

struct merak_table {
    int tp;
    enum merak_seq_parallel sp;
    int tp_batch_percent; /* plan.tp_batch_percent */
    size_t micro_batch;
    enum merak_branches branches; /* plan.branches */
    bool may_slice;               /* no tensor axis cuts sequences */
    int width;  /* 2: a unit of work is a sub-pipeline's pair of micro-batches,
                   exchanges of one behind compute of the other; else 1 */
    int slices; /* of a micro-batch, of which one is the unit of work: its
                   times are a mean one's, memory is the micro-batch's */
    int n;      /* segments */
    int n_shared; /* of them, the last: blocks that all stages run, first what
                     feeds the first stage, then what follows the last */
    struct merak_segment *segment;
    struct merak_share *share; /* by segment */
    int n_shares;
    int n_params;      /* of the model */
    double n_elements; /* of them */
    double total_s;    /* f_s + b_s of all segments */
    double flops;      /* of a unit, on one tensor rank */
    int n_nodes;       /* of the sharded graph, width times */
    int passes;        /* forwards of a unit */
};

/* With blocks that all stages run (sharded), `plan` says which ranks those
 * are. */
enum merak_status merak_table_create(const struct merak_search_input *in,
                                     const struct merak_cost_model *cost,
                                     const struct merak_sharded *sharded,
                                     const struct merak_plan *plan, int width,
                                     int slices, struct merak_table **table_p,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_table_destroy(struct merak_table *table);

/* --- range.c: segments as a part of the model ---------------------- */

/* A block's first segment in a range, and what the blocks before it come to:
 * were all kept, or were they dropped. */
struct merak_mark {
    int at;
    double all, least, peak, recompute_s;
};

/* A segment, and what stands when it is in work and nothing is dropped. */
struct merak_top {
    int at;
    double bytes;
};

/* Room for those of ranges that do not overlap, by segment. */
struct merak_marks {
    struct merak_mark *mark;
    struct merak_top *top;
};

/* Segments i .. some end, added one by one. */
struct merak_range {
    int from, to, n_blocks, n_tops;
    double f_s, b_s, x_s, w_s, kernel_s, flops;
    /* With so much kept: bytes, the most that stands, that stands and is to
     * be dropped at the block's end, seconds to have it again. */
    double kept[MERAK_KEEPS], peak[MERAK_KEEPS], dropped[MERAK_KEEPS];
    double recompute_s[MERAK_KEEPS];
    double exchanged, largest;
    /* Of what is kept for certain (need.c): all, before the latest block, what
     * that makes, and the most that stands. */
    double retained, retained_before, block_all, retained_peak;
    struct merak_mark *mark; /* by block */
    struct merak_top *top;   /* where nothing behind is higher */
    struct merak_param_state hold;
    double tied, shared_later_elems; /* elements of parameters that an earlier,
                          a later part has, too */
};

/* A part that drops something. */
struct merak_keeps {
    double kept, peak; /* as of segments */
    double recompute_s;
};

void merak_param_state_add(struct merak_param_state *to,
                           const struct merak_param_state *what);
/* With and without ZeRO-1: the elements whose state is this rank's, or shared
 * out among its replicas. */
struct merak_param_state
merak_param_state_of(const struct merak_param_state *hold, bool zero1);
void merak_range_start(struct merak_range *range, int from,
                       struct merak_marks *marks);
/* Take in segment range->to. */
void merak_range_add(const struct merak_table *table,
                     struct merak_range *range);
/* With attention dropped, or so many blocks. */
struct merak_keeps merak_range_keeps(const struct merak_range *range,
                                     struct merak_drop drop);

/* --- lists.c: actions of all stages of a schedule ------------------- */

struct merak_step_action {
    enum merak_action_kind kind;
    bool recompute; /* does what recomputation there is: R, or a B without R */
    int chunk, unit, pass;
};

struct merak_lists {
    const struct merak_schedule *schedule;
    int stages, chunks, units; /* unit: micro-batch, pair, or slice of one */
    int slices;                /* of a micro-batch; 1: it runs whole */
    int passes;                /* forwards of a unit */
    int room;                  /* for actions of a stage */
    int *n;                    /* by stage: actions */
    struct merak_step_action *action; /* [stages][room] */
    int chain; /* parts that one stage runs; those of all stages follow */
    int *part, *in_flight; /* [stages][chunks]; micro-batches or pairs */
    int *stage_of;         /* by part; -1: all stages */
    bool *early;           /* by stage: some R has an action of its own */
    bool *recomputes;      /* by stage: it does what the plan says */
};

/* For so many units of a plan; NULL when out of memory. */
struct merak_lists *merak_lists_create(const struct merak_schedule *schedule,
                                       const struct merak_plan *plan,
                                       int units);
void merak_lists_destroy(struct merak_lists *lists);

/* A long pipeline is followed until it repeats itself. */
struct merak_follow {
    struct merak_lists *lists; /* of all units, or as many as are worth
                                  following */
    struct merak_lists *less;  /* fewer, to carry on from; or NULL */
};

/* False when out of memory: fini() has to be called all the same. */
bool merak_follow_init(struct merak_follow *follow,
                       const struct merak_schedule *schedule,
                       const struct merak_plan *plan);
void merak_follow_fini(struct merak_follow *follow);

/* The same actions for as many stages and units, R apart. */
bool merak_lists_equal(const struct merak_lists *a,
                       const struct merak_lists *b);
int merak_lists_in_flight(const struct merak_lists *lists, int stage,
                          int chunk);
/* Units worth following of so many: enough for a schedule to repeat itself,
 * and as many more than a multiple of `stages` as all are. */
int merak_lists_settled(const struct merak_plan *plan, int units);
/* Slices of a micro-batch, 1 without; units of a step, and forwards of
 * each. */
int merak_plan_slices(const struct merak_plan *plan);
int merak_plan_units(const struct merak_plan *plan);
int merak_plan_passes(const struct merak_plan *plan);

/* --- rate.c: a candidate's time and memory from its table ---------- */

struct merak_candidate {
    const struct merak_table *table;
    const struct merak_schedule *schedule;
    const struct merak_given_lists *lists; /* that it keeps to, or NULL */
    const struct merak_follow *follow;     /* its lists, or NULL */
    struct merak_search_tally *tally;  /* to be added to, or NULL */
    struct merak_plan plan;  /* cut and drop are NULL: bound and drop say */
    int *bound;              /* [parts + 1] segments, from 0 to table->n */
    struct merak_drop *drop; /* [parts] */
    int *balanced;           /* bounds whose longest part is shortest, memory
                                left aside: the same for all schedules */
    double rated_s;
    double bytes;         /* of the stage that takes most */
    int stage;            /* that one */
    double step_s, arena; /* of its programs; 0: not built */
    bool settled;         /* arena is what a run would reserve */
    double part_s[MERAK_PART_COUNT];
};

/* Everything but the bounds that rating a candidate takes. */
struct merak_rater {
    struct merak_cost_model shared;
    const struct merak_cost_model *cost; /* that; the rater stays in place */
    struct merak_cost_model contended;   /* all stages of a node use its ways */
    /* What a stage's ranks take of a node's way for a byte that each of them
     * reduces over replicas; 0: no other stage does there, or dp is 1. */
    double uplink_s_per_byte;
    const struct merak_table *table;
    const struct merak_plan *plan;
    struct merak_search_tally tally; /* of this rater alone */
    int parts, chain, chunks;  /* chain: of the parts, those of one stage */
    double limit;              /* what stages may take: AUTO */
    bool sums_behind;          /* of parts but the first (program.h) */
    bool fixed;                /* drop is not to be chosen, or no more */
    double most_s, most_bytes; /* of no use if it takes more; most_s 0:
                                  any will do */
    struct merak_follow own;   /* if the candidate has no lists */
    const struct merak_lists *lists, *lists_less; /* of struct merak_follow */
    int dp_inside; /* of dp peers, on the same node */
    /* Parameters in parts, gradients over dp peers (ends.c): */
    double *gather_s, *reduce_s; /* by segment */
    double *gathered; /* by segment: with ZeRO-1, when what it reads is there */
    double *all_gathered, *done; /* by stage; all of one allocation */
    struct merak_reduction *reduction;
    struct merak_drain *drain;
    double *work_s, *forward_s;      /* [segment + 1] of a unit, of what lies
                                        before; one allocation */
    double *work;                    /* scratch */
    struct merak_meetings *meetings; /* scratch, if all stages run blocks */
    struct merak_marks marks;        /* of ranges; mark and top, one each */
    /* By part, as of the latest merak_rate(): */
    struct merak_range *range;
    struct merak_keeps *keeps;
    struct merak_drop *drop;
};

enum merak_status merak_rater_init(struct merak_rater *rater,
                                   const struct merak_cost_model *cost,
                                   const struct merak_candidate *cand,
                                   double limit,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_rater_fini(struct merak_rater *rater);
/* Seconds of the step with these bounds, and in rater->drop what each part
 * drops; part_s and bytes_p may be NULL.  Of a step that takes
 * more than rater->most_s or most_bytes, only seconds that it takes at least
 * are found. */
double merak_rate(struct merak_rater *rater, const int *bound, double *part_s,
                  double *bytes_p, int *stage_p);

/* --- need.c: memory of stages, and what they drop for it ------------ */

/* What a part takes alone on its stage: bytes, and seconds to recompute what
 * it drops to take no more than `limit`, if that can be; `known` blocks do not
 * do.  Overwrites range, keeps and drop of the part. */
struct merak_need {
    double bytes, recompute_s;
    int blocks; /* that do, were blocks dropped; 0: none are to be */
};
struct merak_need merak_part_need(struct merak_rater *rater,
                                  const struct merak_range *range, int part,
                                  double limit, int known);
/* What one of a stage's parts may take at most, if each takes as much; beside
 * blocks that all stages run, what these leave. */
double merak_part_limit(struct merak_rater *rater, double limit);
/* Bytes that a part alone on its stage takes by the table at least, whatever
 * is dropped; and so does every part that it is a piece of. */
double merak_part_least(const struct merak_rater *rater,
                        const struct merak_range *range, int part);
/* Choose what each part drops, or keep to it if rater->fixed; fill keeps.
 * Returns the bytes of the stage that takes most. */
double merak_stages_need(struct merak_rater *rater, int *stage_p);
/* Bytes of a stage that drops these, by part, cut as in the latest
 * merak_rate(). */
double merak_stage_need(struct merak_rater *rater, int stage,
                        const struct merak_drop *drop);
/* Parameters of all of a stage's parts, those they share once. */
struct merak_range merak_stage_holds(const struct merak_rater *rater,
                                     int stage);

/* --- fixed.c: cuts and recomputation that are given ---------------- */

/* MERAK_ERR_CONFIG if the lists contradict each other or themselves. */
enum merak_status merak_fixed_valid(const struct merak_given_lists *lists,
                                    struct merak_error *err) MERAK_CHECKED;
/* Chunks that are asked for, or that given parts come to; 0: any. */
int merak_fixed_chunks(const struct merak_search_pins *pin, int pp);
bool merak_fixed_cut(const struct merak_candidate *cand);
/* By part, or NULL. */
const struct merak_drop *merak_fixed_drop(const struct merak_candidate *cand);
/* Fill bound from the given cut. */
void merak_fixed_bound(const struct merak_candidate *cand, int *bound);
/* Do parts with these bounds have the blocks that they are to drop? */
bool merak_fixed_allows(const struct merak_candidate *cand, const int *bound);
/* Has its plan as many parts as the lists are of?  MERAK_ERR_CONFIG if it has
 * but cannot be so under the schedule. */
bool merak_fixed_parts(const struct merak_candidate *cand);
enum merak_status merak_fixed_check(const struct merak_candidate *cand,
                                    const struct merak_schedule *schedule,
                                    struct merak_error *err) MERAK_CHECKED;

/* --- cut.c: where to cut ------------------------------------------- */

/*
 * Fill cand->bound, drop and what is rated with the best cuts found whose
 * stages take at most `limit` bytes each; rated_s is 0 if there are none.
 * With `any`, stages that take more will do.  `like`, if not NULL, is taken
 * if it fits and trying all is too much.  A given cut is the only one.
 */
enum merak_status merak_search_cut(const struct merak_cost_model *cost,
                                   struct merak_candidate *cand,
                                   const int *like, double limit, bool any,
                                   struct merak_error *err) MERAK_CHECKED;
/* Find cand->balanced; its schedule may be any for as many parts. */
enum merak_status merak_search_balance(const struct merak_cost_model *cost,
                                       struct merak_candidate *cand,
                                       struct merak_error *err) MERAK_CHECKED;
/* All ways to cut n segments in so many parts, in order; false at the end. */
void merak_cuts_first(int *bound, int parts, int n);
bool merak_cuts_next(int *bound, int parts, int n);
double merak_cuts_count(int parts, int n);
/* Rate it with the bounds it has; what to drop is chosen for this limit. */
enum merak_status merak_search_rate(const struct merak_cost_model *cost,
                                    struct merak_candidate *cand, double limit,
                                    struct merak_error *err) MERAK_CHECKED;
/* Better cuts near the candidate's. */
enum merak_status merak_search_polish(const struct merak_cost_model *cost,
                                      struct merak_candidate *cand,
                                      double limit,
                                      struct merak_error *err) MERAK_CHECKED;

/* --- graphs.c ------------------------------------------------------ */

/* A model's graph by micro-batch size, described once. */
struct merak_graphs;
enum merak_status merak_graphs_create(const struct merak_search_input *in,
                                      struct merak_graphs **graphs_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* For another search with the same model, sequences and dtype; to be destroyed
 * as often. */
struct merak_graphs *merak_graphs_share(struct merak_graphs *graphs);
void merak_graphs_destroy(struct merak_graphs *graphs);

/* Bytes of parameters, accumulators of their gradients, and what the optimizer
 * keeps, of one replica. */
struct merak_state {
    double whole;    /* that every replica has */
    double parted;   /* that ZeRO-1 shares out over replicas */
    double elements; /* of the parameters */
};
enum merak_status merak_graphs_state(struct merak_graphs *graphs,
                                     struct merak_state *state,
                                     struct merak_error *err) MERAK_CHECKED;
/* As this plan's trainer calls it: the program that runs is the one planned.
 * Borrowed until the next call: the latest are kept. */
enum merak_status merak_graphs_shard(struct merak_graphs *graphs,
                                     const struct merak_plan *plan,
                                     const struct merak_sharded **sharded_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Add what was sharded so far. */
void merak_graphs_count(const struct merak_graphs *graphs,
                        struct merak_search_tally *tally);

/* --- finalist.c: programs --------------------------------------------- */

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
/* --- stage_report.c ------------------------------------------------------ */

/* The stages of a plan as a report wants them. */
enum merak_status merak_search_report(const struct merak_search_input *in,
                                      const struct merak_cost_model *cost,
                                      struct merak_graphs *graphs,
                                      const struct merak_candidate *cand,
                                      struct merak_search_result *result,
                                      struct merak_error *err) MERAK_CHECKED;

/* --- search.c: all candidates ---------------------------------------------
 */

#define MERAK_SEARCH_SLACK \
    1.03 /* the table's memory may be so far above the arena's */

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
enum merak_status merak_search_init_like(struct merak_search *s,
                                         const struct merak_search_input *in,
                                         const struct merak_search *like)
    MERAK_CHECKED;
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

static inline bool merak_pin_allows(enum merak_pin pin, bool value)
{
    return pin == MERAK_PIN_FREE || (pin == MERAK_PIN_YES) == value;
}

/* A plan of so many stages, without a schedule; false if there is none. */
bool merak_search_start(struct merak_search *s, const struct merak_table *table,
                        int pp, struct merak_candidate *cand);
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

/* --- samples.c ----------------------------------------------------- */

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
enum merak_status merak_search_no_memory(const struct merak_search *s);
enum merak_status merak_search_no_division(const struct merak_search *s);

/* --- nearest.c ----------------------------------------------------- */

#define MERAK_CHANGE_TEXT 64

/* Is there a plan for this request, the search's with some change, among the
 * first that are rated?  Its programs are built. */
bool merak_search_has_plan(const struct merak_search *s,
                           const struct merak_search_input *in);
/* Fix what is free to what fits soonest. */
void merak_search_narrow(struct merak_search_pins *pin);
/* Are the degrees that are asked for those of some plan?  Names them. */
bool merak_search_has_degrees(const struct merak_search *s,
                              char given[MERAK_CHANGE_TEXT]);
/* Append to the error "; nearest: tp 4, or micro-batch 1": `first`, if not
 * NULL, and the first few single changes with which there is a plan, of those
 * that make room or of those that make numbers divide. */
enum merak_status merak_search_name_changes(const struct merak_search *s,
                                            bool memory, const char *first);

#endif
