/* SPDX-License-Identifier: Apache-2.0 */
/* fake_queue.c - the threads that run what is queued on the fake device
 *
 * Each is woken for what concerns it alone: something in its queue, or an event
 * that one of them reached.
 */
#include "config.h"

#include "kernels/backends.h"
#include "kernels/fake/fake_device.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum merak_status merak_fake_kernel(struct fake *f,
                                    const struct merak_kernel *kernel,
                                    struct merak_kernel_call *call,
                                    const struct merak_step *step,
                                    struct merak_error *err)
{
    enum merak_status rc;

    for (int i = 0; i < call->n_in + call->n_out; i++)
        call->operand[i].data = merak_fake_bytes(f, call->operand[i].data);
    call->scratch = merak_fake_bytes(f, call->scratch);
    call->step = step;
    pthread_mutex_lock(&f->kernels);
    rc = merak_kernel_run(merak_backend_cpu(), kernel, call, err);
    pthread_mutex_unlock(&f->kernels);
    return rc;
}

static enum merak_status run_launch(struct fake *f, struct op *op,
                                    struct merak_error *err)
{
    enum merak_status rc =
        merak_fake_kernel(f, op->kernel, &op->call, &op->step, err);

    for (int i = 0; i < op->n_undefined; i++) /* NaNs */
        memset(merak_fake_bytes(f, op->undefined[i].at), 0xff,
               op->undefined[i].bytes);
    return rc;
}

static enum merak_status run_op(struct queue *q, struct op *op,
                                struct merak_error *err)
{
    struct fake *f = q->owner;

    switch (op->kind) {
    case LAUNCH:
        return run_launch(f, op, err);
    case TABLE:
        return merak_fake_run_table(q, op, err);
    case WRITE:
        memcpy(merak_fake_bytes(f, op->to), op->from, op->bytes);
        break;
    case READ:
        memcpy(op->to, merak_fake_bytes(f, op->from), op->bytes);
        break;
    case FILL:
        memset(merak_fake_bytes(f, op->to), op->byte, op->bytes);
        break;
    case PACK:
        merak_pack_box(merak_fake_bytes(f, op->to),
                       merak_fake_bytes(f, op->from), &op->box);
        break;
    case UNPACK:
        merak_unpack_box(merak_fake_bytes(f, op->to), &op->box,
                         merak_fake_bytes(f, op->from));
        break;
    case COMBINE:
        op->terms.mine = merak_fake_bytes(f, op->terms.mine);
        op->terms.staged = merak_fake_bytes(f, op->terms.staged);
        merak_combine_terms(merak_fake_bytes(f, op->to), &op->terms);
        break;
    case CALL:
        op->fn(op->arg);
        break;
    case RECORD:
    case WAIT:
        break; /* done in take_one() */
    }
    return MERAK_OK;
}

static void hold_up(struct queue *q)
{
    struct timespec ts = {0, 0};

    q->random = q->random * 6364136223846793005u + 1442695040888963407u;
    if ((q->random >> 33) % DELAY_ONE_IN != 0)
        return;
    ts.tv_nsec = (long)((q->random >> 40) % DELAY_MAX_US) * 1000;
    nanosleep(&ts, NULL);
}

void merak_fake_leave_event(struct merak_event *event)
{
    if (--event->users == 0)
        free(event);
}

/* Run one operation; called and returns with the lock held. */
static void take_one(struct queue *q)
{
    struct fake *f = q->owner;
    struct op *op = &q->ring[q->taken % (uint64_t)f->base.depth];
    struct merak_error err = {.status = MERAK_OK};
    bool failed = f->failure.status != MERAK_OK;

    if (op->kind == WAIT) {
        while (op->event->reached < op->record)
            pthread_cond_wait(&f->reached, &f->lock);
    } else if (op->kind == CALL || (op->kind != RECORD && !failed)) {
        pthread_mutex_unlock(&f->lock);
        if (!q->joined)
            hold_up(q);
        if (run_op(q, op, &err) != MERAK_OK && err.status == MERAK_OK)
            err.status = MERAK_ERR_PARAM;
        pthread_mutex_lock(&f->lock);
        if (err.status != MERAK_OK && f->failure.status == MERAK_OK)
            f->failure = err;
    }
    if (op->kind == RECORD) {
        op->event->reached = op->record;
        op->event->reached_ns = merak_clock_ns();
        pthread_cond_broadcast(&f->reached);
    }
    if (op->kind == RECORD || op->kind == WAIT)
        merak_fake_leave_event(op->event);
    q->joined = op->joined;
    q->taken++;
    pthread_cond_signal(&q->taken_one);
}

static void *run_queue(void *arg)
{
    struct queue *q = arg;
    struct fake *f = q->owner;

    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (q->taken == q->put && !f->closing)
            pthread_cond_wait(&q->given, &f->lock);
        if (q->taken == q->put)
            break;
        take_one(q);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

enum merak_status merak_fake_queues_start(struct fake *f,
                                          struct merak_error *err)
{
    const char *seed = getenv("MERAK_FAKE_SEED");
    uint64_t random = seed != NULL ? strtoull(seed, NULL, 10) : 0;

    for (int i = 0; i < f->queues; i++) {
        struct queue *q = &f->queue[i];
        int rc;

        q->owner = f;
        pthread_cond_init(&q->given, NULL);
        pthread_cond_init(&q->taken_one, NULL);
        q->random = random * 8 + (uint64_t)i;
        q->ring = calloc((size_t)f->base.depth, sizeof(*q->ring));
        if (q->ring == NULL)
            return merak_fail_nomem(err,
                                    (size_t)f->base.depth * sizeof(*q->ring));
        rc = merak_thread_create(&q->thread, NULL, run_queue, q);
        q->started = rc == 0;
        if (rc != 0)
            return merak_fail(err, MERAK_ERR_SYSTEM,
                              "cannot start a thread: %s", strerror(rc));
    }
    return MERAK_OK;
}

/* The device is closing: its thread ends once the queue is empty. */
static void close_queue(struct queue *q)
{
    if (q->owner == NULL) /* it was not begun */
        return;
    pthread_cond_signal(&q->given);
    if (q->started)
        pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->given);
    pthread_cond_destroy(&q->taken_one);
    free(q->ring);
}

void merak_fake_queues_close(struct fake *f)
{
    for (int i = 0; f->queue != NULL && i < f->queues; i++)
        close_queue(&f->queue[i]);
}
