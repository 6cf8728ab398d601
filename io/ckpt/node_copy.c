/* SPDX-License-Identifier: Apache-2.0 */
/* node_copy.c - the first rank of a node writes the copies of all its ranks
 *
 * One file per node is easier on a parallel file system than one per rank.
 * Each rank copies what it saves to shared memory; the node's first rank maps
 * the memory of the others once, by their descriptors in /proc, and writes the
 * contents like its own.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "io/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Cards are broadcast in blocks on the stack, so that a rank without memory
 * can still take part. */
#define BLOCK 32

struct header {
    int64_t pid;
    int fd, n; /* n: pieces */
    size_t bytes;
    dev_t dev; /* of the memory of fd, and */
    ino_t ino; /* to check that others opened it */
};

/* A piece, in a form that another process can read. */
struct card {
    char name[MERAK_CKPT_MAX_TENSOR];
    struct merak_shape shape;
    struct merak_box box;
    size_t flat_lo, flat_hi;
    size_t at; /* of its data in the copy, in bytes */
};

enum merak_status merak_ckpt_node_memory(size_t bytes, int *fd_p, void **map_p,
                                         struct merak_error *err)
{
    int fd = memfd_create("merak-ckpt", MFD_CLOEXEC);
    void *map;

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        if (fd >= 0)
            close(fd);
        return merak_file_fail(err, "allocate", "the copy");
    }
    map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        close(fd);
        return merak_fail_nomem(err, bytes);
    }
    *fd_p = fd;
    *map_p = map;
    return MERAK_OK;
}

static void fill_card(struct card *card, const struct merak_ckpt_piece *piece,
                      const void *copy)
{
    memset(card, 0, sizeof(*card));
    snprintf(card->name, sizeof(card->name), "%s", piece->name);
    card->shape = piece->shape;
    card->box = piece->box;
    card->flat_lo = piece->flat_lo;
    card->flat_hi = piece->flat_hi;
    card->at = (size_t)((const char *)piece->data - (const char *)copy);
}

/* A task in another container has pids that are another process here: without
 * this check, a checkpoint of that process's data would look sound. */
static enum merak_status open_peer(const struct header *h, const char *path,
                                   int *fd_p, struct merak_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return merak_error_fix(
            err, merak_file_fail(err, "open the copy of another rank,", path),
            "; use --ckpt-writers rank");
    if (fstat(fd, &st) == 0 && st.st_dev == h->dev && st.st_ino == h->ino) {
        *fd_p = fd;
        return MERAK_OK;
    }
    close(fd);
    return merak_fail(err, MERAK_ERR_SYSTEM,
                      "%s is not the copy of another rank: the node's tasks "
                      "do not see each other's processes; use --ckpt-writers "
                      "rank",
                      path);
}

static enum merak_status map_peer(struct merak_ckpt_node_pieces *all,
                                  const struct header *h,
                                  struct merak_error *err)
{
    enum merak_status rc;
    char path[64];
    int fd = -1;
    void *map;

    snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)h->pid, h->fd);
    rc = open_peer(h, path, &fd, err);
    if (rc != MERAK_OK)
        return rc;
    map = mmap(NULL, h->bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return merak_file_fail(err, "map the copy of another rank,", path);
    all->map[all->n_maps] = map;
    all->map_bytes[all->n_maps++] = h->bytes;
    return MERAK_OK;
}

static enum merak_status make_room(struct merak_ckpt_node_pieces *all, int more,
                                   struct merak_error *err)
{
    size_t n = (size_t)all->n + (size_t)more + 1;
    void *piece = realloc(all->piece, n * sizeof(*all->piece));
    void *name;

    if (piece != NULL)
        all->piece = piece;
    name = realloc(all->name, n * sizeof(*all->name));
    if (name != NULL)
        all->name = name;
    return piece == NULL || name == NULL
               ? merak_fail_nomem(err, n * sizeof(*all->name))
               : MERAK_OK;
}

static void take_card(struct merak_ckpt_node_pieces *all,
                      const struct card *card, char *copy)
{
    memcpy(all->name[all->n], card->name, sizeof(card->name));
    all->piece[all->n++] =
        (struct merak_ckpt_piece){.shape = card->shape,
                                  .box = card->box,
                                  .flat_lo = card->flat_lo,
                                  .flat_hi = card->flat_hi,
                                  .data = (float *)(void *)(copy + card->at)};
}

/* Broadcast one rank's cards. *rc is the first local failure; returns that of
 * the broadcast. */
static enum merak_status tell(const struct merak_ckpt_node *node, int root,
                              struct header *h,
                              const struct merak_ckpt_piece *piece,
                              const void *copy,
                              struct merak_ckpt_node_pieces *all,
                              enum merak_status *rc, struct merak_error *err)
{
    struct card block[BLOCK];
    bool keeps = node->rank == 0, own = node->rank == root;
    char *base = own ? (char *)(uintptr_t)copy : NULL;
    enum merak_status told =
        node->broadcast(node->arg, h, sizeof(*h), root, err);

    if (told != MERAK_OK)
        return told;
    if (keeps && !own && h->n > 0 && *rc == MERAK_OK) {
        *rc = map_peer(all, h, err);
        if (*rc == MERAK_OK)
            base = all->map[all->n_maps - 1];
    }
    if (keeps && h->n > 0 && *rc == MERAK_OK)
        *rc = make_room(all, h->n, err);
    for (int i = 0; i < h->n; i += BLOCK) {
        int n = h->n - i < BLOCK ? h->n - i : BLOCK;

        for (int k = 0; own && k < n; k++)
            fill_card(&block[k], &piece[i + k], copy);
        told = node->broadcast(node->arg, block, (size_t)n * sizeof(*block),
                               root, err);
        if (told != MERAK_OK)
            return told;
        for (int k = 0; keeps && *rc == MERAK_OK && k < n; k++)
            take_card(all, &block[k], base);
    }
    return MERAK_OK;
}

enum merak_status merak_ckpt_node_gather(const struct merak_ckpt_node *node,
                                         const struct merak_ckpt_piece *piece,
                                         int n, int fd, const void *copy,
                                         size_t bytes,
                                         struct merak_ckpt_node_pieces *all,
                                         struct merak_error *err)
{
    struct header own = {.pid = getpid(), .fd = fd, .n = n, .bytes = bytes};
    enum merak_status rc = MERAK_OK;
    struct stat st;

    if (fstat(fd, &st) == 0) {
        own.dev = st.st_dev;
        own.ino = st.st_ino;
    }
    all->map = calloc((size_t)node->size, sizeof(*all->map));
    all->map_bytes = calloc((size_t)node->size, sizeof(*all->map_bytes));
    if (all->map == NULL || all->map_bytes == NULL)
        rc = merak_fail_nomem(err, (size_t)node->size * sizeof(*all->map));
    for (int root = 0; root < node->size; root++) {
        struct header h = own;
        enum merak_status told =
            tell(node, root, &h, piece, copy, all, &rc, err);

        if (told != MERAK_OK)
            return told;
    }
    for (int i = 0; i < all->n; i++)
        all->piece[i].name = all->name[i];
    return rc;
}

void merak_ckpt_node_release(struct merak_ckpt_node_pieces *all)
{
    for (int i = 0; i < all->n_maps; i++)
        munmap(all->map[i], all->map_bytes[i]);
    free(all->map);
    free(all->map_bytes);
    free(all->name);
    free(all->piece);
    *all = (struct merak_ckpt_node_pieces){.n = 0};
}
