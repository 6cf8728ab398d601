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
 *
 * Logical ranks: rank = tp_index + tp * (dp_index + dp * stage) for order
 * tp-dp-pp, tp_index + tp * (stage + pp * dp_index) for tp-pp-dp.  The
 * placement maps logical to physical ranks; programs are about logical ones.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_PROGRAM_H
#define MERAK_PARTITIONER_PROGRAM_PROGRAM_H

#include "partitioner/graph/graph.h"
#include "partitioner/layout/layout.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/layout/shard.h"
#include "partitioner/simulate/rates.h"

/* --- the plan: the choices that make a program ------------------------- */

enum merak_recompute {
    MERAK_RECOMPUTE_NONE,
    MERAK_RECOMPUTE_FULL,      /* all but what crosses blocks */
    MERAK_RECOMPUTE_SELECTIVE, /* what attention makes */
    MERAK_RECOMPUTE_AUTO,      /* each stage the least that fits */
};

/* What a part drops after its forward and computes again: recompute.c. */
struct merak_drop {
    bool attention; /* what attention makes */
    int blocks;     /* of so many first blocks, all that stays in the block */
};

struct merak_plan {
    int tp, pp, dp;
    int chunks;         /* model parts of a rank, blocks that all stages run
                           together counted; 0: as the schedule likes it */
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
                                     layout/gather.c */
    int scatter; /* what tensor ranks hold alike goes to a stage on another
                      node, of so many ranks each, in tp parts and is gathered
                      there; 1: to any stage; 0: always whole */
    enum merak_seq_parallel sp;
    int batch; /* percent of the model that tensor ranks may cut by samples:
                  merak_shard_options */
    enum merak_dtype dtype;
    int threads; /* per rank */
    /* Ascending places (merak_stages_places) where parts but the first begin,
     * or NULL: merak_stages_cut() says.  Borrowed; not kept by programs. */
    const int *cut;
    /* What each part drops, or NULL: `recompute` says.  Borrowed likewise. */
    const struct merak_drop *drop;
};

/* Which part of the model each node of the sharded graph is in (gradient and
 * convert nodes included).  Parts are pipeline stages, or with several model
 * chunks per rank the pieces that the schedule gives to stages; after these
 * come the blocks that all stages run together. */
struct merak_stages {
    int n;
    int *of_node;   /* by node id */
    int *block;     /* by node id, forward nodes: counted over the model, what
                       lies between two places where it may be cut */
    int *n_blocks;  /* by part; of a block that all stages run: 0 */
    double *flops;  /* by part, forward + backward of one micro-batch */
    size_t *params; /* by part, elements held (global sizes) */
    struct merak_drop *drop; /* by part; nothing, until recomputation is
                                chosen */
};

/* Cut in n parts, the sharded graph's shared blocks counted, at points where
 * the fewest values cross, balanced by flops.
 * MERAK_ERR_CONFIG if there are fewer cut points than stages - 1: names
 * both numbers. */
enum merak_status merak_stages_cut(const struct merak_sharded *sharded, int n,
                                   struct merak_stages **stages_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* A place to cut: what crosses it are values of nodes before it. */
struct merak_cut_place {
    int node;     /* the first behind it */
    int alive;    /* values that cross */
    double bytes; /* of them, global sizes */
};
/* The places in order: place[0] is the graph's start, then n places follow, and
 * place[n + 1] is its end.  *place_p is the caller's to free(). */
enum merak_status merak_stages_list(const struct merak_sharded *sharded,
                                    struct merak_cut_place **place_p, int *n_p,
                                    struct merak_error *err) MERAK_CHECKED;
/* How many places there are to cut: each begins a stage. */
enum merak_status merak_stages_places(const struct merak_sharded *sharded,
                                      int *n_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* Cut at places place[n - 1] (shared blocks not counted), ascending, 0 the
 * first after the graph's start. */
enum merak_status merak_stages_at(const struct merak_sharded *sharded,
                                  const int *place, int n,
                                  struct merak_stages **stages_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_stages_destroy(struct merak_stages *stages);

/* May micro-batches of one sequence run in slices?  Not if tensor peers have
 * parts of sequences. */
bool merak_sharded_may_slice(const struct merak_sharded *sharded);

/* --- the program -------------------------------------------------------- */

enum merak_queue {
    MERAK_QUEUE_COMPUTE,
    MERAK_QUEUE_COLLECTIVE,
    MERAK_QUEUE_P2P,
    MERAK_QUEUE_COPY,
    MERAK_QUEUE_COUNT
};

enum merak_instr_kind {
    MERAK_INSTR_LOAD,     /* fill a slot: a micro-batch's tokens, or zeros */
    MERAK_INSTR_KERNEL,   /* run `op` on the operands */
    MERAK_INSTR_EXCHANGE, /* a collective in `group` */
    MERAK_INSTR_SLICE,    /* copy of a box: a local conversion, or to the next
                             forward pass */
    MERAK_INSTR_SEND,     /* operand 0 to `peer` */
    MERAK_INSTR_RECV,     /* operand 0 from `peer` */
};

/* Why memory is held; printed at start, predicted and reserved alike. */
enum merak_category {
    MERAK_CAT_PARAM,     /* compute-dtype and f32 parameters */
    MERAK_CAT_GRAD,      /* f32 accumulators */
    MERAK_CAT_OPTIMIZER, /* master copies, moments */
    MERAK_CAT_ACTIVATION,
    MERAK_CAT_TRANSIENT, /* gradients of activations, converted copies */
    MERAK_CAT_COMM,      /* staging of exchanges */
    MERAK_CAT_SCRATCH,   /* kernels' scratch */
    MERAK_CAT_COUNT
};
const char *merak_category_name(enum merak_category category);

/*
 * A buffer of the arena: a tensor part.  Two slots may overlap in memory if
 * their lives (in program order, waits included) do not.
 */
struct merak_slot {
    size_t offset; /* bytes from the arena's start, 64-byte aligned */
    size_t bytes;
    enum merak_category category;
    const char *name; /* value's name, for reports */
    int value;        /* sharded graph's value id, or -1 */
    enum merak_dtype dtype;
    struct merak_box box;    /* the part: local shape is box.len, of box.full */
    size_t flat_lo, flat_hi; /* of the box's elements; all unless flat */
    int whole; /* slot this one is a part of (a flat range of a parameter, one
                  element of a vector), else its own index */
};

/* What a kernel that runs beside an exchange or a transfer loses to it. */
struct merak_beside {
    double wake_s; /* unless communication was awake, as it is for so long */
    double copy_s; /* in any case */
};

/* What an exchange or a transfer takes: seconds that nothing else changes, and
 * bytes that go to other nodes, as fast as what goes there at the same time
 * lets them. */
struct merak_demand {
    double fixed_s, net_bytes;
};

/* What ranks have of the net; struct merak_cost_model has the same. */
struct merak_net_rates {
    int ranks_per_node;
    double rank_bytes_per_s, node_bytes_per_s;
};

/* Small: where the programs of all stages are simulated, as a search does,
 * there are millions. */
struct merak_instr {
    int id; /* index in program->instr */
    enum merak_instr_kind kind : 8;
    enum merak_queue queue : 8;
    enum merak_phase phase : 8;
    enum merak_input_kind input : 8; /* LOAD */
    int microbatch;                  /* -1: a step instruction */
    int pass;       /* forward pass, 0 ..; the last of a backward */
    int chunk;
    int node;   /* sharded graph's node id, or -1 */
    bool again; /* recomputes what this micro-batch's forward dropped */
    bool accumulate, first;
    int8_t n_in, n_out;
    int slot[MERAK_MAX_OPERANDS];    /* inputs, then outputs */
    int scratch;                     /* slot, or -1 */
    const struct merak_op *op;       /* KERNEL: what to run */
    const struct merak_attrs *attrs; /* KERNEL; the sharded graph's */
    struct merak_exchange *exchange; /* EXCHANGE; SLICE: send[0] is the box */
    uint64_t tag; /* SEND, RECV, EXCHANGE: equal at both ends, unique
                     among what may be in flight in a step */
    int group;    /* EXCHANGE: index in program->group */
    int peer;     /* SEND, RECV: logical rank */
    int n_wait;
    int first_wait; /* index in program->wait */
    double cost_s;  /* predicted duration (cost model); links: bytes */
    struct merak_demand demand; /* of it (cost model), but where net_bytes is
                                   0: then cost_s is all there is */
    struct merak_beside beside; /* predicted (cost model) */
    size_t bytes; /* moved (SEND, RECV, EXCHANGE: sent by this rank;
                     others: read and written in memory) */
    double flops;
    float reuse;      /* KERNEL: bytes touched since its inputs were */
    const char *name; /* node's name, "send h.3.x -> stage 1" */
};

struct merak_group {
    int n;
    int *rank; /* logical ranks, ascending member order */
    int me;
    char name[16]; /* "tp", "dp", "pp", "tie" */
};

/* A parameter as this rank holds it: what checkpoints and reports need. */
struct merak_param_slots {
    int value; /* sharded graph's value id */
    const char *name;
    struct merak_shape shape; /* global */
    int param;                /* slot: compute copy, the tensor-parallel box */
    int master;               /* slot f32: flat part if zero1; == param when the
                                 parameter is f32 and not flat */
    int m, v;                 /* slots f32, same part as master */
    int grad; /* slot f32: final, summed gradient, same part as master;
                 times step.grad_scale it is the mean gradient */
    bool decay;
    bool primary; /* this rank counts it (norm, checkpoints): not a second
                     tied copy, first on every replicated axis */
    struct merak_init init;
};

struct merak_program {
    int rank, ranks; /* logical */
    int stage, tp_index, dp_index;
    struct merak_plan plan;
    struct merak_net_rates net;          /* cost model */
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
    int norm; /* slot f32[2]: {scale, pre-clip norm} after the step */
    int loss; /* slot f64[m]: loss of each micro-batch on the last stage
                 (rank-local part summed over tp), else -1 */
    size_t arena_bytes;      /* with persistent and transient slots */
    size_t persistent_bytes; /* params, optimizer, gradients: from offset 0 */
    size_t category_bytes[MERAK_CAT_COUNT]; /* sums to arena_bytes */
    struct merak_pool *pool;
};

struct merak_program_options {
    bool forward_only; /* evaluation: no gradients, no optimizer; the
                          persistent slots keep their offsets */
    bool dump_grads;   /* keep final gradients' slots alive to the step's end */
    /* Scratch bytes of a kernel call on the backend in use; NULL: none. */
    size_t (*scratch)(void *arg, const char *op,
                      const struct merak_kernel_call *call);
    void *scratch_arg;
    const struct merak_cost_model *cost; /* NULL: built-in */
    double unit_s; /* > 0: stages alike, F and R of a micro-batch take so
                      long, B twice, the step's end nothing */
};

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

/*
 * Decide what `stage` (-1: every stage) drops, as plan->drop or else
 * plan->recompute says.
 *
 *   opt     of the programs, or NULL; AUTO builds some to see what fits
 *   stages  in, out  drop[] of the stage's parts is set
 *
 * All ranks of a stage decide alike.  MERAK_ERR_NOMEM if everything
 * recomputed does not fit plan->memory_bytes: names both numbers.
 * MERAK_ERR_CONFIG if plan->drop has more blocks than a part, or something
 * where the schedule computes nothing again.
 */
enum merak_status merak_recompute_choose(
    const struct merak_sharded *sharded, const struct merak_plan *plan,
    int stage, const struct merak_program_options *opt,
    struct merak_stages *stages, struct merak_error *err) MERAK_CHECKED;

/* The program of logical rank `rank`.  `sharded` and `stages` are borrowed
 * for the program's life. */
enum merak_status merak_program_build(const struct merak_sharded *sharded,
                                      const struct merak_stages *stages,
                                      const struct merak_plan *plan, int rank,
                                      const struct merak_program_options *opt,
                                      struct merak_program **program_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_program_destroy(struct merak_program *program);
/* The operands of a KERNEL as its kernel sees them; data, scratch and step
 * are the caller's to fill. */
void merak_program_call(const struct merak_program *program,
                        const struct merak_instr *instr,
                        struct merak_kernel_call *call);
/* Which operands an instruction reads and writes: bit i is slot[i]. */
void merak_instr_access(const struct merak_instr *instr, unsigned *reads_p,
                        unsigned *writes_p);
/* One line per instruction. */
enum merak_status merak_program_print(const struct merak_program *program,
                                      char **text_p, struct merak_error *err);

/* A fingerprint of what a program does, whatever memory it does it in. */
uint64_t merak_program_id(const struct merak_program *program);
/* That of a whole plan: begin with pp, then add in turn the id of the first
 * rank's program of each stage. */
uint64_t merak_program_ids(uint64_t before, uint64_t id);
/* "0-5", "0-2,6-8": layers that it has parameters of, or "-" if names have no
 * numbers; what has no room ends with "..". */
enum { MERAK_LAYERS_TEXT = 48 };
void merak_program_layers(const struct merak_program *program,
                          char text[MERAK_LAYERS_TEXT]);

/*
 * Prove a set of programs (all ranks of a plan, or one of each stage class
 * with its peers) sound: every receive has its send with equal bytes and tag;
 * members of a group run the same exchanges in the same order; the union of
 * program orders, waits and matches is acyclic; no two live slots overlap;
 * everything read was written.  The error names ranks and instructions.
 */
enum merak_status merak_program_check(struct merak_program *const *programs,
                                      int n,
                                      struct merak_error *err) MERAK_CHECKED;

/* --- prediction ---------------------------------------------------------- */

/* Exchanges among so many ranks of one node, whose communication threads may
 * have to share cores. */
struct merak_link_group {
    int ranks;
    double latency_s; /* of a round, for each peer */
    double bytes_per_s;
};

enum { MERAK_LINK_GROUPS = 8 };

struct merak_cost_model {
    char name[32];
    double flops_per_s;                      /* of one rank, GEMM */
    double bytes_per_s;                      /* memory, elementwise kernels */
    double kernel_s;                         /* fixed cost of a kernel */
    double attention_flops_per_s;            /* 0: as GEMM */
    bool sums_roofline; /* a kernel's bytes and its FLOPs take one's time and
                           the other's, not the longer of the two */
    double link_bytes_per_s, link_latency_s; /* between ranks of a node */
    /* Of groups that were measured, by ranks; others take the nearest of these
     * and of the link's, which is that of two. */
    struct merak_link_group group[MERAK_LINK_GROUPS];
    int n_groups;
    int ranks_per_node; /* logical ranks fill nodes in order; 0: one node
                           holds them all, and the next two are not read */
    double net_bytes_per_s, net_latency_s; /* of a rank, to other nodes */
    double node_bytes_per_s; /* of all ranks of a node together; 0: as many
                                times one's as there are */
    const struct merak_rates *rates; /* of kernels, as measured; or NULL: they
                                        take what the above says */
    const struct merak_rates *tp_rates; /* of tensor ranks' kernels; or NULL,
                                           or not of all ops: as others */
    /* What moving bytes takes from a rank's compute, where that runs at the
     * same time: for each round, and for bytes (0: nothing). */
    double beside_latency_s, beside_bytes_per_s;
};
const struct merak_cost_model *merak_cost_default(void);
/* The width (rates.h) of a kernel whose first operand has these dims. */
double merak_kernel_width(int ndim, const size_t *dim);
/* A kernel of an op, on one of tp tensor ranks. */
double merak_cost_kernel(const struct merak_cost_model *model, const char *op,
                         int tp, const struct merak_kernel_size *size);
/* What no kernel does. */
double merak_cost_copy(const struct merak_cost_model *model, double bytes);
/* The link as `n` ranks of a node meet it in an exchange. */
struct merak_link_group merak_cost_group(const struct merak_cost_model *model,
                                         int n);
/* A collective of n members, `inside` of them (this one counted) on this
 * rank's node, each sending `bytes` in all, to every other alike. */
double merak_cost_exchange(const struct merak_cost_model *model,
                           enum merak_convert_kind kind, double bytes, int n,
                           int inside);
double merak_cost_transfer(const struct merak_cost_model *model, double bytes,
                           bool inside);
/* What a kernel beside it loses to a collective, as above, or to a transfer,
 * of n = 2. */
struct merak_beside merak_cost_beside(const struct merak_cost_model *model,
                                      enum merak_convert_kind kind,
                                      double bytes, int n);
/* How many ranks of its stage, or of all stages, share its node's way with a
 * plan's rank, itself counted; 1 where nothing is known of the node. */
int merak_cost_sharers(const struct merak_cost_model *model,
                       const struct merak_plan *plan, int rank, bool stages);
/* The model of ranks that share it so. */
struct merak_cost_model
merak_cost_crowded(const struct merak_cost_model *model, int sharers);
/* The model of a plan's rank that shares its node's way out with the ranks of
 * its stage: they do the same at the same time. */
struct merak_cost_model merak_cost_shared(const struct merak_cost_model *model,
                                          const struct merak_plan *plan,
                                          int rank);
/* Do two logical ranks share a node? */
bool merak_cost_together(const struct merak_cost_model *model, int a, int b);
/* What the time of a program's KERNEL depends on. */
struct merak_kernel_size merak_instr_size(const struct merak_program *program,
                                          const struct merak_instr *instr);
struct merak_net_rates
merak_cost_net_rates(const struct merak_cost_model *model);
/* What an instruction of a program asks for; of what has no peers fixed_s is
 * all. */
struct merak_demand merak_cost_demand(const struct merak_cost_model *model,
                                      const struct merak_program *program,
                                      const struct merak_instr *instr);
/* An instruction of a program, while other stages leave the net alone. */
double merak_cost_instr(const struct merak_cost_model *model,
                        const struct merak_program *program,
                        const struct merak_instr *instr);
/* What it takes from kernels beside it. */
struct merak_beside
merak_cost_instr_beside(const struct merak_cost_model *model,
                        const struct merak_program *program,
                        const struct merak_instr *instr);

struct merak_timeline {
    int n; /* programs */
    double step_s;
    double **start; /* [program][instr], seconds from the step's start */
    double **end;
    double *busy_s; /* by program: compute queue */
};

/* Discrete events over the programs; instructions take what the cost model
 * says, or with none what was predicted when the programs were built, and
 * longer where they share ways between nodes (net.c).  A stage's ranks without
 * a program do what its programs do. */
enum merak_status merak_simulate(struct merak_program *const *programs, int n,
                                 const struct merak_cost_model *model,
                                 struct merak_timeline **timeline_p,
                                 struct merak_error *err) MERAK_CHECKED;
void merak_timeline_destroy(struct merak_timeline *timeline);

#endif
