/* SPDX-License-Identifier: Apache-2.0 */
/* fake.c - a device made of threads, to test code that drives real ones
 *
 * Kernels are those of the cpu backend.  Everything else behaves like CUDA:
 * device addresses are in inaccessible pages, so that the engine cannot read
 * device memory by accident; each queue is a thread, so that queues overtake
 * each other; and operations are delayed at random, so that a missing wait
 * sooner or later shows as a wrong number.  MERAK_FAKE_SEED selects another
 * sequence of delays.
 *
 * A queue holds MERAK_FAKE_DEPTH operations.  As in CUDA's driver at its worst,
 * a call that finds it full keeps all other calls waiting until there is room.
 */
#include "config.h"

#include "kernels/fake/fake_device.h"

#include "kernels/backends.h"

#include "base/error.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* --- what callers do -------------------------------------------------------
 */

/* The next operation of a queue being captured.  As in CUDA, no host copies:
 * that memory may be gone later; no events: they would belong to the graph. */
static struct op *keep_op(struct queue *q, enum kind kind,
                          struct merak_error *err)
{
    struct op *op = NULL;

    if (kind == WRITE || kind == READ || kind == RECORD || kind == WAIT ||
        kind == CALL)
        (void)merak_fail(err, MERAK_ERR_PARAM,
                         "what is captured has copies or events in it");
    else
        op = merak_fake_capture(q->capture);
    if (op == NULL && q->owner->failure.status == MERAK_OK)
        (void)merak_fail(&q->owner->failure, MERAK_ERR_PARAM,
                         "the capture failed");
    return op;
}

struct op *merak_fake_put_begin(struct fake *f, int queue, enum kind kind,
                                struct merak_error *err)
{
    struct queue *q = &f->queue[queue];
    uint64_t depth = (uint64_t)f->base.depth;
    struct op *op = NULL;

    pthread_mutex_lock(&f->calls);
    pthread_mutex_lock(&f->lock);
    while (q->put - q->taken == depth)
        pthread_cond_wait(&q->taken_one, &f->lock);
    if (f->failure.status != MERAK_OK) {
        if (err != NULL)
            *err = f->failure;
    } else if (q->capture != NULL) {
        op = keep_op(q, kind, err);
    } else {
        op = &q->ring[q->put % depth];
    }
    if (op == NULL) {
        pthread_mutex_unlock(&f->lock);
        pthread_mutex_unlock(&f->calls);
        return NULL;
    }
    op->kind = kind;
    op->joined = false;
    op->n_undefined = 0;
    return op;
}

enum merak_status merak_fake_put_end(struct fake *f, int queue)
{
    struct queue *q = &f->queue[queue];

    q->put += q->capture == NULL;
    pthread_cond_signal(&q->given);
    pthread_mutex_unlock(&f->lock);
    pthread_mutex_unlock(&f->calls);
    return MERAK_OK;
}

static enum merak_status fake_launch(struct merak_accel *accel, int queue,
                                     const struct merak_kernel *kernel,
                                     const struct merak_kernel_call *call,
                                     struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct op *op = merak_fake_put_begin(f, queue, LAUNCH, err);

    if (op == NULL)
        return f->failure.status;
    op->kernel = kernel;
    op->call = *call;
    op->step = *call->step;
    return merak_fake_put_end(f, queue);
}

static enum merak_status put_copy(struct fake *f, int queue, enum kind kind,
                                  void *to, const void *from, size_t bytes,
                                  struct merak_error *err)
{
    enum merak_status rc =
        merak_fake_check_pinned(f, kind == WRITE ? from : to, bytes, err);
    struct op *op;

    if (rc != MERAK_OK)
        return rc;
    op = merak_fake_put_begin(f, queue, kind, err);
    if (op == NULL)
        return f->failure.status;
    op->to = to;
    op->from = from;
    op->bytes = bytes;
    return merak_fake_put_end(f, queue);
}

static enum merak_status fake_write(struct merak_accel *accel, int queue,
                                    void *to, const void *from, size_t bytes,
                                    struct merak_error *err)
{
    return put_copy(fake_of(accel), queue, WRITE, to, from, bytes, err);
}

static enum merak_status fake_read(struct merak_accel *accel, int queue,
                                   void *to, const void *from, size_t bytes,
                                   struct merak_error *err)
{
    return put_copy(fake_of(accel), queue, READ, to, from, bytes, err);
}

static enum merak_status fake_fill(struct merak_accel *accel, int queue,
                                   void *to, unsigned char byte, size_t bytes,
                                   struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct op *op = merak_fake_put_begin(f, queue, FILL, err);

    if (op == NULL)
        return f->failure.status;
    op->to = to;
    op->byte = byte;
    op->bytes = bytes;
    return merak_fake_put_end(f, queue);
}

static enum merak_status put_box(struct fake *f, int queue, enum kind kind,
                                 void *to, const void *from,
                                 const struct merak_accel_box *box,
                                 struct merak_error *err)
{
    struct op *op = merak_fake_put_begin(f, queue, kind, err);
    size_t bytes = (size_t)box->ndim * sizeof(*box->len);

    if (op == NULL)
        return f->failure.status;
    op->to = to;
    op->from = from;
    op->box = *box;
    op->box.full = memcpy(op->dims[0], box->full, bytes);
    op->box.lo = memcpy(op->dims[1], box->lo, bytes);
    op->box.len = memcpy(op->dims[2], box->len, bytes);
    return merak_fake_put_end(f, queue);
}

static enum merak_status fake_pack(struct merak_accel *accel, int queue,
                                   void *to, const void *from,
                                   const struct merak_accel_box *box,
                                   struct merak_error *err)
{
    return put_box(fake_of(accel), queue, PACK, to, from, box, err);
}

static enum merak_status fake_unpack(struct merak_accel *accel, int queue,
                                     void *to,
                                     const struct merak_accel_box *box,
                                     const void *from, struct merak_error *err)
{
    return put_box(fake_of(accel), queue, UNPACK, to, from, box, err);
}

static enum merak_status fake_combine(struct merak_accel *accel, int queue,
                                      void *to,
                                      const struct merak_accel_terms *terms,
                                      struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct op *op = merak_fake_put_begin(f, queue, COMBINE, err);

    if (op == NULL)
        return f->failure.status;
    op->to = to;
    op->terms = *terms;
    return merak_fake_put_end(f, queue);
}

static int stream_call(struct merak_fake_stream *stream, void (*fn)(void *arg),
                       void *arg)
{
    struct queue *q = (struct queue *)stream;
    struct fake *f = q->owner;
    int queue = (int)(q - f->queue);
    struct op *op = merak_fake_put_begin(f, queue, CALL, NULL);

    if (op == NULL)
        return -1;
    op->fn = fn;
    op->arg = arg;
    return merak_fake_put_end(f, queue) == MERAK_OK ? 0 : -1;
}

static void *stream_bytes(struct merak_fake_stream *stream, const void *address)
{
    return merak_fake_bytes(((struct queue *)stream)->owner, address);
}

static void *fake_stream(struct merak_accel *accel, int queue)
{
    return &fake_of(accel)->queue[queue].stream;
}

static enum merak_status fake_record(struct merak_accel *accel, int queue,
                                     struct merak_event *event,
                                     struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct op *op = merak_fake_put_begin(f, queue, RECORD, err);

    if (op == NULL)
        return f->failure.status;
    op->event = event;
    event->users++;
    op->record = ++event->recorded;
    return merak_fake_put_end(f, queue);
}

static enum merak_status fake_wait(struct merak_accel *accel, int queue,
                                   struct merak_event *event,
                                   struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct op *op = merak_fake_put_begin(f, queue, WAIT, err);

    if (op == NULL)
        return f->failure.status;
    op->event = event;
    event->users++;
    op->record = event->recorded;
    return merak_fake_put_end(f, queue);
}

static enum merak_status fake_query(struct merak_accel *accel,
                                    struct merak_event *event,
                                    struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    enum merak_status rc;

    pthread_mutex_lock(&f->calls);
    pthread_mutex_lock(&f->lock);
    rc = f->failure.status;
    if (rc != MERAK_OK && err != NULL)
        *err = f->failure;
    if (rc == MERAK_OK && event->reached < event->recorded)
        rc = MERAK_IN_PROGRESS;
    pthread_mutex_unlock(&f->lock);
    pthread_mutex_unlock(&f->calls);
    return rc;
}

static enum merak_status fake_event_create(struct merak_accel *accel,
                                           struct merak_event **event_p,
                                           struct merak_error *err)
{
    struct merak_event *event = calloc(1, sizeof(*event));

    (void)accel;
    if (event == NULL)
        return merak_fail_nomem(err, sizeof(*event));
    event->users = 1;
    *event_p = event;
    return MERAK_OK;
}

static void fake_event_destroy(struct merak_accel *accel,
                               struct merak_event *event)
{
    struct fake *f = fake_of(accel);

    if (event == NULL)
        return;
    pthread_mutex_lock(&f->lock);
    merak_fake_leave_event(event);
    pthread_mutex_unlock(&f->lock);
}

/* --- open, close ----------------------------------------------------
 */

static void fake_close(struct merak_accel *accel)
{
    struct fake *f = fake_of(accel);

    if (accel == NULL)
        return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_mutex_unlock(&f->lock);
    merak_fake_queues_close(f);
    merak_fake_free_all(f);
    free(f->queue);
    pthread_mutex_destroy(&f->kernels);
    pthread_cond_destroy(&f->reached);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->calls);
    free(f);
}

static const struct merak_accel_ops fake_ops;

static int queue_depth(void)
{
    const char *text = getenv("MERAK_FAKE_DEPTH");
    int depth = text != NULL ? atoi(text) : DEPTH;

    return depth >= 64 && depth <= 65536 ? depth : DEPTH;
}

static enum merak_status fake_open(int device, int queues, int threads,
                                   struct merak_accel **accel_p,
                                   struct merak_error *err)
{
    enum merak_status rc = merak_backend_cpu()->open(threads, err);
    struct fake *f;

    (void)device; /* there is only one */
    if (rc != MERAK_OK)
        return rc;
    f = calloc(1, sizeof(*f));
    if (f == NULL)
        return merak_fail_nomem(err, sizeof(*f));
    f->base.ops = &fake_ops;
    f->base.depth = queue_depth();
    pthread_mutex_init(&f->calls, NULL);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->reached, NULL);
    pthread_mutex_init(&f->kernels, NULL);
    f->queues = queues;
    f->queue = calloc((size_t)queues, sizeof(*f->queue));
    for (int i = 0; f->queue != NULL && i < queues; i++)
        f->queue[i].stream =
            (struct merak_fake_stream){stream_call, stream_bytes};
    rc = f->queue == NULL
             ? merak_fail_nomem(err, (size_t)queues * sizeof(*f->queue))
             : merak_fake_queues_start(f, err);
    if (rc != MERAK_OK) {
        fake_close(&f->base);
        return rc;
    }
    *accel_p = &f->base;
    return MERAK_OK;
}

static const struct merak_accel_ops fake_ops = {
    .open = fake_open,
    .close = fake_close,
    .alloc = merak_fake_alloc,
    .free = merak_fake_free,
    .pin = merak_fake_pin,
    .unpin = merak_fake_unpin,
    .event_create = fake_event_create,
    .event_destroy = fake_event_destroy,
    .launch = fake_launch,
    .write = fake_write,
    .read = fake_read,
    .fill = fake_fill,
    .pack = fake_pack,
    .unpack = fake_unpack,
    .combine = fake_combine,
    .streams = MERAK_STREAMS_FAKE,
    .stream = fake_stream,
    .record = fake_record,
    .wait = fake_wait,
    .query = fake_query,
    .timer_create = fake_event_create,
    .elapsed = merak_fake_elapsed,
    .tune = merak_fake_tune,
    .tuned_for = merak_fake_tuned_for,
    .use_tuned = merak_fake_use_tuned,
    .table_bytes = merak_fake_table_bytes,
    .table_create = merak_fake_table_create,
    .table_destroy = merak_fake_table_destroy,
    .table_launch = merak_fake_table_launch,
    .fusable = merak_fake_fusable,
    .launch_fused = merak_fake_launch_fused,
    .capture_begin = merak_fake_capture_begin,
    .capture_end = merak_fake_capture_end,
    .replay = merak_fake_replay,
    .replay_destroy = merak_fake_replay_destroy,
};

const struct merak_backend merak_backend_fake = {
    .name = "fake",
    .kernels_of = merak_backend_cpu,
    .accel = &fake_ops,
    .use_choices = merak_fake_use_choices,
};
