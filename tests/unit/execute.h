/* SPDX-License-Identifier: Apache-2.0 */
/* execute.h - run the programs of all ranks in one process, for tests
 *
 * With the reference kernels, or others, and real data.  Ranks and queues
 * advance in a random order, and a transfer or an exchange reads and writes
 * memory as late as its waits allow: what only works in a friendly order fails
 * here.
 */
#ifndef MERAK_TESTS_EXECUTE_H
#define MERAK_TESTS_EXECUTE_H

#include "unit/small_plans.h"

#include "kernels/kernels.h"

struct executed {
    struct merak_planned *planned;
    unsigned char **arena; /* by rank; new slots are NaN before the run */
    unsigned char **host;  /* by rank: what is offloaded */
    struct merak_step step;
    /* What runs kernels: NULL for the reference; and their device. */
    const struct merak_backend *backend;
    void *device;
    /* Where inputs of the model's own come from, of samples [first, first + n);
     * NULL: of execute_load.h. */
    void (*named)(const char *name, uint64_t first, size_t n, int32_t *out);
};

/* Parameters from their names and element indices. */
struct executed *executed_create(struct merak_planned *planned);
void executed_destroy(struct executed *ex);
/* One step; seed picks the order of events.  Fails the test if stuck. */
void executed_step(struct executed *ex, uint64_t seed);
/* Sum of a step's losses over micro-batches and replicas, and its norm. */
double executed_loss(const struct executed *ex);
/* The same of what else a loss of pairs of answers has, enum merak_loss_part. */
double executed_loss_part(const struct executed *ex, int part);
float executed_norm(const struct executed *ex, int rank);
/* What all ranks report of a step: of each vector that the graph reports, in its
 * order, the sum over micro-batches.  Returns how many numbers these are. */
enum { EXECUTED_REPORTS = 256 };
size_t executed_reports(const struct executed *ex,
                        double sum[EXECUTED_REPORTS]);
/* Rows that experts found no room for. */
double executed_overflow(const struct executed *ex);
/* Every element of a parameter that rank updates, as (global index, element)
 * to fn; others it gets with the next step. */
typedef void (*element_fn)(void *arg, size_t global, float *element);
void executed_param(const struct executed *ex, int rank,
                    const struct merak_param_slots *p, element_fn fn,
                    void *arg);
/* What an element of a parameter, `arg`, begins as. */
void executed_init_element(void *arg, size_t global, float *element);

#endif
