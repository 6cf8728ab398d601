/* SPDX-License-Identifier: Apache-2.0 */
/* accel_replay.c - stretches of the compute queue that every step repeats
 *
 * Issuing a kernel costs the host some microseconds, and the device one or two
 * between kernels.  A stretch of instructions that are the same in every step
 * is captured once, before the first step, and then replayed by one call (CUDA
 * graphs).  Only the first instruction of a stretch waits for another queue,
 * other queues wait only for the last, and no kernel depends on the step,
 * since a captured launch keeps its arguments.  What is fused (accel_fuse.c)
 * obeys these rules too, so no stretch has a part of it.
 *
 * Off unless MERAK_ACCEL_GRAPHS=1, and when instructions are observed one by
 * one (times, MERAK_ACCEL_SYNC).
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/error.h"

#include <stdlib.h>

#define LEAST 4 /* the fewest instructions that are worth a graph */

static bool is_the_same_each_step(const struct merak_engine *e,
                                  const struct merak_instr *instr)
{
    if (e->accel.batch_of[instr->id] != NULL)
        return false; /* already launched together */
    switch (instr->kind) {
    case MERAK_INSTR_KERNEL:
        return merak_step_is_unread(instr->op->step_use, instr->attrs);
    case MERAK_INSTR_SLICE:
        return true;
    case MERAK_INSTR_LOAD:
        return instr->input == MERAK_NO_INPUT;
    case MERAK_INSTR_COPY: /* it is in another queue */
    case MERAK_INSTR_EXCHANGE:
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
        break;
    }
    return false;
}

/* The end of the stretch that begins at index `from` of the compute queue. */
static int end_of_stretch(const struct merak_engine *e, int from)
{
    const struct engine_queue *q = &e->queue[MERAK_QUEUE_COMPUTE];
    const struct merak_program *p = e->program;
    int at = from;

    while (at < q->n) {
        const struct merak_instr *instr = &p->instr[q->instr[at]];

        if (!is_the_same_each_step(e, instr) ||
            (at > from && merak_accel_waits(p, instr)))
            break;
        at++;
        if (e->accel.event[instr->id] != NULL)
            break;
    }
    return at;
}

static enum merak_status capture(struct merak_engine *e,
                                 struct engine_stretch *s,
                                 struct merak_error *err)
{
    const struct merak_accel_ops *ops = e->opt.accel->ops;
    enum merak_status rc = ops->capture_begin(e->opt.accel, MERAK_QUEUE_COMPUTE,
                                              err),
                      end;

    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < s->n && rc == MERAK_OK; i++)
        rc = merak_engine_issue_work(e, &e->program->instr[s->id[i]], err);
    end = ops->capture_end(e->opt.accel, MERAK_QUEUE_COMPUTE, &s->replay,
                           rc == MERAK_OK ? err : NULL);
    return rc == MERAK_OK ? end : rc;
}

enum merak_status merak_engine_replay_init(struct merak_engine *e,
                                           struct merak_error *err)
{
    const struct engine_queue *q = &e->queue[MERAK_QUEUE_COMPUTE];
    bool on = false;
    enum merak_status rc = merak_engine_switch("MERAK_ACCEL_GRAPHS", &on, err);

    if (rc != MERAK_OK || !on || e->accel.sync || merak_engine_has_times(e) ||
        e->opt.accel->ops->capture_begin == NULL)
        return rc;
    e->accel.stretch = calloc((size_t)q->n + 1, sizeof(*e->accel.stretch));
    if (e->accel.stretch == NULL)
        return merak_fail_nomem(err, (size_t)q->n * sizeof(*e->accel.stretch));
    for (int from = 0, end; from < q->n; from = end) {
        struct engine_stretch *s = &e->accel.stretch[e->accel.n_stretches];

        end = end_of_stretch(e, from);
        if (end - from >= LEAST) {
            *s =
                (struct engine_stretch){.id = q->instr + from, .n = end - from};
            for (int i = from; i < end; i++)
                e->accel.stretch_of[q->instr[i]] = s;
            e->accel.n_stretches++;
        }
        end += end == from;
    }
    return MERAK_OK;
}

enum merak_status merak_engine_capture(struct merak_engine *e,
                                       struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < e->accel.n_stretches && rc == MERAK_OK; i++) {
        if (e->accel.stretch[i].replay == NULL)
            rc = capture(e, &e->accel.stretch[i], err);
    }
    if (rc != MERAK_OK)
        merak_error_wrap(err, "MERAK_ACCEL_GRAPHS=1");
    return rc;
}

void merak_engine_replay_fini(struct merak_engine *e)
{
    for (int i = 0; i < e->accel.n_stretches; i++)
        e->opt.accel->ops->replay_destroy(e->opt.accel,
                                          e->accel.stretch[i].replay);
    free(e->accel.stretch);
}
