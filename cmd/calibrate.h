/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/calibrate.h - shared by the files of `merak calibrate` */
#ifndef MERAK_CMD_CALIBRATE_H
#define MERAK_CMD_CALIBRATE_H

#include "kernels/kernels.h"
#include "partitioner/assembly/assembly.h"
#include "partitioner/device/device.h"
#include "runtime/boot/boot.h"
#include "runtime/link/link.h"
#include "runtime/transport/arena.h"
#include "runtime/transport/transport.h"

/* --transport, as for `merak train` */
enum calibrate_transport { CALIBRATE_AUTO, CALIBRATE_UCX, CALIBRATE_NCCL };

/* Where models run: as in training, with one arena, one transport, and between
 * accelerators a link.  All nodes run the same at the same time,
 * independently. */
struct calibrate_world {
    const struct merak_backend *backend;
    struct merak_boot *boot;
    struct merak_accel *accel; /* if the backend has any; open all the time */
    struct merak_accel_device card; /* accel, as identified on its node */
    int most_steps; /* of a model in a round */
    void *device;   /* accel's memory for the models, like the arena */
    struct merak_arena arena;
    int transport; /* enum calibrate_transport */
    struct merak_transport *tr;
    const struct merak_link_ops *link_ops; /* NULL: data goes through host
                                              memory, by tr */
    struct merak_link *link;
    struct merak_team node; /* ranks of this node: they run a model */
    struct merak_team all;
    int *rank_of; /* storage of both teams */
};

/* The rank after this one in the team's ring (by 1), or before it (-1). */
static inline int calibrate_neighbour(const struct merak_team *team, int by)
{
    return team->rank[(team->me + team->n + by) % team->n];
}

/* Steps of one program, in the order of execution. */
struct calibrate_steps {
    int n;
    double *length;  /* [n] total time of kernels */
    double *seconds; /* [n][instr] of each step's slowest node and rank */
    double *shared;  /* [n][instr] of exchanges, from the arrival of the last
                      * member; if exposed, until kernels continue */
};

/* Times of a program's instructions, means over the middle steps. */
struct calibrate_times {
    double *seconds; /* [instr] */
    double *shared;
};

/* calibrate_alone.c: this rank's rates of matrix products, memory, copies and
 * wake-ups; all ranks call it at the same time. */
enum merak_status calibrate_alone(const struct merak_backend *backend,
                                  int threads, struct merak_device *device,
                                  struct merak_error *err) MERAK_CHECKED;
/* The part of it that measures processes, not kernels. */
enum merak_status calibrate_wake(struct merak_device *device,
                                 struct merak_error *err) MERAK_CHECKED;
/* calibrate_accel.c: the same for an accelerator.  Each rank of a node opens a
 * different one, if there are enough. */
enum merak_status calibrate_accel_open(struct calibrate_world *world,
                                       int threads,
                                       struct merak_error *err) MERAK_CHECKED;
void calibrate_accel_close(struct calibrate_world *world);
/* Free bytes of its memory; 0: it uses the host's. */
double calibrate_accel_memory(const struct calibrate_world *world);
enum merak_status calibrate_accel(struct calibrate_world *world,
                                  struct merak_device *device,
                                  struct merak_error *err) MERAK_CHECKED;
/* Tune a call of a kernel (merak_accel_ops.tune) on random operands. */
enum merak_status
calibrate_accel_tune(struct calibrate_world *world, const char *op,
                     struct merak_kernel_call *call,
                     void (*tell)(void *arg, const char *line), void *arg,
                     struct merak_error *err) MERAK_CHECKED;
/* Seconds of a kernel on random operands. */
enum merak_status calibrate_accel_time(struct calibrate_world *world,
                                       const char *op,
                                       struct merak_kernel_call *call,
                                       double *seconds_p,
                                       struct merak_error *err) MERAK_CHECKED;
/* calibrate_tune.c: choose algorithms for the matrix products and the
 * attention of a model's step, in the shapes of one of tp ranks, into
 * device->tuned; attention's times then go to device->rates. */
struct calibrate_tune {
    const char *model;        /* its config.json, or the directory */
    int seq, micro_batch, tp; /* seq: 0 until checked, if not given */
};
/* Before anything is measured: can such a step be planned on this backend, and
 * has it kernels to choose from?  Any failure is the options'. */
enum merak_status calibrate_tune_check(const struct merak_backend *backend,
                                       struct calibrate_tune *how,
                                       struct merak_error *err) MERAK_CHECKED;
enum merak_status calibrate_tune(struct calibrate_world *world,
                                 const struct calibrate_tune *how,
                                 struct merak_device *device,
                                 struct merak_error *err) MERAK_CHECKED;
/* Sorts the values. */
double calibrate_median(double *value, size_t n);
/* Wake-ups: the process with one end of a socket pair echoes what it receives
 * until the other end is closed; *seconds_p is half of the round trip. */
void calibrate_echo(int fd);
bool calibrate_ping(int fd, double *seconds_p);

/* calibrate_world.c */
/* Before anything is measured, with accelerators open: choose what moves data
 * between tasks, as training would; what prevents a link is printed.
 * Collective. */
enum merak_status calibrate_world_choose(struct calibrate_world *world,
                                         struct merak_error *err) MERAK_CHECKED;
/*
 *   ring  with a link: exchanges are among these ranks, and messages go from
 *         each to the next; NULL: exchanges are among those of the node
 *
 * If a link cannot be opened and need not be, link_ops is then NULL.
 */
enum merak_status calibrate_world_open(struct calibrate_world *world,
                                       size_t arena_bytes,
                                       const struct merak_team *ring,
                                       struct merak_error *err) MERAK_CHECKED;
/* "nccl", "ucx", "self": what moves data. */
const char *calibrate_world_mover(const struct calibrate_world *world);
void calibrate_world_close(struct calibrate_world *world);
/* If rc is a failure, notify peers, which may wait for this rank in a
 * transfer; returns rc. */
enum merak_status
calibrate_world_tell(struct calibrate_world *world, enum merak_status rc,
                     const struct merak_error *err) MERAK_CHECKED;

/* calibrate_run.c */
/*
 * Train on random tokens for a round: one step, or if steps are short, several
 * after one that is not counted.  Collective; all ranks get the same times.
 *
 *   program  of this rank, whose peers, if any, are on its node; borrowed
 *   vocab    of tokens
 *   steps    earlier ones of this program, to be extended; free by
 *            calibrate_steps_fini(), also after a failure
 */
enum merak_status calibrate_run(struct calibrate_world *world,
                                const struct merak_program *program,
                                size_t vocab, struct calibrate_steps *steps,
                                struct merak_error *err) MERAK_CHECKED;
void calibrate_steps_fini(struct calibrate_steps *steps);
/* Does the compute queue wait for this exchange and nothing else, and between
 * which of its instructions? */
bool calibrate_exposed(const struct merak_program *program, int id,
                       int *before_p, int *behind_p);
/* The means over the middle steps of at least one; free by
 * calibrate_times_fini(). */
enum merak_status calibrate_middle(const struct calibrate_steps *steps,
                                   const struct merak_program *program,
                                   struct calibrate_times *times,
                                   struct merak_error *err) MERAK_CHECKED;
void calibrate_times_fini(struct calibrate_times *times);

/* calibrate_beside.c: models trained by replicas. */
#define CALIBRATE_REPLICAS 24
struct calibrate_beside {
    int n;
    struct calibrate_replicas {
        struct merak_planned *planned;
        struct merak_program *program; /* this rank's one */
        double took_s, lost_s;         /* by kernels of micro-batches */
    } model[CALIBRATE_REPLICAS];
};

/*
 * Add a model.
 *
 *   alone, alone_times   one rank's program, and its times
 *   planned, rank        the replicas' programs, taken over, and this
 *                        rank's among them
 *   times                those of the replicas' programs
 */
void calibrate_beside_add(struct calibrate_beside *beside,
                          const struct merak_program *alone,
                          const struct calibrate_times *alone_times,
                          struct merak_planned *planned, int rank,
                          const struct calibrate_times *times);
/* Fit the device's loss during exchanges; unchanged if there are no models. */
enum merak_status calibrate_beside_fit(const struct calibrate_beside *beside,
                                       struct merak_device *device,
                                       struct merak_error *err) MERAK_CHECKED;
void calibrate_beside_fini(struct calibrate_beside *beside);

/* calibrate_kernels.c: time the kernels of small models of each dtype and,
 * with several ranks on a node, kernels and exchanges of models that are split
 * over them, in `rounds` rounds over all of them.  Fills the device's tables,
 * and its link if a node has several ranks.  Collective. */
enum merak_status calibrate_kernels(struct calibrate_world *world, int threads,
                                    int rounds, bool quick,
                                    struct merak_device *device,
                                    struct merak_error *err) MERAK_CHECKED;

/* calibrate_net.c: time exchanges and transfers between nodes, with equally
 * many ranks on each, in `rounds` rounds.  Fills the device's net, and with
 * several ranks on a node their total rate.  If inside: the same among the
 * ranks of each node, if a link moves data between their accelerators; fills
 * the device's link.  Collective; opens the world and closes it. */
enum merak_status calibrate_net(struct calibrate_world *world, bool inside,
                                int rounds, struct merak_device *device,
                                struct merak_error *err) MERAK_CHECKED;

/* calibrate_between.c: measure the ways between the islands of a file into
 * another one; returns the exit code.  Collective. */
struct calibrate_ways {
    const char *between; /* its islands have names of nodes */
    const char *out;
    int rounds; /* up to 100 */
};
int calibrate_between(const struct calibrate_ways *how,
                      struct merak_boot *boot);

struct calibrate_from {
    const char *dir;     /* the trace of a run */
    const char *device;  /* to compare its times with */
    const char *backend; /* that it must have run on */
    const char *out;
};
/* calibrate_trace.c: correct a device file by a run.  Prints what has changed,
 * or why nothing has; returns the exit code. */
int calibrate_from_trace(const struct calibrate_from *from);

#endif
