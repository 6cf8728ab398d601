/* SPDX-License-Identifier: Apache-2.0 */
/* fake_memory.c - the fake device's memory, and pinned host memory */
#include "config.h"

#include "kernels/fake/fake_device.h"

#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *merak_fake_bytes(struct fake *f, const void *address)
{
    const unsigned char *a = address;

    if (address == NULL)
        return NULL;
    for (int i = 0; i < MAX_BLOCKS; i++) {
        struct block *b = &f->block[i];

        if (b->address != NULL && a >= b->address && a <= b->address + b->size)
            return b->bytes + (a - b->address);
    }
    abort();
}

static void *map(size_t bytes, int prot, struct merak_error *err)
{
    void *p = mmap(NULL, bytes, prot,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p != MAP_FAILED)
        return p;
    (void)merak_fail(err, MERAK_ERR_NOMEM,
                     "%zu bytes of the fake device's memory: %s", bytes,
                     strerror(errno));
    return NULL;
}

static void unmap_block(struct block *b)
{
    if (b->address != NULL)
        munmap(b->address, b->size);
    if (b->bytes != NULL)
        munmap(b->bytes, b->size);
    *b = (struct block){.address = NULL};
}

enum merak_status merak_fake_alloc(struct merak_accel *accel, size_t bytes,
                                   void **address_p, struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct block b = {.size = bytes};
    int i = 0;

    while (i < MAX_BLOCKS && f->block[i].address != NULL)
        i++;
    if (i == MAX_BLOCKS)
        return merak_fail(err, MERAK_ERR_NOMEM,
                          "the fake device gives %d blocks of memory",
                          MAX_BLOCKS);
    b.address = map(bytes, PROT_NONE, err);
    if (b.address != NULL)
        b.bytes = map(bytes, PROT_READ | PROT_WRITE, err);
    if (b.bytes == NULL) {
        unmap_block(&b);
        return MERAK_ERR_NOMEM;
    }
    pthread_mutex_lock(&f->lock);
    f->block[i] = b;
    accel->allocated += bytes;
    pthread_mutex_unlock(&f->lock);
    *address_p = b.address;
    return MERAK_OK;
}

void merak_fake_free(struct merak_accel *accel, void *address)
{
    struct fake *f = fake_of(accel);

    pthread_mutex_lock(&f->lock);
    for (int i = 0; address != NULL && i < MAX_BLOCKS; i++) {
        if (f->block[i].address == address)
            unmap_block(&f->block[i]);
    }
    pthread_mutex_unlock(&f->lock);
}

void merak_fake_free_all(struct fake *f)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        unmap_block(&f->block[i]);
}

/* --- pinned memory -------------------------------------------------------- */

static bool meets(const struct pinned *p, const unsigned char *lo,
                  const unsigned char *hi)
{
    return p->lo != NULL && lo < p->hi && hi > p->lo;
}

/* As with CUDA, no page is pinned twice. */
bool merak_fake_pin(struct merak_accel *accel, void *host, size_t bytes)
{
    struct fake *f = fake_of(accel);
    const unsigned char *lo = host, *hi = lo + bytes;
    int at = -1;

    pthread_mutex_lock(&f->lock);
    for (int i = MAX_PINNED - 1; i >= 0; i--) {
        if (f->pinned[i].lo == NULL)
            at = i;
    }
    for (int i = 0; i < MAX_PINNED; i++) {
        if (meets(&f->pinned[i], lo, hi))
            at = -1;
    }
    if (at >= 0 && bytes > 0)
        f->pinned[at] = (struct pinned){lo, hi};
    pthread_mutex_unlock(&f->lock);
    return at >= 0 && bytes > 0;
}

void merak_fake_unpin(struct merak_accel *accel, void *host)
{
    struct fake *f = fake_of(accel);

    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < MAX_PINNED; i++) {
        if (f->pinned[i].lo == host)
            f->pinned[i] = (struct pinned){NULL, NULL};
    }
    pthread_mutex_unlock(&f->lock);
}

/* As with CUDA, all or none of a copy's host memory has to be pinned. */
enum merak_status merak_fake_check_pinned(struct fake *f, const void *host,
                                          size_t bytes, struct merak_error *err)
{
    const unsigned char *lo = host, *hi = lo + bytes;
    bool cut = false;

    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < MAX_PINNED; i++) {
        const struct pinned *p = &f->pinned[i];

        cut = cut || (meets(p, lo, hi) && (lo < p->lo || hi > p->hi));
    }
    pthread_mutex_unlock(&f->lock);
    return cut ? merak_fail(err, MERAK_ERR_PARAM,
                            "a copy of %zu bytes begins or ends inside of "
                            "pinned memory",
                            bytes)
               : MERAK_OK;
}
