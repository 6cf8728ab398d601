/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/transport/arena.h - the memory of a rank's programs
 *
 * An arena that node peers map is an unnamed shared memory file: it vanishes
 * with its last user, also after a kill.  An arena of one process alone is
 * private memory, which gets huge pages more often.  Pages are zero, and are
 * allocated on first touch.
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
/* Give all pages back to the system: they read as zero again. */
enum merak_status merak_arena_clear(struct merak_arena *arena,
                                    struct merak_error *err) MERAK_CHECKED;
/* Unmap and close; *arena may be all zero, as after a failed create. */
void merak_arena_destroy(struct merak_arena *arena);

#endif
