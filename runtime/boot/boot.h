/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/boot/boot.h - how ranks find each other
 *
 * "pmix" under srun --mpi=pmix or any PMIx launcher, "single" for a lone
 * process.  With more than one task and no PMIx, opening fails
 * (MERAK_ERR_CONFIG, exit code 68): a job never splits into N singletons.
 */
#ifndef MERAK_RUNTIME_BOOT_BOOT_H
#define MERAK_RUNTIME_BOOT_BOOT_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

struct merak_boot;

struct merak_boot_ops {
    const char *name; /* "pmix", "single" */
    /* Allgather of one card per rank, in rank order: cards[size * bytes].
     * bytes <= 4096 and equal on all ranks. */
    enum merak_status (*allgather)(struct merak_boot *boot, const void *card,
                                   size_t bytes, void *cards,
                                   struct merak_error *err);
    /* Send rank 0's data[bytes] to all ranks; `bytes` is any size, equal on
     * all. */
    enum merak_status (*broadcast)(struct merak_boot *boot, void *data,
                                   size_t bytes, struct merak_error *err);
    enum merak_status (*barrier)(struct merak_boot *boot,
                                 struct merak_error *err);
    /* End the whole step with this exit code; does not return under PMIx. */
    void (*abort)(struct merak_boot *boot, int code, const char *why);
    void (*close)(struct merak_boot *boot);
};

struct merak_boot {
    const struct merak_boot_ops *ops;
    int rank, size;           /* physical (PMIx) */
    const char *host;         /* of this rank, PMIX_HOSTNAME key */
    int *node_of;             /* [size]: node number, by first appearance */
    const char *const *hosts; /* [n_nodes] */
    int n_nodes;
    int local_rank, local_size;
    double deadline_s; /* of a collective; the opener may change it */
};

/* How many tasks the launcher started, including this one, according to the
 * environment, and which of its variables has that number; 1 if none has. */
int merak_boot_launched(const char **by_p);
/* Which of them this is, from 0, according to the environment. */
int merak_boot_rank(void);
/* Is this the first of them, according to the environment?  Used to print a
 * line once per job. */
bool merak_boot_is_first(void);
/* SLURM_CPUS_PER_TASK, the cores of a task; *cores_p stays as it is if that is
 * not set.  Anything but a positive integer is refused. */
enum merak_status merak_boot_cpus(int *cores_p,
                                  struct merak_error *err) MERAK_CHECKED;
/* That, or this task's share of the cores of a node that has `tasks` of them;
 * 1 .. 1024. */
enum merak_status merak_boot_threads(int tasks, int *threads_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* The initial deadline of collectives is 300 s.  After MERAK_ERR_TIMEOUT only
 * abort and close may be called. */
enum merak_status merak_boot_open(struct merak_boot **boot_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_boot_close(struct merak_boot *boot);
/* For a program that starts its own ranks: the next merak_boot_open() of this
 * process returns `boot` and looks for no launcher. */
void merak_boot_give(struct merak_boot *boot);

/* Allgather each rank's status; all ranks return the first failure in rank
 * order, with its text.  Collective. */
enum merak_status merak_boot_agree(struct merak_boot *boot,
                                   enum merak_status rc,
                                   struct merak_error *err) MERAK_CHECKED;
/*
 * merak_boot_agree() and, if no rank failed, an allgather of `mine` into
 * all[size * bytes], in rank order; bytes <= 3072, equal on all ranks.  If any
 * rank failed, `mine` is ignored and `all` is not written.  Saves a second
 * allgather.
 */
enum merak_status merak_boot_allgather(struct merak_boot *boot,
                                       enum merak_status rc, const void *mine,
                                       size_t bytes, void *all,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
