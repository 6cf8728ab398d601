/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/build.h - a program under construction
 *
 * Shared by the files that make programs: program.c (frame), build.c (slots,
 * groups), flow.c and action_nodes.c (what a stage has and does), unroll.c,
 * emit.c, values.c, slices.c, fold_slots.c, passes.c, posts.c, boundary.c and
 * crossing.c (micro-batches), grad_uses.c, grad_sync.c and optimizer_step.c
 * (gradients and optimizer), fetch.c (what of both is whole only while it is
 * used), offload.c (what is in the arena only then), place.c (memory), hazard.c
 * (waits).  The first failure is kept in `rc` and `err`; after it, calls do
 * nothing and return -1, and the caller checks `rc` between actions.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_BUILD_H
#define MERAK_PARTITIONER_PROGRAM_BUILD_H

#include "partitioner/plan/held.h"
#include "partitioner/program/fold.h"
#include "partitioner/program/memplan.h"
#include "partitioner/program/program.h"
#include "partitioner/program/slices.h"

/* A box of a tensor that goes to a rank of a stage of unlike ranks, or comes
 * from it. */
struct merak_crossed {
    int peer;
    struct merak_box box;        /* of this rank's part of the tensor */
    size_t at;                   /* its first element, if it is one run; */
    struct merak_exchange *copy; /* else packs it, or unpacks it */
};

/* All that this rank sends of a tensor to such a stage, or gets from it. */
struct merak_crossing {
    bool send;
    int n;
    struct merak_crossed *part;
    struct merak_exchange
        *gather;               /* from what arrives; NULL: the tensor does */
    struct merak_slot arrival; /* if so */
};

/* How a value moves through this rank's stage.  Stages are in the order in
 * which the value reaches them: forward values go up the parts of the model,
 * gradients down. */
struct merak_flow {
    bool here;     /* made or used on this stage */
    bool first;    /* no other stage has it before this one */
    bool dropped;  /* by the forward, and recomputed or brought back */
    int away_after; /* the forward node after which it goes to the host's
                       memory, until it is brought back; -1: it does not */
    int home;      /* part of its producer, or the first that reads a recycled
                      one; -1: an input or a parameter */
    int from, to;  /* stages it comes from and goes on to; -1: none */
    int part_from; /* part there that sends it */
    int chunk;     /* of this rank, the first to have it */
    int peer_from, peer_to;    /* ranks there that this one gets it from, and
                                  sends it to; -1: none */
    bool parts_from, parts_to; /* comes, goes on in parts: boundary.c */
    /* If stages are unlike; else NULL, and there are peers. */
    struct merak_crossing *in, *out;
    int free_slot; /* head of the list of slots that can be reused */
    int free_away; /* likewise of the host's */
    const char *send_name, *recv_name, *gather_name, *take_name, *bring_name;
};

/* A node that an action runs. */
struct merak_item {
    int node;
    bool recompute;
    int piece; /* of the loop that it is in (fold.h), or -1: it is in none */
};

struct merak_items {
    struct merak_item *item;
    int n;
};

#define MERAK_ACTIONS 4 /* kinds: F, B, W, R */

/* A part of the model on this rank. */
struct merak_chunk {
    int part;
    struct merak_items run[MERAK_ACTIONS]; /* by kind of action, in order */
    struct merak_items mixed; /* B with R's nodes where they are needed */
    uint8_t *use; /* by value: the kinds of actions that read it, as bits */
};

/* A micro-batch in progress. */
struct merak_open {
    int *map;      /* value -> slot, or -1 */
    int *away;     /* value -> the host's slot that has it, or -1; NULL: no
                      value is taken there */
    uint8_t *done; /* by chunk: the kinds of actions it has had, as bits */
};

/* An extra wait: `instr` starts after `early` is complete, though it shares no
 * memory with it. */
struct merak_gate {
    int instr, early;
};

struct merak_crossed_slots; /* of crossing.c */

/* A recycled value: what this stage gives to the next pass, or gets from the
 * previous one. */
struct merak_carry {
    int in, out;  /* values */
    int from, to; /* stages: makes it, reads it first */
    const char *name;
    struct merak_exchange *copy;     /* from == to */
    struct merak_crossing *crossing; /* they are unlike; or NULL */
};

/* Nodes of an action that read matrices of one block, and these: fetch.c. */
struct merak_visit {
    int unit;      /* the block */
    int item;      /* the first of them in the action's list */
    int *param, n; /* values */
    int first;     /* of param, in the list of all visits' */
};

/* When a slot is needed; only whole slots have their own lifetimes. */
struct merak_use {
    bool persistent;
    bool brief; /* an exchange that reads it does not keep it: place.c */
    int next_free;
    int part;       /* the slot of this rank's part of it, or -1: boundary.c */
    int over;       /* the slot of what is written over it, or -1: values.c */
    int pieces;     /* the first of its pieces' slots, or -1: fold_slots.c */
    double touched; /* traffic when it was touched last; -1: not in this step */
    struct merak_crossed_slots *crossed; /* of parts that cross: crossing.c */
    struct merak_span *span;
    int n_spans, cap_spans;
};

/* A slot whose life is extended while a send may still be reading it. */
struct merak_lag {
    int slot;
    int value; /* goes back to this value's free slots, or -1 */
    int since; /* number of the action that released it */
};

/* A parameter of this stage and the first node of it that reads it. */
struct merak_first_use {
    struct merak_param_slots *param;
    int node;
};

/* The parameters and their gradients: params.c, grad_uses.c,
 * optimizer_step.c. */
struct merak_build_params {
    int *slot;               /* by value: PARAM: its slot; PARAM_GRAD: its
                                      accumulator; else -1 */
    int *higher;             /* by value: the accumulator of the higher of a
                                pair, if it has its own; else -1 */
    int *index;              /* by value: PARAM: position in graph order */
    int n;                   /* of the whole model */
    struct merak_uses *uses; /* by parameter of this stage */
    bool reduce_pending;     /* some gradients are delayed: see grad_uses.c */
    struct merak_uses **uses_of;    /* by value: PARAM_GRAD: its parameter's */
    struct merak_first_use *gather; /* parameters by their first reader */
    int gathered;                   /* how many are emitted */
};

/* Parameters that are held in parts and gathered where they are read. */
struct merak_build_fetch {
    int *reader, *unit; /* by value: of a parameter the stage, if just one
                           reads it, and the block that reads it first */
    int *place; /* by value: that block's, in its part */
    int *only_grad; /* by value: of a parameter its gradient, if just one use
                       has one; else -1 */
    int *inner_sum; /* by value: of a parameter the slot of what micro-batches'
                       inner sums over replicas add up to, if its gradient is
                       only then summed over the others; else -1 */
    size_t *unit_bytes; /* by block: of parameters that are fetched */
    struct merak_visit visited;  /* the last one */
    struct merak_summed *summed; /* sums over replicas that are under way */
    int n_summed, cap_summed;
    int sum_unit, sum_turn; /* whose gradient was summed last; how many units'
                               were */
    int turn;       /* of the step item that is being written; -1: it has one */
    int microbatch; /* that it is for; -1: for all */
    int bundle; /* instruction from which on exchanges join each other; -1 */
};

/* Slots that a send may still read: values.c. */
struct merak_build_lags {
    struct merak_lag *lag;
    int n, cap;
    int send_lag;   /* how many more actions a sent slot is kept for */
    int n_released; /* actions so far */
};

/* The action that is being written: unroll.c. */
struct merak_build_now {
    const struct merak_items *items;
    int chunk;
    unsigned ends; /* the kinds of actions that do not come after it, as bits */
    int slice;
    int piece; /* of the loop that the node is in, or -1 */
    int pass; /* the last one runs the backward */
};

/* What goes from one forward pass to the next: passes.c. */
struct merak_build_recycled {
    uint8_t *read_in, *run_in; /* by value, by node: in which passes */
    struct merak_carry *carry; /* what this stage gives and takes */
    int n;
};

/* Receives of values that skip stages, and of pairs: posts.c. */
struct merak_build_arrivals {
    bool plays; /* receives are posted according to a play of the schedule */
    struct merak_arrival *arrival; /* the values received then */
    int n;
};

/* What all instructions share, and how much there is room for: build.c. */
struct merak_build_room {
    int cap_instrs, cap_slots, cap_waits;
    double traffic; /* bytes that instructions touched so far */
    struct merak_shared_slot {
        int slot;
        enum merak_queue queue; /* in one slot, two would take turns */
    } * shared;                 /* scratch and staging */
    int n_shared, cap_shared;
};

/* Made once for all micro-batches: emit.c, boundary.c. */
struct merak_build_once {
    struct merak_exchange **exchange; /* by node and kind of slice */
    struct merak_exchange **join;     /* by value that comes in parts, likewise */
    const char **recompute_name;      /* by node */
    int8_t *first; /* by node: 1, or -1: is it the first shard?  0: not known */
    int *like;     /* by node: the latest instruction that runs it, from 1 */
};

/* Waits for what shares no memory: unroll.c, hazard.c. */
struct merak_build_gates {
    struct merak_gate *gate; /* by instr */
    int n, cap;
};

/* A program under construction: what all of the files above read, and a struct
 * for what one or two of them keep. */
struct merak_build {
    struct merak_program *prog;
    struct merak_pool *pool;         /* the build's own */
    const struct merak_sharded *all; /* the first stage's */
    const struct merak_sharded *sharded;
    const struct merak_graph *graph;
    const struct merak_stages *stages;
    const struct merak_program_options *opt;
    const struct merak_cost_model *cost;
    const struct merak_schedule *schedule;
    int stage;
    int n_chunks;
    struct merak_chunk *chunk;
    int n_chain;        /* parts of single stages; later ones: of all */
    int *stage_of_part; /* of a part of all stages: this stage */
    /* The sharded graph's, then that of replicas if dp > 1, or those of an
     * inner and an outer sum over them: the last n_dp_axes. */
    struct merak_mesh mesh;
    int coord[MERAK_MAX_AXES];
    int n_dp_axes;
    int pp_axis;                      /* in mesh, or -1 */
    int group_of[MERAK_MAX_AXES + 2]; /* axis, then GROUP_TP and GROUP_PP */

    struct merak_use *use;   /* by slot */
    struct merak_flow *flow; /* by value */
    int *local;              /* values made or used here, not parameters */
    int n_local;
    bool
        *may_pad; /* by value: merak_graph_may_pad(), and stays on this stage */
    struct merak_open *open; /* by micro-batch and pass */
    struct merak_build_slice slice; /* of a micro-batch's sequence */
    struct merak_fold fold;         /* what runs in pieces of rows */
    int passes;              /* forwards of a micro-batch */
    bool skips; /* some value skips stages on its way: all ranks agree */
    struct merak_build_params params;
    struct merak_build_fetch fetch;
    struct merak_build_lags lags;
    struct merak_build_now now;
    struct merak_build_recycled recycled;
    struct merak_build_arrivals arrivals;
    struct merak_build_room room;
    struct merak_build_once once;
    struct merak_build_gates gates;

    enum merak_status rc;
    struct merak_error *err;
};

enum { MERAK_GROUP_TP = MERAK_MAX_AXES, MERAK_GROUP_PP };

/* --- program.c --- */
void merak_build_fail(struct merak_build *b, enum merak_status rc);
/* Zeroed memory: the build's own, freed when the program is made, and (kept)
 * the program's.  Tables by node and value are as long as the model, and a
 * simulation keeps the programs of all stages at a time. */
void *merak_build_alloc(struct merak_build *b, size_t bytes);
void *merak_build_alloc_kept(struct merak_build *b, size_t bytes);
const char *merak_build_name(struct merak_build *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* merak_grow(); false if it fails. */
bool merak_build_grow(struct merak_build *b, void *array_p, int *cap, int n,
                      size_t size);
/* A new slot like `proto`; bytes are computed unless set. */
int merak_build_slot(struct merak_build *b, const struct merak_slot *proto);
/* The same, kept from step to step. */
int merak_build_keep(struct merak_build *b, struct merak_slot *slot);
/* A micro-batch's values. */
struct merak_open *merak_build_open(struct merak_build *b, int microbatch);
/* A value's layout in the sharded graph, as one over b->mesh. */
struct merak_layout merak_build_layout(const struct merak_build *b, int value);
/* Set a slot's box to this rank's part of a value in a layout over b->mesh. */
void merak_build_box(const struct merak_build *b, int value,
                     const struct merak_layout *layout,
                     struct merak_slot *slot);
/* A new slot that is a part of slot `whole`, from its byte `at` on. */
int merak_build_alias(struct merak_build *b, int whole, size_t at,
                      const struct merak_slot *proto);
/* One-dimensional, n elements, of an action or the step's end. */
struct merak_slot merak_build_vector(enum merak_dtype dtype, size_t n,
                                     const char *name);
/* Append an instruction; sets its queue, costs and scratch and the slots' lives.
 */
int merak_build_push(struct merak_build *b, struct merak_instr *instr);
/* Begin a new life of a slot. */
void merak_build_begin(struct merak_build *b, int slot);
/* The slot is needed until the latest instruction. */
void merak_build_extend(struct merak_build *b, int slot);
/* Is an axis of mesh one of replicas?  The first of them, and behind the last.
 */
static inline int merak_build_dp_axis(const struct merak_build *b)
{
    return b->mesh.n_axes - b->n_dp_axes;
}

static inline bool merak_build_is_dp(const struct merak_build *b, int axis)
{
    return axis >= merak_build_dp_axis(b) && axis < b->mesh.n_axes;
}

/* Index of the group along an axis of mesh, or GROUP_TP, GROUP_PP. */
int merak_build_group(struct merak_build *b, int key);
/* The exchange of a hop from a layout for the rank at coord; lives as long
 * as the program. */
struct merak_exchange *
merak_build_exchange(struct merak_build *b, const struct merak_mesh *mesh,
                     const int *coord, const struct merak_hop *hop,
                     const struct merak_layout *from,
                     const struct merak_shape *shape, enum merak_dtype dtype);
/* Tags: one number space for values, nodes and step items; those of the first
 * two are below merak_build_ids(), the same for the graphs of all stages. */
int merak_build_ids(const struct merak_build *b);
uint64_t merak_build_tag(const struct merak_build *b, int microbatch, int id);

/* --- flow.c --- */
void merak_build_flow(struct merak_build *b);
/* Is a value made by the forward pass (inputs and parameters are)? */
bool merak_build_is_forward(const struct merak_build *b, int value);

/* --- values.c --- */
/* The slot that holds a value of a micro-batch, or -1 once building fails. */
int merak_build_value(struct merak_build *b, int value, int microbatch);
/* If the op allows it and nothing needs input 0 after this item, let output 0
 * be written over it.  The slots of the inputs are known by then. */
void merak_build_overwrite(struct merak_build *b, const struct merak_item *item,
                           int microbatch);
/* away.c: is what a dropped node made brought back from the host's memory, and
 * not computed again?  Take there what `node`, a forward, is the last to read;
 * bring what `node` made. */
bool merak_build_is_brought(const struct merak_build *b,
                            const struct merak_node *node);
void merak_build_take_away(struct merak_build *b, const struct merak_node *node,
                           int microbatch);
void merak_build_bring(struct merak_build *b, const struct merak_node *node,
                       int microbatch);
/* Release what no later action of these micro-batches needs, now that `chunk`
 * has run the kinds of actions in `done` (bits). */
void merak_build_release(struct merak_build *b, int chunk, unsigned done,
                         int microbatch, int n);
/* End of the micro-batches: release the slots that sends were still reading. */
void merak_build_settle(struct merak_build *b);
void merak_build_loss(struct merak_build *b);
/* The slot of what the graph reports, if any of it is made here. */
void merak_build_reports(struct merak_build *b);

/* --- fold_slots.c --- */
/* Find what runs in pieces of rows. */
void merak_build_fold(struct merak_build *b);
/* Is a value only there in pieces?  If so, make its slot the first one's. */
bool merak_build_is_inner(const struct merak_build *b, int value);
void merak_build_cut_inner(const struct merak_build *b,
                           struct merak_slot *slot);
/* The slot of operand i of a node for the current piece, from that of the
 * value; the shape of what is exchanged of it. */
int merak_build_piece_slot(struct merak_build *b, const struct merak_node *node,
                           int i, int slot);
void merak_build_piece_shape(const struct merak_build *b,
                             const struct merak_node *node,
                             struct merak_shape *shape);

/* --- passes.c --- */
/* Find what passes run and what goes from one to the next. */
void merak_build_passes(struct merak_build *b);
/* Does the current pass read a value, run a node? */
bool merak_build_reads(const struct merak_build *b, int value);
bool merak_build_runs_now(const struct merak_build *b, int node);
/* Make an action's pass the current one. */
void merak_build_set_pass(struct merak_build *b, const struct merak_action *a);
/* The number of the current pass and slice among those of all micro-batches. */
int merak_build_turn(const struct merak_build *b, int microbatch);
/* Does a value go to the next pass?  Send it there, or copy it. */
bool merak_build_is_recycled(const struct merak_build *b, int value);
void merak_build_recycle(struct merak_build *b, int value, int microbatch);
/* Before an action: make whole what came from the previous pass in parts. */
void merak_build_carried(struct merak_build *b, const struct merak_action *a,
                         int microbatch);
/* Send or receive what goes to the next pass. */
void merak_build_carry(struct merak_build *b, const struct merak_carry *c,
                       int microbatch, bool send);

/* --- posts.c --- */
/* Find when to post receives, if not one action ahead: b->arrivals.plays; post
 * those that are due before action `at` of the list. */
void merak_build_posts(struct merak_build *b);
void merak_build_arrive(struct merak_build *b, const struct merak_action *list,
                        int at);

/* --- action_nodes.c --- */
/* The lists of nodes that a chunk's actions run. */
void merak_build_lists(struct merak_build *b);

/* --- params.c --- */
void merak_build_params(struct merak_build *b);
/* Is a micro-batch the higher one of a sub-pipeline's pair?  The slot of a
 * parameter, or of its gradient, in a micro-batch; -1: it is neither. */
bool merak_build_is_higher(const struct merak_build *b, int microbatch);
int merak_build_param_slot(const struct merak_build *b, int value,
                           int microbatch);

/* --- emit.c --- */
/* Add a send of a slot to a rank of another stage, or a receive from it.  The
 * caller fills in what depends on what is sent; slot -1: nothing is. */
void merak_build_message(struct merak_build *b, struct merak_instr *in,
                         bool send, int slot, int peer);
/* The rank in this one's place in another stage: it holds the same part of
 * parameters that both have, and of what goes from pass to pass. */
int merak_build_peer(const struct merak_build *b, int stage);
void merak_build_transfer(struct merak_build *b, int value, int microbatch,
                          bool send);
void merak_build_load(struct merak_build *b, int value, int microbatch);
void merak_build_node(struct merak_build *b, const struct merak_item *item,
                      int chunk, int microbatch);

/* --- boundary.c --- */
/* Find how a value comes to this rank and goes on from it, the stages it does
 * so between being known. */
void merak_build_crossings(struct merak_build *b, int value);
/* The slot that a value that crosses is sent from or received in. */
int merak_build_moved(struct merak_build *b, int value, int microbatch,
                      bool send);
/* Make a value whole again, if it came in parts. */
void merak_build_gather(struct merak_build *b, int value, int microbatch);

/* --- crossing.c --- */
/* What a value is called in tags of messages: the same on both stages. */
int merak_build_crossing_id(const struct merak_build *b, int value);
/* How a value goes from a stage to another of unlike ranks, one of which is
 * this one's. */
struct merak_crossing *merak_build_crossing(struct merak_build *b, int value,
                                            int from_stage, int to_stage);
/* The same for the ith value that passes recycle. */
struct merak_crossing *merak_build_carry_crossing(struct merak_build *b, int i,
                                                  int from_stage, int to_stage);
/* The same for the sum of a parameter's gradient, in the parameter's layouts.
 */
struct merak_crossing *merak_build_param_crossing(struct merak_build *b,
                                                  int param, int from_stage,
                                                  int to_stage);
/* Send what is in a slot, or receive it; what does not depend on the way is
 * taken from `like`.  And then, before it is read: unpack and gather it. */
void merak_build_cross(struct merak_build *b, const struct merak_crossing *c,
                       const struct merak_instr *like, int slot);
void merak_build_arrived(struct merak_build *b, const struct merak_crossing *c,
                         const struct merak_instr *like, int slot);
/* What was packed of a slot is needed until the latest instruction. */
void merak_build_extend_sent(struct merak_build *b, int slot);

/* --- fetch.c --- */
/* Find the stages that read each parameter. */
void merak_build_readers(struct merak_build *b);
/* Count the blocks that the program fetches parameters of, and their bytes. */
void merak_build_count_fetched(struct merak_build *b);
/* What this rank holds of a parameter, its state or its gradients. */
struct merak_held merak_build_held(const struct merak_build *b, int param,
                                   enum merak_held_kind kind);
/* Is a parameter's gradient summed over replicas each micro-batch, and its
 * accumulator not kept?  Is the parameter itself gathered for each use? */
bool merak_build_sums_each(const struct merak_build *b, int param);
bool merak_build_is_fetched(const struct merak_build *b, int param);
/* Such a sum is going to be queued; it is, from this slot to p->grad, or to a
 * part that is to be added to it. */
void merak_build_begin_sum(struct merak_build *b, const struct merak_uses *uses,
                           int microbatch);
void merak_build_note_sum(struct merak_build *b, const struct merak_uses *uses,
                          int slot, int part);
/* Add what is not added yet. */
void merak_build_settle_sums(struct merak_build *b);

/* --- unroll.c --- */
/* Is a value received or sent with an action of the current slice and pass? */
bool merak_build_moves_in(const struct merak_build *b, int value,
                          const struct merak_action *a);
void merak_build_microbatches(struct merak_build *b);

/* --- grad_uses.c --- */
void merak_build_uses(struct merak_build *b);
/* A node of a chunk has made a micro-batch's gradients of parameters. */
void merak_build_grads_made(struct merak_build *b, int chunk,
                            const struct merak_node *node, int microbatch);
/* An action has ended: reduce the gradients that were delayed until then. */
void merak_build_delayed_reduces(struct merak_build *b);

/* --- optimizer_step.c --- */
void merak_build_gathers(struct merak_build *b);
/* Those that have to be queued before a node of a forward. */
void merak_build_gathers_before(struct merak_build *b,
                                const struct merak_node *node, int microbatch);
void merak_build_step(struct merak_build *b);
/* An exchange along one axis of a parameter, or of its gradient, from a layout
 * over b->mesh. */
void merak_build_step_hop(struct merak_build *b,
                          const struct merak_param_slots *p,
                          const struct merak_layout *from,
                          const struct merak_hop *hop, int in, int out);

/* --- offload.c --- */
/* Is a parameter's optimizer state kept in the host's memory? */
bool merak_build_is_offloaded(const struct merak_build *b, int param);

/* --- grad_sync.c --- */
/* Is a parameter replicated along a tensor axis, so that these ranks can divide
 * its state? */
bool merak_build_is_replicated(const struct merak_build *b, int param,
                               int axis);
/* The last such axis; -1: none. */
int merak_build_last_replicated(const struct merak_build *b, int param);
/* Does this rank update a flat part of a parameter?  The layout of that part,
 * and of its optimizer state; over b->mesh. */
bool merak_build_is_flat(const struct merak_build *b, int param);
struct merak_layout merak_build_state_layout(const struct merak_build *b,
                                             int param);
/* The layout of what is kept of a parameter that is fetched, and of inner sums
 * of gradients: that of its state, or its parts of an inner sum. */
struct merak_layout merak_build_home_layout(const struct merak_build *b,
                                            int param);
/* Is this the rank that counts its part of a parameter? */
bool merak_build_is_primary(const struct merak_build *b, int param);
/* The part of a parameter that this rank updates. */
int merak_build_own_part(struct merak_build *b,
                         const struct merak_param_slots *p);
/* Sum a gradient, in a layout that may be partial along the axes of
 * merak_build_is_replicated(), over those and replicas; sets p->grad, unless
 * `part` is the slot that the sum goes to.  The sum is the inner one alone
 * where merak_build_sum_slot() is not p->grad; then the outer one, of these
 * inner sums, is to follow the last micro-batch's. */
void merak_build_reduce(struct merak_build *b, struct merak_param_slots *p,
                        int slot, const struct merak_layout *layout, int part);
/* The same, of which all these ranks get all. */
void merak_build_reduce_whole(struct merak_build *b,
                              const struct merak_param_slots *p, int slot,
                              const struct merak_layout *layout);
int merak_build_sum_slot(const struct merak_build *b,
                         const struct merak_param_slots *p);
void merak_build_reduce_outer(struct merak_build *b,
                              const struct merak_param_slots *p);
/* The slot of this rank's part of a whole gradient. */
int merak_build_state_part(struct merak_build *b, int param, int slot);
/* Gather a parameter, once its parts are updated; and its home from them, if
 * that is larger. */
void merak_build_gather_param(struct merak_build *b,
                              const struct merak_param_slots *p);
void merak_build_gather_home(struct merak_build *b,
                             const struct merak_param_slots *p);

/* --- unit_cost.c --- */
void merak_build_unit_costs(struct merak_build *b);

/* --- place.c --- */
/* Offsets of all slots, sizes of the arena and of its categories. */
void merak_build_place(struct merak_build *b);

/* --- hazard.c --- */
void merak_build_waits(struct merak_build *b);

#endif
