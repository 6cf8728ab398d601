/* SPDX-License-Identifier: Apache-2.0 */
/* accel_train.h - some steps of small models, on the host or the fake device,
 * to be compared to the bit
 *
 * For ranks of test_ranks.h: what is not so prints and leaves.
 */
#ifndef MERAK_TESTS_ACCEL_TRAIN_H
#define MERAK_TESTS_ACCEL_TRAIN_H

#include "unit/small_plans.h"

#include "kernels/kernels.h"
#include "runtime/link/link.h"

struct rank;

struct accel_row {
    const char *name;
    int tp, pp, dp, chunks;
    const char *schedule;
    int zero;
    bool recompute, bf16;
    int microbatches;                    /* 0: four */
    struct merak_stage_degrees stage[3]; /* [pp] of unlike stages; or none */
    bool away; /* optimizer state is offloaded, and what would be recomputed */
    int ep;    /* of experts whose rows travel; 0: there are none */
    bool left; /* some rows have no place at their expert */
    int lossy; /* ratio of all hops; 0: they are whole */
};
#define N_ACCEL_ROWS 24
#define ACCEL_STEPS 2
extern const struct accel_row accel_rows[N_ACCEL_ROWS];

struct accel_how {
    bool fake; /* else on the host, by the cpu backend */
    int seed;  /* of the fake device's delays */
    const struct merak_link_ops *link; /* moves what ranks move; NULL: the
                                          transport, by way of the host */
    bool fast;                         /* of the link */
    bool tables; /* updates and sums of squares are launched from tables */
    bool times;  /* the device's times are taken, and have to be in order */
    void (*opened)(struct merak_accel *); /* sees the device first, or NULL */
};

int accel_ranks(const struct accel_row *row);
/* The programs of a row; cpu is the backend of that name, opened.  direct: with
 * what a link needs. */
struct merak_planned *accel_build(const struct accel_row *row,
                                  const struct merak_backend *cpu, bool direct);
/* Weights and moments after some steps, one behind the other; from malloc. */
unsigned char *accel_train(struct rank *me, const struct merak_program *p,
                           const struct accel_how *how, size_t *bytes_p);
/* A test: by NCCL an exchange that only rows without a place need is left out if
 * all have one. */
void accel_leaves_out_what_no_row_needs(void **state);
/* How what the event stands for ends. */
enum merak_status accel_settle(struct merak_accel *a, struct merak_event *event,
                               struct merak_error *err);

#endif
