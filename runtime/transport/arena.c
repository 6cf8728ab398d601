/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - memory that node peers can map */
#include "config.h"

#include "runtime/transport/arena.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum merak_status merak_arena_create(size_t bytes, struct merak_arena *arena,
                                     struct merak_error *err)
{
    void *base;
    int fd;

    if (bytes == 0)
        return merak_fail(err, MERAK_ERR_PARAM, "an arena of 0 bytes");
    fd = memfd_create("merak-arena", MFD_CLOEXEC);
    if (fd < 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "memfd_create: %s",
                          strerror(errno));
    if (ftruncate(fd, (off_t)bytes) != 0) {
        close(fd);
        return merak_fail(err, MERAK_ERR_NOMEM, "an arena of %zu bytes: %s",
                          bytes, strerror(errno));
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        close(fd);
        return merak_fail(err, MERAK_ERR_NOMEM, "an arena of %zu bytes: %s",
                          bytes, strerror(errno));
    }
    /* Large pages where the site allows them; a wish, not a need. */
    madvise(base, bytes, MADV_HUGEPAGE);
    *arena = (struct merak_arena){.base = base, .bytes = bytes, .fd = fd};
    return MERAK_OK;
}

enum merak_status merak_arena_clear(struct merak_arena *arena,
                                    struct merak_error *err)
{
    if (fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  (off_t)arena->bytes) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_SYSTEM, "cannot clear the arena: %s",
                      strerror(errno));
}

void merak_arena_destroy(struct merak_arena *arena)
{
    if (arena == NULL || arena->base == NULL)
        return;
    munmap(arena->base, arena->bytes);
    close(arena->fd);
    *arena = (struct merak_arena){.fd = -1};
}
