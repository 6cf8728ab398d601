/* SPDX-License-Identifier: Apache-2.0 */
/* engine_impl.h - state shared by the two threads of an engine */
#ifndef MERAK_RUNTIME_ENGINE_INTERNAL_H
#define MERAK_RUNTIME_ENGINE_INTERNAL_H

#include "partitioner/program/streams.h"
#include "runtime/engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>

/* The most exchanges of a queue in flight: programs are free of deadlocks with
 * one at a time, and those in flight take memory that is reserved at set-up. */
#define MERAK_MAX_EXCHANGES 64

struct engine_queue {
    int n;
    const int *instr; /* ids in program order */
};

/* Consecutive instructions that are launched together (accel_batch.c). */
struct engine_batch {
    const struct merak_kernel *kernel;
    const int *id; /* [n] instructions, in order */
    int n;
    size_t at; /* offset of its table in the engine's tables */
    struct merak_table *table;
};

struct engine_batches {
    struct engine_batch *batch;
    int n;
    int *id;      /* storage of the batches */
    size_t bytes; /* of tables */
};

/* Consecutive instructions that are run as one kernel (accel_fuse.c). */
struct engine_fused {
    const int *id; /* [n], part of the compute queue */
    int n;
    unsigned unread[MERAK_FUSED_MAX]; /* merak_accel_ops.launch_fused */
};

/* Instructions that every step repeats as one CUDA graph (accel_replay.c). */
struct engine_stretch {
    const int *id; /* [n], part of the compute queue */
    int n;
    struct merak_replay *replay;
};

/* Which of several sends of one buffer staged it to the host, and in which run
 * (accel_share.c). */
struct engine_stager {
    uint32_t run;
    int instr;
};

/* Marks in the compute queue (accel_ahead.c). */
struct engine_ahead {
    int quarter; /* operations between two marks; 0: no limit */
    int n;       /* since the last one */
    struct merak_event *mark[2];
    bool recorded[2];
    int next; /* which is recorded next */
};

struct started {
    int instr;
    bool staged; /* accelerators: being copied to the host, not yet sent */
    bool direct; /* a device link moves it: it is in the accelerator's queue */
    struct merak_request *req; /* NULL: not posted, or done at once */
};

/* rows_left.c: numbers that an accelerator counts, on the host. */
struct engine_left {
    int *first;     /* by exchange: the first that depends on the same number */
    double *number; /* by that one, once it is known */
    struct merak_event *event; /* of the copy */
    int asks;                  /* the exchange that waits for it, or -1 */
};

/* What accel*.c keep of a run on an accelerator. */
struct engine_on_accel {
    struct merak_event **event; /* by instruction; NULL: not waited for */
    struct merak_event *queue_event[MERAK_STREAMS];
    int n_streams; /* of the accelerator's queues */
    int *stream;   /* by instruction: its queue there */
    int *comm;     /* by instruction: its communicator; with a device link */
    struct merak_link_call *call; /* a bundle that is being queued */
    unsigned char *input;         /* host memory that LOAD instructions fill */
    bool input_pinned;
    size_t *input_at; /* by instruction: where in it */
    bool sync;        /* wait after each instruction, to name a failing one */
    struct engine_ahead ahead;
    struct engine_left left;
    struct engine_batches batches;
    struct engine_batch **batch_of; /* by instruction; NULL: launched alone */
    struct engine_fused *fused;
    int n_fused;
    struct engine_fused **fused_of; /* by instruction; NULL: run alone */
    struct engine_stretch *stretch;
    int n_stretches;
    struct engine_stretch **stretch_of; /* by instruction; NULL: in none */
    int *share; /* by instruction: the first one that sends the same buffer */
    struct engine_stager *stager; /* by that first one */
    /* accel_times.c; NULL: times are not asked for */
    struct merak_event *
        *began; /* by instruction; NULL: when the one before ended */
    struct merak_event **ended;
    struct merak_event *zero; /* and the host's clock at that event */
    int64_t zero_ns;
};

/* The communication thread. */
struct engine_comm {
    int64_t spin_ns; /* a wait spins that long; 0: tasks share cores */
    pthread_t thread;
    bool has_thread;
    int wake_fd; /* eventfd: compute wakes it */
    atomic_bool sleeps;
    _Atomic uint32_t go;  /* run number the comm thread is to work on */
    _Atomic uint32_t run; /* run number it has finished */
    atomic_bool quit;

    /* the thread's own */
    int next[MERAK_QUEUE_COUNT]; /* position in each queue */
    struct started *started;
    int n_started;
    int n_exchanging[MERAK_QUEUE_COUNT]; /* of them, exchanges, by queue */
    int n_staged;          /* of them, being copied from the accelerator */
    int n_direct;          /* of them, in its queues */
    int64_t timer_late_ns; /* how late its timers fire, on average */
};

/* The state that two threads share has no lock, so it is kept in one place,
 * and each group of fields says who writes it. */
struct merak_engine {
    const struct merak_program *program;
    struct merak_engine_options opt;
    const struct merak_kernel **kernel; /* by instruction */
    struct merak_team *team;            /* by group */
    int *team_rank;                     /* storage of the teams */
    int *order;                         /* storage of the queues */
    struct engine_queue queue[MERAK_QUEUE_COUNT];
    bool *wakes_comm; /* by instruction: another thread's queue waits for it */
    struct merak_trace_record *record; /* by instruction */

    struct engine_on_accel accel; /* with an accelerator only */

    /* An instruction is complete when done[id] == run: no reset between steps.
     * Stored with release, loaded with acquire: whoever sees it complete sees
     * what it wrote. */
    _Atomic uint32_t *done;
    uint32_t run;
    const struct merak_step *step; /* of the run */
    /* When the compute queue becomes free.  A backend that emulates fills it
     * ahead of time, like an accelerator's stream: a complete instruction then
     * is not over before its record's end time. */
    int64_t compute_ns;

    /* For merak_engine_tell(): where the compute queue is, and since when. */
    uint64_t at_step;
    atomic_int compute_at; /* instruction, or -1: the queue is done */
    _Atomic int64_t compute_since_ns;

    /* The first failure of either thread wins. */
    atomic_int failed; /* 0, or 1 once `error` is being or was written */
    atomic_int failed_ready;
    struct merak_error error;

    /* Waits spin for a while first, except where threads share a core. */
    int64_t compute_spin_ns; /* 0: the rank has only one core */
    bool crowded;            /* kernels use all cores of the rank */

    /* comm -> compute: a futex the compute thread sleeps on */
    _Atomic uint32_t progress_count;
    atomic_bool compute_sleeps; /* written by compute only, after: */
    _Atomic uint32_t slept_at;  /* the progress_count that it sleeps on */

    struct engine_comm comm;
#ifdef MERAK_DEBUG
    _Atomic int *users_left; /* by whole slot, in this run */
    int *users;
#endif
};

/* Wake a thread that sleeps until *word changes (engine.c). */
void merak_futex_wake(_Atomic uint32_t *word);

static inline bool instr_done(const struct merak_engine *e, int id)
{
    return atomic_load(&e->done[id]) == e->run;
}

/* The first of instr's waits that is not complete, or -1. */
int merak_engine_pending(const struct merak_engine *e,
                         const struct merak_instr *instr);
/* If the backend emulates: when the last of instr's waits, all complete, is
 * over; else 0. */
int64_t merak_engine_due_ns(const struct merak_engine *e,
                            const struct merak_instr *instr);
/* Fill memory of the host with what a LOAD of an input asks for. */
enum merak_status merak_engine_load(struct merak_engine *e,
                                    const struct merak_instr *instr, void *out,
                                    struct merak_error *err) MERAK_CHECKED;
/* Run an instruction without communication. */
enum merak_status merak_engine_local(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     struct merak_error *err) MERAK_CHECKED;
/* Mark complete and wake whoever may wait for it. */
void merak_engine_complete(struct merak_engine *e,
                           const struct merak_instr *instr);
/* Keep the first failure, wake everyone. */
void merak_engine_fail(struct merak_engine *e, const struct merak_error *err);
/* "recv d/h.2.x (micro-batch 3) from rank 5" */
void merak_engine_describe(const struct merak_engine *e,
                           const struct merak_instr *instr, char *buf,
                           size_t size);
/* Are kernels no longer run, and launched? */
static inline bool merak_engine_skips(const struct merak_engine *e)
{
    return e->opt.skip != NULL && *e->opt.skip != 0;
}

/* The address of a slot; with an accelerator, on the device. */
void *merak_engine_slot(const struct merak_engine *e, int slot);
/* The kernel call of an instruction, with operands; step is filled with the
 * step as its micro-batch sees it, and the call points to it. */
void merak_engine_call(const struct merak_engine *e,
                       const struct merak_instr *instr,
                       struct merak_kernel_call *call, struct merak_step *step);

/* engine_setup.c: a variable of the environment that is 0 or 1; unset or empty:
 * `*on_p` is kept.  MERAK_ERR_CONFIG if it is anything else. */
enum merak_status merak_engine_switch(const char *name, bool *on_p,
                                      struct merak_error *err) MERAK_CHECKED;

static inline bool merak_instr_moves(const struct merak_instr *instr)
{
    return instr->kind == MERAK_INSTR_EXCHANGE ||
           instr->kind == MERAK_INSTR_SEND || instr->kind == MERAK_INSTR_RECV;
}

/* Does a SLICE put all of its input into a box of its output?  Else its output
 * is a box of its input. */
static inline bool merak_slice_unpacks(const struct merak_instr *instr)
{
    const struct merak_exchange *ex = instr->exchange;

    return merak_box_count(&ex->recv[0]) != merak_shape_count(&ex->out);
}

/* That box. */
static inline struct merak_accel_box
merak_slice_box(const struct merak_instr *instr)
{
    const struct merak_box *box = merak_slice_unpacks(instr)
                                      ? &instr->exchange->recv[0]
                                      : &instr->exchange->send[0];

    return (struct merak_accel_box){
        .ndim = box->ndim,
        .full = box->full,
        .lo = box->lo,
        .len = box->len,
        .elem_bytes = merak_dtype_bytes(instr->exchange->dtype),
    };
}

/* rows_left.c; of an accelerator alone: */
enum merak_status merak_engine_left_init(struct merak_engine *e,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_engine_left_fini(struct merak_engine *e);
/* of any: is it an exchange that is left out, since no rows need it?  Then its
 * output is zeros.  MERAK_IN_PROGRESS: it is not known yet. */
enum merak_status merak_engine_leave_out(struct merak_engine *e,
                                         const struct merak_instr *instr,
                                         bool *left_out_p,
                                         struct merak_error *err) MERAK_CHECKED;

/* accel.c; without an accelerator, init, fini and finish do nothing. */
enum merak_status
merak_engine_accel_init(struct merak_engine *e,
                        struct merak_error *err) MERAK_CHECKED;
void merak_engine_accel_fini(struct merak_engine *e);
/* Before a run, outside of its step. */
enum merak_status
merak_engine_accel_begin(struct merak_engine *e,
                         struct merak_error *err) MERAK_CHECKED;
/* Wait until all queues are empty. */
enum merak_status
merak_engine_accel_finish(struct merak_engine *e,
                          struct merak_error *err) MERAK_CHECKED;
/* Launch a kernel on zeros. */
enum merak_status
merak_engine_accel_warm(struct merak_engine *e, const struct merak_instr *instr,
                        struct merak_error *err) MERAK_CHECKED;
/* merak_engine_local() with an accelerator. */
enum merak_status merak_engine_issue(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     struct merak_error *err) MERAK_CHECKED;
/* Of a transfer: start the copy of what it sends to staging; MERAK_IN_PROGRESS
 * until that is complete; copy what it received to the device. */
enum merak_status merak_engine_stage_out(struct merak_engine *e,
                                         const struct merak_instr *instr,
                                         struct merak_error *err) MERAK_CHECKED;
enum merak_status
merak_engine_stage_test(struct merak_engine *e, const struct merak_instr *instr,
                        struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_engine_stage_in(struct merak_engine *e,
                                        const struct merak_instr *instr,
                                        struct merak_error *err) MERAK_CHECKED;
/* The communication thread's deadline should pass first: its error names the
 * transfer.  The compute thread waits so many times as long. */
#define MERAK_PATIENCE 1.25
/* Block the host until the event is complete, or the other thread has failed;
 * patience times the deadline. */
enum merak_status
merak_engine_wait_event(struct merak_engine *e, struct merak_event *event,
                        double patience, struct merak_error *err) MERAK_CHECKED;
/* accel_ahead.c: before issuing an instruction of the compute queue: wait if
 * too much of what was issued is not over. */
enum merak_status
merak_engine_ahead_init(struct merak_engine *e,
                        struct merak_error *err) MERAK_CHECKED;
void merak_engine_ahead_fini(struct merak_engine *e);
enum merak_status merak_engine_ahead(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     struct merak_error *err) MERAK_CHECKED;
/* accel_share.c: which instruction copies what instr sends from the device in
 * this run: of those that send the same buffer, the first that asks. */
enum merak_status
merak_engine_share_init(struct merak_engine *e,
                        struct merak_error *err) MERAK_CHECKED;
void merak_engine_share_fini(struct merak_engine *e);
int merak_engine_stager(struct merak_engine *e,
                        const struct merak_instr *instr);
/* direct.c: with a device link, find the communicator of each transfer of a
 * program; put one transfer into the accelerator's queue. */
enum merak_status
merak_engine_direct_init(struct merak_engine *e,
                         struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_engine_move(struct merak_engine *e,
                                    const struct merak_instr *instr,
                                    struct merak_error *err) MERAK_CHECKED;
/* Make the instruction's queue wait for the events of what it waits for. */
enum merak_status
merak_engine_order_behind(struct merak_engine *e,
                          const struct merak_instr *instr,
                          struct merak_error *err) MERAK_CHECKED;
/* Before issuing an instruction's work: make its queue wait for the events of
 * what it waits for. */
enum merak_status
merak_engine_begin_instr(struct merak_engine *e,
                         const struct merak_instr *instr,
                         struct merak_error *err) MERAK_CHECKED;
/* Record the instruction's event, if it has one, after what was issued for
 * it. */
enum merak_status
merak_engine_mark_issued(struct merak_engine *e,
                         const struct merak_instr *instr,
                         struct merak_error *err) MERAK_CHECKED;
/* The host memory that a transfer's operand is sent from or received into. */
void *merak_engine_staged_slot(const struct merak_engine *e, int slot);

/* Only launch an instruction without communication: no waits, no event. */
enum merak_status
merak_engine_issue_work(struct merak_engine *e, const struct merak_instr *instr,
                        struct merak_error *err) MERAK_CHECKED;
/* Set awaited[i] for instructions that another queue waits for. */
void merak_accel_awaited(const struct merak_program *p, bool *awaited);
/* Does an instruction wait for another queue than its own? */
bool merak_accel_waits(const struct merak_program *p,
                       const struct merak_instr *instr);

/* accel_batch.c */
enum merak_status
merak_engine_batches_init(struct merak_engine *e,
                          struct merak_error *err) MERAK_CHECKED;
void merak_engine_batches_fini(struct merak_engine *e);

/* accel_fuse.c: find what is run as one kernel; launch that. */
enum merak_status
merak_engine_fused_init(struct merak_engine *e,
                        struct merak_error *err) MERAK_CHECKED;
void merak_engine_fused_fini(struct merak_engine *e);
enum merak_status
merak_engine_issue_fused(struct merak_engine *e,
                         const struct engine_fused *fused,
                         struct merak_error *err) MERAK_CHECKED;

/* accel_replay.c: find stretches; capture them when the first step is known
 * and has not begun. */
enum merak_status
merak_engine_replay_init(struct merak_engine *e,
                         struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_engine_capture(struct merak_engine *e,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_engine_replay_fini(struct merak_engine *e);

/* accel_times.c: at a run's begin, before or after an instruction's work, and
 * when all queues are empty. */
bool merak_engine_has_times(const struct merak_engine *e);
enum merak_status
merak_engine_times_init(struct merak_engine *e,
                        struct merak_error *err) MERAK_CHECKED;
void merak_engine_times_fini(struct merak_engine *e);
enum merak_status
merak_engine_times_begin(struct merak_engine *e,
                         struct merak_error *err) MERAK_CHECKED;
enum merak_status
merak_engine_times_mark(struct merak_engine *e, const struct merak_instr *instr,
                        bool end, struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_engine_times_end(struct merak_engine *e,
                                         struct merak_error *err) MERAK_CHECKED;

enum merak_status merak_comm_start(struct merak_engine *e,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_comm_stop(struct merak_engine *e);

#endif
