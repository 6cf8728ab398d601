/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/engine/engine.h - run one rank's program
 *
 * Two threads: the caller runs the compute queue, a communication thread owns
 * the transport while a step runs and starts the instructions of the other
 * queues, each in program order, as soon as what they wait for is complete.
 * The engine makes no choices and allocates nothing in a step.
 *
 * Waits spin for at most 20 us, then sleep: spinning slows every other task on
 * a shared core.  A device link, whose library takes longer to queue a
 * transfer, spins for 500 us where there are cores (runtime/link/link.c).
 */
#ifndef MERAK_RUNTIME_ENGINE_ENGINE_H
#define MERAK_RUNTIME_ENGINE_ENGINE_H

#include "io/trace/trace.h"
#include "kernels/kernels.h"
#include "partitioner/program/program.h"
#include "runtime/link/link.h"
#include "runtime/transport/transport.h"

#include <signal.h>
#include <stdatomic.h>

struct merak_engine;

/* In what merak_engine_tell() says of a rank that waits for nobody. */
#define MERAK_TELL_COMPUTES ", computes "

/* What is to be loaded: a part of an input of the program's graph. */
struct merak_load {
    int input;      /* index in graph->input */
    int microbatch; /* 0 .. m-1, or the evaluation batch's number */
    const struct merak_input *of; /* graph->input[input] */
    const struct merak_box *box; /* the part, of all of the replica's samples */
};
/* Fill a micro-batch's input: `out` has the box, row-major, in the input's
 * dtype. */
typedef enum merak_status (*merak_load_fn)(void *arg,
                                           const struct merak_load *load,
                                           void *out, struct merak_error *err);

struct merak_engine_options {
    const struct merak_backend *backend;
    struct merak_transport *tr; /* borrowed */
    const int *transport_rank;  /* [ranks] of each logical rank; borrowed */
    unsigned char *arena;       /* program->arena_bytes, 64-byte aligned: host
                                   memory, or accel's */
    unsigned char *host; /* program->host_bytes of the host's memory, likewise;
                            NULL: the program keeps nothing there */
    /* The rank's accelerator, if the backend has them; else NULL.  staging is
     * host memory of the arena's size; only what is sent and received is
     * touched. */
    struct merak_accel *accel; /* borrowed */
    unsigned char *staging;
    /* merak_engine_table_bytes() of accel's memory, 256-byte aligned, that
     * nobody else writes to; NULL: instructions are launched one by one. */
    unsigned char *tables;
    /* Record times measured on the accelerator instead of times of issuing, if
     * it can; costs some microseconds per instruction. */
    bool device_times;
    /* Moves data from accelerator to accelerator; NULL: the transport does,
     * through staging. */
    struct merak_link *link; /* borrowed */
    merak_load_fn load;
    void *load_arg;
    double deadline_s; /* of any wait; 0: 300 */
    int64_t epoch_ns;  /* CLOCK_MONOTONIC zero of trace records */
    /* Once it is not 0, kernels are not run: this run and all later ones are
     * over as soon as their messages are, and what an accelerator has in its
     * queue, and compute nothing of use.  NULL: all are run. */
    const volatile sig_atomic_t *skip;
};

/* Device memory for the tables of batches, instructions that an engine
 * launches together; 0 without an accelerator. */
enum merak_status
merak_engine_table_bytes(const struct merak_program *program,
                         const struct merak_backend *backend, size_t *bytes_p,
                         struct merak_error *err) MERAK_CHECKED;
/* program and everything in opt are borrowed for the engine's life. */
enum merak_status merak_engine_create(const struct merak_program *program,
                                      const struct merak_engine_options *opt,
                                      struct merak_engine **engine_p,
                                      struct merak_error *err) MERAK_CHECKED;
void merak_engine_destroy(struct merak_engine *engine);

/*
 * Run the program once.  step->sample is the step's first global sample;
 * micro-batch j of replica r starts at sample + (j * dp + r) * B.
 *
 * On failure (a kernel, a transfer, a deadline, a peer that gave up) the peers
 * have been notified out of band, the text names the instruction and the rank
 * it waited for, and the engine must not be run again.
 */
enum merak_status merak_engine_run(struct merak_engine *engine,
                                   const struct merak_step *step,
                                   struct merak_error *err) MERAK_CHECKED;
/*
 * Call each kernel of the program once per shape, before the first run.  This
 * overwrites the arena with garbage.
 */
enum merak_status merak_engine_warm_up(struct merak_engine *engine,
                                       struct merak_error *err) MERAK_CHECKED;
/*
 * Describe in one line, for the run under way or the one that failed, which
 * instruction each queue is in and since when, and what the rank did last; for
 * a transfer also when something last came from that peer.  Call it on the
 * thread that uses the transport.
 */
void merak_engine_tell(const struct merak_engine *engine, char *text,
                       size_t size);
/*
 * Block the host until an accelerator's event is complete; MERAK_ERR_TIMEOUT
 * when that takes longer than the deadline.  stop may be NULL; once it is not
 * 0 the wait ends with MERAK_IN_PROGRESS.
 */
enum merak_status merak_accel_wait(struct merak_accel *accel,
                                   struct merak_event *event, double deadline_s,
                                   const atomic_int *stop,
                                   struct merak_error *err) MERAK_CHECKED;
/* The last run's records, one per instruction, in program order. */
const struct merak_trace_record *
merak_engine_records(const struct merak_engine *engine);

#endif
