/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/calibrate.h - what the files of `merak calibrate` share */
#ifndef MERAK_CMD_CALIBRATE_H
#define MERAK_CMD_CALIBRATE_H

#include "kernels/kernels.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/device/device.h"
#include "runtime/boot/boot.h"
#include "runtime/transport/arena.h"
#include "runtime/transport/transport.h"

/* Where models are run: as in training, one arena and one transport.  Nodes
 * all run the same at the same time, each for itself. */
struct calibrate_world {
    const struct merak_backend *backend;
    struct merak_boot *boot;
    struct merak_accel *accel; /* of a backend that has any, open all along */
    void *device;              /* its memory for the models, as the arena */
    struct merak_arena arena;
    struct merak_transport *tr;
    struct merak_team node; /* ranks of this node: a model is theirs */
    struct merak_team all;
    int *rank_of; /* storage of both teams */
};

/* Steps of one program, in the order in which they were run. */
struct calibrate_steps {
    int n;
    double *length;  /* [n] what kernels took together */
    double *seconds; /* [n][instr] of each step's slowest node and rank */
    double *shared;  /* [n][instr] of exchanges, since the last member came; of
                      * those that are exposed, until kernels go on */
};

/* A program's instructions, of a mean of the middle steps. */
struct calibrate_times {
    double *seconds; /* [instr] */
    double *shared;
};

/* calibrate_alone.c: this rank's rates of products, memory, copies and
 * wake-ups; all ranks call it at the same time. */
enum merak_status calibrate_alone(const struct merak_backend *backend,
                                  int threads, struct merak_device *device,
                                  struct merak_error *err) MERAK_CHECKED;
/* The part of that that is about processes, not about kernels. */
enum merak_status calibrate_wake(struct merak_device *device,
                                 struct merak_error *err) MERAK_CHECKED;
/* calibrate_accel.c: the same of an accelerator.  Each rank of a node opens
 * another one, if there are as many. */
enum merak_status calibrate_accel_open(struct calibrate_world *world,
                                       int threads,
                                       struct merak_error *err) MERAK_CHECKED;
void calibrate_accel_close(struct calibrate_world *world);
/* Bytes that are free there; 0: it takes the host's. */
double calibrate_accel_memory(const struct calibrate_world *world);
enum merak_status calibrate_accel(struct calibrate_world *world,
                                  struct merak_device *device,
                                  struct merak_error *err) MERAK_CHECKED;
/* Have a call of a kernel tuned (merak_accel_ops.tune) on random operands. */
enum merak_status
calibrate_accel_tune(struct calibrate_world *world, const char *op,
                     struct merak_kernel_call *call,
                     void (*tell)(void *arg, const char *line), void *arg,
                     struct merak_error *err) MERAK_CHECKED;
/* Seconds of a kernel on such operands. */
enum merak_status calibrate_accel_time(struct calibrate_world *world,
                                       const char *op,
                                       struct merak_kernel_call *call,
                                       double *seconds_p,
                                       struct merak_error *err) MERAK_CHECKED;
/* calibrate_tune.c: choose for the products and the attention of a model's
 * step, as one of tp ranks has them, into device->tuned; what attention then
 * takes goes to device->rates. */
struct calibrate_tune {
    const char *model; /* its config.json, or the directory */
    int seq, micro_batch, tp;
};
enum merak_status calibrate_tune(struct calibrate_world *world,
                                 const struct calibrate_tune *how,
                                 struct merak_device *device,
                                 struct merak_error *err) MERAK_CHECKED;
/* Sorts the values. */
double calibrate_median(double *value, size_t n);
/* Wake-ups: who has one end of a socket pair sends back what comes until the
 * other is closed; *seconds_p is half of what that takes. */
void calibrate_echo(int fd);
bool calibrate_ping(int fd, double *seconds_p);

/* calibrate_world.c */
enum merak_status calibrate_world_open(struct calibrate_world *world,
                                       size_t arena_bytes,
                                       struct merak_error *err) MERAK_CHECKED;
void calibrate_world_close(struct calibrate_world *world);
/* Tell peers, who may wait for this rank in a transfer, if it fails; returns
 * rc. */
enum merak_status
calibrate_world_tell(struct calibrate_world *world, enum merak_status rc,
                     const struct merak_error *err) MERAK_CHECKED;

/* calibrate_run.c */
/*
 * Train on random tokens for a round: one step, or where they are short,
 * several after one that is not counted.  Collective; all ranks
 * get the same times.
 *
 *   program  of this rank, whose peers, if any, are its node's ranks; borrowed
 *   vocab    of tokens
 *   steps    of the same program, to which these are added; free by
 *            calibrate_steps_fini(), after a failure too
 */
enum merak_status calibrate_run(struct calibrate_world *world,
                                const struct merak_program *program,
                                size_t vocab, struct calibrate_steps *steps,
                                struct merak_error *err) MERAK_CHECKED;
void calibrate_steps_fini(struct calibrate_steps *steps);
/* Whether the compute queue stands still for an exchange and nothing else, and
 * between which of its instructions. */
bool calibrate_exposed(const struct merak_program *program, int id,
                       int *before_p, int *behind_p);
/* What counts of at least one step; free by calibrate_times_fini(). */
enum merak_status calibrate_middle(const struct calibrate_steps *steps,
                                   const struct merak_program *program,
                                   struct calibrate_times *times,
                                   struct merak_error *err) MERAK_CHECKED;
void calibrate_times_fini(struct calibrate_times *times);

/* calibrate_beside.c: models that replicas train. */
#define CALIBRATE_REPLICAS 24
struct calibrate_beside {
    int n;
    struct calibrate_replicas {
        struct merak_planned *planned;
        struct merak_program *program; /* this rank's of them */
        double took_s, lost_s;         /* kernels of micro-batches */
    } model[CALIBRATE_REPLICAS];
};

/*
 * Add a model.
 *
 *   alone, alone_times   one rank's program, and what it took
 *   planned, rank        the replicas' programs, which are taken, and this
 *                        rank's among them
 *   times                what the replicas' took
 */
void calibrate_beside_add(struct calibrate_beside *beside,
                          const struct merak_program *alone,
                          const struct calibrate_times *alone_times,
                          struct merak_planned *planned, int rank,
                          const struct calibrate_times *times);
/* The device's loss beside exchanges; as it was if there are no models. */
enum merak_status calibrate_beside_fit(const struct calibrate_beside *beside,
                                       struct merak_device *device,
                                       struct merak_error *err) MERAK_CHECKED;
void calibrate_beside_fini(struct calibrate_beside *beside);

/* calibrate_kernels.c: time the kernels of small models of each dtype, and
 * with several ranks on a node, of models that are shared out among them, and
 * the exchanges of these, going round all of them so many times.  Fills the
 * device's tables, and its link if a node has several ranks.  Collective. */
enum merak_status calibrate_kernels(struct calibrate_world *world, int threads,
                                    int rounds, bool quick,
                                    struct merak_device *device,
                                    struct merak_error *err) MERAK_CHECKED;

/* calibrate_net.c: exchanges and transfers between nodes, of as many ranks on
 * each, in so many rounds.  Fills the device's net, and with several ranks on a
 * node what these have together.  Collective; opens the world and closes it. */
enum merak_status calibrate_net(struct calibrate_world *world, int rounds,
                                struct merak_device *device,
                                struct merak_error *err) MERAK_CHECKED;

struct calibrate_from {
    const char *dir;     /* the trace of a run */
    const char *device;  /* that its times are held against */
    const char *backend; /* that it has to have run on */
    const char *out;
};
/* calibrate_trace.c: correct a device file by a run.  Prints what has changed,
 * or why not; returns the exit code. */
int calibrate_from_trace(const struct calibrate_from *from);

#endif
