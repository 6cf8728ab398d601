/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/program.h - what one rank does in one training step
 *
 *   sharded graph + stages + schedule  ->  program  ->  check, simulate, run
 *
 * A program is plain data: instructions over static slots of one arena, with
 * explicit waits between queues.  The engine decides nothing; the simulator
 * reads the same program.  Instructions of one queue start in program order;
 * those of the compute queue also end in it, the others may overtake.  `wait`
 * names instructions, earlier in the program and of any queue, that must be
 * complete before one starts (data, and reuse of memory); what the compute
 * queue's order implies is left out.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_PROGRAM_H
#define MERAK_PARTITIONER_PROGRAM_PROGRAM_H

#include "base/deadline.h"
#include "partitioner/device/cost_model.h"
#include "partitioner/plan/plan.h"
#include "partitioner/program/stages.h"

/* Traces store these numbers: new ones come last. */
enum merak_queue {
    MERAK_QUEUE_COMPUTE,
    MERAK_QUEUE_COLLECTIVE, /* exchanges with tensor ranks and other stages */
    MERAK_QUEUE_P2P,
    MERAK_QUEUE_COPY,
    MERAK_QUEUE_REPLICAS, /* exchanges over replicas: nothing waits behind
                             their slow links that does not need them */
    MERAK_QUEUE_COUNT
};
/* Is it a queue of exchanges? */
static inline bool merak_queue_exchanges(enum merak_queue queue)
{
    return queue == MERAK_QUEUE_COLLECTIVE || queue == MERAK_QUEUE_REPLICAS;
}

enum merak_instr_kind {
    MERAK_INSTR_LOAD,     /* fill a slot: a micro-batch's tokens, or zeros */
    MERAK_INSTR_KERNEL,   /* run `op` on the operands */
    MERAK_INSTR_EXCHANGE, /* a collective in `group` */
    MERAK_INSTR_SLICE,    /* copy of a box: a local conversion, or to the next
                             forward pass */
    MERAK_INSTR_SEND,     /* operand 0 to `peer` */
    MERAK_INSTR_RECV,     /* operand 0 from `peer` */
    MERAK_INSTR_COPY,     /* operand 0 to operand 1, one in the host's memory */
};

/* Why memory is held; printed at start, as predicted and as reserved. */
enum merak_category {
    MERAK_CAT_PARAM,     /* compute-dtype and f32 parameters */
    MERAK_CAT_GRAD,      /* accumulators */
    MERAK_CAT_OPTIMIZER, /* master copies, moments */
    MERAK_CAT_ACTIVATION,
    MERAK_CAT_TRANSIENT, /* gradients of activations, converted copies */
    MERAK_CAT_FETCHED,   /* parameters gathered for their use */
    MERAK_CAT_COMM,      /* staging of exchanges */
    MERAK_CAT_SCRATCH,   /* kernels' scratch */
    MERAK_CAT_COUNT
};
const char *merak_category_name(enum merak_category category);

/*
 * A buffer of the arena, or of the host's memory: a tensor part.  Two slots may
 * overlap in memory if their lives (in program order, waits included) do not.
 */
struct merak_slot {
    size_t offset; /* bytes from that memory's start, 64-byte aligned */
    size_t bytes;
    bool host; /* it is the host's, which only a COPY reads and writes */
    enum merak_category category;
    const char *name; /* value's name, for reports */
    int value;        /* sharded graph's value id, or -1 */
    enum merak_dtype dtype;
    struct merak_box box;    /* the part: local shape is box.len, of box.full */
    size_t flat_lo, flat_hi; /* of the box's elements; all unless flat */
    size_t ld;               /* merak_operand.ld */
    int whole; /* slot this one is a part of (a flat range of a parameter, one
                  element of a vector), else its own index */
};

/* One struct for all kinds, since readers of programs walk them in order.  It
 * is small: a search simulates the programs of all stages, with millions of
 * instructions. */
struct merak_instr {
    int id; /* index in program->instr */
    enum merak_instr_kind kind : 8;
    enum merak_queue queue : 8;
    enum merak_phase phase : 8;
    int8_t input;   /* LOAD: index in graph->input, or MERAK_NO_INPUT: zeros */
    int microbatch; /* -1: a step instruction */
    int pass;       /* forward pass, from 0; the last one for a backward */
    int chunk;
    int node;       /* sharded graph's node id, or -1 */
    bool recompute; /* recomputes what this micro-batch's forward dropped */
    bool accumulate, first;
    bool joined; /* EXCHANGE: starts together with the one before it, of the
                    same kind in the same group: these are a bundle, and wait
                    for the same */
    bool places; /* SEND, RECV: where the elements were that another message of
                    this hop has (MERAK_ROLE_PACK) */
    int8_t n_in, n_out;
    int slot[MERAK_MAX_OPERANDS];    /* inputs, then outputs */
    int scratch;                     /* slot, or -1 */
    const struct merak_op *op;       /* KERNEL: what to run */
    const struct merak_attrs *attrs; /* KERNEL; the sharded graph's */
    size_t pieces;                   /* KERNEL: as in merak_kernel_call */
    struct merak_exchange *exchange; /* EXCHANGE; SLICE: send[0] is the box */
    uint64_t tag; /* SEND, RECV, EXCHANGE: equal at both ends, unique
                     among what may be in flight in a step */
    int group;    /* EXCHANGE: index in program->group */
    int peer;     /* SEND, RECV: logical rank */
    int n_wait;
    int first_wait; /* index in program->wait */
    double cost_s;  /* predicted duration (cost model); links: bytes */
    struct merak_demand demand; /* predicted (cost model); if it is not far,
                                   cost_s is all of it */
    struct merak_interference interference; /* predicted (cost model) */
    size_t bytes; /* moved (SEND, RECV, EXCHANGE: sent by this rank;
                     others: read and written in memory) */
    double flops;
    float reuse;      /* KERNEL: bytes touched since its inputs were */
    const char *name; /* node's name, "send h.3.x -> stage 1" */
};

/* Along which of a plan's degrees ranks communicate. */
enum merak_group_axis {
    MERAK_ALONG_NONE, /* not of a plan: measurements */
    MERAK_ALONG_TP,   /* or one of the two tensor axes */
    MERAK_ALONG_DP,
    MERAK_ALONG_PP,
};

struct merak_group {
    enum merak_group_axis axis;
    enum merak_axis_role role; /* of one tensor axis; else of weights */
    int n;
    int *rank; /* logical ranks, ascending member order */
    int me;
    char name[16]; /* for people: "tp", "tp.0", "dp", "pp" */
};

/* A parameter as this rank holds it: what checkpoints and reports need. */
struct merak_param_slots {
    int value; /* sharded graph's value id */
    const char *name;
    struct merak_shape shape; /* global */
    int param;                /* slot: compute copy, the tensor-parallel box */
    int home;                 /* slot kept from step to step: param, or the
                                 flat part that it is gathered from */
    int master;               /* slot f32: flat part if zero; == param when the
                                 parameter is f32 and not flat; -1: frozen, and
                                 not f32 */
    int m, v;                 /* slots f32, same part as master; -1: frozen */
    int grad; /* slot f32: final, summed gradient, same part as master;
                 times step.grad_scale it is the mean gradient; -1: frozen */
    bool decay, frozen;
    float lr_scale; /* 0: 1 */
    bool primary;   /* this rank counts it (norm, checkpoints): not a second
                       tied copy, coordinate 0 on every replicated axis */
    struct merak_init init;
};

/* What micro-batches report of one value of the graph. */
struct merak_report {
    int value;
    size_t at, n; /* elements of `reports`, at + i n .. for micro-batch i */
    bool counts;  /* its part is not another rank's, too */
};

struct merak_program {
    int rank, ranks; /* logical */
    int stage, tp_index, dp_index;
    struct merak_stage_mesh mesh; /* of its stage */
    struct merak_plan plan;
    struct merak_links links;            /* cost model */
    const struct merak_sharded *sharded; /* borrowed */
    struct merak_instr *instr;
    int n_instrs;
    int *wait;
    int n_waits;
    struct merak_slot *slot;
    int n_slots;
    struct merak_group *group;
    int n_groups;
    struct merak_param_slots *param; /* of this stage, in graph order */
    int n_params;
    size_t pieces; /* that loaded sequences are to be in: merak_position() */
    int norm;      /* slot f32[2]: {scale, pre-clip norm} after the step */
    int loss;    /* slot f64[m], of pairs f64[m][MERAK_LOSS_PARTS]: loss of each
                    micro-batch on the last stage (rank-local part summed over
                    tp), else -1 */
    int reports; /* slot f64: what this rank's stage reports, else -1 */
    struct merak_report *report; /* in the graph's order */
    int n_reports;
    size_t arena_bytes;      /* with persistent and transient slots */
    size_t persistent_bytes; /* params, optimizer, gradients: from offset 0 */
    size_t category_bytes[MERAK_CAT_COUNT]; /* sums to arena_bytes */
    size_t host_bytes;  /* kept in the host's memory: offload.c */
    int fetched_blocks; /* of the model: parameters of theirs are gathered for
                           each use */
    bool direct;        /* built with the option of that name */
    struct merak_pool *pool;
};

struct merak_program_options {
    bool forward_only; /* evaluation: no gradients, no optimizer; the
                          persistent slots keep their offsets */
    bool dump_grads;   /* keep final gradients' slots alive to the step's end */
    bool direct; /* transfers go from accelerator to accelerator (streams.h):
                    those of a queue stage one at a time, with that memory
                    (partitioner/program/staged.h) */
    struct merak_kernel_memory memory;   /* of the backend in use */
    const struct merak_cost_model *cost; /* NULL: built-in */
    const double *speed; /* by stage, of a rank, in any unit: to balance stages
                            on unlike nodes; NULL: all are alike */
    double unit_s;       /* > 0: identical stages: F of a micro-batch takes this
                            long, B twice, R at most as long as F, the step's end
                            nothing (unit_cost.c) */
    const struct merak_deadline *deadline; /* once it is past, a build fails
                                              with MERAK_ERR_TIMEOUT; or NULL */
};

/* The program of logical rank `rank`.  `sharded` and `stages` are borrowed
 * for the program's life. */
enum merak_status merak_program_build(const struct merak_sharded *sharded,
                                      const struct merak_stages *stages,
                                      const struct merak_plan *plan, int rank,
                                      const struct merak_program_options *opt,
                                      struct merak_program **program_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_program_destroy(struct merak_program *program);
/* Where a slot is, if the host's memory follows the arena at a distance. */
static inline size_t merak_slot_at(const struct merak_slot *slot)
{
    return slot->offset + (slot->host ? (size_t)1 << 62 : 0);
}
/* Elements between a slot's beginning and its end. */
size_t merak_slot_room(const struct merak_slot *slot);
/* The operands of a KERNEL as its kernel sees them; the caller fills in data,
 * scratch and step. */
void merak_program_call(const struct merak_program *program,
                        const struct merak_instr *instr,
                        struct merak_kernel_call *call);
/* Do two KERNELs, of one program or two, ask the same of a library: the same
 * op on operands of equal types and sizes, both accumulating or neither, both
 * with what is added once (a bias) or neither? */
bool merak_instr_is_same_call(const struct merak_program *a_program,
                              const struct merak_instr *a,
                              const struct merak_program *b_program,
                              const struct merak_instr *b);
/* How many exchanges after this one are of its bundle. */
int merak_instr_joined(const struct merak_program *program, int id);
/* An EXCHANGE with a second input, how many rows are left, takes place only
 * where that is not 0, for all of its members alike; else its output is zeros.
 */
static inline bool merak_instr_needs_rows(const struct merak_instr *instr)
{
    return instr->kind == MERAK_INSTR_EXCHANGE && instr->n_in > 1;
}
/* Which operands an instruction reads and writes: bit i is slot[i]. */
void merak_instr_access(const struct merak_instr *instr, unsigned *reads_p,
                        unsigned *writes_p);
/* One line per instruction. */
enum merak_status merak_program_print(const struct merak_program *program,
                                      char **text_p,
                                      struct merak_error *err) MERAK_CHECKED;

/* A fingerprint of what a program does, independent of its memory offsets. */
uint64_t merak_program_id(const struct merak_program *program);
/* The program id of a whole plan: begin with pp, then add in turn the id of the
 * first rank's program of each stage. */
uint64_t merak_program_ids(uint64_t before, uint64_t id);

/* Add the bytes that the program's rank sends. */
void merak_program_sent(const struct merak_program *program,
                        struct merak_sent *sent);
/* Convert the sum over the first rank of each stage to the mean per link:
 * between neighbouring stages, both ways, and to the next replica. */
void merak_sent_per_link(struct merak_sent *sent, int stages);

/* "0-5", "0-2,6-8": layers that it has parameters of, or "-" if names have no
 * numbers; a list that does not fit ends with "..". */
enum { MERAK_LAYERS_TEXT = 48 };
void merak_program_layers(const struct merak_program *program,
                          char text[MERAK_LAYERS_TEXT]);

#endif
