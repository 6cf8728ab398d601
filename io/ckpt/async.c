/* SPDX-License-Identifier: Apache-2.0 */
/* async.c - a save that continues while the tensors change
 *
 * The steps are save.c's, in the same order.  The caller's thread makes the
 * directory and copies the pieces; the writer thread writes the shard file; at
 * some later step the ranks agree on its status; rank 0's writer completes and
 * commits; at some later step the ranks agree on that.  The disk contents at
 * any instant, and after a crash, are those of a blocking save.
 *
 * The thread does not communicate with other ranks, and locks HDF5 where it
 * uses it (merak_h5_quiet()).
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* With fewer bytes, waking a thread to help does not pay off. */
#define WORTH_HELP ((size_t)8 << 20)

/* How often a waiting caller checks the thread's progress. */
#define LOOK_NS 100000000

enum job { JOB_NONE, JOB_TOUCH, JOB_COPY, JOB_WRITE, JOB_FINISH, JOB_END };

struct merak_ckpt_async {
    const struct merak_ckpt_piece *live; /* the caller's */
    struct merak_ckpt_piece *piece;      /* the same, in the copy */
    int n_pieces;
    merak_ckpt_check_fn check; /* or NULL */
    void *check_arg;
    float *copy;
    size_t bytes;
    struct merak_ckpt_copying copying;
    int copy_fd; /* by which other ranks of the node map it; -1: none do */
    bool of_node;
    struct merak_ckpt_node_pieces all; /* if so, on its first rank: what all of
                                          its ranks save */

    /* The save under way; used by the caller's thread, or while there is a job
     * by the writer's. */
    struct merak_ckpt_save save;
    enum job stage; /* JOB_NONE: no save */
    enum merak_status rc;
    struct merak_error err;
    struct merak_ckpt_times times, last; /* last: of the previous save */
    atomic_size_t written;
    size_t to_write; /* 0: others write for this rank */

    bool started;
    bool helps; /* the thread has a core for helping to copy */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    enum job job; /* under the lock; JOB_NONE: done */
};

/* --- the thread -------------------------------------------------------------
 */

static enum merak_status check_all(struct merak_ckpt_async *async)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; async->check != NULL && i < async->n_pieces; i++) {
        rc = async->check(async->check_arg, &async->save.state,
                          &async->piece[i], &async->err);
        if (rc != MERAK_OK)
            break;
    }
    return rc;
}

static enum merak_status do_job(struct merak_ckpt_async *async, enum job job)
{
    const struct merak_ckpt_save *save = &async->save;
    struct merak_ckpt_source source = {.piece = async->piece,
                                       .end = async->n_pieces,
                                       .written = &async->written};
    enum merak_status rc;

    if (async->of_node) {
        source.piece = async->all.piece;
        source.end = async->all.n;
    }
    if (job == JOB_FINISH) {
        rc = merak_ckpt_save_finish(save, &async->err);
        async->times.committed_ns = merak_clock_ns();
        return rc;
    }
    rc = check_all(async);
    if (rc == MERAK_OK && save->file >= 0)
        rc = merak_ckpt_shard_write(save->tmp, save->file, save->state.step,
                                    &source, &async->err);
    async->times.written_ns = merak_clock_ns();
    return rc;
}

/* Else the first save would fault in the copy's pages while training waits; on
 * systems without this call it does. */
static void touch_copy(const struct merak_ckpt_async *async)
{
    (void)madvise(async->copy, async->bytes + 1, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    (void)madvise(async->copy, async->bytes + 1, MADV_POPULATE_WRITE);
#else
    (void)async;
#endif
}

static void *work(void *arg)
{
    struct merak_ckpt_async *async = arg;

    pthread_mutex_lock(&async->lock);
    while (async->job != JOB_END) {
        enum job job = async->job;

        if (job == JOB_NONE) {
            pthread_cond_wait(&async->change, &async->lock);
            continue;
        }
        pthread_mutex_unlock(&async->lock);
        if (job == JOB_TOUCH)
            touch_copy(async);
        else if (job == JOB_COPY)
            merak_ckpt_copying_share(&async->copying);
        else
            async->rc = do_job(async, job);
        pthread_mutex_lock(&async->lock);
        if (async->job == job)
            async->job = JOB_NONE;
        pthread_cond_broadcast(&async->change);
    }
    pthread_mutex_unlock(&async->lock);
    return NULL;
}

static void give(struct merak_ckpt_async *async, enum job job)
{
    pthread_mutex_lock(&async->lock);
    async->job = job;
    pthread_cond_broadcast(&async->change);
    pthread_mutex_unlock(&async->lock);
}

static void wait_idle(struct merak_ckpt_async *async)
{
    pthread_mutex_lock(&async->lock);
    while (async->job != JOB_NONE)
        pthread_cond_wait(&async->change, &async->lock);
    pthread_mutex_unlock(&async->lock);
}

static enum merak_status start_thread(struct merak_ckpt_async *async,
                                      struct merak_error *err)
{
    int code = merak_thread_create(&async->thread, NULL, work, async);

    if (code != 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "cannot start a thread: %s",
                          strerror(code));
    async->started = true;
    async->helps = merak_cores_allowed() > 1;
    return MERAK_OK;
}

/* --- the copy ---------------------------------------------------------------
 */

/* Whole pages, allocated on first touch. */
static enum merak_status map_copy(struct merak_ckpt_async *async,
                                  struct merak_error *err)
{
    void *map = NULL;
    enum merak_status rc;

    if (async->of_node) {
        rc = merak_ckpt_node_memory(async->bytes + 1, &async->copy_fd, &map,
                                    err);
        async->copy = map;
        return rc;
    }
    map = mmap(NULL, async->bytes + 1, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return merak_fail_nomem(err, async->bytes);
    async->copy = map;
    return MERAK_OK;
}

static enum merak_status make_copy(struct merak_ckpt_async *async,
                                   struct merak_error *err)
{
    size_t pieces_bytes = ((size_t)async->n_pieces + 1) * sizeof(*async->piece);
    enum merak_status rc;
    float *at;

    for (int i = 0; i < async->n_pieces; i++)
        async->bytes += merak_ckpt_piece_bytes(&async->live[i]);
    async->piece = malloc(pieces_bytes);
    if (async->piece == NULL)
        return merak_fail_nomem(err, pieces_bytes);
    rc = map_copy(async, err);
    if (rc != MERAK_OK)
        return rc;
    at = async->copy;
    for (int i = 0; i < async->n_pieces; i++) {
        async->piece[i] = async->live[i];
        async->piece[i].data = at;
        at += async->live[i].flat_hi - async->live[i].flat_lo;
    }
    return MERAK_OK;
}

/* The caller waits, so its other cores are free: the thread helps to copy,
 * unless it is still touching pages. */
static void fill_copy(struct merak_ckpt_async *async)
{
    bool helped = async->helps && async->bytes >= WORTH_HELP &&
                  !merak_ckpt_async_is_busy(async);

    merak_ckpt_copying_begin(&async->copying, async->live, async->piece,
                             async->n_pieces);
    if (helped)
        give(async, JOB_COPY);
    merak_ckpt_copying_share(&async->copying);
    if (helped)
        wait_idle(async);
}

/* --- all of it --------------------------------------------------------------
 */

/* All ranks of the node get the first failure; one that failed also takes
 * part, or the others would wait for it. */
static enum merak_status agree_on_node(const struct merak_ckpt_node *node,
                                       enum merak_status mine,
                                       struct merak_error *err)
{
    struct merak_error own = {.status = MERAK_OK}, first = own;

    if (node == NULL)
        return mine;
    if (mine != MERAK_OK && err != NULL)
        own = *err;
    own.status = mine;
    for (int root = 0; root < node->size; root++) {
        struct merak_error told = own;
        enum merak_status rc =
            node->broadcast(node->arg, &told, sizeof(told), root, err);

        if (rc != MERAK_OK)
            return rc;
        if (first.status == MERAK_OK)
            first = told;
    }
    if (first.status != MERAK_OK && err != NULL)
        *err = first;
    return first.status;
}

static enum merak_status init(struct merak_ckpt_async *async,
                              struct merak_error *err)
{
    if (async == NULL)
        return merak_fail_nomem(err, sizeof(*async));
    pthread_mutex_init(&async->lock, NULL);
    pthread_cond_init(&async->change, NULL);
    return make_copy(async, err);
}

static enum merak_status join(struct merak_ckpt_async *async,
                              const struct merak_ckpt_node *node,
                              struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (node != NULL)
        rc = merak_ckpt_node_gather(node, async->piece, async->n_pieces,
                                    async->copy_fd, async->copy,
                                    async->bytes + 1, &async->all, err);
    if (rc == MERAK_OK)
        rc = start_thread(async, err);
    for (int i = 0; rc == MERAK_OK && i < async->all.n; i++)
        async->to_write += merak_ckpt_piece_bytes(&async->all.piece[i]);
    if (node == NULL)
        async->to_write = async->bytes;
    return agree_on_node(node, rc, err);
}

enum merak_status merak_ckpt_async_create(const struct merak_ckpt_piece *pieces,
                                          int n_pieces,
                                          merak_ckpt_check_fn check,
                                          void *check_arg,
                                          const struct merak_ckpt_node *node,
                                          struct merak_ckpt_async **async_p,
                                          struct merak_error *err)
{
    struct merak_ckpt_async *async = calloc(1, sizeof(*async));
    enum merak_status rc;

    if (async != NULL)
        *async = (struct merak_ckpt_async){.live = pieces,
                                           .n_pieces = n_pieces,
                                           .check = check,
                                           .check_arg = check_arg,
                                           .copy_fd = -1,
                                           .of_node = node != NULL};
    rc = agree_on_node(node, init(async, err), err);
    if (rc == MERAK_OK)
        rc = join(async, node, err);
    if (rc == MERAK_OK)
        *async_p = async;
    else
        merak_ckpt_async_destroy(async);
    return rc;
}

void merak_ckpt_async_touch(struct merak_ckpt_async *async)
{
    give(async, JOB_TOUCH);
}

enum merak_status merak_ckpt_async_start(struct merak_ckpt_async *async,
                                         const char *run_dir,
                                         const struct merak_ckpt_state *state,
                                         struct merak_ckpt_keep keep,
                                         const struct merak_ckpt_comm *comm,
                                         struct merak_error *err)
{
    int64_t start_ns = merak_clock_ns();
    enum merak_status rc =
        merak_ckpt_save_begin(&async->save, run_dir, state, keep, comm, err);

    if (rc != MERAK_OK)
        return rc;
    fill_copy(async);
    if (async->of_node) /* until all copies of the node are complete */
        rc = comm == NULL ? MERAK_OK : comm->agree(comm->arg, MERAK_OK, err);
    if (rc != MERAK_OK)
        return rc;
    async->stage = JOB_WRITE;
    atomic_store(&async->written, 0);
    async->times = (struct merak_ckpt_times){.step = state->step,
                                             .bytes = async->bytes,
                                             .start_ns = start_ns,
                                             .resumed_ns = merak_clock_ns()};
    wait_idle(async); /* it may still be touching pages */
    give(async, JOB_WRITE);
    return MERAK_OK;
}

bool merak_ckpt_async_is_active(const struct merak_ckpt_async *async)
{
    return async->stage != JOB_NONE;
}

size_t merak_ckpt_async_written(struct merak_ckpt_async *async, size_t *of_p)
{
    *of_p = async->to_write;
    return atomic_load(&async->written);
}

bool merak_ckpt_async_is_busy(struct merak_ckpt_async *async)
{
    bool busy;

    pthread_mutex_lock(&async->lock);
    busy = async->job != JOB_NONE;
    pthread_mutex_unlock(&async->lock);
    return busy;
}

enum merak_status merak_ckpt_async_advance(struct merak_ckpt_async *async,
                                           struct merak_error *err)
{
    enum merak_status rc = async->rc;
    enum job stage = async->stage;

    if (rc != MERAK_OK && err != NULL)
        *err = async->err;
    async->stage = JOB_NONE;
    async->rc = MERAK_OK;
    if (stage == JOB_FINISH) {
        async->last = async->times;
        return merak_ckpt_save_finished(&async->save, rc, err);
    }
    rc = merak_ckpt_save_written(&async->save, rc, err);
    if (rc != MERAK_OK)
        return rc;
    async->stage = JOB_FINISH;
    if (async->save.rank == 0)
        give(async, JOB_FINISH);
    return MERAK_OK;
}

/* Show the thread's progress to the waiting caller. */
static void show_written(struct merak_ckpt_async *async,
                         struct merak_progress *progress)
{
    double written = (double)atomic_load(&async->written);

    merak_progress_add(progress, written - progress->done);
    if (written >= progress->total && progress->note[0] == '\0')
        merak_progress_phase(progress, "syncing");
}

static void wait_watched(struct merak_ckpt_async *async,
                         struct merak_progress *progress)
{
    struct timespec until;

    while (progress != NULL && progress->out != NULL &&
           merak_ckpt_async_is_busy(async)) {
        show_written(async, progress);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&async->lock);
        if (async->job != JOB_NONE)
            (void)pthread_cond_timedwait(&async->change, &async->lock, &until);
        pthread_mutex_unlock(&async->lock);
    }
    wait_idle(async);
}

const struct merak_ckpt_times *
merak_ckpt_async_times(const struct merak_ckpt_async *async)
{
    return &async->last;
}

enum merak_status merak_ckpt_async_wait(struct merak_ckpt_async *async,
                                        struct merak_error *err)
{
    struct merak_progress *progress = async->save.comm.progress;
    enum merak_status rc = MERAK_OK;

    if (progress != NULL) { /* the save may have begun long ago */
        progress->total = (double)async->to_write;
        progress->start_ns = async->times.start_ns;
    }
    while (rc == MERAK_OK && async->stage != JOB_NONE) {
        wait_watched(async, progress);
        rc = merak_ckpt_async_advance(async, err);
    }
    return rc;
}

void merak_ckpt_async_destroy(struct merak_ckpt_async *async)
{
    int saved = errno;

    if (async == NULL)
        return;
    if (async->started) {
        wait_idle(async);
        give(async, JOB_END);
        pthread_join(async->thread, NULL);
    }
    merak_ckpt_node_release(&async->all);
    if (async->copy != NULL)
        munmap(async->copy, async->bytes + 1);
    if (async->copy_fd >= 0)
        close(async->copy_fd);
    pthread_cond_destroy(&async->change);
    pthread_mutex_destroy(&async->lock);
    free(async->piece);
    free(async);
    errno = saved;
}
