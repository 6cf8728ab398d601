/* SPDX-License-Identifier: Apache-2.0 */
/* thread_pool.c - the threads that share a kernel's work
 *
 * A job is announced by incrementing `generation` under the lock.  A thread
 * spins on it for MERAK_SPIN_NS, then sleeps on the condition variable.  Items
 * are taken from one counter.  The job is over when no worker can take more
 * items (`busy` is 0), so that a late worker cannot disturb the next job.
 */
#include "config.h"

#include "kernels/cpu/thread_pool.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_CHECK 64 /* polls between looks at the clock */
#define MAX_THREADS 1024

struct pool {
    int threads; /* 0: not open */
    char *workspace;
    pthread_t *thread; /* [threads - 1] */

    pthread_mutex_t lock;
    pthread_cond_t announced, finished;
    atomic_uint generation;
    atomic_int busy; /* workers that still may take items */
    bool quit;

    merak_item_fn fn; /* of the current job; written before generation */
    void *arg;
    size_t n;
    atomic_size_t next;
};

/* Global, as an OpenMP team would be: kernels have no object to keep it in. */
static struct pool pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
                           .announced = PTHREAD_COND_INITIALIZER,
                           .finished = PTHREAD_COND_INITIALIZER};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* True as soon as there is a job newer than `seen`; false after MERAK_SPIN_NS. */
static bool spin_for_job(unsigned seen)
{
    int64_t until = merak_clock_ns() + MERAK_SPIN_NS;

    do {
        for (int i = 0; i < SPIN_CHECK; i++) {
            if (atomic_load(&pool.generation) != seen)
                return true;
            relax();
        }
    } while (merak_clock_ns() < until);
    return false;
}

static bool spin_for_end(void)
{
    int64_t until = merak_clock_ns() + MERAK_SPIN_NS;

    do {
        for (int i = 0; i < SPIN_CHECK; i++) {
            if (atomic_load(&pool.busy) == 0)
                return true;
            relax();
        }
    } while (merak_clock_ns() < until);
    return false;
}

static void take_items(int thread)
{
    for (;;) {
        size_t item = atomic_fetch_add(&pool.next, 1);

        if (item >= pool.n)
            return;
        pool.fn(pool.arg, item, thread);
    }
}

static void wait_for_job(unsigned seen)
{
    if (spin_for_job(seen))
        return;
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&pool.generation) == seen)
        pthread_cond_wait(&pool.announced, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

static void *worker(void *arg)
{
    int thread = (int)(intptr_t)arg;
    unsigned seen = 0;

    for (;;) {
        wait_for_job(seen);
        seen++;
        if (pool.quit)
            return NULL;
        take_items(thread);
        if (atomic_fetch_sub(&pool.busy, 1) != 1)
            continue;
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.finished);
        pthread_mutex_unlock(&pool.lock);
    }
}

static void announce(void)
{
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.generation, 1);
    pthread_cond_broadcast(&pool.announced);
    pthread_mutex_unlock(&pool.lock);
}

void merak_pool_run(merak_item_fn fn, void *arg, size_t n)
{
    if (pool.threads <= 1 || n <= 1) {
        for (size_t item = 0; item < n; item++)
            fn(arg, item, 0);
        return;
    }
    pool.fn = fn;
    pool.arg = arg;
    pool.n = n;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.busy, pool.threads - 1);
    announce();
    take_items(0);
    if (spin_for_end())
        return;
    pthread_mutex_lock(&pool.lock);
    while (atomic_load(&pool.busy) != 0)
        pthread_cond_wait(&pool.finished, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* End the first `started` workers and forget the pool. */
static void pool_close(int started)
{
    pool.quit = true;
    announce();
    for (int i = 0; i < started; i++)
        pthread_join(pool.thread[i], NULL);
    pool.quit = false;
    atomic_store(&pool.generation, 0);
    free(pool.thread);
    free(pool.workspace);
    pool.thread = NULL;
    pool.workspace = NULL;
    pool.threads = 0;
}

static int start_worker(int i)
{
    return merak_thread_create(&pool.thread[i], NULL, worker,
                               (void *)(intptr_t)(i + 1));
}

static enum merak_status allocate(int threads, struct merak_error *err)
{
    size_t bytes = (size_t)threads * MERAK_POOL_WORKSPACE;

    pool.thread = calloc((size_t)threads, sizeof(*pool.thread));
    pool.workspace = aligned_alloc(64, bytes);
    if (pool.thread == NULL || pool.workspace == NULL)
        return merak_fail_nomem(err, bytes);
    memset(pool.workspace, 0, bytes); /* no page faults in the first step */
    return MERAK_OK;
}

enum merak_status merak_pool_open(int threads, struct merak_error *err)
{
    enum merak_status rc;
    int started = 0;

    if (threads < 1 || threads > MAX_THREADS)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "threads is %d; it must be 1 to %d", threads,
                          MAX_THREADS);
    if (threads == pool.threads)
        return MERAK_OK;
    pool_close(pool.threads > 0 ? pool.threads - 1 : 0);
    rc = allocate(threads, err);
    for (; rc == MERAK_OK && started < threads - 1; started++) {
        int code = start_worker(started);

        if (code != 0) {
            rc = merak_fail(err, MERAK_ERR_SYSTEM,
                            "cannot start compute thread %d of %d: %s",
                            started + 1, threads, strerror(code));
            break;
        }
    }
    if (rc != MERAK_OK) {
        pool_close(started);
        return rc;
    }
    pool.threads = threads;
    return MERAK_OK;
}

int merak_pool_threads(void)
{
    return pool.threads;
}

void *merak_pool_workspace(int thread)
{
    return pool.workspace + (size_t)thread * MERAK_POOL_WORKSPACE;
}
