/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/search.h - the plan with the shortest step, found by
 * search
 *
 * Degrees, micro-batch size, schedule, model chunks of a rank, sub-pipeline,
 * what each stage recomputes, ZeRO-1, sequence parallelism, layers whose
 * tensor ranks split samples, the numbering of ranks, token slices, the order
 * of nodes and the cuts between stages are all chosen together.  A candidate
 * is estimated from a table of the model's segments (what lies between two cut
 * points), with times and memory from the sharded graph.  The best are then
 * built as programs and simulated; their memory is the size of the arena (the
 * one allocation of a rank).
 */
#ifndef MERAK_PARTITIONER_SEARCH_SEARCH_H
#define MERAK_PARTITIONER_SEARCH_SEARCH_H

#include "base/progress.h"
#include "partitioner/device/device.h"
#include "partitioner/plan/choice.h"
#include "partitioner/plan/comms.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/program/boundary.h"

#include <signal.h>

/* Which constraint leaves no plan. */
enum merak_constraint {
    MERAK_BINDS_MEMORY,   /* of a rank */
    MERAK_BINDS_DEGREES,  /* tp x pp x dp against the number of ranks */
    MERAK_BINDS_TENSOR,   /* the model does not divide over tensor ranks */
    MERAK_BINDS_LISTS,    /* a given cut or recomputation */
    MERAK_BINDS_HALVES,   /* a sub-pipeline needs an even micro-batch */
    MERAK_BINDS_SAMPLES,  /* tensor ranks cannot split the micro-batch */
    MERAK_BINDS_BATCH,    /* dp x micro-batch against the global batch */
    MERAK_BINDS_PARTS,    /* stages x chunks against the model's cut points */
    MERAK_BINDS_ISLANDS,  /* stages or replicas against islands */
    MERAK_BINDS_HOMES,    /* how replicas are summed over, and share out */
    MERAK_BINDS_SCHEDULE, /* the schedule and its numbers */
    MERAK_BINDS_ALL,      /* no single one */
    MERAK_CONSTRAINT_COUNT
};

#define MERAK_MAX_FIXES 3
#define MERAK_FIX_TEXT 64

/* Why there is no plan, and which changes would work. */
struct merak_refusal {
    enum merak_constraint constraint;
    int stage;              /* where it binds; -1: on no single stage */
    double have, need;      /* what is available, and the least a plan takes:
                               bytes, ranks, sequences, parts; 0: no number */
    double library;         /* of these bytes, NCCL's */
    struct merak_plan plan; /* the closest one, as far as known; for MEMORY the
                               smallest.  Without lists. */
    struct merak_error why; /* for TENSOR, LISTS, ISLANDS, SCHEDULE: it */
    char fix[MERAK_MAX_FIXES][MERAK_FIX_TEXT]; /* what to give: "--tp 4" */
    int n_fixes;
};

/* Nodes of one kind, of which a stage's all are. */
struct merak_search_kind {
    const struct merak_device *device;
    int nodes;
};

enum { MERAK_MAX_KINDS = 8 };

struct merak_search_input {
    merak_describe_fn describe; /* called with several micro-batch sizes */
    void *arg;
    size_t seq;
    enum merak_dtype dtype;
    size_t global_batch; /* sequences a step: dp * micro-batch * m exactly */
    int nodes, ranks_per_node;
    bool stays_on_node; /* tensor groups do, also where the device's links join
                           several nodes */
    size_t memory_bytes; /* limit of an arena; 0: the device's */
    int threads;         /* per rank, for the plan */
    const struct merak_device *device; /* of several kinds, one that all of
                                          them can do as much as */
    struct merak_search_kind kind[MERAK_MAX_KINDS]; /* in the order of their
                                                       ranks */
    int n_kinds; /* 0: all nodes are the device's */
    bool unlike; /* also search for stages of unlike ranks, where those of
                    equal ranks lose, do not fit or do not exist */
    struct merak_choices pin; /* given choices are not searched; a list's drop
                                 overrides recompute */
    struct merak_kernel_memory memory; /* as in struct merak_program_options */
    bool direct; /* likewise; plans are then proved not to deadlock in a
                    device's queues (merak_program_check_streams()).  If all
                    fail, plans through host memory are searched, unless: */
    bool insists_direct;
    bool fast_sums; /* sums are those of a direct transport's library, whose
                       order it chooses (--reduce fast) */
    struct merak_comms_cost comms; /* of a direct transport's library: of the
                                      limit, as a plan's degrees need them */
    double spare_bytes; /* of the limit, what stays free whatever is planned */
    bool any_cp; /* pin.cp is one of several that are tried */
    bool brief;  /* of a refusal only what binds: no changes are looked for */
    struct merak_refusal *refusal;   /* filled in if there is no plan; NULL:
                                        the error's text is enough */
    struct merak_progress *progress; /* counts estimated plans; or NULL */
    double seconds; /* the search is cut short when they have passed;
                       0: never */
    const volatile sig_atomic_t *stop; /* the same once it is set; or NULL */
    bool *cut_short_p; /* set if it was, whatever it found; or NULL */
    double most_s; /* only the seconds of a step are asked for, and only if they
                      are less: the result has its first choice, without cut,
                      stages and reasons; 0: a plan is */
    double known_s; /* the step of a plan that is known: slower ones do not
                       matter; 0: none is */
};

/* The levels of links of the request's ranks. */
struct merak_links merak_search_links(const struct merak_search_input *input);
/* How many of the request's nodes the device's links of level 0 join; 1: each
 * has its own. */
int merak_search_rack_nodes(const struct merak_search_input *input);
/* What these links join: "node" or "rack". */
const char *merak_search_near_word(const struct merak_search_input *input);
/* The ranks of a domain that tensor groups may be as large as, and what it is
 * called: "node", "rack", or the name of a level. */
int merak_search_tensor_ranks(const struct merak_search_input *input);
const char *merak_search_node_word(const struct merak_search_input *input);

/* The seconds that a search takes at most unless others are given: plans for
 * thousands of ranks, or for memory that binds, may take minutes. */
#define MERAK_SEARCH_SECONDS 60

/* What a step's time is spent on, for the stage with the most work. */
enum merak_search_part {
    MERAK_PART_COMPUTE,   /* kernels of all micro-batches */
    MERAK_PART_RECOMPUTE, /* forwards recomputed for the backward */
    MERAK_PART_TP,        /* exposed communication of tensor ranks */
    MERAK_PART_BUBBLE,    /* waiting for other stages, transfers included */
    MERAK_PART_DP,        /* gradients summed, parameters gathered */
    MERAK_PART_OPTIMIZER, /* norm and update */
    MERAK_PART_COUNT
};
const char *merak_search_part_name(enum merak_search_part part);

struct merak_search_choice {
    struct merak_plan plan; /* cut and drop belong to the result and are NULL
                               for runners-up; recompute is NONE where no stage
                               drops anything */
    struct merak_sequence_cuts cuts;
    double step_s;
    bool simulated;      /* else estimated by the table, scaled by the chosen
                            plan's ratio of simulation to estimate */
    bool fits;           /* if simulated; else by the table */
    size_t memory_bytes; /* largest arena, or the bytes needed */
    int memory_stage;    /* the stage that takes most */
    double part_s[MERAK_PART_COUNT]; /* sums to step_s */
    double fetch_s; /* of the step compute waits for parameters to be fetched;
                       if simulated */
    double offload_s; /* and for optimizer state that is the host's */
    char why[120];    /* why it lost; "" for the first */
};

/* A stage of the chosen plan; bytes are one rank's, bytes sent the mean of
 * all its ranks. */
struct merak_search_stage {
    int first_segment, n_segments; /* first of the first part, and number in all
                                      parts; a segment is about half a layer */
    bool attention, attention_away; /* is recomputed; is the host's until the
                                       backward */
    int blocks_recomputed, blocks_away, n_blocks; /* likewise, and total */
    double recompute_s;              /* of one micro-batch */
    char first_param[64], last_param[64], layers[MERAK_LAYERS_TEXT];
    size_t params; /* elements held by all tensor ranks together */
    double flops, forward_s, backward_s; /* of one micro-batch */
    int in_flight;
    int blocks_fetched;   /* with ZeRO-3 */
    double fetched_bytes; /* of those sent */
    size_t arena_bytes, category_bytes[MERAK_CAT_COUNT];
    size_t host_bytes;               /* of the host's memory */
    double offloaded_bytes;          /* copied there and back in a step */
    double sent_bytes[MERAK_LEVELS]; /* in a step, by level of links */
    double cp_bytes; /* of them, over cp for nodes */
    int kind;        /* of its nodes: index of the request's */
    size_t limit_bytes; /* of an arena there; 0: the result's */
};
/* Of these, those that leave level 0's domain. */
double merak_search_far_bytes(const struct merak_search_stage *stage);

#define MERAK_SEARCH_CHOICES 6

/* The work it took to find a plan, counted so that it is the same on any
 * machine. */
struct merak_search_tally {
    long rated;        /* plans with cuts, estimated by the table */
    long actions;      /* played, of their schedules */
    long parts;        /* of the model, considered to find cuts */
    long instructions; /* simulated, of programs */
    long sharded;      /* models */
    long records;      /* of live values, in the search over layouts */
};

struct merak_search_result {
    struct merak_search_choice choice[MERAK_SEARCH_CHOICES]; /* [0]: chosen */
    int n_choices;
    struct merak_search_stage *stage; /* [choice[0].plan.pp] */
    int busiest;                      /* the one with the most work */
    size_t params;                    /* of the model */
    double flops_per_step;            /* of the model, all ranks */
    double flop_utilisation; /* of the device's peak, or, if that is not known,
                                of its sustained rate: */
    bool of_peak;
    size_t memory_limit; /* of an arena */
    size_t direct_bytes; /* kept free beside it for a direct transport */
    bool direct;         /* requested, and proved for choice[0] */
    int n_rated, n_simulated;
    bool drops;     /* some of the plans that were rated drop activations */
    bool cut_short; /* not all plans were estimated, or not all of the best
                       simulated: another time may give another plan */
    double took_s;  /* of the clock */
    double least_s; /* no plan's step takes less: that of its kernels alone,
                       evenly on all ranks; 0: not known */
    double bound_s; /* nor than this, of those with the degrees that were looked
                       at: that, or more */
    struct merak_search_tally tally;
    struct merak_pool *pool;
};

/* The memory of a rank that a request has: what it gives, or the device's. */
size_t merak_search_memory(const struct merak_search_input *input);
/* The cost model of a kind of nodes of a request, and of its device: links
 * between nodes are those of the slowest. */
void merak_search_kind_cost(const struct merak_search_input *input,
                            const struct merak_search_kind *kind,
                            struct merak_cost_model *cost);
void merak_search_cost(const struct merak_search_input *input,
                       struct merak_cost_model *cost);
/*
 * MERAK_ERR_CONFIG if nothing fits: the text names the constraint that binds,
 * the stage, and up to three single changes each of which would give a plan.
 * Deterministic: the same input gives the same plan, unless the search is cut
 * short.  Then the best that was estimated until then is built and simulated.
 */
enum merak_status merak_search(const struct merak_search_input *input,
                               struct merak_search_result **result_p,
                               struct merak_error *err) MERAK_CHECKED;
void merak_search_destroy(struct merak_search_result *result);
/* Count what a part of a stage drops. */
void merak_search_stage_drops(const struct merak_plan *plan,
                              const struct merak_drop *drop,
                              struct merak_search_stage *stage);
/* Fill in the names and memory of a stage, from the program of one of its
 * ranks. */
void merak_search_stage_fill(const struct merak_program *program,
                             struct merak_search_stage *stage);
/* Add the bytes that it sends, those of a micro-batch `repeat` times. */
enum merak_status
merak_search_stage_sent(const struct merak_program *program,
                        const struct merak_cost_model *cost, double repeat,
                        struct merak_search_stage *stage,
                        struct merak_error *err) MERAK_CHECKED;

#endif
