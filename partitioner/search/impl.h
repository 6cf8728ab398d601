/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/impl.h - between the files of the planner */
#ifndef MERAK_PARTITIONER_SEARCH_IMPL_H
#define MERAK_PARTITIONER_SEARCH_IMPL_H

#include "partitioner/graph/pool.h"
#include "partitioner/search/search.h"

/* --- table.c: what each segment costs ------------------------------ */

/* Parameters of a segment, this rank's part. */
struct merak_hold {
    double param_bytes; /* as kernels read them */
    double grad_bytes;  /* accumulators of all uses */
    double low, full;   /* elements with and without an f32 master */
    double convert_s;   /* gradients brought to the parameters' layout */
    double elements;    /* held by all tensor ranks together */
    int n;
};

/* Something that an earlier segment (`prev`) has, too: a stage of both has
 * it once. */
struct merak_share {
    int segment, prev;
    double kept;
    struct merak_hold hold; /* grad_bytes is 0: every use has its own */
};

struct merak_segment {
    double f_s, b_s; /* one micro-batch; b_s with the weights' gradients */
    double x_s, w_s; /* the two parts of b_s, where a schedule parts them */
    double kernel_s; /* of f_s + b_s, in kernels */
    double flops;
    double kept; /* bytes a micro-batch keeps for its backward */
    double peak; /* bytes of one in work, what is kept included */
    double up_bytes, down_bytes; /* cross its lower end, there and back */
    double exchanged;            /* bytes sent to tensor peers */
    double largest;              /* elements of the largest parameter here */
    double lent; /* elements of those that a later segment has, too */
    struct merak_hold hold;
    int first_share, n_shares;
};

struct merak_table {
    int tp;
    enum merak_seq_parallel sp;
    size_t micro_batch;
    int n; /* segments */
    struct merak_segment *segment;
    struct merak_share *share; /* by segment */
    int n_shares;
    int n_params;      /* of the model */
    double n_elements; /* of them */
    double total_s;    /* f_s + b_s of all segments */
    double flops;      /* of a micro-batch, on one tensor rank */
    int n_nodes;       /* of the sharded graph */
};

/* Segments i .. some end, added one by one. */
struct merak_range {
    int from, to;
    double f_s, b_s, x_s, w_s, kernel_s, flops;
    double kept, peak, exchanged, largest;
    struct merak_hold hold;
    double tied, lent; /* elements of parameters that an earlier, a later stage
                          has, too */
};

enum merak_status merak_table_create(const struct merak_search_input *in,
                                     const struct merak_cost_model *cost,
                                     const struct merak_sharded *sharded,
                                     struct merak_table **table_p,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_table_destroy(struct merak_table *table);
void merak_range_start(struct merak_range *range, int from);
/* Take in segment range->to. */
void merak_range_add(const struct merak_table *table,
                     struct merak_range *range);

/* --- rate.c: a candidate's time and memory from its table ---------- */

struct merak_lists; /* actions of all stages of a schedule, but R */

struct merak_lists *merak_lists_create(const struct merak_schedule *schedule,
                                       int stages, int microbatches);
void merak_lists_destroy(struct merak_lists *lists);
/* The same actions for as many stages and micro-batches. */
bool merak_lists_equal(const struct merak_lists *a,
                       const struct merak_lists *b);
int merak_lists_in_flight(const struct merak_lists *lists, int stage);

struct merak_candidate {
    const struct merak_table *table;
    const struct merak_schedule *schedule;
    struct merak_plan plan; /* cut is NULL: bound says */
    int *bound;             /* [pp + 1] segments, from 0 to table->n */
    double rated_s;
    double bytes;         /* of the stage that takes most */
    int stage;            /* that one */
    double step_s, arena; /* of its programs; 0: not built */
    bool settled;         /* arena is what a run would reserve */
    double part_s[MERAK_PART_COUNT];
};

/* Everything but the bounds that rating a candidate takes. */
struct merak_rater {
    const struct merak_cost_model *cost;
    const struct merak_table *table;
    const struct merak_plan *plan;
    const struct merak_lists *lists;      /* of all micro-batches, or as many
                                             as are worth following */
    const struct merak_lists *lists_less; /* fewer, to carry on from; or NULL */
    int dp_inside;                        /* of dp peers, on the same node */
    double *work;                         /* scratch */
    struct merak_range *range;            /* [pp], filled by merak_rate */
};

enum merak_status merak_rater_init(struct merak_rater *rater,
                                   const struct merak_cost_model *cost,
                                   const struct merak_candidate *cand,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_rater_fini(struct merak_rater *rater);
/* Bytes a stage of these segments takes. */
double merak_rate_bytes(const struct merak_rater *rater,
                        const struct merak_range *range, int stage);
/* Seconds of the step with these bounds; parts and bytes may be NULL. */
double merak_rate(struct merak_rater *rater, const int *bound, double *part_s,
                  double *bytes_p, int *stage_p);
/* Micro-batches after which a schedule repeats itself. */
int merak_rate_settled(int stages);

/* --- cut.c: where to cut ------------------------------------------- */

/*
 * Fill cand->bound and what is rated with the best cuts found whose stages
 * take at most `limit` bytes each; rated_s is 0 if there are none.  `like`,
 * if not NULL, is taken if it fits and trying all is too much.
 */
enum merak_status merak_search_cut(const struct merak_cost_model *cost,
                                   struct merak_candidate *cand,
                                   const int *like, double limit,
                                   struct merak_error *err) MERAK_CHECKED;
/* All ways to cut n segments in pp stages, in order; false at the end. */
void merak_cuts_first(int *bound, int pp, int n);
bool merak_cuts_next(int *bound, int pp, int n);
double merak_cuts_count(int pp, int n);
/* Rate it with the bounds it has. */
enum merak_status merak_search_rate(const struct merak_cost_model *cost,
                                    struct merak_candidate *cand,
                                    struct merak_error *err) MERAK_CHECKED;
/* Better cuts near the candidate's. */
enum merak_status merak_search_polish(const struct merak_cost_model *cost,
                                      struct merak_candidate *cand,
                                      double limit,
                                      struct merak_error *err) MERAK_CHECKED;

/* --- final.c: programs --------------------------------------------- */

/* A model's graph by micro-batch size, described once. */
struct merak_graphs;
enum merak_status merak_graphs_create(const struct merak_search_input *in,
                                      struct merak_graphs **graphs_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_graphs_destroy(struct merak_graphs *graphs);
enum merak_status merak_graphs_shard(struct merak_graphs *graphs, int tp,
                                     enum merak_seq_parallel sp,
                                     size_t micro_batch,
                                     struct merak_sharded **sharded_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Build and simulate: step_s and arena of the candidate. */
enum merak_status merak_search_try(const struct merak_search_input *in,
                                   const struct merak_cost_model *cost,
                                   struct merak_graphs *graphs,
                                   struct merak_candidate *cand,
                                   struct merak_error *err) MERAK_CHECKED;
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
    bool desperate;          /* rate slow ones, too */
    double effort;           /* instructions simulated */
    int n_rated, n_simulated;
    struct merak_error tp_error; /* of the last tp the model refused */
    int n_tp_refused;
    struct merak_error *err;
};

enum merak_status merak_search_init(struct merak_search *s,
                                    const struct merak_search_input *in,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_search_fini(struct merak_search *s);
enum merak_status merak_search_rate_all(struct merak_search *s) MERAK_CHECKED;
/* Append to one of the lists. */
enum merak_status
merak_search_keep(struct merak_search *s, struct merak_candidate **list, int *n,
                  const struct merak_candidate *cand) MERAK_CHECKED;
/* Room for the bounds of pp stages; NULL when out of memory. */
int *merak_search_bound(struct merak_search *s, int pp);
/* Instructions of its programs, about. */
double merak_search_effort(const struct merak_candidate *c);
/* Simulated if it was, else rated. */
double merak_search_time(const struct merak_candidate *c);

/* --- finals.c ------------------------------------------------------ */

/* Simulate the best; both lists are then sorted, the chosen one first. */
enum merak_status merak_search_finals(struct merak_search *s) MERAK_CHECKED;

/* --- explain.c ----------------------------------------------------- */

enum merak_status
merak_search_choose(struct merak_search *s,
                    struct merak_search_result **result_p) MERAK_CHECKED;
/* Say why there is no plan. */
enum merak_status merak_search_no_memory(const struct merak_search *s);
enum merak_status merak_search_no_division(const struct merak_search *s);

#endif
