/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cuda.c - plays the CUDA runtime on the fake device's queues
 *
 * Each stream is a thread whose work is delayed at random (kernels/fake/).
 * Device memory is inaccessible while no work runs, so that host code that
 * reads it is found.  CUDA's rules are kept more strictly than by CUDA, so that
 * what only happens to work is found, too:
 *
 *   - copies read and write host memory late, pinned or not;
 *   - waiting for an event that was never recorded is an error;
 *   - a captured stream takes kernels and memsets alone, and the thread that
 *     captures may not allocate, free or wait;
 *   - a thread uses streams of its current device alone;
 *   - pieces of pinned memory do not overlap, and no copy crosses their ends;
 *   - what is freed or destroyed twice, or is not the device's, ends the
 *     program with a message.
 *
 * MERAK_STAND_IN_CUDA, words separated by commas:
 *   devices=N   GPUs of this node (1)
 *   prohibited=N  the compute mode of GPU N; others may be used
 *   memory=N    MiB of each (16384)
 *   driver=N    what cudaDriverGetVersion() says (that of the headers)
 *   streams=N   how many may be open (32)
 *   fault=N     the N-th kernel, from 0, touches memory that is not its own
 *   idle        kernels, products and memsets do nothing: memory is zeros
 */
#include "config.h"

#include "unit/kernels/stand_in_cuda_impl.h"

#include "base/error.h"
#include "kernels/backends.h"
#include "kernels/cuda/cuda_sim_queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STREAMS 32

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;    /* for all below */
    pthread_mutex_t kernels; /* one runs at a time */
    struct merak_accel *fake;
    struct CUstream_st stream[STREAMS];
    int fault;
    bool idle;
    atomic_int launched;
    cudaError_t failure; /* of the device; it stays */
} cuda = {.once = PTHREAD_ONCE_INIT,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .kernels = PTHREAD_MUTEX_INITIALIZER};

static const struct merak_accel_ops *ops(void)
{
    return cuda.fake->ops;
}

static int queue_kernel(void *stream, void (*run)(void *work), const void *work,
                        size_t bytes);

static void start_now(void)
{
    struct merak_error err;

    cuda.fault = sc_word("fault=", -1);
    cuda.idle = getenv("MERAK_STAND_IN_CUDA") != NULL &&
                strstr(getenv("MERAK_STAND_IN_CUDA"), "idle") != NULL;
    merak_sim_queue = queue_kernel;
    if (merak_backend_fake.accel->open(0, STREAMS, 1, &cuda.fake, &err) !=
        MERAK_OK)
        sc_die(err.text);
}

void sc_start(void)
{
    pthread_once(&cuda.once, start_now);
}

cudaError_t sc_failure(void)
{
    return cuda.failure;
}

/* --- streams ----------------------------------------------------------------
 */

static void do_nothing(void *work)
{
    (void)work;
}

static void run_work(void *arg)
{
    struct work *w = arg;
    bool touches = w->run != do_nothing; /* mprotect() takes its time */

    if (touches)
        sc_begin_work();
    w->run(w->copy);
    if (touches)
        sc_end_work();
    free(w);
}

struct work *sc_make_work(void (*run)(void *work), const void *work,
                          size_t bytes)
{
    struct work *w = aligned_alloc(16, (sizeof(*w) + bytes + 15) / 16 * 16);

    if (w == NULL)
        sc_die("out of memory");
    w->run = run;
    w->bytes = bytes;
    memcpy(w->copy, work, bytes);
    return w;
}

/* Calls that a capture in this thread forbids. */
cudaError_t sc_check_outside(void)
{
    if (sc_captures() == 0)
        return cuda.failure;
    for (int i = 0; i < STREAMS; i++)
        cuda.stream[i].spoilt |= cuda.stream[i].capture != NULL;
    return cudaErrorStreamCaptureUnsupported;
}

void sc_check_stream(cudaStream_t s)
{
    if (s < cuda.stream || s >= cuda.stream + STREAMS || !s->open)
        sc_die("a stream that is not one, or the default one");
    if (s->device != sc_current())
        sc_die("a stream of another device than the thread's current one");
}

int sc_queue(struct stand_in_stream *stream, void (*run)(void *work),
             const void *work, size_t bytes)
{
    cudaStream_t s = (cudaStream_t)stream;
    struct work *w;
    cudaGraph_t g;

    sc_check_stream(s);
    if (cuda.failure != cudaSuccess)
        return sc_answer(cuda.failure);
    w = sc_make_work(run, work, bytes);
    g = s->capture;
    if (g != NULL) {
        g->work = realloc(g->work, (g->n + 1) * sizeof(struct work *));
        if (g->work == NULL)
            sc_die("out of memory");
        g->work[g->n++] = w;
        return cudaSuccess;
    }
    s->given++;
    if (s->under->call(s->under, run_work, w) != 0)
        sc_die("the fake device failed");
    return cudaSuccess;
}

/* What computes, or sets memory. */
static int queue_kernels(struct stand_in_stream *stream,
                         void (*run)(void *work), const void *work,
                         size_t bytes)
{
    return sc_queue(stream, cuda.idle ? do_nothing : run, work, bytes);
}

/* For stand_in_nccl.c: fn() frees its argument, so it runs once. */
struct once {
    void (*fn)(void *arg);
    void *arg;
};

static void run_once(void *work)
{
    const struct once *o = work;

    o->fn(o->arg);
}

static int fake_call(struct merak_fake_stream *stream, void (*fn)(void *arg),
                     void *arg)
{
    struct once o = {fn, arg};

    if (((cudaStream_t)stream)->capture != NULL)
        sc_die("a collective is captured");
    return sc_queue((struct stand_in_stream *)stream, run_once, &o, sizeof(o));
}

static void *fake_bytes(struct merak_fake_stream *stream, const void *address)
{
    (void)stream;
    return (void *)(uintptr_t)address;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* Hardware queues, which a stream that waits blocks for all others on it. */
static int connections(void)
{
    const char *set = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

    return set != NULL ? atoi(set) : 8;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int priority)
{
    cudaError_t code = sc_check_outside();
    struct merak_error err;
    int i = 0;

    sc_start();
    if (code != cudaSuccess)
        return sc_answer(code);
    if (flags != cudaStreamNonBlocking || priority > 0 || priority < -5)
        sc_die("a stream that the default stream holds up, or its priority");
    pthread_mutex_lock(&cuda.lock);
    while (i < STREAMS && cuda.stream[i].open)
        i++;
    if (i >= sc_word("streams=", STREAMS))
        sc_die("more streams than it has");
    if (i >= connections())
        sc_die("more streams than CUDA_DEVICE_MAX_CONNECTIONS");
    cuda.stream[i] = (struct CUstream_st){
        .base = {{fake_call, fake_bytes}, queue_kernels},
        .under = ops()->stream(cuda.fake, i),
        .number = i,
        .device = sc_current(),
        .open = true,
    };
    pthread_mutex_unlock(&cuda.lock);
    if (ops()->event_create(cuda.fake, &cuda.stream[i].probe, &err) != MERAK_OK)
        sc_die(err.text);
    *stream = &cuda.stream[i];
    return cudaSuccess;
}

/* As CUDA: what is in it still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    sc_check_stream(s);
    ops()->event_destroy(cuda.fake, s->probe);
    s->open = false;
    return cudaSuccess;
}

cudaError_t sc_forbid(cudaStream_t s)
{
    s->spoilt = true;
    return sc_answer(cudaErrorStreamCaptureUnsupported);
}

static cudaError_t ask(struct merak_event *event)
{
    struct merak_error err;

    switch (ops()->query(cuda.fake, event, &err)) {
    case MERAK_OK:
        return cuda.failure;
    case MERAK_IN_PROGRESS:
        return cudaErrorNotReady;
    default:
        sc_die(err.text);
    }
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    struct merak_error err;

    sc_check_stream(s);
    if (s->capture != NULL)
        return sc_forbid(s);
    if (s->given == 0)
        return sc_answer(cuda.failure);
    if (s->probed != s->given) {
        if (ops()->record(cuda.fake, s->number, s->probe, &err) != MERAK_OK)
            sc_die(err.text);
        s->probed = s->given;
    }
    return sc_answer(ask(s->probe));
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    const struct timespec pause = {0, 20000};
    cudaError_t code;

    if (sc_check_outside() != cudaSuccess)
        return sc_answer(cudaErrorStreamCaptureUnsupported);
    while ((code = cudaStreamQuery(s)) == cudaErrorNotReady)
        nanosleep(&pause, NULL);
    return code;
}

void sc_wait_for_all(void)
{
    const struct timespec pause = {0, 50000};

    for (int i = 0; i < STREAMS; i++) {
        while (cuda.stream[i].open && cuda.stream[i].device == sc_current() &&
               cuda.stream[i].capture == NULL &&
               cudaStreamQuery(&cuda.stream[i]) == cudaErrorNotReady)
            nanosleep(&pause, NULL);
    }
}

/* --- what streams do --------------------------------------------------------
 */

static void fail_now(void *work)
{
    (void)work;
    cuda.failure = cudaErrorIllegalAddress;
}

struct kernel {
    void (*run)(void *work);
    _Alignas(16) unsigned char work[];
};

static void run_kernel(void *work)
{
    struct kernel *k = work;

    pthread_mutex_lock(&cuda.kernels);
    k->run(k->work);
    pthread_mutex_unlock(&cuda.kernels);
}

static int queue_kernel(void *stream, void (*run)(void *work), const void *work,
                        size_t bytes)
{
    size_t all = (sizeof(struct kernel) + bytes + 15) / 16 * 16;
    struct kernel *k = aligned_alloc(16, all);
    cudaStream_t s = stream;
    int code;

    if (k == NULL)
        sc_die("out of memory");
    memset(k, 0, all);
    k->run = run;
    memcpy(k->work, work, bytes);
    sc_check_stream(s);
    if (atomic_fetch_add(&cuda.launched, 1) == cuda.fault)
        code = sc_queue(&s->base, fail_now, k, all);
    else
        code = s->base.queue(&s->base, run_kernel, k, all);
    free(k);
    return code;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int value;
};

static void run_copy(void *work)
{
    const struct copy *c = work;

    memcpy(c->to, c->from, c->bytes);
}

static void run_set(void *work)
{
    const struct copy *c = work;

    memset(c->to, c->value, c->bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s)
{
    struct copy c = {to, from, bytes, 0};
    const void *device = kind == cudaMemcpyHostToDevice ? to : from;
    const void *host = kind == cudaMemcpyHostToDevice ? from : to;

    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost)
        sc_die("a copy of another kind than those used");
    if (!sc_is_on_device(device, bytes))
        return sc_answer(cudaErrorInvalidValue);
    if (sc_is_on_device(host, 1) || sc_crosses_pinned(host, bytes))
        return sc_answer(cudaErrorInvalidValue);
    if (s->capture != NULL)
        return sc_forbid(s);
    return sc_queue(&s->base, run_copy, &c, sizeof(c));
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t s)
{
    struct copy c = {at, NULL, bytes, value};

    if (!sc_is_on_device(at, bytes))
        return sc_answer(cudaErrorInvalidValue);
    return queue_kernels(&s->base, run_set, &c, sizeof(c));
}

/* --- events -----------------------------------------------------------------
 */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event_p, unsigned flags)
{
    cudaEvent_t event = calloc(1, sizeof(*event));
    struct merak_error err;

    sc_start();
    if (event == NULL ||
        ops()->event_create(cuda.fake, &event->event, &err) != MERAK_OK)
        sc_die("out of memory");
    event->has_time = (flags & cudaEventDisableTiming) == 0;
    *event_p = event;
    return sc_answer(cuda.failure);
}

cudaError_t cudaEventCreate(cudaEvent_t *event_p)
{
    return cudaEventCreateWithFlags(event_p, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ops()->event_destroy(cuda.fake, event->event);
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
    struct merak_error err;

    sc_check_stream(s);
    if (s->capture != NULL)
        return sc_forbid(s);
    if (cuda.failure != cudaSuccess)
        return sc_answer(cuda.failure);
    event->recorded = true;
    s->given++;
    if (ops()->record(cuda.fake, s->number, event->event, &err) != MERAK_OK)
        sc_die(err.text);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event,
                                unsigned flags)
{
    struct merak_error err;

    sc_check_stream(s);
    if (s->capture != NULL)
        return sc_forbid(s);
    if (!event->recorded || flags != 0)
        return sc_answer(cudaErrorInvalidValue);
    s->given++;
    if (ops()->wait(cuda.fake, s->number, event->event, &err) != MERAK_OK)
        sc_die(err.text);
    return sc_answer(cuda.failure);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return sc_answer(event->recorded ? ask(event->event) : cuda.failure);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const struct timespec pause = {0, 20000};
    cudaError_t code = sc_check_outside();

    if (code != cudaSuccess)
        return sc_answer(code);
    while ((code = cudaEventQuery(event)) == cudaErrorNotReady)
        nanosleep(&pause, NULL);
    return code;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    struct merak_error err;
    int64_t ns = 0;

    if (!from->has_time || !to->has_time || !from->recorded || !to->recorded)
        return sc_answer(cudaErrorInvalidResourceHandle);
    if (ask(from->event) == cudaErrorNotReady ||
        ask(to->event) == cudaErrorNotReady)
        return sc_answer(cudaErrorNotReady);
    if (ops()->elapsed(cuda.fake, from->event, to->event, &ns, &err) !=
        MERAK_OK)
        sc_die(err.text);
    *ms = (float)ns / 1e6f;
    return sc_answer(cuda.failure);
}
