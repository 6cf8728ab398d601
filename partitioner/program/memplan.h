/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/memplan.h - places buffers in an arena by their
 * lifetimes */
#ifndef MERAK_PARTITIONER_PROGRAM_MEMPLAN_H
#define MERAK_PARTITIONER_PROGRAM_MEMPLAN_H

#include <stddef.h>

#include "base/deadline.h"

#include "merak/status.h"

#define MERAK_ALIGN 64

/* Instructions [first, last] of the program, both included. */
struct merak_span {
    int first, last;
};

struct merak_life {
    size_t bytes;
    struct merak_span *span; /* ascending, disjoint */
    int n_spans;
    size_t offset; /* out: 64-byte aligned */
};

/*
 * Place every buffer so that no two overlap both in time and in memory:
 * largest first, each into the smallest gap that holds it.  *bytes_p is the
 * size of the arena.  MERAK_ERR_TIMEOUT once the deadline (or NULL) is past.
 */
enum merak_status merak_memplan(struct merak_life *lives, int n,
                                const struct merak_deadline *deadline,
                                size_t *bytes_p,
                                struct merak_error *err) MERAK_CHECKED;

#endif
