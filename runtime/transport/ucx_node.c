/* SPDX-License-Identifier: Apache-2.0 */
/* ucx_node.c - reading node peers' arenas in place
 *
 * A rank's arena is opened through its process's descriptor table, which needs
 * no name in a file system and leaves nothing behind.  The inode shows whether
 * it is the right file: in another pid namespace the same pid is another
 * process.
 */
#include "config.h"

#include "runtime/transport/ucx.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void merak_ucx_arena_card(const struct merak_transport_options *opt,
                          struct ucx_arena_card *card)
{
    struct stat st;

    memset(card, 0, sizeof(*card));
    card->fd = -1;
    if (opt->arena_fd < 0 || fstat(opt->arena_fd, &st) != 0)
        return;
    card->bytes = opt->arena_bytes;
    card->device = (uint64_t)st.st_dev;
    card->inode = (uint64_t)st.st_ino;
    card->pid = (int64_t)getpid();
    card->fd = opt->arena_fd;
}

static enum merak_status check_file(int fd, const struct ucx_arena_card *card,
                                    struct merak_error *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "fstat: %s", strerror(errno));
    if ((uint64_t)st.st_dev != card->device ||
        (uint64_t)st.st_ino != card->inode)
        return merak_fail(err, MERAK_ERR_SYSTEM,
                          "it is another file here; do the tasks run in "
                          "different pid namespaces?");
    if ((uint64_t)st.st_size < card->bytes)
        return merak_fail(err, MERAK_ERR_SYSTEM,
                          "%lld bytes, expected %llu", (long long)st.st_size,
                          (unsigned long long)card->bytes);
    return MERAK_OK;
}

static enum merak_status map_arena(const struct ucx_arena_card *card,
                                   struct ucx_arena *arena,
                                   struct merak_error *err)
{
    char path[64];
    enum merak_status rc;
    void *base;
    int fd;

    snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)card->pid,
             card->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "%s: %s", path,
                          strerror(errno));
    rc = check_file(fd, card, err);
    if (rc != MERAK_OK)
        goto out;
    base = mmap(NULL, card->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        rc = merak_fail(err, MERAK_ERR_NOMEM, "mapping %llu bytes: %s",
                        (unsigned long long)card->bytes, strerror(errno));
        goto out;
    }
    arena->base = base;
    arena->bytes = card->bytes;
out:
    close(fd);
    return rc;
}

enum merak_status merak_ucx_map_arenas(struct ucx *tr, const void *card,
                                       size_t stride, struct merak_error *err)
{
    const int *node_of = tr->boot->node_of;
    enum merak_status rc;

    for (int r = 0; r < tr->base.size; r++) {
        const struct ucx_arena_card *c =
            (const void *)((const char *)card + (size_t)r * stride);

        if (r == tr->base.rank || node_of[r] != node_of[tr->base.rank] ||
            c->bytes == 0)
            continue;
        rc = map_arena(c, &tr->arena[r], err);
        if (rc != MERAK_OK) {
            merak_error_wrap(err, "arena of rank %d", r);
            return rc;
        }
    }
    return MERAK_OK;
}

void merak_ucx_unmap_arenas(struct ucx *tr)
{
    for (int r = 0; tr->arena != NULL && r < tr->base.size; r++) {
        if (r != tr->base.rank && tr->arena[r].base != NULL)
            munmap(tr->arena[r].base, tr->arena[r].bytes);
        tr->arena[r] = (struct ucx_arena){0};
    }
}
