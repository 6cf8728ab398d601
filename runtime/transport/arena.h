/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/transport/arena.h - memory that node peers can map
 *
 * An arena is an unnamed shared memory file: it vanishes with its last user,
 * also after a kill.  Pages are zero and come on first touch.
 */
#ifndef MERAK_RUNTIME_TRANSPORT_ARENA_H
#define MERAK_RUNTIME_TRANSPORT_ARENA_H

#include <stddef.h>

#include "merak/status.h"

struct merak_arena {
    void *base; /* page-aligned */
    size_t bytes;
    int fd;
};

/* Reserve `bytes` (> 0) of address space and shared memory. */
enum merak_status merak_arena_create(size_t bytes, struct merak_arena *arena,
                                     struct merak_error *err) MERAK_CHECKED;
/* Give all pages back: they are zero, and come on first touch, again. */
enum merak_status merak_arena_clear(struct merak_arena *arena,
                                    struct merak_error *err) MERAK_CHECKED;
/* Unmap and close; what a failed or no create left (all zero) is fine. */
void merak_arena_destroy(struct merak_arena *arena);

#endif
