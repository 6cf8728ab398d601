/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/instr_order.h - what is known to be complete when an
 * instruction starts, from the compute queue's order and the waits
 */
#ifndef MERAK_PARTITIONER_PROGRAM_INSTR_ORDER_H
#define MERAK_PARTITIONER_PROGRAM_INSTR_ORDER_H

#include <stdbool.h>

#include "partitioner/program/program.h"

struct merak_instr_order {
    const struct merak_program *program;
    int n; /* instructions taken in so far */
    int last_compute; /* the latest of them on the compute queue, or -1 */
    /* By instruction: latest compute instruction complete when it starts. */
    int *compute;
    /* By instruction off the compute queue: the first compute instruction
     * at whose start it is complete, or -1 so far. */
    int *seen;
    /* By instruction: the latest question that has followed its waits; behind
     * all, how many questions there were. */
    unsigned *asked;
};

enum merak_status merak_instr_order_init(struct merak_instr_order *order,
                                         const struct merak_program *program,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_instr_order_fini(struct merak_instr_order *order);
/* Take in the next instruction, whose waits are final. */
void merak_instr_order_next(struct merak_instr_order *order);
/* Is `early` complete whenever `late` (taken in) is? */
bool merak_instr_order_implies(const struct merak_instr_order *order, int late,
                               int early);
/* Is `early` complete when `late` (taken in) starts? */
bool merak_instr_order_before(const struct merak_instr_order *order, int early,
                              int late);

#endif
