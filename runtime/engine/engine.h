/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/engine/engine.h - run one rank's program
 *
 * Two threads: the caller runs the compute queue, a communication thread
 * owns the transport while a step runs and starts the other queues'
 * instructions in program order as soon as what they wait for is complete.
 * Nothing is decided here and nothing is allocated in a step.
 *
 * Waits spin for at most 20 us, then sleep: spinners ruin every neighbour on
 * a shared core.
 */
#ifndef MERAK_RUNTIME_ENGINE_ENGINE_H
#define MERAK_RUNTIME_ENGINE_ENGINE_H

#include "io/trace/trace.h"
#include "kernels/kernels.h"
#include "partitioner/program/program.h"
#include "runtime/link/link.h"
#include "runtime/transport/transport.h"

#include <stdatomic.h>

struct merak_engine;

/*
 * Fill a micro-batch's input.
 *   microbatch  0 .. m-1, or the evaluation batch's number
 *   ids         out  i32[B*T]
 */
typedef enum merak_status (*merak_load_fn)(void *arg,
                                           enum merak_input_kind input,
                                           int microbatch, int32_t *ids,
                                           struct merak_error *err);

struct merak_engine_options {
    const struct merak_backend *backend;
    struct merak_transport *tr; /* borrowed */
    const int *transport_rank;  /* [ranks] of each logical rank; borrowed */
    unsigned char *arena;       /* program->arena_bytes, 64-byte aligned: host
                                   memory, or accel's */
    /* Of a backend that has accelerators, the rank's; else NULL.  staging is
     * host memory of the arena's size, of which only what is sent and received
     * is touched. */
    struct merak_accel *accel; /* borrowed */
    unsigned char *staging;
    /* merak_engine_table_bytes() of accel's memory, 256-byte aligned, that
     * nobody else writes to; NULL: each instruction is launched by itself. */
    unsigned char *tables;
    /* Records are to have the accelerator's times, not those of issuing, if it
     * has any; costs some microseconds an instruction. */
    bool device_times;
    /* Moves what programs move from accelerator to accelerator; NULL: the
     * transport does, through staging. */
    struct merak_link *link; /* borrowed */
    merak_load_fn load;
    void *load_arg;
    double deadline_s; /* of any wait; 0: 300 */
    int64_t epoch_ns;  /* CLOCK_MONOTONIC zero of trace records */
};

/* Device memory for the tables of instructions that an engine launches
 * together; 0 without an accelerator. */
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
 * On failure (a kernel, a transfer, a deadline, a peer that gave up) the
 * peers have been told out of band, the text says which instruction and for
 * whom it waited, and the engine must not be run again.
 */
enum merak_status merak_engine_run(struct merak_engine *engine,
                                   const struct merak_step *step,
                                   struct merak_error *err) MERAK_CHECKED;
/*
 * Call each kernel of the program once for each shape, before the first run.
 * The arena is written to and means nothing afterwards.
 */
enum merak_status merak_engine_warm_up(struct merak_engine *engine,
                                       struct merak_error *err) MERAK_CHECKED;
/*
 * Say in one line which instruction each queue of the run under way, or of the
 * one that failed, is in, since when, and what the rank did last; of a transfer
 * also when something last came from that peer.  For the thread that uses the
 * transport.
 */
void merak_engine_tell(const struct merak_engine *engine, char *text,
                       size_t size);
/*
 * Wait on the host until an accelerator's event is over; MERAK_ERR_TIMEOUT when
 * that takes longer than the deadline.  stop may be NULL; once it is not 0 the
 * wait ends with MERAK_IN_PROGRESS.
 */
enum merak_status merak_accel_wait(struct merak_accel *accel,
                                   struct merak_event *event, double deadline_s,
                                   const atomic_int *stop,
                                   struct merak_error *err) MERAK_CHECKED;
/* The last run's records, one per instruction, in program order. */
const struct merak_trace_record *
merak_engine_records(const struct merak_engine *engine);

#endif
