/* SPDX-License-Identifier: Apache-2.0 */
/* accel_ahead.c - how far the compute thread issues ahead of an accelerator
 *
 * A device's queue holds a limited number of operations.  A call that finds it
 * full blocks in the driver, where it notices neither a deadline nor a lost
 * peer, and it may block calls of the communication thread, which then cannot
 * abort the transfer that the queue waits for.  So the thread waits here
 * instead: a mark is recorded after each quarter of what the queue holds, and
 * at most two quarters are issued after a mark that is not over.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#define LEAST 16 /* operations of a quarter */

enum merak_status merak_engine_ahead_init(struct merak_engine *e,
                                          struct merak_error *err)
{
    struct merak_accel *a = e->opt.accel;
    struct engine_ahead *ahead = &e->accel.ahead;
    enum merak_status rc = MERAK_OK;

    if (a->depth == 0)
        return MERAK_OK;
    ahead->quarter = a->depth / 4 > LEAST ? a->depth / 4 : LEAST;
    for (int i = 0; i < 2 && rc == MERAK_OK; i++)
        rc = a->ops->event_create(a, &ahead->mark[i], err);
    return rc;
}

void merak_engine_ahead_fini(struct merak_engine *e)
{
    for (int i = 0; i < 2; i++) {
        if (e->accel.ahead.mark[i] != NULL)
            e->opt.accel->ops->event_destroy(e->opt.accel,
                                             e->accel.ahead.mark[i]);
    }
}

/* What is put into the queue for an instruction, at most; of a kernel two
 * launches on average. */
static int operations(const struct merak_engine *e,
                      const struct merak_instr *instr)
{
    return 2 + instr->n_wait + (e->accel.event[instr->id] != NULL) +
           (e->accel.ended != NULL ? 2 : 0);
}

/* Record the mark of a quarter, once its last record is over. */
static enum merak_status mark(struct merak_engine *e, struct merak_error *err)
{
    struct merak_accel *a = e->opt.accel;
    struct engine_ahead *ahead = &e->accel.ahead;
    struct merak_event *event = ahead->mark[ahead->next];
    enum merak_status rc = MERAK_OK;

    if (ahead->recorded[ahead->next])
        rc = merak_engine_wait_event(e, event, MERAK_PATIENCE, err);
    if (rc == MERAK_OK)
        rc = a->ops->record(a, MERAK_QUEUE_COMPUTE, event, err);
    ahead->recorded[ahead->next] = true;
    ahead->next = !ahead->next;
    ahead->n = 0;
    return rc;
}

enum merak_status merak_engine_ahead(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     struct merak_error *err)
{
    struct engine_ahead *ahead = &e->accel.ahead;

    if (instr->queue != MERAK_QUEUE_COMPUTE || ahead->quarter == 0)
        return MERAK_OK;
    ahead->n += operations(e, instr);
    return ahead->n >= ahead->quarter ? mark(e, err) : MERAK_OK;
}
