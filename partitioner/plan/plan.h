/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/plan.h - the choices that make a program
 *
 * Logical ranks: rank = tp_index + tp * (dp_index + dp * stage) for order
 * tp-dp-pp, tp_index + tp * (stage + pp * dp_index) for tp-pp-dp.  The
 * placement maps logical to physical ranks; programs are about logical ones.
 */
#ifndef MERAK_PARTITIONER_PLAN_PLAN_H
#define MERAK_PARTITIONER_PLAN_PLAN_H

#include "partitioner/layout/shard.h"
#include "partitioner/schedule/schedule.h"

enum merak_recompute {
    MERAK_RECOMPUTE_NONE,
    MERAK_RECOMPUTE_FULL,      /* all but what crosses blocks */
    MERAK_RECOMPUTE_SELECTIVE, /* what attention makes */
    MERAK_RECOMPUTE_AUTO,      /* each stage the least that fits */
};

/* How values that tensor ranks hold alike go to the next stage. */
enum merak_boundary {
    MERAK_BOUNDARY_AUTO,    /* whichever is there sooner */
    MERAK_BOUNDARY_WHOLE,   /* each sends all of it */
    MERAK_BOUNDARY_SCATTER, /* each sends a part, and it is gathered */
};

/* Parts are an int: there are no more than 65535 stages of so many chunks. */
enum { MERAK_MAX_CHUNKS = 1024 };

/* What a part drops after its forward and recomputes: program/recompute.c. */
struct merak_drop {
    bool attention; /* what attention makes */
    int blocks;     /* of so many first blocks, all that stays in the block */
};

struct merak_plan {
    int tp, pp, dp;
    int chunks;         /* model parts of a rank, blocks that all stages run
                           together counted; 0: the schedule's default */
    int microbatches;   /* m per step and replica */
    int passes;         /* forwards of a micro-batch, as the model says (what
                           builds programs fills it in); 0: 1 */
    size_t micro_batch; /* sequences */
    bool sub_pipeline;  /* the schedule runs micro-batches 2i and 2i + 1 as
                           one, exchanges of one behind compute of the other;
                           m is even */
    char schedule[32];
    enum merak_recompute recompute;
    size_t memory_bytes; /* AUTO: what a rank's arena may take; 0: no bound */
    bool zero1;          /* gradients and optimizer state flat over dp, and over
                            tensor ranks of what these hold alike */
    bool order_tp_pp_dp; /* else tp-dp-pp */
    enum merak_branches branches; /* order of nodes, whose places cuts are:
                                     order/gather.c */
    int scatter; /* what tensor ranks hold alike goes to a stage on another
                      node, of so many ranks each, in tp parts and is gathered
                      there; 1: to any stage; 0: always whole */
    enum merak_seq_parallel sp;
    int tp_batch_percent; /* percent of the model that tensor ranks may cut by
                  samples: merak_shard_options */
    enum merak_dtype dtype;
    int threads; /* per rank */
    /* Ascending places (merak_stages_places) where parts but the first begin,
     * or NULL: merak_stages_cut() says.  Borrowed; not kept by programs. */
    const int *cut;
    /* What each part drops, or NULL: `recompute` says.  Borrowed likewise. */
    const struct merak_drop *drop;
};

/* Bytes of a step along the axes that the rank map is free in. */
struct merak_sent {
    uint64_t pp_bytes, dp_bytes;
};

/*
 * Share a step's sequences out over replicas and micro-batches.
 *
 *   plan          dp, sub_pipeline and micro_batch (of a sub-pipeline both
 *                 halves together) in; microbatches and micro_batch out
 *
 * MERAK_ERR_CONFIG, as options name them, if they do not divide.
 */
enum merak_status merak_plan_split_batch(struct merak_plan *plan,
                                         size_t global_batch,
                                         struct merak_error *err) MERAK_CHECKED;
/* Logical rank at these coordinates, and back. */
int merak_plan_rank(const struct merak_plan *plan, int tp_index, int dp_index,
                    int stage);
void merak_plan_place(const struct merak_plan *plan, int rank, int *tp_index,
                      int *dp_index, int *stage);
/* Parts of the model that a rank runs. */
int merak_plan_chunks(const struct merak_plan *plan);
/* Of these, how many are blocks that all stages run together. */
int merak_plan_shared(const struct merak_plan *plan);
/* Parts that the model is cut in: pp, or several times that; then the blocks
 * that all stages run together. */
int merak_plan_parts(const struct merak_plan *plan);
/* How the model is to be sharded for the plan. */
struct merak_shard_options merak_plan_shards(const struct merak_plan *plan);
/* Slices of a micro-batch, 1 without; units of a step, each a slice of a
 * micro-batch or pair; and forwards of each. */
int merak_plan_slices(const struct merak_plan *plan);
int merak_plan_units(const struct merak_plan *plan);
int merak_plan_passes(const struct merak_plan *plan);
/* What the plan's schedule is asked with for a stage. */
struct merak_schedule_args
merak_plan_schedule_args(const struct merak_plan *plan, int stage);
/* Take a model's forward passes into its plan, and where none is named, the
 * schedule that runs several of them on several stages. */
void merak_plan_take_passes(struct merak_plan *plan, int passes, bool named);
/* The plan's schedule; MERAK_ERR_CONFIG if it cannot run with the plan's
 * numbers. */
enum merak_status merak_plan_schedule(const struct merak_plan *plan,
                                      const struct merak_schedule **schedule_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* The part that a chunk of a stage is, and whether the stage follows the
 * plan's recompute mode. */
int merak_plan_part(const struct merak_schedule *schedule,
                    const struct merak_plan *plan, int stage, int chunk);
bool merak_plan_recomputes(const struct merak_schedule *schedule,
                           const struct merak_plan *plan, int stage);
/*
 * Do sums of a part's gradients over replicas come behind its last backward?  A
 * rank's exchanges are one queue.  Those of a backward's tensor ranks would
 * stand behind the sums of the layers that it is through with, and the part
 * before would get its gradient so much later, and so on to the first: a
 * pipeline would take as many sums longer as it has stages.  (Where weight
 * gradients come apart from the others, nobody waits for them.)
 */
bool merak_plan_sums_behind(const struct merak_schedule *schedule,
                            const struct merak_plan *plan, int part);
/* Coordinates of tp_index on the tensor axes, the first outermost, and of
 * stage on the stages' axis where there is one. */
void merak_plan_coord(const struct merak_sharded *sharded, int tp_index,
                      int stage, int *coord);

#endif
