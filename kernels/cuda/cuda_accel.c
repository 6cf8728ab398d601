/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_accel.c - a GPU behind the interface of accelerators
 *
 * Each queue is a separate stream, which only waits for others by events.
 * Streams of transfers have priority: their few blocks should start at once,
 * not when a product ends.
 *
 * In CUDA the current device is a setting of the thread; a call from a thread
 * with another one changes it.
 */
#include "config.h"

#include "kernels/cuda/cuda_queue.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOSE_NS INT64_C(10000000000) /* time for queued work to end */
#define DEPTH 1024                    /* launches that a stream takes */
#define COMPUTE_QUEUE 0
#define COPY_QUEUE 3

/* --- failures ---------------------------------------------------------------
 */

enum merak_status merak_cuda_keep(struct merak_cuda *c,
                                  const struct merak_error *now,
                                  struct merak_error *err)
{
    enum merak_status rc;

    pthread_mutex_lock(&c->lock);
    if (c->failure.status == MERAK_OK)
        c->failure = *now;
    if (err != NULL)
        *err = c->failure;
    rc = c->failure.status;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

enum merak_status merak_cuda_check(struct merak_cuda *c, const char *what,
                                   cudaError_t code, struct merak_error *err)
{
    struct merak_error now = {.status = MERAK_OK};

    if (code == cudaSuccess)
        return MERAK_OK;
    (void)merak_cuda_fail(&now, c->device, what, code);
    return merak_cuda_keep(c, &now, err);
}

/* The thread's current device, as this module has set it; only here. */
static enum merak_status select_device(struct merak_cuda *c,
                                       struct merak_error *err)
{
    static __thread int current = -1;
    enum merak_status rc = MERAK_OK;

    if (current == c->device)
        return MERAK_OK;
    rc =
        merak_cuda_check(c, "select the device", cudaSetDevice(c->device), err);
    current = rc == MERAK_OK ? c->device : -1;
    return rc;
}

enum merak_status merak_cuda_enter(struct merak_cuda *c,
                                   struct merak_error *err)
{
    enum merak_status rc;

    pthread_mutex_lock(&c->lock);
    rc = c->failure.status;
    if (rc != MERAK_OK && err != NULL)
        *err = c->failure;
    pthread_mutex_unlock(&c->lock);
    return rc == MERAK_OK ? select_device(c, err) : rc;
}

/* Queue 0 computes and queue 3 copies inputs; the others move data that other
 * ranks wait for. */
static enum merak_status open_stream(struct merak_cuda *c, int queue,
                                     struct merak_error *err)
{
    bool moves = queue != COMPUTE_QUEUE && queue != COPY_QUEUE;
    enum merak_status rc = merak_cuda_check(
        c, "create a stream",
        cudaStreamCreateWithPriority(&c->stream[queue], cudaStreamNonBlocking,
                                     moves ? c->greatest : c->least),
        err);

    c->context[queue] = (struct merak_cuda_context){
        .stream = c->stream[queue],
        .product = merak_cuda_lt_product,
        .product_arg = c->lt,
        .fault = c->fault,
    };
    return rc;
}

/* merak_cuda_enter(), for a call that uses a queue.  A context has few hardware
 * queues, which its streams and NCCL's share: only what is used is opened. */
static enum merak_status enter_queue(struct merak_cuda *c, int queue,
                                     struct merak_error *err)
{
    enum merak_status rc = merak_cuda_enter(c, err);

    return rc == MERAK_OK && c->stream[queue] == NULL
               ? open_stream(c, queue, err)
               : rc;
}

/* --- work -------------------------------------------------------------------
 */

enum merak_status merak_cuda_launched(struct merak_cuda *c,
                                      enum merak_status rc,
                                      struct merak_error *now,
                                      struct merak_error *err)
{
    if (rc == MERAK_OK)
        return MERAK_OK;
    now->status = rc;
    return merak_cuda_keep(c, now, err);
}

/* Kernels check the status of their launches.  CUDA's "last error" is not used,
 * since libraries leave meaningless errors in it. */
static enum merak_status cuda_launch(struct merak_accel *accel, int queue,
                                     const struct merak_kernel *kernel,
                                     const struct merak_kernel_call *call,
                                     struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    struct merak_kernel_call mine = *call;
    struct merak_error now = {.status = MERAK_OK};
    enum merak_status rc = enter_queue(c, queue, &now);
    bool done = false;

    mine.device = &c->context[queue];
    if (rc == MERAK_OK)
        rc = merak_cudnn_attend(c->attention, kernel->name, &mine,
                                c->stream[queue], &done, &now);
    if (rc == MERAK_OK && !done)
        rc = merak_kernel_run(&merak_cuda_backend, kernel, &mine, &now);
    return merak_cuda_launched(c, rc, &now, err);
}

static enum merak_status
cuda_launch_fused(struct merak_accel *accel, int queue,
                  const struct merak_kernel *const *kernel,
                  const struct merak_kernel_call *const *call,
                  const unsigned *unread, int n, struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    struct merak_kernel_call mine[MERAK_FUSED_MAX];
    const struct merak_kernel_call *list[MERAK_FUSED_MAX];
    struct merak_error now = {.status = MERAK_OK};
    enum merak_status rc = merak_cuda_enter(c, &now);

    for (int i = 0; i < n; i++) {
        mine[i] = *call[i];
        mine[i].device = &c->context[queue];
        list[i] = &mine[i];
    }
    if (rc == MERAK_OK)
        rc = merak_cuda_run_fused(kernel, list, unread, n, &now);
    return merak_cuda_launched(c, rc, &now, err);
}

static enum merak_status cuda_tune(struct merak_accel *accel, int queue,
                                   const struct merak_kernel *kernel,
                                   const struct merak_kernel_call *call,
                                   void (*tell)(void *arg, const char *line),
                                   void *arg, struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc;

    if (merak_cudnn_is_op(kernel->name))
        return merak_cuda_tune_attention(c, queue, kernel, call, tell, arg,
                                         err);
    merak_cuda_lt_tune(c->lt, tell, arg);
    rc = cuda_launch(accel, queue, kernel, call, err);
    merak_cuda_lt_tune(c->lt, NULL, NULL);
    return rc;
}

/* Algorithms belong to a library version and are fast on one kind of device. */
static void cuda_tuned_for(struct merak_accel *accel, char *text, size_t bytes)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    struct merak_cuda_facts facts;

    text[0] = '\0';
    if (merak_cuda_gather(c->device, &facts, NULL) == MERAK_OK)
        snprintf(text, bytes, "%s, %d SMs, %s", facts.name, facts.sms,
                 merak_cuda_lt_version(c->lt));
}

static enum merak_status cuda_use_tuned(struct merak_accel *accel,
                                        const char *line,
                                        struct merak_error *err)
{
    if (merak_cudnn_is_line(line)) /* merak_backend.use_choices */
        return MERAK_OK;
    return merak_cuda_lt_use(merak_cuda_of(accel)->lt, line, err);
}

static enum merak_status copy(struct merak_accel *accel, int queue, void *to,
                              const void *from, size_t bytes,
                              enum cudaMemcpyKind kind, struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = enter_queue(c, queue, err);

    if (rc != MERAK_OK || bytes == 0)
        return rc;
    return merak_cuda_check(
        c,
        kind == cudaMemcpyHostToDevice ? "copy to the GPU"
                                       : "copy from the GPU",
        cudaMemcpyAsync(to, from, bytes, kind, c->stream[queue]), err);
}

static enum merak_status cuda_write(struct merak_accel *accel, int queue,
                                    void *to, const void *from, size_t bytes,
                                    struct merak_error *err)
{
    return copy(accel, queue, to, from, bytes, cudaMemcpyHostToDevice, err);
}

static enum merak_status cuda_read(struct merak_accel *accel, int queue,
                                   void *to, const void *from, size_t bytes,
                                   struct merak_error *err)
{
    return copy(accel, queue, to, from, bytes, cudaMemcpyDeviceToHost, err);
}

static enum merak_status cuda_fill(struct merak_accel *accel, int queue,
                                   void *to, unsigned char byte, size_t bytes,
                                   struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = enter_queue(c, queue, err);

    if (rc != MERAK_OK || bytes == 0)
        return rc;
    return merak_cuda_check(c, "set memory",
                            cudaMemsetAsync(to, byte, bytes, c->stream[queue]),
                            err);
}

static enum merak_status cuda_pack(struct merak_accel *accel, int queue,
                                   void *to, const void *from,
                                   const struct merak_accel_box *box,
                                   struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    struct merak_error now = {.status = MERAK_OK};
    enum merak_status rc = enter_queue(c, queue, &now);

    if (rc == MERAK_OK)
        rc = merak_cuda_pack(&c->context[queue], to, from, box, &now);
    return merak_cuda_launched(c, rc, &now, err);
}

static enum merak_status cuda_unpack(struct merak_accel *accel, int queue,
                                     void *to,
                                     const struct merak_accel_box *box,
                                     const void *from, struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    struct merak_error now = {.status = MERAK_OK};
    enum merak_status rc = enter_queue(c, queue, &now);

    if (rc == MERAK_OK)
        rc = merak_cuda_unpack(&c->context[queue], to, box, from, &now);
    return merak_cuda_launched(c, rc, &now, err);
}

static enum merak_status cuda_combine(struct merak_accel *accel, int queue,
                                      void *to,
                                      const struct merak_accel_terms *pieces,
                                      struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    struct merak_error now = {.status = MERAK_OK};
    enum merak_status rc = enter_queue(c, queue, &now);

    if (rc == MERAK_OK)
        rc = merak_cuda_combine(&c->context[queue], to, pieces, &now);
    return merak_cuda_launched(c, rc, &now, err);
}

static void *cuda_stream(struct merak_accel *accel, int queue)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = enter_queue(c, queue, NULL);

    (void)rc; /* a failure shows when the caller uses the stream */
    return c->stream[queue];
}

/* --- events -----------------------------------------------------------------
 */

static enum merak_status cuda_event_create(struct merak_accel *accel,
                                           struct merak_event **event_p,
                                           struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = merak_cuda_enter(c, err);
    cudaEvent_t event = NULL;

    if (rc == MERAK_OK)
        rc = merak_cuda_check(
            c, "create an event",
            cudaEventCreateWithFlags(&event, cudaEventDisableTiming), err);
    if (rc == MERAK_OK)
        *event_p = (struct merak_event *)event;
    return rc;
}

static void cuda_event_destroy(struct merak_accel *accel,
                               struct merak_event *event)
{
    (void)accel;
    if (event != NULL)
        (void)cudaEventDestroy((cudaEvent_t)event);
}

static enum merak_status cuda_record(struct merak_accel *accel, int queue,
                                     struct merak_event *event,
                                     struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = enter_queue(c, queue, err);

    if (rc != MERAK_OK)
        return rc;
    return merak_cuda_check(
        c, "record an event",
        cudaEventRecord((cudaEvent_t)event, c->stream[queue]), err);
}

static enum merak_status cuda_wait(struct merak_accel *accel, int queue,
                                   struct merak_event *event,
                                   struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = enter_queue(c, queue, err);

    if (rc != MERAK_OK)
        return rc;
    return merak_cuda_check(
        c, "wait for an event",
        cudaStreamWaitEvent(c->stream[queue], (cudaEvent_t)event, 0), err);
}

/* Check whether kernels found invalid ids. */
static enum merak_status check_fault(struct merak_cuda *c,
                                     struct merak_error *err)
{
    struct merak_error now = {.status = MERAK_OK};
    enum merak_status rc = merak_cuda_check_fault(c->fault, &now);

    return merak_cuda_launched(c, rc, &now, err);
}

static enum merak_status cuda_query(struct merak_accel *accel,
                                    struct merak_event *event,
                                    struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = merak_cuda_enter(c, err);
    cudaError_t code;

    if (rc != MERAK_OK)
        return rc;
    code = cudaEventQuery((cudaEvent_t)event);
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* not an error */
        return MERAK_IN_PROGRESS;
    }
    rc = merak_cuda_check(c, "run what was queued", code, err);
    return rc == MERAK_OK ? check_fault(c, err) : rc;
}

/* --- open, close ------------------------------------------------------------
 */

static void cuda_describe(struct merak_accel *accel, char *text, size_t bytes)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    char warning[256];
    size_t n;

    merak_cuda_facts_text(c->device, text, bytes, warning, sizeof(warning));
    n = strlen(text);
    snprintf(text + n, bytes - n, ", %s", merak_cuda_lt_version(c->lt));
}

/* Wait for a queue, but not forever if the device hangs. */
static void drain(struct merak_cuda *c, int queue)
{
    const struct timespec pause = {0, 100000};
    int64_t start = merak_clock_ns();

    while (cudaStreamQuery(c->stream[queue]) == cudaErrorNotReady &&
           merak_clock_ns() - start < CLOSE_NS)
        nanosleep(&pause, NULL);
}

static void cuda_close(struct merak_accel *accel)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc;

    if (c == NULL)
        return;
    rc = select_device(c, NULL);
    (void)rc; /* all is freed, whatever happened before */
    for (int i = 0; i < c->queues; i++) {
        if (c->stream[i] == NULL)
            continue;
        drain(c, i);
        (void)cudaStreamDestroy(c->stream[i]);
    }
    merak_cudnn_attention_destroy(c->attention);
    merak_cuda_lt_close(c->lt);
    if (c->fault != NULL)
        (void)cudaFreeHost(c->fault);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* The queues that every run uses.  Others are opened when they are used. */
static enum merak_status open_streams(struct merak_cuda *c,
                                      struct merak_error *err)
{
    enum merak_status rc = merak_cuda_check(
        c, "ask for streams' priorities",
        cudaDeviceGetStreamPriorityRange(&c->least, &c->greatest), err);

    for (int i = 0; i <= COPY_QUEUE && i < c->queues && rc == MERAK_OK; i++)
        rc = enter_queue(c, i, err);
    return rc;
}

/* cuDNN itself is opened by the first call that needs it. */
static enum merak_status open_attention(struct merak_cuda *c,
                                        struct merak_error *err)
{
    struct merak_cuda_facts facts;
    enum merak_status rc = merak_cuda_gather(c->device, &facts, err);

    return rc == MERAK_OK
               ? merak_cudnn_attention_create(MERAK_CUDNN_SONAME, facts.major,
                                              &c->attention, err)
               : rc;
}

static enum merak_status open_device(struct merak_cuda *c,
                                     struct merak_error *err)
{
    enum merak_status rc = merak_cuda_check_device(c->device, err);

    if (rc == MERAK_OK)
        rc = select_device(c, err);
    /* Create the context: problems with the device show here. */
    if (rc == MERAK_OK)
        rc = merak_cuda_check(c, "open a context", cudaFree(NULL), err);
    if (rc == MERAK_OK)
        rc = merak_cuda_check(
            c, "allocate a page that it can write to",
            cudaHostAlloc((void **)&c->fault, sizeof(*c->fault),
                          cudaHostAllocMapped | cudaHostAllocPortable),
            err);
    if (rc != MERAK_OK)
        return rc;
    memset(c->fault, 0, sizeof(*c->fault));
    rc = merak_cuda_load_copies(err);
    if (rc == MERAK_OK)
        rc = merak_cuda_lt_open(c->device, &c->lt, err);
    if (rc == MERAK_OK)
        rc = open_attention(c, err);
    return rc == MERAK_OK ? open_streams(c, err) : rc;
}

static enum merak_status cuda_open(int device, int queues, int threads,
                                   struct merak_accel **accel_p,
                                   struct merak_error *err)
{
    struct merak_cuda *c;
    enum merak_status rc;

    (void)threads;
    if (queues < 1 || queues > MERAK_ACCEL_QUEUES)
        return merak_fail(err, MERAK_ERR_PARAM, "%d queues, expected 1..%d",
                          queues, MERAK_ACCEL_QUEUES);
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return merak_fail_nomem(err, sizeof(*c));
    c->base.ops = &merak_cuda_accel;
    c->base.depth = DEPTH;
    c->device = device;
    c->queues = queues;
    pthread_mutex_init(&c->lock, NULL);
    rc = open_device(c, err);
    if (rc != MERAK_OK) {
        cuda_close(&c->base);
        return rc;
    }
    *accel_p = &c->base;
    return MERAK_OK;
}

const struct merak_accel_ops merak_cuda_accel = {
    .devices = merak_cuda_devices,
    .facts = merak_cuda_facts_text,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = merak_cuda_alloc,
    .free = merak_cuda_free,
    .memory = merak_cuda_memory,
    .describe = cuda_describe,
    .pin = merak_cuda_pin,
    .unpin = merak_cuda_unpin,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .launch = cuda_launch,
    .write = cuda_write,
    .read = cuda_read,
    .fill = cuda_fill,
    .pack = cuda_pack,
    .unpack = cuda_unpack,
    .combine = cuda_combine,
    .streams = MERAK_STREAMS_CUDA,
    .stream = cuda_stream,
    .record = cuda_record,
    .wait = cuda_wait,
    .query = cuda_query,
    .timer_create = merak_cuda_timer_create,
    .elapsed = merak_cuda_elapsed,
    .tune = cuda_tune,
    .tuned_for = cuda_tuned_for,
    .use_tuned = cuda_use_tuned,
    .table_bytes = merak_cuda_table_bytes,
    .table_create = merak_cuda_table_create,
    .table_destroy = merak_cuda_table_destroy,
    .table_launch = merak_cuda_table_launch,
    .fusable = merak_cuda_fusable,
    .launch_fused = cuda_launch_fused,
    .capture_begin = merak_cuda_capture_begin,
    .capture_end = merak_cuda_capture_end,
    .replay = merak_cuda_replay,
    .replay_destroy = merak_cuda_replay_destroy,
};
