/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/plan/plan.h - the choices that make a program
 *
 * Programs are about logical ranks, which mesh.h numbers; the placement maps
 * them to physical ones.
 */
#ifndef MERAK_PARTITIONER_PLAN_PLAN_H
#define MERAK_PARTITIONER_PLAN_PLAN_H

#include "base/degree_text.h"
#include "partitioner/layout/shard.h"
#include "partitioner/plan/lossy.h"
#include "partitioner/plan/mesh.h"
#include "partitioner/schedule/schedule.h"

enum merak_recompute {
    MERAK_RECOMPUTE_NONE,
    MERAK_RECOMPUTE_FULL,      /* all but what crosses blocks */
    MERAK_RECOMPUTE_SELECTIVE, /* what attention makes */
    MERAK_RECOMPUTE_AUTO,      /* each stage the least that fits */
};

/* How values replicated over tensor ranks are sent to the next stage. */
enum merak_boundary {
    MERAK_BOUNDARY_AUTO,    /* whichever arrives sooner */
    MERAK_BOUNDARY_WHOLE,   /* each rank sends all of it */
    MERAK_BOUNDARY_SCATTER, /* each sends a part, and the receivers gather */
};

/* The number of parts fits an int: there are at most 65535 stages. */
enum { MERAK_MAX_CHUNKS = 1024 };

/* What replicas share out, each level also what those below do: ZeRO's stages.
 */
enum {
    MERAK_ZERO_NONE,
    MERAK_ZERO_STATE,  /* optimizer state, and gradients once they are made */
    MERAK_ZERO_GRADS,  /* matrices' gradients, each micro-batch */
    MERAK_ZERO_PARAMS, /* matrices, gathered for each use */
    MERAK_MAX_ZERO = MERAK_ZERO_PARAMS,
};

/* When gradients that replicas share out are summed over these. */
enum merak_grad_sum {
    MERAK_SUM_MICRO, /* those of matrices each micro-batch */
    MERAK_SUM_STEP,  /* whole, once */
};

/* Of which replicas matrices, and gradients of theirs, have parts if plans
 * share them out: of all, or of those that are summed first. */
enum merak_zero_home {
    MERAK_HOME_ALL,
    MERAK_HOME_IN,
    MERAK_HOME_AUTO, /* of plans that are searched */
};

/* What is kept in the host's memory while it is not used: program/offload.c. */
enum merak_offload {
    MERAK_OFFLOAD_NONE,
    MERAK_OFFLOAD_STATE, /* moments and master copies */
    MERAK_OFFLOAD_ACTS,  /* what forwards drop, which is not recomputed then */
    MERAK_OFFLOAD_ALL,   /* both */
    /* Of plans that are searched: of what is dropped as much as saves time, and
     * that and the state. */
    MERAK_OFFLOAD_AUTO,
    MERAK_OFFLOAD_AUTO_ALL,
};

/* What a part drops after its forward, to be recomputed or, in plans that
 * offload activations, brought back: program/recompute.c. */
struct merak_drop {
    bool attention; /* what attention makes */
    int blocks;     /* in this many first blocks, all that stays inside */
    int again;      /* of these blocks that a plan offloads, so many are
                       recomputed all the same, evenly spread; of attention 1:
                       all of it */
};

/* Is what a plan that offloads activations drops in a block of its part
 * recomputed all the same? */
static inline bool merak_drop_is_again(const struct merak_drop *drop, int block)
{
    int64_t n = drop->again;

    if (drop->attention || n == 0)
        return n > 0;
    return block < drop->blocks &&
           (block + 1) * n / drop->blocks > block * n / drop->blocks;
}

enum { MERAK_EXPERT_ROOM = 125 }; /* percent */
enum { MERAK_MAX_LOSS_PIECES = 65536 };

/* How tokens and the experts of other ranks meet. */
enum merak_ep_form {
    MERAK_EP_GATHER,   /* ranks gather the tokens of all, and sum what comes of
                          them */
    MERAK_EP_EXCHANGE, /* rows travel to their experts and back */
    MERAK_EP_AUTO,     /* of plans that are searched */
};

struct merak_plan {
    int tp, pp, dp; /* tp and dp of every stage: read by mesh.h */
    int64_t tp_axes; /* factors of tp, an axis each; 0: chosen by the heads */
    int cp; /* ranks that a sequence is cut over, inside a stage; 0: 1 */
    int64_t cp_axes; /* its factors, an axis for each dim of space; 0: those
                        with the least to exchange */
    enum merak_cp_form cp_form;
    enum merak_cp_order cp_order;
    int ep; /* ranks that have a part of the experts each, and samples of all
               else; 0: 1 */
    enum merak_ep_form ep_form;
    int expert_room; /* rows that experts keep, in percent of an even share, if
                        ep cuts them; 0: MERAK_EXPERT_ROOM */
    /* By stage, if they are not all alike; else NULL.  Then tp and dp are 1,
     * and micro_batch is that of all replicas together.  Borrowed; programs
     * keep a copy. */
    const struct merak_stage_degrees *stage;
    int chunks;         /* model parts of a rank, with vocabulary-parallel
                           layers; 0: the schedule's default */
    int microbatches;   /* m per step and replica */
    int passes;         /* forwards of a micro-batch, as given by the model
                           (filled in when programs are built); 0: 1 */
    size_t micro_batch; /* sequences */
    bool sub_pipeline;  /* the schedule runs micro-batches 2i and 2i + 1 as
                           one, communication of one overlapped with compute
                           of the other; m is even */
    char schedule[32];
    enum merak_recompute recompute;
    size_t memory_bytes; /* AUTO: what a rank's arena may take; 0: no limit */
    int dp_in; /* sums over replicas are first over so many with neighbouring
                  numbers, as of a node, then over what these have; 0: 1, over
                  all at once */
    int zero;            /* what is flat over dp, and over tensor ranks if
                            replicated there: MERAK_ZERO_.. */
    int fetch; /* with MERAK_ZERO_PARAMS: of each part the first blocks whose
                  matrices are; 0: all */
    enum merak_grad_sum grad_sum; /* STEP: only with MERAK_ZERO_PARAMS */
    enum merak_zero_home zero_home; /* of what levels 2 and 3 share out */
    enum merak_offload offload;
    bool order_tp_pp_dp; /* else tp-dp-pp */
    enum merak_branches branches; /* order of nodes that cut points refer to:
                                     order/gather.c */
    int scatter; /* what is replicated over tensor ranks goes to a stage on
                      another node, of this many ranks, in tp parts and is
                      gathered there; 1: to any stage; 0: always whole */
    enum merak_seq_parallel sp;
    int tp_batch_percent; /* percent of the model that tensor ranks may cut by
                  samples: merak_shard_options */
    struct merak_layer_split split; /* layers whose samples they cut; none: as
                                 the percentage says */
    struct merak_tp_plan tp_plan; /* parameters that they must cut so */
    struct merak_lossy lossy; /* that are sent in part; none: all are whole */
    int loss_pieces; /* of rows, of which one after the other has logits:
                        program/fold.h; 0: 1, all of them at once */
    enum merak_dtype dtype;
    enum merak_dtype grad_dtype; /* of gradients of parameters in bf16 */
    int threads; /* per rank */
    /* Ascending cut points (merak_stages_count_points) where all parts except
     * the first begin, or NULL: merak_stages_cut() chooses them.  Borrowed; not
     * kept by programs. */
    const int *cut;
    /* What each part drops, or NULL: as `recompute` asks.  Also borrowed. */
    const struct merak_drop *drop;
};

/* Bytes sent in a step along the axes that the rank map may order. */
struct merak_sent {
    uint64_t pp_bytes, dp_bytes;
};

/*
 * Divide a step's sequences among replicas and micro-batches.
 *
 *   plan          dp, sub_pipeline and micro_batch (of a sub-pipeline both
 *                 halves together) in; microbatches and micro_batch out
 *
 * MERAK_ERR_CONFIG, in terms of the options, if they do not divide.
 */
enum merak_status merak_plan_split_batch(struct merak_plan *plan,
                                         size_t global_batch,
                                         struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_CONFIG if a degree, or the number of micro-batches, is below 1. */
enum merak_status
merak_plan_check_degrees(const struct merak_plan *plan,
                         struct merak_error *err) MERAK_CHECKED;
/* MERAK_ERR_CONFIG, or MERAK_ERR_UNSUPPORTED, if it has no such hops, or cannot
 * send them in part. */
enum merak_status merak_plan_check_lossy(const struct merak_plan *plan,
                                        struct merak_error *err) MERAK_CHECKED;
/* The hop from a part to the next one; -1: both are the same stage's. */
int merak_plan_lossy_hop(const struct merak_schedule *schedule,
                   const struct merak_plan *plan, int part);
/* MERAK_ERR_CONFIG, in terms of the options, if a model that computes in
 * `dtype` has no gradients in the other one. */
enum merak_status merak_grad_dtype_check(enum merak_dtype dtype,
                                         enum merak_dtype grad_dtype,
                                         struct merak_error *err) MERAK_CHECKED;
/* Axes of a stage's replicas: none, one of all, or two: those of an inner sum,
 * then of an outer one; and the size of the inner one. */
int merak_plan_dp_axes(const struct merak_plan *plan, int stage);
int merak_plan_dp_in(const struct merak_plan *plan, int stage);
/* Do several ranks have the same weights, and share out what ZeRO does?  So do
 * replicas, ranks of a sequence (cp), of experts (ep) for all else, and tensor
 * ranks in layers that are cut by samples. */
bool merak_plan_shares(const struct merak_plan *plan);
/* Are matrices' gradients kept in parts of an inner sum until the last
 * micro-batch, and so are matrices if they are shared out? */
bool merak_plan_is_home_in(const struct merak_plan *plan);
/* MERAK_ERR_CONFIG if its level of ZeRO, or its order of sums over replicas, is
 * not possible with its other choices: levels.c. */
enum merak_status merak_plan_check_zero(const struct merak_plan *plan,
                                        struct merak_error *err) MERAK_CHECKED;
static inline bool merak_offload_has_state(enum merak_offload offload)
{
    return offload == MERAK_OFFLOAD_STATE || offload == MERAK_OFFLOAD_ALL ||
           offload == MERAK_OFFLOAD_AUTO_ALL;
}

/* What it is if the host keeps some activations, or none. */
static inline enum merak_offload
merak_offload_settled(enum merak_offload offload, bool acts)
{
    if (merak_offload_has_state(offload))
        return acts ? MERAK_OFFLOAD_ALL : MERAK_OFFLOAD_STATE;
    return acts ? MERAK_OFFLOAD_ACTS : MERAK_OFFLOAD_NONE;
}

static inline bool merak_plan_offloads_state(const struct merak_plan *plan)
{
    return merak_offload_has_state(plan->offload);
}

static inline bool merak_plan_offloads_acts(const struct merak_plan *plan)
{
    return plan->offload >= MERAK_OFFLOAD_ACTS;
}

/* Blocks that a part recomputes, and whose activations the host keeps. */
static inline int merak_plan_blocks_again(const struct merak_plan *plan,
                                          const struct merak_drop *drop)
{
    return merak_plan_offloads_acts(plan) ? drop->again : drop->blocks;
}

static inline int merak_plan_blocks_away(const struct merak_plan *plan,
                                         const struct merak_drop *drop)
{
    return drop->blocks - merak_plan_blocks_again(plan, drop);
}

/* Is it to be found which of what is dropped the host keeps? */
static inline bool merak_plan_seeks_acts(const struct merak_plan *plan)
{
    return plan->offload >= MERAK_OFFLOAD_AUTO;
}

/* Are matrices' gradients whole only while they are made? */
static inline bool merak_plan_sums_each(const struct merak_plan *plan)
{
    return plan->zero >= MERAK_ZERO_GRADS && plan->grad_sum == MERAK_SUM_MICRO;
}

/* As merak_degrees_text(); or "stages of unlike ranks: 2 x 4, 8 x 1", of which
 * a long list ends with "..". */
const char *merak_plan_degrees_text(const struct merak_plan *plan,
                                    const char *between,
                                    char text[MERAK_DEGREES_TEXT]);
/* Parts of the model that a rank runs. */
int merak_plan_chunks(const struct merak_plan *plan);
/* How many of these are vocabulary-parallel layers, run by all stages. */
int merak_plan_shared(const struct merak_plan *plan);
/* Parts that the model is cut into: pp, or several times that; then the
 * vocabulary-parallel layers. */
int merak_plan_parts(const struct merak_plan *plan);
/* How the model is to be described, for its experts: merak_model_options; all
 * zeros if these are not cut. */
struct merak_expert_form {
    double room;
    bool exchange;
};
struct merak_expert_form merak_plan_experts(const struct merak_plan *plan);
bool merak_expert_form_equal(const struct merak_expert_form *a,
                             const struct merak_expert_form *b);
/* How the model is to be sharded for a stage of the plan. */
struct merak_shard_options merak_plan_shards(const struct merak_plan *plan,
                                             int stage);
/* Are their models sharded alike, for the first stage? */
bool merak_plan_shards_alike(const struct merak_plan *a,
                             const struct merak_plan *b);
/* Slices of a micro-batch, 1 if it runs whole; units of a step, each a slice of
 * a micro-batch or pair; and forwards of each unit. */
int merak_plan_slices(const struct merak_plan *plan);
int merak_plan_units(const struct merak_plan *plan);
int merak_plan_passes(const struct merak_plan *plan);
/* Pieces of rows that logits are made in, 1 if they are whole. */
static inline int merak_plan_loss_pieces(const struct merak_plan *plan)
{
    return plan->loss_pieces > 1 ? plan->loss_pieces : 1;
}
/* The arguments of the plan's schedule for a stage. */
struct merak_schedule_args
merak_plan_schedule_args(const struct merak_plan *plan, int stage);
/* Set the plan's passes to the model's; if no schedule is named, also set the
 * one that runs several passes on several stages. */
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
 * Are gradients of a stage's part that tensor ranks sum, too, summed only after
 * its last backward?  What tensor ranks exchange is one queue.  The exchanges
 * of a backward would wait for the sums of the layers that are done, the part
 * before would get its gradient that much later, and so on to the first part:
 * the step would take longer by one sum per stage.  (If weight gradients are
 * separate actions, nothing waits for them.)  Sums over replicas alone have a
 * queue of their own.
 */
bool merak_plan_delays_reduce(const struct merak_schedule *schedule,
                              const struct merak_plan *plan, int stage,
                              int part);
/* The ranks that compute the loss. */
struct merak_stage_mesh merak_plan_loss_mesh(const struct merak_plan *plan);
/* Coordinates of tp_index on the tensor axes, the first outermost, and of
 * stage on the stages' axis if there is one. */
void merak_plan_coord(const struct merak_sharded *sharded, int tp_index,
                      int stage, int *coord);

#endif
