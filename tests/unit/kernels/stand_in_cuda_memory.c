/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cuda_memory.c - device memory, and pinned host memory */
#include "config.h"

#include "unit/kernels/stand_in_cuda_impl.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS 64
#define ALIGN 256
#define PAGE ((size_t)4096)

/* Device memory, at the end of its pages, so that what runs past it faults. */
struct block {
    unsigned char *at, *pages;
    size_t bytes, mapped;
};

static struct {
    pthread_mutex_t lock;
    struct block block[BLOCKS];
    size_t used;
    int running; /* work that may touch it */
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- device memory ----------------------------------------------------------
 */

static void protect(int how)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (memory.block[i].at != NULL &&
            mprotect(memory.block[i].pages, memory.block[i].mapped, how) != 0)
            sc_die("mprotect failed");
    }
}

void sc_begin_work(void)
{
    pthread_mutex_lock(&memory.lock);
    if (memory.running++ == 0)
        protect(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&memory.lock);
}

void sc_end_work(void)
{
    pthread_mutex_lock(&memory.lock);
    if (--memory.running == 0)
        protect(PROT_NONE);
    pthread_mutex_unlock(&memory.lock);
}

bool sc_is_on_device(const void *at, size_t bytes)
{
    const unsigned char *a = at;
    bool found = false;

    pthread_mutex_lock(&memory.lock);
    for (int i = 0; i < BLOCKS && !found; i++)
        found = memory.block[i].at != NULL && a >= memory.block[i].at &&
                a + bytes <= memory.block[i].at + memory.block[i].bytes;
    pthread_mutex_unlock(&memory.lock);
    return found;
}

cudaError_t cudaMalloc(void **at, size_t bytes)
{
    struct block b = {.bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN};
    cudaError_t code = sc_check_outside();
    int i = 0;

    sc_start();
    if (code != cudaSuccess)
        return sc_answer(code);
    pthread_mutex_lock(&memory.lock);
    while (i < BLOCKS && memory.block[i].at != NULL)
        i++;
    if (i == BLOCKS)
        sc_die("more blocks than it has");
    if (memory.used + b.bytes > (size_t)sc_word("memory=", 16384) << 20) {
        pthread_mutex_unlock(&memory.lock);
        return sc_answer(cudaErrorMemoryAllocation);
    }
    b.mapped = (b.bytes + PAGE - 1) / PAGE * PAGE;
    b.pages = mmap(NULL, b.mapped + PAGE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b.pages == MAP_FAILED)
        sc_die("out of memory");
    madvise(b.pages, b.mapped, MADV_HUGEPAGE); /* mprotect() by 2 MiB */
    b.at = b.pages + b.mapped - b.bytes;
    memory.block[i] = b;
    memory.used += b.bytes;
    if (memory.running > 0)
        protect(PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&memory.lock);
    *at = b.at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
    cudaError_t code = sc_check_outside();
    bool found = false;

    sc_start();
    if (code != cudaSuccess)
        return sc_answer(code);
    if (at == NULL)
        return cudaSuccess;
    sc_wait_for_all(); /* as CUDA does */
    pthread_mutex_lock(&memory.lock);
    for (int i = 0; i < BLOCKS && !found; i++) {
        struct block *b = &memory.block[i];

        if (b->at != at)
            continue;
        munmap(b->pages, b->mapped + PAGE);
        memory.used -= b->bytes;
        *b = (struct block){.at = NULL};
        found = true;
    }
    pthread_mutex_unlock(&memory.lock);
    if (!found)
        sc_die("what is freed was not allocated");
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    sc_start();
    *all = (size_t)sc_word("memory=", 16384) << 20;
    *left = *all - memory.used;
    return sc_answer(sc_failure());
}

/* --- host memory ------------------------------------------------------------
 */

static struct piece {
    const unsigned char *at;
    size_t bytes;
} pinned[BLOCKS];

static bool meets(const struct piece *p, const unsigned char *at, size_t bytes)
{
    return p->at != NULL && at < p->at + p->bytes && at + bytes > p->at;
}

static cudaError_t pin(const void *at, size_t bytes)
{
    cudaError_t code = cudaSuccess;
    int place = -1;

    pthread_mutex_lock(&memory.lock);
    for (int i = 0; i < BLOCKS; i++) {
        if (meets(&pinned[i], at, bytes))
            code = cudaErrorHostMemoryAlreadyRegistered;
        if (pinned[i].at == NULL)
            place = i;
    }
    if (place < 0)
        sc_die("more pinned memory than it knows");
    if (code == cudaSuccess)
        pinned[place] = (struct piece){at, bytes};
    pthread_mutex_unlock(&memory.lock);
    return code;
}

static cudaError_t unpin(const void *at)
{
    cudaError_t code = cudaErrorHostMemoryNotRegistered;

    pthread_mutex_lock(&memory.lock);
    for (int i = 0; i < BLOCKS; i++) {
        if (pinned[i].at == at) {
            pinned[i].at = NULL;
            code = cudaSuccess;
        }
    }
    pthread_mutex_unlock(&memory.lock);
    return code;
}

bool sc_crosses_pinned(const unsigned char *at, size_t bytes)
{
    bool cut = false;

    pthread_mutex_lock(&memory.lock);
    for (int i = 0; i < BLOCKS; i++)
        cut |=
            meets(&pinned[i], at, bytes) &&
            (at < pinned[i].at || at + bytes > pinned[i].at + pinned[i].bytes);
    pthread_mutex_unlock(&memory.lock);
    return cut;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    cudaError_t code = sc_check_outside();

    (void)flags;
    sc_start();
    return sc_answer(code == cudaSuccess ? pin(at, bytes) : code);
}

cudaError_t cudaHostUnregister(void *at)
{
    cudaError_t code = sc_check_outside();

    return sc_answer(code == cudaSuccess ? unpin(at) : code);
}

cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags)
{
    cudaError_t code = sc_check_outside();

    (void)flags;
    sc_start();
    if (code != cudaSuccess)
        return sc_answer(code);
    *at = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
    if (*at == NULL)
        sc_die("out of memory");
    memset(*at, 0xa5, bytes);
    return sc_answer(pin(*at, bytes));
}

cudaError_t cudaFreeHost(void *at)
{
    if (at != NULL && unpin(at) != cudaSuccess)
        sc_die("host memory that is freed was not allocated");
    free(at);
    return cudaSuccess;
}
