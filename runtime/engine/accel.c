/* SPDX-License-Identifier: Apache-2.0 */
/* accel.c - run a program on a backend that has queues and events
 *
 * The engine's two threads issue what they would have run on a host to the
 * accelerator's queue of the same number as the instruction's.  "Done" then
 * means issued: instructions that wait for it are ordered after its event,
 * unless the same queue orders them anyway.  Threads wait for kernels only at
 * the end of a step and before a transfer.
 *
 * With a device link, transfers are put into queues like kernels (direct.c).
 * Else they go through host memory, `staging`.  An operand has the same offset
 * there as in the arena, so whatever keeps two transfers from using the same
 * bytes of the arena also protects staging, and node peers map staging as they
 * would map an arena.
 *
 *   1. make the queue wait for the instruction's waits, copy what is
 *      sent to staging, unless another transfer does (accel_share.c), record
 *      the instruction's event
 *   2. when that event is complete, start the transport on staging
 *   3. when the transport is done, copy what was received to the device,
 *      record the event again; the instruction is done
 *
 * Step 2 waits even if nothing is sent: the copy to the device of what was
 * last received into the same bytes of staging may still be queued.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "base/wait.h"

#include <stdlib.h>
#include <time.h>

#define SETTLE_NS ((int64_t)2000000000) /* for queues after a failed step */
#define INPUT_ALIGN 64

static const struct merak_accel_ops *ops_of(const struct merak_engine *e)
{
    return e->opt.accel->ops;
}

/* Events of instructions that another queue waits for, and of transfers, which
 * the communication thread tests. */
static enum merak_status create_events(struct merak_engine *e,
                                       struct merak_error *err)
{
    bool *awaited = calloc((size_t)e->program->n_instrs + 1, sizeof(*awaited));
    enum merak_status rc = MERAK_OK;

    if (awaited == NULL)
        return merak_fail_nomem(err, (size_t)e->program->n_instrs);
    merak_accel_awaited(e->program, awaited);
    for (int i = 0; i < e->program->n_instrs && rc == MERAK_OK; i++) {
        if (awaited[i] || merak_instr_moves(&e->program->instr[i]))
            rc = ops_of(e)->event_create(e->opt.accel, &e->accel.event[i], err);
    }
    for (int q = 0; q < e->accel.n_streams && rc == MERAK_OK; q++)
        rc = ops_of(e)->event_create(e->opt.accel, &e->accel.queue_event[q],
                                     err);
    free(awaited);
    return rc;
}

static bool loads_input(const struct merak_instr *instr)
{
    return instr->kind == MERAK_INSTR_LOAD && instr->input != MERAK_NO_INPUT;
}

/* Separate host memory for each LOAD of a step: the copies may run any time
 * before the step ends.  In front of it is room for a number (rows_left.c). */
static enum merak_status allocate_inputs(struct merak_engine *e,
                                         struct merak_error *err)
{
    const struct merak_program *p = e->program;
    size_t bytes = INPUT_ALIGN;

    for (int i = 0; i < p->n_instrs; i++) {
        if (!loads_input(&p->instr[i]))
            continue;
        e->accel.input_at[i] = bytes;
        bytes +=
            merak_size_align(p->slot[p->instr[i].slot[0]].bytes, INPUT_ALIGN);
    }
    e->accel.input = aligned_alloc(INPUT_ALIGN, bytes);
    if (e->accel.input == NULL)
        return merak_fail_nomem(err, bytes);
    e->accel.input_pinned = ops_of(e)->pin != NULL &&
                            ops_of(e)->pin(e->opt.accel, e->accel.input, bytes);
    return MERAK_OK;
}

enum merak_status merak_engine_accel_init(struct merak_engine *e,
                                          struct merak_error *err)
{
    size_t n = (size_t)e->program->n_instrs + 1;
    enum merak_status rc;

    if (e->opt.accel == NULL)
        return MERAK_OK;
    rc = merak_engine_switch("MERAK_ACCEL_SYNC", &e->accel.sync, err);
    if (rc != MERAK_OK)
        return rc;
    e->accel.event = calloc(n, sizeof(*e->accel.event));
    e->accel.input_at = calloc(n, sizeof(*e->accel.input_at));
    e->accel.batch_of = calloc(n, sizeof(*e->accel.batch_of));
    e->accel.fused_of = calloc(n, sizeof(*e->accel.fused_of));
    e->accel.stretch_of = calloc(n, sizeof(*e->accel.stretch_of));
    e->accel.stream = calloc(n, sizeof(*e->accel.stream));
    if (e->accel.event == NULL || e->accel.input_at == NULL ||
        e->accel.batch_of == NULL || e->accel.fused_of == NULL ||
        e->accel.stretch_of == NULL || e->accel.stream == NULL)
        return merak_fail_nomem(err, n * sizeof(*e->accel.event));
    e->accel.n_streams = MERAK_QUEUE_COUNT;
    for (int i = 0; i < e->program->n_instrs; i++)
        e->accel.stream[i] = (int)e->program->instr[i].queue;
    rc = merak_engine_direct_init(e, err);
    if (rc == MERAK_OK)
        rc = merak_engine_share_init(e, err);
    if (rc == MERAK_OK)
        rc = create_events(e, err);
    if (rc == MERAK_OK)
        rc = merak_engine_ahead_init(e, err);
    if (rc == MERAK_OK)
        rc = merak_engine_left_init(e, err);
    if (rc == MERAK_OK)
        rc = allocate_inputs(e, err);
    if (rc == MERAK_OK)
        rc = merak_engine_batches_init(e, err);
    if (rc == MERAK_OK)
        rc = merak_engine_fused_init(e, err);
    if (rc == MERAK_OK)
        rc = merak_engine_times_init(e, err);
    return rc == MERAK_OK ? merak_engine_replay_init(e, err) : rc;
}

/* Wait until the queues of a failed step are empty; false: they are not, since
 * a kernel hangs or waits for a peer that is gone. */
static bool settle(struct merak_engine *e)
{
    int64_t end = merak_clock_ns() + SETTLE_NS;

    for (int q = 0; q < e->accel.n_streams; q++) {
        struct merak_event *event = e->accel.queue_event[q];
        double left = (double)(end - merak_clock_ns()) * 1e-9;

        if (event != NULL &&
            (ops_of(e)->record(e->opt.accel, q, event, NULL) != MERAK_OK ||
             merak_accel_wait(e->opt.accel, event, left, NULL, NULL) !=
                 MERAK_OK))
            return false;
    }
    return true;
}

void merak_engine_accel_fini(struct merak_engine *e)
{
    bool settled;

    if (e->opt.accel == NULL)
        return;
    settled = settle(e);
    for (int i = 0; e->accel.event != NULL && i < e->program->n_instrs; i++) {
        if (e->accel.event[i] != NULL)
            ops_of(e)->event_destroy(e->opt.accel, e->accel.event[i]);
    }
    for (int q = 0; q < MERAK_STREAMS; q++) {
        if (e->accel.queue_event[q] != NULL)
            ops_of(e)->event_destroy(e->opt.accel, e->accel.queue_event[q]);
    }
    merak_engine_ahead_fini(e);
    merak_engine_left_fini(e);
    merak_engine_replay_fini(e);
    merak_engine_times_fini(e);
    merak_engine_fused_fini(e);
    merak_engine_batches_fini(e);
    merak_engine_share_fini(e);
    free(e->accel.stretch_of);
    free(e->accel.fused_of);
    free(e->accel.batch_of);
    free(e->accel.event);
    free(e->accel.stream);
    free(e->accel.comm);
    free(e->accel.call);
    free(e->accel.input_at);
    if (!settled) /* queues may still read it, so it is not freed */
        return;
    if (e->accel.input_pinned)
        ops_of(e)->unpin(e->opt.accel, e->accel.input);
    free(e->accel.input);
}

enum merak_status merak_accel_wait(struct merak_accel *accel,
                                   struct merak_event *event, double deadline_s,
                                   const atomic_int *stop,
                                   struct merak_error *err)
{
    int64_t start = merak_clock_ns();

    for (;;) {
        enum merak_status rc = accel->ops->query(accel, event, err);
        int64_t waited = merak_clock_ns() - start;

        if (rc != MERAK_IN_PROGRESS || (stop != NULL && atomic_load(stop) != 0))
            return rc;
        if (waited < MERAK_SPIN_NS)
            continue;
        if (merak_is_overdue(waited, deadline_s))
            return merak_fail(err, MERAK_ERR_TIMEOUT,
                              "the accelerator has not finished what was "
                              "issued %.3g s ago",
                              deadline_s);
        merak_nap(merak_patient_nap_ns(MERAK_NAP_NS, waited));
    }
}

enum merak_status merak_engine_wait_event(struct merak_engine *e,
                                          struct merak_event *event,
                                          double patience,
                                          struct merak_error *err)
{
    enum merak_status rc =
        merak_accel_wait(e->opt.accel, event, patience * e->opt.deadline_s,
                         &e->failed_ready, err);

    if (rc != MERAK_IN_PROGRESS)
        return rc;
    if (err != NULL)
        *err = e->error;
    return e->error.status;
}

/* What its own queue orders before it needs no event. */
enum merak_status merak_engine_order_behind(struct merak_engine *e,
                                            const struct merak_instr *instr,
                                            struct merak_error *err)
{
    const int *wait = e->program->wait + instr->first_wait;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < instr->n_wait && rc == MERAK_OK; i++) {
        if (e->accel.stream[wait[i]] != e->accel.stream[instr->id])
            rc = ops_of(e)->wait(e->opt.accel, e->accel.stream[instr->id],
                                 e->accel.event[wait[i]], err);
    }
    return rc;
}

enum merak_status merak_engine_mark_issued(struct merak_engine *e,
                                           const struct merak_instr *instr,
                                           struct merak_error *err)
{
    int queue = e->accel.stream[instr->id];
    enum merak_status rc;

    /* what waits for the event begins after this one's end */
    rc = merak_engine_times_mark(e, instr, true, err);
    if (rc == MERAK_OK && e->accel.event[instr->id] != NULL)
        rc = ops_of(e)->record(e->opt.accel, queue, e->accel.event[instr->id],
                               err);
    if (rc != MERAK_OK || !e->accel.sync)
        return rc;
    if (e->opt.link != NULL && merak_instr_moves(instr))
        return rc; /* a peer may wait for what this thread issues next */
    rc = ops_of(e)->record(e->opt.accel, queue, e->accel.queue_event[queue],
                           err);
    return rc == MERAK_OK
               ? merak_engine_wait_event(e, e->accel.queue_event[queue], 1, err)
               : rc;
}

static enum merak_status issue_load(struct merak_engine *e,
                                    const struct merak_instr *instr,
                                    struct merak_error *err)
{
    const struct merak_slot *slot = &e->program->slot[instr->slot[0]];
    void *to = merak_engine_slot(e, instr->slot[0]);
    unsigned char *from = e->accel.input + e->accel.input_at[instr->id];
    enum merak_status rc;

    if (!loads_input(instr))
        return ops_of(e)->fill(e->opt.accel, (int)instr->queue, to, 0,
                               slot->bytes, err);
    rc = merak_engine_load(e, instr, from, err);
    if (rc != MERAK_OK)
        return rc;
    return ops_of(e)->write(e->opt.accel, (int)instr->queue, to, from,
                            slot->bytes, err);
}

static enum merak_status issue_slice(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     struct merak_error *err)
{
    const struct merak_accel_box part = merak_slice_box(instr);
    void *from = merak_engine_slot(e, instr->slot[0]);
    void *to = merak_engine_slot(e, instr->slot[1]);

    if (merak_slice_unpacks(instr))
        return ops_of(e)->unpack(e->opt.accel, (int)instr->queue, to, &part,
                                 from, err);
    return ops_of(e)->pack(e->opt.accel, (int)instr->queue, to, from, &part,
                           err);
}

static enum merak_status issue_copy(struct merak_engine *e,
                                    const struct merak_instr *instr,
                                    struct merak_error *err)
{
    const struct merak_slot *from = &e->program->slot[instr->slot[0]];

    return (from->host ? ops_of(e)->write : ops_of(e)->read)(
        e->opt.accel, (int)instr->queue, merak_engine_slot(e, instr->slot[1]),
        merak_engine_slot(e, instr->slot[0]), from->bytes, err);
}

static enum merak_status issue_kernel(struct merak_engine *e,
                                      const struct merak_instr *instr,
                                      struct merak_error *err)
{
    struct merak_kernel_call call;
    struct merak_step step;

    merak_engine_call(e, instr, &call, &step);
    return ops_of(e)->launch(e->opt.accel, (int)instr->queue,
                             e->kernel[instr->id], &call, err);
}

enum merak_status merak_engine_issue_work(struct merak_engine *e,
                                          const struct merak_instr *instr,
                                          struct merak_error *err)
{
    const struct engine_fused *f = e->accel.fused_of[instr->id];

    if (f != NULL)
        return instr->id == f->id[0] ? merak_engine_issue_fused(e, f, err)
                                     : MERAK_OK;
    switch (instr->kind) {
    case MERAK_INSTR_LOAD:
        return issue_load(e, instr, err);
    case MERAK_INSTR_KERNEL:
        return issue_kernel(e, instr, err);
    case MERAK_INSTR_SLICE:
        return issue_slice(e, instr, err);
    case MERAK_INSTR_COPY:
        return issue_copy(e, instr, err);
    case MERAK_INSTR_EXCHANGE:
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
        break;
    }
    return merak_fail(err, MERAK_ERR_PARAM, "instruction %d (%s) is a transfer",
                      instr->id, instr->name);
}

enum merak_status merak_engine_begin_instr(struct merak_engine *e,
                                           const struct merak_instr *instr,
                                           struct merak_error *err)
{
    enum merak_status rc = merak_engine_ahead(e, instr, err);

    if (rc == MERAK_OK)
        rc = merak_engine_order_behind(e, instr, err);
    return rc == MERAK_OK ? merak_engine_times_mark(e, instr, false, err) : rc;
}

/* A batch is launched by its last instruction. */
static enum merak_status issue_batch(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     struct merak_error *err)
{
    const struct engine_batch *batch = e->accel.batch_of[instr->id];
    enum merak_status rc = MERAK_OK;

    if (instr->id != batch->id[batch->n - 1])
        return MERAK_OK;
    for (int i = 0; i < batch->n - 1 && rc == MERAK_OK; i++)
        rc =
            merak_engine_order_behind(e, &e->program->instr[batch->id[i]], err);
    if (rc == MERAK_OK)
        rc = merak_engine_begin_instr(e, instr, err);
    if (rc == MERAK_OK && !merak_engine_skips(e))
        rc = ops_of(e)->table_launch(e->opt.accel, (int)instr->queue,
                                     batch->table, e->step, err);
    return rc == MERAK_OK ? merak_engine_mark_issued(e, instr, err) : rc;
}

/* What is launched by its first instruction: fused ones, or a stretch. */
static enum merak_status issue_together(struct merak_engine *e,
                                        const struct merak_instr *instr,
                                        struct merak_error *err)
{
    const struct engine_stretch *s = e->accel.stretch_of[instr->id];
    const struct engine_fused *f = e->accel.fused_of[instr->id];
    const int *id = s != NULL ? s->id : f->id;
    int n = s != NULL ? s->n : f->n;
    enum merak_status rc = MERAK_OK;

    if (instr->id == id[0]) {
        rc = merak_engine_begin_instr(e, instr, err);
        if (rc == MERAK_OK && !merak_engine_skips(e))
            rc = s != NULL ? ops_of(e)->replay(e->opt.accel, (int)instr->queue,
                                               s->replay, err)
                           : merak_engine_issue_fused(e, f, err);
    }
    return rc == MERAK_OK && instr->id == id[n - 1]
               ? merak_engine_mark_issued(e, instr, err)
               : rc;
}

enum merak_status merak_engine_issue(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     struct merak_error *err)
{
    enum merak_status rc;

    if (e->accel.batch_of[instr->id] != NULL)
        return issue_batch(e, instr, err);
    if (e->accel.stretch_of[instr->id] != NULL ||
        e->accel.fused_of[instr->id] != NULL)
        return issue_together(e, instr, err);
    rc = merak_engine_begin_instr(e, instr, err);
    if (rc == MERAK_OK &&
        (instr->kind != MERAK_INSTR_KERNEL || !merak_engine_skips(e)))
        rc = merak_engine_issue_work(e, instr, err);
    return rc == MERAK_OK ? merak_engine_mark_issued(e, instr, err) : rc;
}

void *merak_engine_staged_slot(const struct merak_engine *e, int slot)
{
    if (e->opt.accel == NULL)
        return merak_engine_slot(e, slot);
    return e->opt.staging + e->program->slot[slot].offset;
}

static enum merak_status read_sent(struct merak_engine *e,
                                   const struct merak_instr *instr,
                                   struct merak_error *err)
{
    int slot = instr->slot[0], stager = merak_engine_stager(e, instr);

    if (stager != instr->id)
        return ops_of(e)->wait(e->opt.accel, (int)instr->queue,
                               e->accel.event[stager], err);
    return ops_of(e)->read(
        e->opt.accel, (int)instr->queue, merak_engine_staged_slot(e, slot),
        merak_engine_slot(e, slot), e->program->slot[slot].bytes, err);
}

enum merak_status merak_engine_stage_out(struct merak_engine *e,
                                         const struct merak_instr *instr,
                                         struct merak_error *err)
{
    enum merak_status rc = merak_engine_begin_instr(e, instr, err);

    if (rc == MERAK_OK && instr->kind != MERAK_INSTR_RECV)
        rc = read_sent(e, instr, err);
    return rc == MERAK_OK ? merak_engine_mark_issued(e, instr, err) : rc;
}

enum merak_status merak_engine_stage_test(struct merak_engine *e,
                                          const struct merak_instr *instr,
                                          struct merak_error *err)
{
    return ops_of(e)->query(e->opt.accel, e->accel.event[instr->id], err);
}

enum merak_status merak_engine_stage_in(struct merak_engine *e,
                                        const struct merak_instr *instr,
                                        struct merak_error *err)
{
    int slot =
        instr->slot[instr->kind == MERAK_INSTR_EXCHANGE ? instr->n_in : 0];
    enum merak_status rc = MERAK_OK;

    if (instr->kind != MERAK_INSTR_SEND)
        rc = ops_of(e)->write(e->opt.accel, (int)instr->queue,
                              merak_engine_slot(e, slot),
                              merak_engine_staged_slot(e, slot),
                              e->program->slot[slot].bytes, err);
    return rc == MERAK_OK ? merak_engine_mark_issued(e, instr, err) : rc;
}

enum merak_status merak_engine_accel_begin(struct merak_engine *e,
                                           struct merak_error *err)
{
    enum merak_status rc;

    if (e->opt.accel == NULL)
        return MERAK_OK;
    rc = merak_engine_capture(e, err);
    return rc == MERAK_OK ? merak_engine_times_begin(e, err) : rc;
}

enum merak_status merak_engine_accel_finish(struct merak_engine *e,
                                            struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (e->opt.accel == NULL)
        return MERAK_OK;
    for (int q = 0; q < e->accel.n_streams && rc == MERAK_OK; q++)
        rc = ops_of(e)->record(e->opt.accel, q, e->accel.queue_event[q], err);
    for (int q = 0; q < e->accel.n_streams && rc == MERAK_OK; q++)
        rc = merak_engine_wait_event(e, e->accel.queue_event[q], 1, err);
    return rc;
}

/* Zero is a valid id in every table. */
static enum merak_status clear_operands(struct merak_engine *e,
                                        const struct merak_instr *instr,
                                        struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < instr->n_in + instr->n_out && rc == MERAK_OK; i++)
        rc = ops_of(e)->fill(e->opt.accel, (int)instr->queue,
                             merak_engine_slot(e, instr->slot[i]), 0,
                             e->program->slot[instr->slot[i]].bytes, err);
    return rc;
}

enum merak_status merak_engine_accel_warm(struct merak_engine *e,
                                          const struct merak_instr *instr,
                                          struct merak_error *err)
{
    const struct engine_fused *f = e->accel.fused_of[instr->id];
    enum merak_status rc = clear_operands(e, instr, err);

    if (rc == MERAK_OK)
        rc = issue_kernel(e, instr, err);
    if (f == NULL || instr->id != f->id[0])
        return rc;
    for (int i = 0; i < f->n && rc == MERAK_OK; i++)
        rc = clear_operands(e, &e->program->instr[f->id[i]], err);
    return rc == MERAK_OK ? merak_engine_issue_fused(e, f, err) : rc;
}
