/* SPDX-License-Identifier: Apache-2.0 */
/* fake_repeat.c - what the fake device prepares once for many steps: tables of
 * calls, captured operations, timers; and calls that are run as one
 *
 * Those are run one by one, without a delay in between.
 *
 * A table is in device memory, and its calls are run in a different order each
 * time.  Captured operations keep their arguments, including the step: a kernel
 * that reads it sees an old one, as in a CUDA graph.
 */
#include "config.h"

#include "kernels/fake/fake_device.h"

#include "base/error.h"
#include "kernels/geometry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- times -----------------------------------------------------------------
 */

enum merak_status merak_fake_elapsed(struct merak_accel *accel,
                                     struct merak_event *from,
                                     struct merak_event *to, int64_t *ns_p,
                                     struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    bool over;

    pthread_mutex_lock(&f->lock);
    over = from->recorded > 0 && from->reached == from->recorded &&
           to->recorded > 0 && to->reached == to->recorded;
    *ns_p = to->reached_ns - from->reached_ns;
    pthread_mutex_unlock(&f->lock);
    if (over)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "a timer is read that is not over, or never recorded");
}

/* --- choices -----------------------------------------------------------------
 */

/* There is nothing to choose: lines only have the right form. */
enum merak_status merak_fake_tune(struct merak_accel *accel, int queue,
                                  const struct merak_kernel *kernel,
                                  const struct merak_kernel_call *call,
                                  void (*tell)(void *arg, const char *line),
                                  void *arg, struct merak_error *err)
{
    char line[64];

    snprintf(line, sizeof(line), "%s %zu", kernel->name,
             merak_shape_count(&call->operand[0].local));
    tell(arg, line);
    return accel->ops->launch(accel, queue, kernel, call, err);
}

void merak_fake_tuned_for(struct merak_accel *accel, char *text, size_t bytes)
{
    (void)accel;
    snprintf(text, bytes, "threads");
}

enum merak_status merak_fake_use_tuned(struct merak_accel *accel,
                                       const char *line,
                                       struct merak_error *err)
{
    char op[32];
    size_t n;

    (void)accel;
    if (sscanf(line, "%31s %zu", op, &n) == 2)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_FORMAT,
                      "\"%.60s\" is not a choice of the fake device", line);
}

enum merak_status merak_fake_use_choices(const char *const *line, int n,
                                         struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < n && rc == MERAK_OK; i++)
        rc = merak_fake_use_tuned(NULL, line[i], err);
    return rc;
}

/* --- tables of calls --------------------------------------------------------
 */

struct merak_table {
    const struct merak_kernel *kernel;
    int n;
    const struct merak_kernel_call *call; /* [n], a device address */
};

size_t merak_fake_table_bytes(const struct merak_kernel *kernel,
                              const struct merak_kernel_call *const *call,
                              int n)
{
    (void)kernel;
    (void)call;
    return (size_t)n * sizeof(struct merak_kernel_call);
}

enum merak_status merak_fake_table_create(
    struct merak_accel *accel, const struct merak_kernel *kernel,
    const struct merak_kernel_call *const *call, int n, void *memory,
    struct merak_table **table_p, struct merak_error *err)
{
    struct merak_kernel_call *to = merak_fake_bytes(fake_of(accel), memory);
    struct merak_table *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return merak_fail_nomem(err, sizeof(*t));
    for (int i = 0; i < n; i++)
        to[i] = *call[i];
    t->kernel = kernel;
    t->n = n;
    t->call = memory;
    *table_p = t;
    return MERAK_OK;
}

void merak_fake_table_destroy(struct merak_accel *accel,
                              struct merak_table *table)
{
    (void)accel;
    free(table);
}

enum merak_status merak_fake_table_launch(struct merak_accel *accel, int queue,
                                          struct merak_table *table,
                                          const struct merak_step *step,
                                          struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct op *op = merak_fake_put_begin(f, queue, TABLE, err);

    if (op == NULL)
        return f->failure.status;
    op->table = table;
    op->step = *step;
    return merak_fake_put_end(f, queue);
}

enum merak_status merak_fake_run_table(struct queue *q, const struct op *op,
                                       struct merak_error *err)
{
    const struct merak_table *t = op->table;
    const struct merak_kernel_call *calls = merak_fake_bytes(q->owner, t->call);
    enum merak_status rc = MERAK_OK;
    int first = (int)((q->random >> 33) % (uint64_t)t->n);

    for (int i = 0; i < t->n && rc == MERAK_OK; i++) {
        struct merak_kernel_call call = calls[(first + i) % t->n];

        rc = merak_fake_kernel(q->owner, t->kernel, &call, &op->step, err);
    }
    return rc;
}

/* --- calls that are run as one ----------------------------------------------
 */

#define MOST 3

int merak_fake_fusable(const struct merak_kernel *const *kernel,
                       const struct merak_kernel_call *const *call, int n)
{
    (void)kernel;
    (void)call;
    return n < MOST ? n : MOST;
}

static bool meet(const struct merak_operand *a, const struct merak_operand *b)
{
    const char *x = a->data, *y = b->data;

    return x < y + merak_local_bytes(b) && y < x + merak_local_bytes(a);
}

/* Is output o of call i where another call has an output? */
static bool is_overwritten(const struct merak_kernel_call *const *call, int n,
                           int i, int o)
{
    for (int k = 0; k < n; k++) {
        for (int p = 0; k != i && p < call[k]->n_out; p++) {
            if (meet(merak_call_out(call[i], o), merak_call_out(call[k], p)))
                return true;
        }
    }
    return false;
}

/* List what need not be stored; it is overwritten with NaNs. */
static int list_undefined(const struct merak_kernel_call *const *call,
                          const unsigned *unread, int n,
                          struct undefined list[MERAK_FUSED_MAX])
{
    int count = 0;

    for (int i = 0; i < n; i++) {
        for (int o = 0; o < call[i]->n_out && count < MERAK_FUSED_MAX; o++) {
            const struct merak_operand *x = merak_call_out(call[i], o);

            if ((unread[i] & 1u << o) && !is_overwritten(call, n, i, o))
                list[count++] =
                    (struct undefined){x->data, merak_local_bytes(x)};
        }
    }
    return count;
}

enum merak_status
merak_fake_launch_fused(struct merak_accel *accel, int queue,
                        const struct merak_kernel *const *kernel,
                        const struct merak_kernel_call *const *call,
                        const unsigned *unread, int n, struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        struct op *op = merak_fake_put_begin(f, queue, LAUNCH, err);

        if (op == NULL)
            return f->failure.status;
        op->kernel = kernel[i];
        op->call = *call[i];
        op->step = *call[i]->step;
        op->joined = i < n - 1;
        if (i == n - 1)
            op->n_undefined = list_undefined(call, unread, n, op->undefined);
        rc = merak_fake_put_end(f, queue);
    }
    return rc;
}

/* --- captured operations ----------------------------------------------------
 */

struct merak_replay {
    struct op *op;
    size_t n, room;
};

struct op *merak_fake_capture(struct merak_replay *r)
{
    if (r->n == r->room) {
        size_t room = r->room == 0 ? 64 : 2 * r->room;
        struct op *more = realloc(r->op, room * sizeof(*more));

        if (more == NULL)
            return NULL;
        r->op = more;
        r->room = room;
    }
    memset(&r->op[r->n], 0, sizeof(r->op[r->n]));
    return &r->op[r->n++];
}

enum merak_status merak_fake_capture_begin(struct merak_accel *accel, int queue,
                                           struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct merak_replay *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return merak_fail_nomem(err, sizeof(*r));
    pthread_mutex_lock(&f->lock);
    f->queue[queue].capture = r;
    pthread_mutex_unlock(&f->lock);
    return MERAK_OK;
}

enum merak_status merak_fake_capture_end(struct merak_accel *accel, int queue,
                                         struct merak_replay **replay_p,
                                         struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    struct merak_replay *r;
    enum merak_status rc;

    pthread_mutex_lock(&f->lock);
    r = f->queue[queue].capture;
    f->queue[queue].capture = NULL;
    rc = f->failure.status;
    if (rc != MERAK_OK && err != NULL)
        *err = f->failure;
    pthread_mutex_unlock(&f->lock);
    if (rc == MERAK_OK)
        *replay_p = r;
    else
        merak_fake_replay_destroy(accel, r);
    return rc;
}

enum merak_status merak_fake_replay(struct merak_accel *accel, int queue,
                                    struct merak_replay *replay,
                                    struct merak_error *err)
{
    struct fake *f = fake_of(accel);
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < replay->n && rc == MERAK_OK; i++) {
        struct op *op = merak_fake_put_begin(f, queue, replay->op[i].kind, err);

        if (op == NULL)
            return f->failure.status;
        *op = replay->op[i];
        if (op->kind == PACK || op->kind == UNPACK) { /* the copy has its own */
            op->box.full = op->dims[0];
            op->box.lo = op->dims[1];
            op->box.len = op->dims[2];
        }
        rc = merak_fake_put_end(f, queue);
    }
    return rc;
}

void merak_fake_replay_destroy(struct merak_accel *accel,
                               struct merak_replay *replay)
{
    (void)accel;
    if (replay == NULL)
        return;
    free(replay->op);
    free(replay);
}
