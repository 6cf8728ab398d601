/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/accel_choice.h - which task has which accelerator */
#ifndef MERAK_RUNTIME_TRAIN_ACCEL_CHOICE_H
#define MERAK_RUNTIME_TRAIN_ACCEL_CHOICE_H

#include "kernels/accel.h"

#include <stdbool.h>

struct merak_boot;

#define MERAK_ACCEL_MAX 16 /* accelerators of a node */

/* What one task sees. */
struct merak_accel_card {
    int n;
    struct merak_accel_device device[MERAK_ACCEL_MAX];
    int numa; /* the memory that all its cores are next to, or -1 */
};

/*
 * The accelerators of a node's tasks: each in turn takes, of those it sees,
 * one that the fewest have; of these one near its cores; of these the first.
 * Every task that is told the same finds the same.
 *
 *   card    in   [n]
 *   choice  out  [n], indices into card[i].device
 */
void merak_accel_assign(const struct merak_accel_card *card, int n,
                        int *choice);
/* How many tasks before task i have its accelerator. */
int merak_accel_sharers(const struct merak_accel_card *card, const int *choice,
                        int i);

/* Tasks that share one take turns on it: a warning in the log, or with a
 * transport that cannot serve them MERAK_ERR_CONFIG. */
enum merak_status
merak_accel_judge_sharing(const struct merak_accel_device *d, const char *host,
                          int rank, const char *transport,
                          struct merak_error *err) MERAK_CHECKED;

/* What decides which bits the kernels of a rank compute, "" where nothing. */
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
 * 0; a warning of rank 0 if one has another device or other libraries.
 */
enum merak_status
merak_accel_judge_kernels(const struct merak_boot *boot, const char *variable,
                          const struct merak_accel_kernels *all,
                          struct merak_error *err) MERAK_CHECKED;

/* Does what Slurm or the user said give this process GPUs, as far as the
 * environment tells?  get is getenv(), and exists tells of a file. */
bool merak_accel_is_given(char *(*get)(const char *name),
                          bool (*exists)(const char *path));

#endif
