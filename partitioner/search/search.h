/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/search.h - the plan with the shortest step, found by
 * search
 *
 * Degrees, micro-batch size, schedule, model chunks of a rank, sub-pipeline,
 * what each stage recomputes, ZeRO-1, sequence parallelism, layers whose
 * tensor ranks share out samples, the numbering of ranks, token slices, the
 * order of nodes and the cuts between stages are all chosen together.
 * A candidate is rated with a table of the model's segments (what lies
 * between two places where it may be cut): time and memory from the sharded
 * graph.  The best are then built as programs and simulated; memory is the
 * arena's.
 */
#ifndef MERAK_PARTITIONER_SEARCH_SEARCH_H
#define MERAK_PARTITIONER_SEARCH_SEARCH_H

#include "base/progress.h"
#include "partitioner/device/device.h"
#include "partitioner/plan/choice.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/program/boundary.h"

/* What there is no plan for. */
enum merak_constraint {
    MERAK_BINDS_MEMORY,   /* of a rank */
    MERAK_BINDS_DEGREES,  /* tp x pp x dp, and the ranks */
    MERAK_BINDS_TENSOR,   /* the model, over tensor ranks */
    MERAK_BINDS_LISTS,    /* a cut or recomputation that is given */
    MERAK_BINDS_HALVES,   /* a sub-pipeline, and the micro-batch */
    MERAK_BINDS_SAMPLES,  /* tensor ranks that share samples out, likewise */
    MERAK_BINDS_BATCH,    /* dp x micro-batch, and the batch */
    MERAK_BINDS_PARTS,    /* stages and chunks, and the model's places */
    MERAK_BINDS_SCHEDULE, /* the schedule, and its numbers */
    MERAK_BINDS_ALL,      /* nothing alone */
    MERAK_CONSTRAINT_COUNT
};

#define MERAK_MAX_FIXES 3
#define MERAK_FIX_TEXT 64

/* Why there is no plan, and what would do. */
struct merak_refusal {
    enum merak_constraint constraint;
    int stage;              /* that it binds on; -1: on none alone */
    double have, need;      /* what there is, and what a plan takes at least:
                               bytes, ranks, sequences, parts; 0: no number */
    struct merak_plan plan; /* that comes nearest, as far as that is known; of
                               MEMORY the smallest.  Without lists. */
    struct merak_error why; /* of TENSOR, LISTS, SCHEDULE: by who knows */
    char fix[MERAK_MAX_FIXES][MERAK_FIX_TEXT]; /* single changes: "tp 4" */
    int n_fixes;
};

struct merak_search_input {
    merak_describe_fn describe; /* called with several micro-batch sizes */
    void *arg;
    size_t seq;
    enum merak_dtype dtype;
    size_t global_batch; /* sequences a step: dp * micro-batch * m exactly */
    int nodes, ranks_per_node;
    size_t memory_bytes; /* an arena may take; 0: the device's */
    int threads;         /* per rank, for the plan */
    const struct merak_device *device;
    struct merak_choices pin; /* what is given is not the search's; a list
                                 drop comes before recompute */
    /* as in struct merak_program_options */
    size_t (*scratch)(void *arg, const char *op,
                      const struct merak_kernel_call *call);
    void *scratch_arg;
    bool direct; /* likewise; plans are then proved to end in a device's queues
                    (merak_program_check_streams()).  Where none does, one that
                    exchanges by way of hosts is searched for, unless: */
    bool insists_direct;
    struct merak_refusal *refusal; /* filled in where there is no plan; NULL:
                                      the error's text is enough */
    struct merak_progress *progress; /* counts plans that are rated; or NULL */
};

/* What a step's time is spent on, on the stage with most to do. */
enum merak_search_part {
    MERAK_PART_COMPUTE,   /* kernels of all micro-batches */
    MERAK_PART_RECOMPUTE, /* of them, again */
    MERAK_PART_TP,        /* exchanges inside a layer that nothing hides */
    MERAK_PART_BUBBLE,    /* waiting for other stages, transfers included */
    MERAK_PART_DP,        /* gradients summed, parameters gathered */
    MERAK_PART_OPTIMIZER, /* norm and update */
    MERAK_PART_COUNT
};
const char *merak_search_part_name(enum merak_search_part part);

struct merak_search_choice {
    struct merak_plan plan; /* cut and drop belong to the result; recompute
                               is NONE where no stage drops anything; the
                               runners-up have neither */
    bool cuts_sequences;    /* some, over tensor ranks */
    double step_s;
    bool simulated;      /* else rated by the table alone, and corrected by what
                            the chosen one's simulation took of its rating */
    bool fits;           /* if simulated; else it does by the table */
    size_t memory_bytes; /* largest arena, or what would be needed */
    int memory_stage;    /* of the stage that takes most */
    double part_s[MERAK_PART_COUNT]; /* sums to step_s */
    char why[120];                   /* why it lost; "" for the first */
};

/* A stage of the chosen plan; bytes are one rank's, those sent the mean of
 * all its ranks. */
struct merak_search_stage {
    int first_segment, n_segments; /* segments are half layers or so; of the
                                      first part, and of all */
    bool attention;                /* is recomputed */
    int blocks_recomputed, n_blocks; /* so many are, of so many */
    double recompute_s;              /* of one micro-batch */
    char first_param[64], last_param[64], layers[MERAK_LAYERS_TEXT];
    size_t params; /* elements held by all tensor ranks together */
    double flops, forward_s, backward_s; /* of one micro-batch */
    int in_flight;
    size_t arena_bytes, category_bytes[MERAK_CAT_COUNT];
    double link_bytes, net_bytes; /* sent in a step, inside and across */
};

#define MERAK_SEARCH_CHOICES 6

/* What it took to find a plan, in what the planner does most of: the same on
 * any machine. */
struct merak_search_tally {
    long rated;        /* plans with cuts: by the table */
    long actions;      /* of their schedules, played */
    long parts;        /* of the model, looked at to find cuts */
    long instructions; /* of programs, simulated */
    long sharded;      /* models */
    long records;      /* of live values, that layouts were searched with */
};

struct merak_search_result {
    struct merak_search_choice choice[MERAK_SEARCH_CHOICES]; /* [0]: chosen */
    int n_choices;
    struct merak_search_stage *stage; /* [choice[0].plan.pp] */
    size_t params;                    /* of the model */
    double flops_per_step;            /* of the model, all ranks */
    double flop_utilisation; /* of the device's peak; if that is not known, of
                                what it sustains: of_peak */
    bool of_peak;
    size_t memory_limit;
    bool direct; /* asked for, and proved of the first choice */
    int n_rated, n_simulated;
    struct merak_search_tally tally;
    struct merak_pool *pool;
};

/*
 * MERAK_ERR_CONFIG if nothing fits: the text says which constraint binds, on
 * which stage, and up to three single changes with which there is a plan.
 * Deterministic: the same input gives the same plan.
 */
enum merak_status merak_search(const struct merak_search_input *input,
                               struct merak_search_result **result_p,
                               struct merak_error *err) MERAK_CHECKED;
void merak_search_destroy(struct merak_search_result *result);

#endif
