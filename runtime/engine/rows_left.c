/* SPDX-License-Identifier: Apache-2.0 */
/* rows_left.c - does an exchange take place that only rows without a place at
 * their expert need?
 *
 * How many these are all members of the exchange have counted alike.  In the
 * host's memory the number is there once what the exchange waits for is
 * complete.  An accelerator's kernel makes it while the host is ahead: the
 * exchange's queue copies it to pinned memory, and until the copy is done the
 * communication thread starts nothing that comes later in program order.  So
 * all ranks decide between the same transfers, and what is decided by waits
 * only for what is ahead, which has been proved to complete without what comes
 * later (direct.c).  Several exchanges of a layer depend on one number: the
 * first asks for it.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Where the number is copied to: before the first input (accel.c). */
static double *landing_of(const struct merak_engine *e)
{
    return (double *)(void *)e->accel.input;
}

/* By exchange, the first that depends on what its second input has then. */
static void find_first(struct merak_engine *e, int *writer, int *asked)
{
    const struct merak_program *p = e->program;

    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *instr = &p->instr[i];
        unsigned reads, writes;
        int slot;

        merak_instr_access(instr, &reads, &writes);
        for (int o = 0; o < instr->n_in + instr->n_out; o++) {
            if ((writes >> o & 1) != 0)
                writer[instr->slot[o]] = i + 1;
        }
        if (!merak_instr_needs_rows(instr))
            continue;
        slot = instr->slot[1];
        if (asked[slot] == 0 || asked[slot] <= writer[slot])
            asked[slot] = i + 1;
        e->accel.left.first[i] = asked[slot] - 1;
    }
}

enum merak_status merak_engine_left_init(struct merak_engine *e,
                                         struct merak_error *err)
{
    size_t n = (size_t)e->program->n_instrs + 1;
    size_t slots = (size_t)e->program->n_slots + 1;
    int *writer = calloc(slots, sizeof(*writer));
    int *asked = calloc(slots, sizeof(*asked));
    struct engine_left *left = &e->accel.left;
    enum merak_status rc = MERAK_OK;

    left->first = calloc(n, sizeof(*left->first));
    left->number = calloc(n, sizeof(*left->number));
    left->asks = -1;
    if (writer == NULL || asked == NULL || left->first == NULL ||
        left->number == NULL)
        rc = merak_fail_nomem(err, n * sizeof(*left->number));
    if (rc == MERAK_OK)
        rc = e->opt.accel->ops->event_create(e->opt.accel, &left->event, err);
    if (rc == MERAK_OK)
        find_first(e, writer, asked);
    free(writer);
    free(asked);
    return rc;
}

void merak_engine_left_fini(struct merak_engine *e)
{
    if (e->accel.left.event != NULL)
        e->opt.accel->ops->event_destroy(e->opt.accel, e->accel.left.event);
    free(e->accel.left.first);
    free(e->accel.left.number);
}

/* Queue the copy of what an accelerator counts. */
static enum merak_status ask(struct merak_engine *e,
                             const struct merak_instr *instr,
                             struct merak_error *err)
{
    const struct merak_accel_ops *ops = e->opt.accel->ops;
    int queue = e->accel.stream[instr->id];
    enum merak_status rc = merak_engine_order_behind(e, instr, err);

    if (rc == MERAK_OK)
        rc = ops->read(e->opt.accel, queue, landing_of(e),
                       merak_engine_slot(e, instr->slot[1]), sizeof(double),
                       err);
    if (rc == MERAK_OK)
        rc = ops->record(e->opt.accel, queue, e->accel.left.event, err);
    e->accel.left.asks = rc == MERAK_OK ? instr->id : -1;
    return rc;
}

/* Is something that is not over ahead of a copy in its queue?  Then the copy is
 * not over, and is not asked for (test_started() in comm.c). */
static bool is_behind(const struct merak_engine *e, int queue)
{
    for (int i = 0; i < e->comm.n_started; i++) {
        const struct started *s = &e->comm.started[i];

        if ((s->direct || s->staged) && e->accel.stream[s->instr] == queue)
            return true;
    }
    return false;
}

/* MERAK_IN_PROGRESS: the host does not have it yet. */
static enum merak_status find_number(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     double *number_p, struct merak_error *err)
{
    struct engine_left *left = &e->accel.left;
    enum merak_status rc = MERAK_OK;

    if (e->opt.accel == NULL) {
        memcpy(number_p, merak_engine_slot(e, instr->slot[1]),
               sizeof(*number_p));
        return MERAK_OK;
    }
    if (left->first[instr->id] == instr->id) {
        if (left->asks != instr->id)
            rc = ask(e, instr, err);
        if (rc == MERAK_OK && is_behind(e, e->accel.stream[instr->id]))
            rc = MERAK_IN_PROGRESS;
        if (rc == MERAK_OK)
            rc = e->opt.accel->ops->query(e->opt.accel, left->event, err);
        if (rc != MERAK_OK)
            return rc;
        left->asks = -1;
        left->number[instr->id] = *landing_of(e);
    }
    *number_p = left->number[left->first[instr->id]];
    return MERAK_OK;
}

static enum merak_status fill_zeros(struct merak_engine *e,
                                    const struct merak_instr *instr,
                                    struct merak_error *err)
{
    void *to = merak_engine_slot(e, instr->slot[instr->n_in]);
    size_t bytes = e->program->slot[instr->slot[instr->n_in]].bytes;
    enum merak_status rc;

    if (e->opt.accel == NULL) {
        memset(to, 0, bytes);
        return MERAK_OK;
    }
    rc = merak_engine_begin_instr(e, instr, err);
    if (rc == MERAK_OK)
        rc = e->opt.accel->ops->fill(e->opt.accel, e->accel.stream[instr->id],
                                     to, 0, bytes, err);
    return rc == MERAK_OK ? merak_engine_mark_issued(e, instr, err) : rc;
}

enum merak_status merak_engine_leave_out(struct merak_engine *e,
                                         const struct merak_instr *instr,
                                         bool *left_out_p,
                                         struct merak_error *err)
{
    double number = 0;
    enum merak_status rc;

    *left_out_p = false;
    if (!merak_instr_needs_rows(instr))
        return MERAK_OK;
    if (e->opt.backend->emulated) { /* experts are evenly loaded */
        *left_out_p = true;
        return MERAK_OK;
    }
    rc = find_number(e, instr, &number, err);
    if (rc != MERAK_OK || number != 0)
        return rc;
    *left_out_p = true;
    return fill_zeros(e, instr, err);
}
