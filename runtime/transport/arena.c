/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - memory that node peers can map, or huge pages if there are no node
 * peers
 *
 * Private memory gets huge pages by default, shared memory only if the site
 * enables it (transparent_hugepage/shmem_enabled).
 */
#include "config.h"

#include "runtime/transport/arena.h"

#include "base/error.h"
#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Map private memory aligned to a huge page; false on failure. */
static bool map_private(size_t bytes, struct merak_arena *arena)
{
    const size_t large = (size_t)2 << 20, small = (size_t)sysconf(_SC_PAGESIZE);
    size_t room, before;
    char *map;

    if (bytes > SIZE_MAX - large - small)
        return false;
    bytes = merak_size_align(bytes, small);
    room = bytes + large;
    map = mmap(NULL, room, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    before = -(uintptr_t)map % large;
    if (before > 0)
        munmap(map, before);
    /* the last bytes get small pages, so the size is exact */
    munmap(map + before + bytes, large - before);
    arena->base = map + before;
    arena->fd = -1;
    return true;
}

static enum merak_status map_shared(size_t bytes, struct merak_arena *arena,
                                    struct merak_error *err)
{
    enum merak_status rc;
    void *base;
    int fd = memfd_create("merak-arena", MFD_CLOEXEC);

    if (fd < 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "memfd_create: %s",
                          strerror(errno));
    base = ftruncate(fd, (off_t)bytes) == 0
               ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
               : MAP_FAILED;
    if (base == MAP_FAILED) {
        rc = merak_fail(err, MERAK_ERR_NOMEM, "an arena of %zu bytes: %s",
                        bytes, strerror(errno));
        close(fd);
        return rc;
    }
    arena->base = base;
    arena->fd = fd;
    return MERAK_OK;
}

enum merak_status merak_arena_create(size_t bytes, bool shared,
                                     struct merak_arena *arena,
                                     struct merak_error *err)
{
    struct merak_arena made = {.bytes = bytes};
    enum merak_status rc = MERAK_OK;

    if (bytes == 0)
        return merak_fail(err, MERAK_ERR_PARAM, "an arena of 0 bytes");
    if (shared || !map_private(bytes, &made))
        rc = map_shared(bytes, &made, err);
    if (rc != MERAK_OK)
        return rc;
    /* Optional: failure is ignored. */
    (void)madvise(made.base, made.bytes, MADV_HUGEPAGE);
    *arena = made;
    return MERAK_OK;
}

enum merak_status merak_arena_clear(struct merak_arena *arena,
                                    struct merak_error *err)
{
    int failed =
        arena->fd < 0
            ? madvise(arena->base, arena->bytes, MADV_DONTNEED)
            : fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        0, (off_t)arena->bytes);

    if (failed == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_SYSTEM, "cannot clear the arena: %s",
                      strerror(errno));
}

void merak_arena_destroy(struct merak_arena *arena)
{
    if (arena == NULL || arena->base == NULL)
        return;
    munmap(arena->base, arena->bytes);
    if (arena->fd >= 0)
        close(arena->fd);
    *arena = (struct merak_arena){.fd = -1};
}
