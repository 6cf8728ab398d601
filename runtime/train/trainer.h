/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/trainer.h - the parts of a training run */
#ifndef MERAK_RUNTIME_TRAIN_TRAINER_H
#define MERAK_RUNTIME_TRAIN_TRAINER_H

#include "io/ckpt/ckpt.h"
#include "io/ckpt/owner.h"
#include "io/plan_file.h"
#include "io/samples/sample_set.h"
#include "io/special_ids.h"
#include "io/tokens/tokens.h"
#include "io/trace/trace.h"
#include "merak/train.h"
#include "partitioner/assembly/models.h"
#include "partitioner/program/program.h"
#include "partitioner/device/device.h"
#include "placement/placement.h"
#include "runtime/boot/slurmd.h"
#include "runtime/engine/engine.h"
#include "runtime/runtime.h"
#include "runtime/train/train_options.h"
#include "runtime/link/link.h"
#include "runtime/transport/arena.h"
#include "runtime/transport/transport.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct merak_run_islands; /* run_islands.h */

/* This rank's position, and how logical ranks map to the transport's. */
struct merak_ranks {
    int tp, pp, dp; /* 0: not given, until they are resolved */
    int cp;         /* 0: not given */
    int ep;         /* 0: not given; MERAK_OPTION_AUTO until it is chosen */
    /* Of unlike stages, which are placed in the tasks' order; or NULL. */
    const struct merak_stage_degrees *stage;
    bool automatic; /* what is not given is the planner's choice */
    bool launched;  /* the SPANK plugin made a placement for this step */
    struct merak_placement_plan launch; /* if so */
    int logical;                        /* of this task */
    int *transport_rank;                /* [size] of each logical rank */
    int *logical_rank;                  /* [size] of each transport rank */
    struct merak_run_islands *islands;  /* of --links; NULL: none */
    int *nodes; /* in the order of the kinds that a plan's ranks are on; NULL:
                   all are alike */
    bool order_tp_pp_dp;
    char source[16]; /* "spank", "runtime", "single" */
};

/* Where weights are read from: one of these. */
struct merak_weight_source {
    struct merak_ckpt *ckpt;
    struct merak_hf_weights *hf;
    bool no_adapters; /* those of the model are not there */
    const struct merak_lora_source *lora_from; /* which has them, or NULL */
    /* NULL, or for the first parameter found to have a number that is not
     * finite: its name, borrowed from the program. */
    const char **not_finite_p;
};

/* What describes the model. */
struct merak_trainer_source {
    merak_describe_fn describe;
    void *describe_arg;
    struct merak_ruled_model ruled; /* what describe_arg points to */
    const char *model_path; /* that it describes; NULL: a program's own */
    struct merak_lora_source *lora_from; /* --lora-from; NULL: none */
};

/* What computes: accel_choice.c. */
struct merak_trainer_compute {
    const struct merak_backend *backend;
    char why[512];             /* why it was chosen; "": it was asked for */
    struct merak_accel *accel; /* NULL: kernels run on the host */
    struct merak_accel_device card; /* accel, as identified on its node */
    int card_tasks;                 /* tasks that share it, with this one */
};

/* Memory of the programs: slots.c. */
struct merak_trainer_memory {
    struct merak_arena arena; /* with an accelerator, used only by transfers */
    size_t arena_bytes;       /* of both programs, followed by table_bytes */
    size_t table_bytes;       /* of the engine's tables, accelerators only */
    void *accel_arena;
    struct merak_arena host; /* of both programs, too: what is offloaded */
    bool host_pinned;
    struct merak_event *copied;  /* slots.c */
    struct merak_pinned *pinned; /* slots.c: of the arena, for transfers */
    int n_pinned;
};

/* What moves data between accelerators: link_choice.c. */
struct merak_trainer_linked {
    bool direct; /* programs are for a device link, with its staging in the
                    arena */
    struct merak_link *link; /* from accelerator to accelerator; NULL: through
                                host memory, by tr */
    char why[512];           /* why there is none; "": none is expected */
    size_t bytes; /* of the accelerator that the device link's library takes
                     beside the arena, as estimated; 0: it has no memory of its
                     own, or no device link is expected */
    int comms;    /* communicators it is estimated for */
};

/* What saves checkpoints: saving.c. */
struct merak_trainer_save {
    struct merak_ckpt_owner *owner; /* of run_dir; rank 0 */
    struct merak_pieces *pieces;    /* what this rank saves there */
    struct merak_ckpt_async *async; /* NULL: steps wait for saves */
    struct merak_team node;         /* this node's transport ranks; saving.c */
    int *node_ranks;                /* its members */
    size_t copy_bytes;              /* of async; 0: none */
    double save_bytes;              /* of all ranks' pieces; 0: no save */
    struct merak_progress saved;    /* of a blocking save */
    char saved_what[48];
};

/* What watches the run: outputs.c, metrics.c, pace.c. */
struct merak_trainer_reports {
    struct merak_trace *trace;
    struct merak_metrics *metrics; /* rank 0's (metrics.h) */
    struct merak_pace *pace;       /* NULL: stragglers are not looked for */
    struct merak_loads *loads;     /* NULL: the model reports none (loads.h) */
};

/* The samples that are being loaded: inputs.c. */
struct merak_trainer_load {
    struct merak_samples *samples;
    struct merak_special_ids ids; /* for --corrupt, .. */
    size_t encoder_seq; /* .. and tokens that are read of a sample of it */
    unsigned warned; /* losses, a bit each, of which a step had none */
    uint64_t base; /* first sample of what is being loaded */
    enum merak_split split;
};

/* Which run this is, and where it comes from: resume.c, fingerprint.c. */
struct merak_trainer_lineage {
    char model_id[17];
    bool named, resumed;            /* a checkpoint by --ckpt; any was loaded */
    char branch[MERAK_CKPT_BRANCH]; /* that is saved to; rank 0 */
    uint64_t saved_step;            /* of the newest checkpoint; rank 0 */
    double saved_at;   /* when, in seconds since 1970; 0: there is none */
    uint64_t n_redone; /* steps with metrics that are done again */
    char *numbers;     /* of the model: merak_graph_numbers() */
    char fingerprint[MERAK_CKPT_FINGERPRINT]; /* of the run */
    char init_from[MERAK_CKPT_ORIGIN]; /* of the first weights; "": the seed */
};

/* When and with what it began. */
struct merak_trainer_start {
    size_t baseline_kib; /* resident before the arena is touched */
    int64_t ns;          /* of the program */
    int64_t epoch_ns;    /* zero of all ranks' traces, by this clock */
    int64_t loop_ns;     /* of its first step */
    uint64_t step;
};

/* For the report of a hang: hang.c. */
struct merak_trainer_failure {
    bool broken;                  /* a step failed: peers may be anywhere */
    const char *doing;            /* "saving", outside of an engine */
    struct merak_engine *running; /* an engine's run is under way or failed */
};

/* The state of a run, in the order in which set-up makes it.  A process has
 * one; what each file does with it is given below. */
struct merak_trainer {
    struct merak_train_options opt;

    struct merak_boot *boot;
    struct merak_ranks ranks;
    struct merak_plan_file *chosen; /* a plan that was saved or searched for;
                                       NULL: all is given by options */
    struct merak_device device;     /* that is planned for and emulated; no
                                       name: none was asked for */
    struct merak_cost_model cost;   /* of that device, or of one core */
    struct merak_plan plan;
    int *cut;                /* plan.cut, if order.c chose it */
    uint64_t program_id;     /* of all ranks */
    int threads;             /* of this task */
    struct merak_team world; /* members in logical order */

    struct merak_models models;
    struct merak_model *model; /* as the first stage has it */
    struct merak_sharded *sharded;
    struct merak_stages *stages;
    struct merak_program *program; /* a training step */
    struct merak_program *eval;    /* forward only, same persistent slots */

    size_t memory_bytes; /* limit for choosing recomputation; 0: none */
    struct merak_transport *tr;
    struct merak_engine *engine;
    struct merak_engine *eval_engine;
    struct merak_data *data;     /* NULL: samples are of arrays */
    struct merak_inputs *inputs; /* samples, for this rank */
    char *run_dir;               /* of the checkpoints; NULL: none are saved */
    struct merak_slurmd slurmd;  /* this node's; its first task looks */

    /* progress */
    uint64_t step;        /* steps done */
    uint64_t consumed;    /* samples */
    uint64_t tokens;      /* of them */
    uint64_t empty_steps; /* of this start, without a token to predict */
    bool has_valid;       /* held-out samples have tokens to predict */

    struct merak_trainer_source source;
    struct merak_trainer_compute compute;
    struct merak_trainer_memory memory;
    struct merak_trainer_linked linked;
    struct merak_trainer_save save;
    struct merak_trainer_reports reports;
    struct merak_trainer_load load;
    struct merak_trainer_lineage lineage;
    struct merak_trainer_start start;
    struct merak_trainer_failure failure;
};

/* loop.c: not 0 once this rank was asked to stop. */
const volatile sig_atomic_t *merak_trainer_stop_flag(void);
/* slots.c: the arena, also on the accelerator (accel_choice.c) if there is
 * one; closing also closes the accelerator. */
enum merak_status merak_slots_open(struct merak_trainer *t,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_slots_close(struct merak_trainer *t);
/* Zero the arena, except for tables, and pin the memory that transfers use. */
enum merak_status merak_slots_clear(struct merak_trainer *t,
                                    struct merak_error *err) MERAK_CHECKED;
/* The arena as kernels see it: host or device memory. */
unsigned char *merak_slots_arena(const struct merak_trainer *t);
/* The host memory of a slot of one of the run's programs.  With an accelerator
 * it is for transfers: only merak_slots_results() brings kernels' results
 * there. */
void *merak_slot_host(const struct merak_trainer *t,
                      const struct merak_program *program, int slot);
/* Copy a program's loss and gradient norm to the host, after it ran. */
enum merak_status merak_slots_results(struct merak_trainer *t,
                                      const struct merak_program *program,
                                      struct merak_error *err) MERAK_CHECKED;
/* Bytes [lo, lo + bytes) of a slot, wherever it is; not while a step runs. */
enum merak_status merak_slot_read(struct merak_trainer *t,
                                  const struct merak_program *program, int slot,
                                  size_t lo_bytes, void *to, size_t bytes,
                                  struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_slot_write(struct merak_trainer *t,
                                   const struct merak_program *program,
                                   int slot, size_t lo_bytes, const void *from,
                                   size_t bytes,
                                   struct merak_error *err) MERAK_CHECKED;

/* ranks.c: the degrees given by options and launch; contradictions are
 * refused. */
enum merak_status merak_ranks_wish(const struct merak_boot *boot,
                                   const struct merak_train_options *opt,
                                   struct merak_ranks *ranks,
                                   struct merak_error *err) MERAK_CHECKED;
/* kinds_found.c: which nodes are of which kind, where a plan's stages are on
 * nodes of several: ranks->nodes.  By their accelerators, or by --device of a
 * list; else by how fast they multiply.  MERAK_ERR_CONFIG names a node that is
 * of no such kind, or one too many.  Collective. */
enum merak_status merak_node_kinds_find(struct merak_trainer *t,
                                        struct merak_error *err) MERAK_CHECKED;
/* ranks.c: does the launch let tensor groups leave their nodes? */
bool merak_ranks_may_leave_node(const struct merak_ranks *ranks);
/* ranks.c: the rest of the degrees, the rank map and this task's place in it.
 * chosen: a plan that has its own order of ranks and what they send; or
 * NULL. */
enum merak_status merak_ranks_place(const struct merak_boot *boot,
                                    const struct merak_plan_file *chosen,
                                    struct merak_ranks *ranks,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_ranks_fini(struct merak_ranks *ranks);

/* device_here.c: is --device a list of numbers of nodes and their devices?  If
 * so, let it be that of this task's node. */
bool merak_device_has_kinds(const char *word);
/* Of such a list "2:fast.json,.." at *at_p, which is moved past it: how many
 * nodes, and the word's place and length; false: it is none. */
bool merak_device_next_kind(const char **at_p, long *nodes_p,
                            const char **word_p, size_t *n_p);
enum merak_status merak_device_here(struct merak_trainer *t,
                                    struct merak_error *err) MERAK_CHECKED;

/* choose.c: tasks per node, if equal on all nodes; else the largest number that
 * divides all counts: with nodes of 8 and 4 tasks, the node of 8 counts as two
 * of 4. */
int merak_tasks_per_node(const struct merak_boot *boot);
/* choose.c: set t->chosen and the options to the plan of --plan or, if degrees
 * are auto, to the one that rank 0's search finds.  Collective; all return the
 * same. */
enum merak_status merak_choose(struct merak_trainer *t,
                               struct merak_error *err) MERAK_CHECKED;

/*
 * accel_choice.c: choose the run's backend and open this task's accelerator,
 * if it has one.  The backend is that of --backend; "auto" is cuda if all
 * tasks have GPUs that it can use, and cpu if none has.  Collective; all
 * return the same status.
 */
enum merak_status merak_accel_choose(struct merak_trainer *t,
                                     struct merak_error *err) MERAK_CHECKED;
/* accel_choice.c: bytes available to this task's tensors: of the accelerator's
 * memory, its share if tasks share it, less a reserve for libraries; or of the
 * host's.  To be asked before any task that shares it allocates. */
size_t merak_task_memory(const struct merak_trainer *t);

/* memory_limit.c: bytes that are left according to /proc and /sys below `root`
 * ("": the machine's), or SIZE_MAX. */
size_t merak_memory_left(const char *root);
/* memory_limit.c: this task's share of that, or SIZE_MAX if unknown. */
size_t merak_memory_available(const struct merak_boot *boot);
/* memory_limit.c: 7/8 of the least that any task has; `have` is this task's.
 * Collective. */
enum merak_status merak_memory_least(struct merak_boot *boot, size_t have,
                                     size_t *bytes_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* setup.c: do the run's programs, and what a device link takes beside them,
 * fit? */
enum merak_status merak_memory_check(struct merak_trainer *t,
                                     struct merak_error *err) MERAK_CHECKED;
/* setup.c: set t->threads: --threads, or what Slurm or the node has for a
 * task. */
enum merak_status merak_trainer_threads(struct merak_trainer *t,
                                        struct merak_error *err) MERAK_CHECKED;
/* setup.c: the plan, and the model sharded for it, with nodes in the order
 * that was asked for or described; no communication. */
enum merak_status merak_trainer_describe(struct merak_trainer *t,
                                         struct merak_error *err) MERAK_CHECKED;
/* setup.c: shard the model, or reshard it, with nodes in this order if it
 * allows that. */
enum merak_status merak_trainer_shard(struct merak_trainer *t,
                                      enum merak_branches order,
                                      struct merak_error *err) MERAK_CHECKED;
/* order.c: are the order of nodes and the cuts still to be chosen?  Never for
 * a chain.  The same on all ranks. */
bool merak_node_order_is_open(const struct merak_trainer *t);
/* order.c: choose them: rank 0 estimates, all reshard for the best.
 * Collective. */
enum merak_status
merak_node_order_choose(struct merak_trainer *t,
                        struct merak_error *err) MERAK_CHECKED;
/* setup.c: sharded model -> programs; no communication. */
enum merak_status merak_trainer_plan(struct merak_trainer *t,
                                     struct merak_error *err) MERAK_CHECKED;
/* setup.c: the options that all programs of the run are built with. */
struct merak_program_options
merak_trainer_program_options(const struct merak_trainer *t);
/* epoch.c: agree on the traces' zero of time; collective. */
enum merak_status merak_trainer_epoch(struct merak_trainer *t,
                                      struct merak_error *err) MERAK_CHECKED;
/* link_choice.c: once the backend is known, should there be a device link; and
 * how many queues the accelerator needs. */
bool merak_trainer_wants_link(const struct merak_trainer *t);
int merak_link_queues(const struct merak_trainer *t);
/* Estimate link_bytes for the run's programs. */
enum merak_status merak_link_estimate(struct merak_trainer *t,
                                      struct merak_error *err) MERAK_CHECKED;
/* Prove that the plan's programs do not deadlock in its queues; if they can
 * and --transport is auto, set t->linked.direct to false and link_why to the
 * reason. */
enum merak_status merak_link_prove(struct merak_trainer *t,
                                   struct merak_error *err) MERAK_CHECKED;
/* Open the device link, if there is to be one, once the transport is open.  If
 * that is impossible or fails and --transport is auto, link_why gives the
 * reason; the transport may then be another one than before.  Collective. */
enum merak_status merak_link_choose(struct merak_trainer *t,
                                    struct merak_error *err) MERAK_CHECKED;
/* setup.c: open the transport; collective. */
enum merak_status
merak_trainer_transport(struct merak_trainer *t,
                        struct merak_error *err) MERAK_CHECKED;
/* setup.c: arena, transport, engines; collective. */
enum merak_status merak_trainer_connect(struct merak_trainer *t,
                                        struct merak_error *err) MERAK_CHECKED;

/* run_files.c: files that a run keeps next to its checkpoints.  Collective. */
enum merak_status merak_run_files_start(struct merak_trainer *t,
                                        struct merak_error *err) MERAK_CHECKED;
/* The path of metrics; "" if there is none. */
void merak_run_files_metrics(const struct merak_trainer *t, char *path,
                             size_t size);
/* Append a line to RUN/incidents.jsonl, with time and step added; takes
 * ownership of the object. */
void merak_run_files_incident(const struct merak_trainer *t, json_t *incident);
/* resume.c: lock --ckpt's directory for this run, and check that all ranks can
 * write there before any step is computed.  Collective. */
enum merak_status merak_run_dir_open(struct merak_trainer *t,
                                     struct merak_error *err) MERAK_CHECKED;
/* resume.c: is there room for the checkpoints this run saves?  Collective. */
enum merak_status merak_run_dir_room(struct merak_trainer *t,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_run_dir_close(struct merak_trainer *t);
/* resume.c: load the weights of the newest sound checkpoint, or initial ones:
 * --init-from's, else the seed's.  Collective. */
enum merak_status merak_weights_start(struct merak_trainer *t,
                                      struct merak_error *err) MERAK_CHECKED;
/* What a checkpoint of this step says of the run. */
void merak_resume_state(const struct merak_trainer *t,
                        struct merak_ckpt_state *state);
/* The number of values in the sum over ranks that ends a step. */

/* weights.c: initial values, checkpoints; local. */
enum merak_status merak_weights_init(struct merak_trainer *t,
                                     struct merak_error *err) MERAK_CHECKED;
/* A piece of a parameter of a source. */
enum merak_status merak_weights_read(const struct merak_weight_source *source,
                                     const char *param, bool adapter,
                                     const struct merak_ckpt_piece *piece,
                                     struct merak_error *err) MERAK_CHECKED;
/* Take only weights from elsewhere; moments are zero. */
enum merak_status merak_weights_take(struct merak_trainer *t,
                                     const struct merak_weight_source *source,
                                     struct merak_error *err) MERAK_CHECKED;
/* lora_from.c: open the adapters that --lora-from names, and take their options
 * for the run's. */
enum merak_status merak_lora_from_open(struct merak_trainer *t,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_lora_from_close(struct merak_trainer *t);
/* The model has as many adapters. */
enum merak_status merak_lora_from_check(const struct merak_trainer *t,
                                        const struct merak_graph *graph,
                                        struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_lora_from_read(const struct merak_lora_source *from,
                                       const char *param,
                                       const struct merak_ckpt_piece *piece,
                                       struct merak_error *err) MERAK_CHECKED;
/* Global row-major index of element `i` of a box. */
uint64_t merak_box_global(const struct merak_box *box, size_t i);
/* init_from.c: the weights that --init-from names.  Collective. */
enum merak_status
merak_weights_init_from(struct merak_trainer *t,
                        struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_weights_load(struct merak_trainer *t,
                                     struct merak_ckpt *ckpt,
                                     struct merak_error *err) MERAK_CHECKED;
/* weights.c: the part of the tensor `name` that a slot holds. */
void merak_piece_of_slot(const struct merak_trainer *t,
                         const struct merak_param_slots *p, int slot,
                         const char *name, struct merak_ckpt_piece *piece);

/* saving.c: find what is saved and, for asynchronous saves, allocate the copy.
 * Collective. */
enum merak_status merak_saving_open(struct merak_trainer *t,
                                    struct merak_error *err) MERAK_CHECKED;
/* Fault in the pages of the copy, once the memory baseline has been taken. */
void merak_saving_begin(struct merak_trainer *t);
void merak_saving_close(struct merak_trainer *t);
/* Bytes of the tensors that this rank saves. */
size_t merak_saving_bytes(const struct merak_trainer *t);
/* Save this step.  If the save is asynchronous, merak_saving_advance() returns
 * its result, unless the step is the last.  Collective. */
enum merak_status merak_weights_save(struct merak_trainer *t, bool last,
                                     struct merak_error *err) MERAK_CHECKED;
/* Is this rank busy with a save? */
bool merak_saving_is_busy(const struct merak_trainer *t);
/* Percent of this rank's bytes of a save under way that are written; -1: its
 * thread is idle. */
int merak_saving_percent(const struct merak_trainer *t);
/* To be called when no rank is busy: advance a save under way, if any.
 * Collective. */
enum merak_status merak_saving_advance(struct merak_trainer *t,
                                       struct merak_error *err) MERAK_CHECKED;
/* Wait for the save that is under way, if any.  Collective. */
enum merak_status merak_saving_settle(struct merak_trainer *t,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_grads_dump(struct merak_trainer *t, float scale,
                                   struct merak_error *err) MERAK_CHECKED;

/* metrics.c: count an incident where metrics are kept. */
void merak_metrics_incident(const struct merak_trainer *t,
                            const json_t *incident);

/* outputs.c: metrics and the trace; closing the trace is collective. */
enum merak_status merak_outputs_open(struct merak_trainer *t,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_outputs_close_trace(struct merak_trainer *t);

/* predict.c: when each instruction of the program runs by the cost model, and
 * which ranks take part in it; planned  out [n_instrs].  No communication. */
enum merak_status merak_trainer_predict(struct merak_trainer *t,
                                        struct merak_trace_planned *planned,
                                        struct merak_error *err) MERAK_CHECKED;

/* predict.c: the programs of this rank's pipeline, one per stage; programs
 * out [pp], also of those that were built before a failure. */
enum merak_status merak_trainer_pipeline(struct merak_trainer *t,
                                         struct merak_program **programs,
                                         struct merak_error *err) MERAK_CHECKED;

/* predict.c: the cost model's input for each instruction; cost  out
 * [n_instrs]. */
void merak_trainer_costs(const struct merak_trainer *t,
                         struct merak_trace_cost *cost);

/* loop.c: the steps; *exit_code_p is MERAK_EXIT_DONE or _AGAIN. */
enum merak_status merak_trainer_loop(struct merak_trainer *t, int *exit_code_p,
                                     struct merak_error *err) MERAK_CHECKED;

/* data.c: the samples, once the programs are there. */
enum merak_status
merak_trainer_open_data(struct merak_trainer *t,
                        struct merak_error *err) MERAK_CHECKED;
void merak_trainer_close_data(struct merak_trainer *t);
/* Is --data a file that names arrays? */
bool merak_data_is_arrays(const char *files);
/* Positions of a sample, which are its tokens; 0: the model has none. */
size_t merak_trainer_positions(const struct merak_trainer *t);
/* inputs.c: what this rank loads of them. */
enum merak_status merak_inputs_open(struct merak_trainer *t,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_inputs_close(struct merak_trainer *t);
/* Before a training step; last: there is none after it to read for. */
void merak_inputs_begin(struct merak_trainer *t, bool last);
/* merak_samples_counted() for a loss, while samples may be read. */
uint64_t merak_inputs_counted(const struct merak_trainer *t, int loss,
                              enum merak_split split, uint64_t base,
                              uint64_t n);
/* A merak_load_fn for both engines; arg is the trainer. */
enum merak_status merak_trainer_load(void *arg, const struct merak_load *load,
                                     void *out,
                                     struct merak_error *err) MERAK_CHECKED;

enum { MERAK_CULPRIT_BYTES = 192 };
/* hang.c: describe what this rank does, a merak_tell_fn; arg is the
 * trainer. */
void merak_trainer_tell(void *arg, char *text, size_t size);
/* hang.c: call it when a wait's deadline has passed: ask all ranks what they
 * do and print the answers, also to hang-STEP.txt next to the metrics or in
 * the checkpoint directory; culprit: who is to blame, as far as that is known,
 * else "".  False if another rank does. */
bool merak_hang_report(struct merak_trainer *t, const struct merak_error *err,
                       char culprit[MERAK_CULPRIT_BYTES]);
/* hang.c: who is to blame, from the answers of told[size], by transport
 * rank. */
void merak_hang_culprit(const struct merak_boot *boot,
                        const int *transport_rank,
                        const struct merak_told *told,
                        char text[MERAK_CULPRIT_BYTES]);

/* train_report.c: text for people. */
void merak_report_plan(const struct merak_trainer *t);
/* "weights 12.3, gradients 24.6, ..", MiB of the program's arena. */
void merak_report_categories(const struct merak_trainer *t, char *text,
                             size_t bytes);
/* What --print asks for, on standard output. */
enum merak_status merak_report_phases(struct merak_trainer *t,
                                      struct merak_error *err) MERAK_CHECKED;
struct merak_step_values; /* metrics.h */
void merak_report_step(const struct merak_trainer *t,
                       const struct merak_step_values *v);
/* The results of a validation, if there was one. */
void merak_report_valid(const struct merak_trainer *t,
                        const struct merak_step_values *v);
/* No answer is preferred yet, if the reference is the model that training
 * starts from: the first loss is log 2.
 * A reference that does not say whose it is is judged by that. */
void merak_report_reference(const struct merak_trainer *t, double loss);
/* Report a successful save; rank 0's times. */
void merak_report_save(struct merak_trainer *t,
                       const struct merak_ckpt_times *times);
/* Tokens of a step. */
double merak_step_tokens(const struct merak_trainer *t);
void merak_report_memory(const struct merak_trainer *t);
/* A field of /proc/self/status in KiB ("VmRSS:", "VmHWM:"); 0 if unknown. */
size_t merak_resident_kib(const char *field);
/* Resident bytes of this process, and the most so far; for every step, since
 * /proc/self/status takes ten times as long.  0: unknown. */
void merak_resident_bytes(size_t *now_p, size_t *peak_p);

/* paths.c: on the launcher's first task, is there what options name for
 * reading, and can be written what they name?  Before anything is planned or
 * built. */
enum merak_status merak_paths_check(const struct merak_trainer *t,
                                    struct merak_error *err) MERAK_CHECKED;

/* merak_train.c: one run, from its options to the process's exit code.
 * `model` is the folder or config.json of the described model, to be recorded
 * in the run's directory, or NULL; `positions` the most tokens of a sequence
 * that it takes, or 0. */
int merak_trainer_main(int argc, char **argv, merak_describe_fn describe,
                       void *arg, const char *model, size_t positions);

#endif
