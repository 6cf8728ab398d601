/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/transport/arena.h - the memory of a rank's programs
 *
 * An arena that node peers map is an unnamed shared memory file: it vanishes
 * with its last user, also after a kill.  One that is of its process alone is
 * private memory, and has large pages more often.  Pages are zero and come on
 * first touch.
 */
#ifndef MERAK_RUNTIME_TRANSPORT_ARENA_H
#define MERAK_RUNTIME_TRANSPORT_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

struct merak_arena {
    void *base; /* page-aligned */
    size_t bytes;
    int fd; /* -1: private memory */
};

/* Reserve `bytes` (> 0) of address space and memory. */
enum merak_status merak_arena_create(size_t bytes, bool shared,
                                     struct merak_arena *arena,
                                     struct merak_error *err) MERAK_CHECKED;
/* Give all pages back: they are zero, and come on first touch, again. */
enum merak_status merak_arena_clear(struct merak_arena *arena,
                                    struct merak_error *err) MERAK_CHECKED;
/* Unmap and close; what a failed or no create left (all zero) is fine. */
void merak_arena_destroy(struct merak_arena *arena);

#endif
