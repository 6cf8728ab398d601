/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/accel_choice.h - which task uses which accelerator */
#ifndef MERAK_RUNTIME_TRAIN_ACCEL_CHOICE_H
#define MERAK_RUNTIME_TRAIN_ACCEL_CHOICE_H

#include "kernels/accel.h"

#include <stdbool.h>

struct merak_backend;
struct merak_boot;

#define MERAK_ACCEL_MAX 16 /* accelerators of a node */

/* The accelerators that one task sees. */
struct merak_accel_card {
    int n;
    struct merak_accel_device device[MERAK_ACCEL_MAX];
    int numa; /* the NUMA node of all its cores, or -1 */
};

/* List what this task sees; a backend without accelerators has none. */
enum merak_status merak_accel_list(const struct merak_backend *backend,
                                   struct merak_accel_card *card,
                                   struct merak_error *err) MERAK_CHECKED;
/*
 * Assign accelerators to a node's tasks: each in turn takes, of those it sees,
 * one that the fewest tasks have; among these one near its cores; among these
 * the first.  The same cards give the same result on every task.
 *
 *   card    in   [n]
 *   choice  out  [n], indices into card[i].device
 */
void merak_accel_assign(const struct merak_accel_card *card, int n,
                        int *choice);
/* How many tasks before task i have its accelerator. */
int merak_accel_sharers(const struct merak_accel_card *card, const int *choice,
                        int i);
/* How many of all n tasks have its accelerator, task i included. */
int merak_accel_tasks(const struct merak_accel_card *card, const int *choice,
                      int n, int i);

/* Tasks that share an accelerator take turns on it: log a warning, or return
 * MERAK_ERR_CONFIG if the transport does not support sharing. */
enum merak_status
merak_accel_judge_sharing(const struct merak_accel_device *d, const char *host,
                          int rank, const char *transport,
                          struct merak_error *err) MERAK_CHECKED;

/* What the bits depend on that the kernels of a rank compute; "": nothing. */
struct merak_accel_kernels {
    char made_for[128]; /* the device and its libraries, for people to read */
    char value[64];     /* of the backend's variable */
};

/*
 * Ranks that hold the same weights must compute the same bits.
 *
 *   variable  in   the backend's, or NULL
 *   all       in   [boot->size], in rank order
 *
 * MERAK_ERR_CONFIG, which names both ranks, if one has another value than rank
 * 0; rank 0 logs a warning if one has another device or other libraries.
 */
enum merak_status
merak_accel_judge_kernels(const struct merak_boot *boot, const char *variable,
                          const struct merak_accel_kernels *all,
                          struct merak_error *err) MERAK_CHECKED;

/* According to the environment, has Slurm or the user given this process GPUs?
 * get is getenv(); exists() checks for a file. */
bool merak_accel_is_given(char *(*get)(const char *name),
                          bool (*exists)(const char *path));

#endif
