/* SPDX-License-Identifier: Apache-2.0 */
/* accel_times.c - when an accelerator ran each instruction
 *
 * The host only sees when work was issued.  If times are asked for, each
 * instruction is followed by a timer event, and preceded by one if it waits
 * for another queue; without such a wait it begins when the one before it in
 * its queue ends.  Device timers measure only differences: a run begins, while
 * all queues are empty, with a timer for which the host's clock is read too.
 *
 * A transfer lasts from when its data was computed until what it received is
 * on the device.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

#include <sched.h>
#include <stdlib.h>

bool merak_engine_has_times(const struct merak_engine *e)
{
    return e->opt.device_times && e->opt.accel->ops->timer_create != NULL;
}

static enum merak_status create_timers(struct merak_engine *e,
                                       struct merak_error *err)
{
    const struct merak_program *p = e->program;
    struct merak_accel *a = e->opt.accel;
    enum merak_status rc = a->ops->timer_create(a, &e->accel.zero, err);
    bool begun[MERAK_QUEUE_COUNT] = {false};

    for (int i = 0; i < p->n_instrs && rc == MERAK_OK; i++) {
        const struct merak_instr *instr = &p->instr[i];

        rc = a->ops->timer_create(a, &e->accel.ended[i], err);
        if (rc == MERAK_OK &&
            (!begun[instr->queue] || merak_instr_moves(instr) ||
             e->accel.batch_of[i] != NULL || merak_accel_waits(p, instr)))
            rc = a->ops->timer_create(a, &e->accel.began[i], err);
        begun[instr->queue] = true;
    }
    return rc;
}

enum merak_status merak_engine_times_init(struct merak_engine *e,
                                          struct merak_error *err)
{
    size_t n = (size_t)e->program->n_instrs + 1;

    if (!merak_engine_has_times(e))
        return MERAK_OK;
    e->accel.began = calloc(n, sizeof(*e->accel.began));
    e->accel.ended = calloc(n, sizeof(*e->accel.ended));
    if (e->accel.began == NULL || e->accel.ended == NULL)
        return merak_fail_nomem(err, n * sizeof(*e->accel.ended));
    return create_timers(e, err);
}

void merak_engine_times_fini(struct merak_engine *e)
{
    struct merak_accel *a = e->opt.accel;

    for (int i = 0; e->accel.ended != NULL && i < e->program->n_instrs; i++) {
        if (e->accel.began[i] != NULL)
            a->ops->event_destroy(a, e->accel.began[i]);
        if (e->accel.ended[i] != NULL)
            a->ops->event_destroy(a, e->accel.ended[i]);
    }
    if (e->accel.zero != NULL)
        a->ops->event_destroy(a, e->accel.zero);
    free(e->accel.began);
    free(e->accel.ended);
}

enum merak_status merak_engine_times_begin(struct merak_engine *e,
                                           struct merak_error *err)
{
    struct merak_accel *a = e->opt.accel;
    enum merak_status rc;
    int64_t before;

    if (e->accel.ended == NULL)
        return MERAK_OK;
    before = merak_clock_ns();
    rc = a->ops->record(a, MERAK_QUEUE_COMPUTE, e->accel.zero, err);
    while (rc == MERAK_OK) {
        rc = a->ops->query(a, e->accel.zero, err);
        if (rc != MERAK_IN_PROGRESS)
            break;
        rc = MERAK_OK;
        if (merak_is_overdue(merak_clock_ns() - before, e->opt.deadline_s))
            return merak_fail(err, MERAK_ERR_TIMEOUT,
                              "the accelerator has not recorded a timer in "
                              "%.3g s",
                              e->opt.deadline_s);
        sched_yield();
    }
    e->accel.zero_ns = before + (merak_clock_ns() - before) / 2;
    return rc;
}

enum merak_status merak_engine_times_mark(struct merak_engine *e,
                                          const struct merak_instr *instr,
                                          bool end, struct merak_error *err)
{
    struct merak_accel *a = e->opt.accel;
    struct merak_event *timer;

    if (e->accel.ended == NULL)
        return MERAK_OK;
    timer = end ? e->accel.ended[instr->id] : e->accel.began[instr->id];
    return timer == NULL
               ? MERAK_OK
               : a->ops->record(a, e->accel.stream[instr->id], timer, err);
}

static enum merak_status time_of(const struct merak_engine *e,
                                 struct merak_event *timer, int64_t *ns_p,
                                 struct merak_error *err)
{
    int64_t since = 0;
    enum merak_status rc = e->opt.accel->ops->elapsed(
        e->opt.accel, e->accel.zero, timer, &since, err);

    *ns_p = e->accel.zero_ns + since - e->opt.epoch_ns;
    return rc;
}

/* Instructions that were launched together: those listed, or, without a list,
 * n from the first on. */
struct launch {
    const int *id;
    int first, n;
};

static int launched(const struct launch *l, int i)
{
    return l->id != NULL ? l->id[i] : l->first + i;
}

/* The time of instructions that were launched together is divided in proportion
 * to what they read and write, or send. */
static void share_out(struct merak_engine *e, const struct launch *l,
                      int64_t start_ns, int64_t end_ns)
{
    double start = (double)start_ns, length = (double)(end_ns - start_ns);
    double sum = 0, done = 0;

    for (int i = 0; i < l->n; i++)
        sum += (double)e->program->instr[launched(l, i)].bytes;
    for (int i = 0; i < l->n; i++) {
        int id = launched(l, i);
        struct merak_trace_record *r = &e->record[id];

        r->start_ns = (int64_t)(start + (sum > 0 ? length * done / sum : 0));
        done += (double)e->program->instr[id].bytes;
        r->end_ns = (int64_t)(start + (sum > 0 ? length * done / sum : length));
    }
}

/* A bundle goes from device to device as one (direct.c), but through host
 * memory one by one. */
static struct launch bundle_of(const struct merak_engine *e, int i)
{
    int first = i;

    if (e->opt.link == NULL)
        return (struct launch){.first = i, .n = 1};
    while (e->program->instr[first].joined)
        first--;
    return (struct launch){.first = first,
                           .n = 1 + merak_instr_joined(e->program, first)};
}

/* What instruction i was launched with. */
static struct launch launch_of(const struct merak_engine *e, int i)
{
    const struct engine_batch *batch = e->accel.batch_of[i];
    const struct engine_fused *fused = e->accel.fused_of[i];

    if (batch != NULL)
        return (struct launch){.id = batch->id, .n = batch->n};
    if (fused != NULL)
        return (struct launch){.id = fused->id, .n = fused->n};
    return bundle_of(e, i);
}

enum merak_status merak_engine_times_end(struct merak_engine *e,
                                         struct merak_error *err)
{
    int64_t over[MERAK_QUEUE_COUNT] = {0};
    enum merak_status rc = MERAK_OK;

    for (int i = 0; e->accel.ended != NULL && i < e->program->n_instrs; i++) {
        enum merak_queue queue = e->program->instr[i].queue;
        int64_t start = over[queue], end = 0;
        struct launch l = launch_of(e, i);
        /* a batch is launched by its last instruction, others by their first */
        int first = e->accel.batch_of[i] != NULL ? i : launched(&l, 0);
        /* a bundle is over with its first: what waits for another of it may
         * begin before the last one's timer */
        int ended = l.id == NULL ? first : i;

        if (i != launched(&l, l.n - 1)) /* only the last one has an end */
            continue;
        if (e->accel.began[first] != NULL)
            rc = time_of(e, e->accel.began[first], &start, err);
        if (rc == MERAK_OK)
            rc = time_of(e, e->accel.ended[ended], &end, err);
        if (rc != MERAK_OK)
            return rc;
        over[queue] = end;
        share_out(e, &l, start, end);
    }
    return rc;
}
