/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_nccl.c - plays NCCL on the fake device's queues, for tests
 *
 * As unlike a friendly library as NCCL can be: nothing is ready at once, a call
 * is queued only when somebody has asked often enough whether it is, a send
 * holds up its queue until all of it has been received, every move may be held
 * up at random, and sums go in descending member order, rounded at each step.
 * Members may be processes: they meet in shared memory that is named by the id.
 *
 * MERAK_STAND_IN, words separated by commas, what goes wrong:
 *   version=N   what ncclGetVersion() says
 *   init        no communicator can be made
 *   stall=N     the N-th move of this process, from 0, never ends
 *   error=N     from the N-th move on communicators have failed
 */
#include "config.h"

#include "base/half.h"
#include "kernels/fake/fake_stream.h"
#include "runtime/nccl/nccl_api.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* NCCL's own header is not here to have them declared. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))
enum { MAX_MEMBERS = 16, MAX_PIECES = 512 };
#define RING 32768
#define MAX_POLLS 4    /* a call is "in progress" for so many at most */
#define DELAY_ONE_IN 4 /* moves that are held up */
#define DELAY_MAX_US 200

/* What one member sends another; in shared memory. */
struct ring {
    _Atomic uint64_t put, taken;
    unsigned char byte[RING];
};

struct meeting {
    atomic_int present;
    struct ring ring[]; /* [n * n] by sender, then receiver */
};

struct piece {
    bool send;
    unsigned char *at;
    size_t bytes, done;
    uint64_t end; /* of a send: ring->put when all of it is there */
    int peer;
};

enum reduction { NONE, ALL_REDUCE, REDUCE_SCATTER };

/* What one queue does at once. */
struct job {
    struct nccl_comm *comm;
    struct merak_fake_stream *stream;
    int n;
    struct piece piece[MAX_PIECES];
    enum reduction reduction;
    const void *in;
    void *out;
    size_t count;
    int type, op;
    bool stalls;
};

struct nccl_comm {
    int n, me;
    char name[48];
    struct meeting *meeting;
    size_t bytes;
    int result;      /* NCCL_IN_PROGRESS while polls > 0 or pending */
    int polls;       /* before it is ready */
    struct job *job; /* not yet queued, or NULL */
    atomic_int aborted, running;
    bool ready;
};

/* Whatever goes wrong in this process. */
static struct {
    bool read, init;
    int version, stall, error;
} faults;
static atomic_int moves;           /* of this process */
static __thread struct job *group; /* of ncclGroupStart(), or NULL */
static __thread int depth;

/* Merak takes the fake device's queues to this library alone, and streams of
 * what plays CUDA (stand_in_cuda.h) as those of a GPU. */
#ifndef MERAK_STAND_IN_STREAMS
EXPORT const int merak_nccl_stand_in = 1;
#endif

static void read_faults(void)
{
    const char *text = getenv("MERAK_STAND_IN"), *at;

    if (faults.read)
        return;
    faults.read = true;
    faults.version = 22809;
    faults.stall = faults.error = -1;
    text = text != NULL ? text : "";
    at = strstr(text, "version=");
    if (at != NULL)
        faults.version = atoi(at + 8);
    at = strstr(text, "stall=");
    if (at != NULL)
        faults.stall = atoi(at + 6);
    at = strstr(text, "error=");
    if (at != NULL)
        faults.error = atoi(at + 6);
    faults.init = strstr(text, "init") != NULL;
}

static unsigned roll(void)
{
    static _Atomic uint64_t state;
    uint64_t x = atomic_fetch_add(&state, UINT64_C(0x9e3779b97f4a7c15)) +
                 (uint64_t)getpid();

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (unsigned)(x >> 33);
}

static void pause_us(long us)
{
    const struct timespec t = {0, us * 1000};

    nanosleep(&t, NULL);
}

/* --- moving -----------------------------------------------------------------
 */

static struct ring *ring_of(const struct nccl_comm *c, int from, int to)
{
    return &c->meeting->ring[from * c->n + to];
}

/* What is left of a piece, of that at most `most`, up to the ring's end. */
static size_t some(const struct piece *p, size_t most, uint64_t at)
{
    size_t n = p->bytes - p->done, end = RING - (size_t)(at % RING);

    n = n < most ? n : most;
    return n < end ? n : end;
}

static bool put_some(struct ring *r, struct piece *p)
{
    uint64_t put = atomic_load(&r->put);
    size_t n = some(p, RING - (size_t)(put - atomic_load(&r->taken)), put);

    memcpy(&r->byte[put % RING], p->at + p->done, n);
    atomic_store(&r->put, put + n);
    p->done += n;
    p->end = put + n;
    return n > 0;
}

static bool take_some(struct ring *r, struct piece *p)
{
    uint64_t taken = atomic_load(&r->taken);
    size_t n = some(p, (size_t)(atomic_load(&r->put) - taken), taken);

    memcpy(p->at + p->done, &r->byte[taken % RING], n);
    atomic_store(&r->taken, taken + n);
    p->done += n;
    return n > 0;
}

static bool is_over(const struct nccl_comm *c, const struct piece *p)
{
    if (p->done < p->bytes)
        return false;
    return !p->send || atomic_load(&ring_of(c, c->me, p->peer)->taken) >=
                           p->end; /* all of it has been received */
}

/* Has an earlier piece the same ring, and is not through? */
static bool is_behind(const struct piece *piece, int i)
{
    for (int k = 0; k < i; k++) {
        if (piece[k].send == piece[i].send && piece[k].peer == piece[i].peer &&
            piece[k].done < piece[k].bytes)
            return true;
    }
    return false;
}

/* All pieces progress together, until they are over or the end; naps double. */
static void move(struct nccl_comm *c, struct piece *piece, int n)
{
    int over = 0, nap_us = 10;

    while (over < n && !atomic_load(&c->aborted)) {
        bool moved = false;

        over = 0;
        for (int i = 0; i < n; i++) {
            struct piece *p = &piece[i];

            if (p->done < p->bytes && !is_behind(piece, i))
                moved |= p->send ? put_some(ring_of(c, c->me, p->peer), p)
                                 : take_some(ring_of(c, p->peer, c->me), p);
            over += is_over(c, p);
        }
        nap_us = moved ? 10 : nap_us < 320 ? 2 * nap_us : nap_us;
        if (!moved && over < n)
            pause_us(nap_us);
    }
}

/* --- adding -----------------------------------------------------------------
 */

static size_t type_bytes(int type)
{
    return type == NCCL_INT8       ? 1
           : type == NCCL_BFLOAT16 ? 2
           : type == NCCL_FLOAT64  ? 8
                                   : 4;
}

static double get(const void *p, size_t i, int type)
{
    if (type == NCCL_FLOAT32)
        return (double)((const float *)p)[i];
    if (type == NCCL_BFLOAT16)
        return (double)merak_bf16_to_f32(((const uint16_t *)p)[i]);
    if (type == NCCL_FLOAT64)
        return ((const double *)p)[i];
    return (double)((const int32_t *)p)[i];
}

static void set(void *p, size_t i, int type, double x)
{
    if (type == NCCL_FLOAT32)
        ((float *)p)[i] = (float)x;
    else if (type == NCCL_BFLOAT16)
        ((uint16_t *)p)[i] = merak_f32_to_bf16((float)x);
    else if (type == NCCL_FLOAT64)
        ((double *)p)[i] = x;
    else
        ((int32_t *)p)[i] = (int32_t)x;
}

/* Everybody sends everybody all of it, and adds from the last one down. */
static void reduce(struct job *j)
{
    struct nccl_comm *c = j->comm;
    size_t all = j->count * (j->reduction == ALL_REDUCE ? 1 : (size_t)c->n);
    size_t bytes = all * type_bytes(j->type), first = 0;
    unsigned char *copy = malloc(bytes * (size_t)c->n);
    struct piece piece[2 * MAX_MEMBERS];
    int n = 0;

    if (j->reduction == REDUCE_SCATTER)
        first = (size_t)c->me * j->count;
    memcpy(copy + (size_t)c->me * bytes, j->in, bytes);
    for (int q = 0; q < c->n; q++) {
        if (q == c->me)
            continue;
        piece[n++] =
            (struct piece){true, copy + (size_t)c->me * bytes, bytes, 0, 0, q};
        piece[n++] =
            (struct piece){false, copy + (size_t)q * bytes, bytes, 0, 0, q};
    }
    move(c, piece, n);
    for (size_t i = 0; i < j->count && !atomic_load(&c->aborted); i++) {
        set(j->out, i, j->type,
            get(copy + (size_t)(c->n - 1) * bytes, first + i, j->type));
        for (int q = c->n - 2; q >= 0; q--) {
            double a = get(j->out, i, j->type);
            double b = get(copy + (size_t)q * bytes, first + i, j->type);

            set(j->out, i, j->type, j->op == NCCL_SUM ? a + b : a > b ? a : b);
        }
    }
    free(copy);
}

/* --- queues -----------------------------------------------------------------
 */

/* On the queue's thread. */
static void run(void *arg)
{
    struct job *j = arg;
    struct nccl_comm *c = j->comm;

    if (roll() % DELAY_ONE_IN == 0)
        pause_us((long)(roll() % DELAY_MAX_US));
    while (j->stalls && !atomic_load(&c->aborted))
        pause_us(200);
    for (int i = 0; i < j->n; i++)
        j->piece[i].at = j->stream->bytes(j->stream, j->piece[i].at);
    if (j->reduction != NONE) {
        j->in = j->stream->bytes(j->stream, j->in);
        j->out = j->stream->bytes(j->stream, j->out);
        reduce(j);
    } else {
        move(c, j->piece, j->n);
    }
    free(j);
    atomic_fetch_sub(&c->running, 1);
}

static void queue_job(struct nccl_comm *c)
{
    struct job *j = c->job;
    int number = atomic_fetch_add(&moves, 1);

    c->job = NULL;
    j->stalls = number == faults.stall;
    if (faults.error >= 0 && number >= faults.error) {
        c->result = NCCL_REMOTE_ERROR;
        free(j);
        return;
    }
    c->result = NCCL_SUCCESS;
    atomic_fetch_add(&c->running, 1);
    if (j->stream->call(j->stream, run, j) != 0) {
        atomic_fetch_sub(&c->running, 1);
        free(j);
        c->result = NCCL_UNHANDLED_CUDA_ERROR;
    }
}

/* Now, or when somebody has asked often enough. */
static int submit(struct job *j)
{
    struct nccl_comm *c = j->comm;

    if (c == NULL) { /* an empty group */
        free(j);
        return NCCL_SUCCESS;
    }
    if (c->job != NULL || c->result != NCCL_SUCCESS) {
        free(j); /* called while in progress, or after a failure */
        return c->result == NCCL_IN_PROGRESS ? NCCL_INVALID_USAGE : c->result;
    }
    c->job = j;
    c->polls = (int)(roll() % MAX_POLLS);
    if (c->polls > 0)
        c->result = NCCL_IN_PROGRESS;
    else
        queue_job(c);
    return c->result;
}

static void come_in(struct nccl_comm *c)
{
    if (atomic_load(&c->meeting->present) < c->n)
        return;
    shm_unlink(c->name); /* all are here */
    c->ready = true;
    c->result = NCCL_SUCCESS;
}

EXPORT int ncclCommGetAsyncError(struct nccl_comm *c, int *result)
{
    if (c->result == NCCL_IN_PROGRESS && c->polls-- <= 0) {
        if (!c->ready)
            come_in(c);
        else if (c->job != NULL)
            queue_job(c);
        else
            c->result = NCCL_SUCCESS;
    }
    *result = c->result;
    return NCCL_SUCCESS;
}

/* --- the rest ---------------------------------------------------------------
 */

EXPORT int ncclGetVersion(int *version)
{
    read_faults();
    *version = faults.version;
    return NCCL_SUCCESS;
}

EXPORT int ncclGetUniqueId(struct nccl_id *id)
{
    static int count;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, 48, "/merak-%d-%d-%lx", (int)getpid(), count++,
             (unsigned long)now.tv_nsec);
    return NCCL_SUCCESS;
}

EXPORT const char *ncclGetErrorString(int result)
{
    static const char *const text[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "in progress"};

    return result >= 0 && result < 8 ? text[result] : "unknown";
}

EXPORT const char *ncclGetLastError(struct nccl_comm *c)
{
    (void)c;
    return "";
}

static void leave(struct nccl_comm *c)
{
    shm_unlink(c->name); /* if not all have come */
    munmap(c->meeting, c->bytes);
    free(c->job);
    free(c);
}

EXPORT int ncclCommInitRankConfig(struct nccl_comm **comm, int ranks,
                                  struct nccl_id id, int rank,
                                  struct nccl_config *config)
{
    struct nccl_comm *c = calloc(1, sizeof(*c));
    int fd;

    read_faults();
    if (faults.init || config->blocking != 0 || ranks > MAX_MEMBERS) {
        free(c);
        return faults.init ? NCCL_SYSTEM_ERROR : NCCL_INVALID_ARGUMENT;
    }
    c->n = ranks;
    c->me = rank;
    memcpy(c->name, id.internal, sizeof(c->name));
    c->bytes =
        sizeof(struct meeting) + (size_t)(ranks * ranks) * sizeof(struct ring);
    fd = shm_open(c->name, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)c->bytes) != 0)
        abort();
    c->meeting =
        mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (c->meeting == MAP_FAILED)
        abort();
    close(fd);
    atomic_fetch_add(&c->meeting->present, 1);
    c->result = NCCL_IN_PROGRESS;
    c->polls = (int)(roll() % MAX_POLLS);
    *comm = c;
    return NCCL_IN_PROGRESS;
}

EXPORT int ncclCommFinalize(struct nccl_comm *c)
{
    c->polls = (int)(roll() % MAX_POLLS);
    c->result = NCCL_IN_PROGRESS;
    return c->result;
}

EXPORT int ncclCommDestroy(struct nccl_comm *c)
{
    while (atomic_load(&c->running) > 0)
        pause_us(100);
    leave(c);
    return NCCL_SUCCESS;
}

EXPORT int ncclCommAbort(struct nccl_comm *c)
{
    atomic_store(&c->aborted, 1);
    return ncclCommDestroy(c);
}

/* The group's job, or one of its own. */
static struct job *job_in(struct nccl_comm *c, void *stream)
{
    struct job *j = group != NULL ? group : calloc(1, sizeof(*j));

    if (j->comm != NULL && (j->comm != c || j->stream != stream))
        abort(); /* more than Merak asks for */
    j->comm = c;
    j->stream = stream;
    return j;
}

EXPORT int ncclGroupStart(void)
{
    if (depth++ == 0)
        group = calloc(1, sizeof(*group));
    return NCCL_SUCCESS;
}

EXPORT int ncclGroupEnd(void)
{
    struct job *j = group;

    if (--depth > 0)
        return NCCL_SUCCESS;
    group = NULL;
    return submit(j);
}

static int add_piece(bool send, void *at, size_t bytes, int peer,
                     struct nccl_comm *c, void *stream)
{
    struct job *j = job_in(c, stream);

    /* to oneself in a group alone, as with NCCL */
    if (j->n == MAX_PIECES || peer < 0 || peer >= c->n ||
        (peer == c->me && group == NULL))
        abort();
    j->piece[j->n++] = (struct piece){send, at, bytes, 0, 0, peer};
    return group != NULL ? NCCL_SUCCESS : submit(j);
}

EXPORT int ncclSend(const void *at, size_t count, int type, int peer,
                    struct nccl_comm *comm, void *stream)
{
    return add_piece(true, (void *)(uintptr_t)at, count * type_bytes(type),
                     peer, comm, stream);
}

EXPORT int ncclRecv(void *at, size_t count, int type, int peer,
                    struct nccl_comm *comm, void *stream)
{
    return add_piece(false, at, count * type_bytes(type), peer, comm, stream);
}

static int submit_reduction(const struct job *like)
{
    struct job *j = job_in(like->comm, like->stream);

    *j = *like;
    return submit(j);
}

EXPORT int ncclAllReduce(const void *in, void *out, size_t count, int type,
                         int op, struct nccl_comm *comm, void *stream)
{
    const struct job like = {.comm = comm,
                             .stream = stream,
                             .reduction = ALL_REDUCE,
                             .in = in,
                             .out = out,
                             .count = count,
                             .type = type,
                             .op = op};

    return submit_reduction(&like);
}

EXPORT int ncclReduceScatter(const void *in, void *out, size_t count, int type,
                             int op, struct nccl_comm *comm, void *stream)
{
    const struct job like = {.comm = comm,
                             .stream = stream,
                             .reduction = REDUCE_SCATTER,
                             .in = in,
                             .out = out,
                             .count = count,
                             .type = type,
                             .op = op};

    return submit_reduction(&like);
}

/* Through oneself as well: its ring is as good as any. */
EXPORT int ncclAllGather(const void *in, void *out, size_t count, int type,
                         struct nccl_comm *comm, void *stream)
{
    struct job *j = job_in(comm, stream);
    size_t bytes = count * type_bytes(type);

    if (j->n + 2 * comm->n > MAX_PIECES)
        abort();
    for (int q = 0; q < comm->n; q++) {
        j->piece[j->n++] =
            (struct piece){true, (void *)(uintptr_t)in, bytes, 0, 0, q};
        j->piece[j->n++] = (struct piece){
            false, (unsigned char *)out + (size_t)q * bytes, bytes, 0, 0, q};
    }
    return group != NULL ? NCCL_SUCCESS : submit(j);
}
