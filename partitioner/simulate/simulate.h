/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/simulate.h - when the instructions of a plan run */
#ifndef MERAK_PARTITIONER_SIMULATE_SIMULATE_H
#define MERAK_PARTITIONER_SIMULATE_SIMULATE_H

#include "base/deadline.h"
#include "partitioner/program/program.h"

struct merak_timeline {
    int n; /* programs */
    double step_s;
    double **start; /* [program][instr], seconds from the step's start */
    double **end;
    double *busy_s; /* by program: compute queue */
};

/* Discrete-event simulation of the programs.  Instructions take the time of the
 * cost model, or, without one, that predicted when the programs were built, and
 * longer if they share uplinks (net.c).  A stage's ranks without a program do
 * what its programs do.  MERAK_ERR_TIMEOUT once the deadline, or NULL, is past.
 */
enum merak_status merak_simulate(struct merak_program *const *programs, int n,
                                 const struct merak_cost_model *model,
                                 const struct merak_deadline *deadline,
                                 struct merak_timeline **timeline_p,
                                 struct merak_error *err) MERAK_CHECKED;
/* Keep the rows of n programs, in this order, which ascends. */
void merak_timeline_keep(struct merak_timeline *timeline, const int *row,
                         int n);
void merak_timeline_destroy(struct merak_timeline *timeline);

#endif
