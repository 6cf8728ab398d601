/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - run one rank's program: the compute queue */
#include "config.h"

#include "runtime/engine/engine_impl.h"
#include "runtime/engine/noalloc.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleep while *word == seen, at most ns; spurious returns are fine. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ns)
{
    struct timespec ts = {ns / 1000000000, ns % 1000000000};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &ts, NULL, 0);
}

void merak_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void *merak_engine_slot(const struct merak_engine *e, int slot)
{
    const struct merak_slot *s = &e->program->slot[slot];

    return (s->host ? e->opt.host : e->opt.arena) + s->offset;
}

int merak_engine_pending(const struct merak_engine *e,
                         const struct merak_instr *instr)
{
    const int *wait = e->program->wait + instr->first_wait;

    for (int i = 0; i < instr->n_wait; i++) {
        if (!instr_done(e, wait[i]))
            return wait[i];
    }
    return -1;
}

void merak_engine_describe(const struct merak_engine *e,
                           const struct merak_instr *instr, char *buf,
                           size_t size)
{
    char mb[32] = "";

    if (instr->microbatch >= 0)
        snprintf(mb, sizeof(mb), ", micro-batch %d", instr->microbatch);
    if (instr->kind == MERAK_INSTR_SEND || instr->kind == MERAK_INSTR_RECV)
        snprintf(buf, size, "instruction %d (%s%s, peer rank %d)", instr->id,
                 instr->name, mb, instr->peer);
    else if (instr->kind == MERAK_INSTR_EXCHANGE)
        snprintf(buf, size, "instruction %d (%s%s, group %s of %d ranks)",
                 instr->id, instr->name, mb,
                 e->program->group[instr->group].name,
                 e->program->group[instr->group].n);
    else
        snprintf(buf, size, "instruction %d (%s%s)", instr->id, instr->name,
                 mb);
}

void merak_engine_fail(struct merak_engine *e, const struct merak_error *err)
{
    int expected = 0;
    uint64_t one = 1;

    if (atomic_compare_exchange_strong(&e->failed, &expected, 1)) {
        e->error = *err;
        atomic_store(&e->failed_ready, 1);
    }
    atomic_fetch_add(&e->progress_count, 1);
    merak_futex_wake(&e->progress_count);
    if (e->comm.wake_fd >= 0 && write(e->comm.wake_fd, &one, sizeof(one)) < 0) {
        /* The counter is full: the thread is awake already. */
    }
}

#ifdef MERAK_DEBUG
/* Fill slots with NaNs after their last use, to expose later reads. */
static void poison_dead_slots(struct merak_engine *e,
                              const struct merak_instr *instr)
{
    for (int i = 0; i < instr->n_in + instr->n_out; i++) {
        int whole = e->program->slot[instr->slot[i]].whole;
        const struct merak_slot *s = &e->program->slot[whole];

        if (s->category != MERAK_CAT_ACTIVATION &&
            s->category != MERAK_CAT_TRANSIENT)
            continue;
        if (whole == e->program->norm || s->dtype == MERAK_F64)
            continue; /* read by the caller after the step */
        if (e->opt.accel != NULL)
            continue; /* complete only means issued: other queues may still
                       * read */
        if (atomic_fetch_sub(&e->users_left[whole], 1) == 1)
            memset(e->opt.arena + s->offset, 0xff, s->bytes);
    }
}
#endif

void merak_engine_complete(struct merak_engine *e,
                           const struct merak_instr *instr)
{
    uint64_t one = 1;

#ifdef MERAK_DEBUG
    poison_dead_slots(e, instr);
#endif
    if (instr->queue == MERAK_QUEUE_COMPUTE) {
        if (!e->wakes_comm[instr->id]) {
            atomic_store_explicit(&e->done[instr->id], e->run,
                                  memory_order_release);
            return;
        }
        /* Sequentially consistent with the other thread's "set comm_sleeps,
         * then check again": one of the two sees the other's store. */
        atomic_store(&e->done[instr->id], e->run);
        if (atomic_load(&e->comm.sleeps) &&
            write(e->comm.wake_fd, &one, sizeof(one)) < 0)
            return; /* the counter is full: it is being woken already */
        return;
    }
    atomic_store_explicit(&e->done[instr->id], e->run, memory_order_release);
    atomic_fetch_add(&e->progress_count, 1);
    if (atomic_load(&e->compute_sleeps))
        merak_futex_wake(&e->progress_count);
}

static void copy_slice(const struct merak_engine *e,
                       const struct merak_instr *instr)
{
    const struct merak_accel_box part = merak_slice_box(instr);
    void *from = merak_engine_slot(e, instr->slot[0]);
    void *to = merak_engine_slot(e, instr->slot[1]);

    if (merak_slice_unpacks(instr))
        merak_unpack_box(to, &part, from);
    else
        merak_pack_box(to, from, &part);
}

/* What an emulating backend would have is not there to be copied. */
static void copy_slot(const struct merak_engine *e,
                      const struct merak_instr *instr)
{
    if (e->opt.backend->emulated)
        merak_nap((int64_t)(instr->cost_s * 1e9));
    else
        memcpy(merak_engine_slot(e, instr->slot[1]),
               merak_engine_slot(e, instr->slot[0]),
               e->program->slot[instr->slot[0]].bytes);
}

int64_t merak_engine_due_ns(const struct merak_engine *e,
                            const struct merak_instr *instr)
{
    const int *wait = e->program->wait + instr->first_wait;
    int64_t due = 0;

    for (int i = 0; e->opt.backend->emulated && i < instr->n_wait; i++) {
        int64_t end = e->record[wait[i]].end_ns + e->opt.epoch_ns;

        if (end > due)
            due = end;
    }
    return due;
}

void merak_engine_call(const struct merak_engine *e,
                       const struct merak_instr *instr,
                       struct merak_kernel_call *call, struct merak_step *step)
{
    const struct merak_program *p = e->program;

    *step = *e->step;
    if (instr->microbatch >= 0)
        step->sample +=
            merak_stage_sample(&p->mesh, instr->microbatch, p->dp_index);
    step->pass = instr->pass;
    merak_program_call(p, instr, call);
    for (int i = 0; i < instr->n_in + instr->n_out; i++)
        call->operand[i].data = merak_engine_slot(e, instr->slot[i]);
    call->scratch =
        instr->scratch < 0 ? NULL : merak_engine_slot(e, instr->scratch);
    call->scratch_bytes =
        instr->scratch < 0 ? 0 : p->slot[instr->scratch].bytes;
    call->step = step;
}

static enum merak_status run_kernel(struct merak_engine *e,
                                    const struct merak_instr *instr,
                                    struct merak_error *err)
{
    struct merak_kernel_call call;
    struct merak_step step;

    if (merak_engine_skips(e))
        return MERAK_OK;
    if (e->opt.backend->emulated) {
        e->compute_ns += (int64_t)(instr->cost_s * 1e9);
        return MERAK_OK;
    }
    merak_engine_call(e, instr, &call, &step);
    return merak_kernel_run(e->opt.backend, e->kernel[instr->id], &call, err);
}

enum merak_status merak_engine_load(struct merak_engine *e,
                                    const struct merak_instr *instr, void *out,
                                    struct merak_error *err)
{
    const struct merak_program *p = e->program;
    const struct merak_load load = {.input = instr->input,
                                    .microbatch = instr->microbatch,
                                    .of =
                                        &p->sharded->graph->input[instr->input],
                                    .box = &p->slot[instr->slot[0]].box};

    return e->opt.load(e->opt.load_arg, &load, out, err);
}

enum merak_status merak_engine_local(struct merak_engine *e,
                                     const struct merak_instr *instr,
                                     struct merak_error *err)
{
    if (e->opt.accel != NULL)
        return merak_engine_issue(e, instr, err);
    switch (instr->kind) {
    case MERAK_INSTR_LOAD:
        if (instr->input == MERAK_NO_INPUT) {
            memset(merak_engine_slot(e, instr->slot[0]), 0,
                   e->program->slot[instr->slot[0]].bytes);
            return MERAK_OK;
        }
        return merak_engine_load(e, instr, merak_engine_slot(e, instr->slot[0]),
                                 err);
    case MERAK_INSTR_KERNEL:
        return run_kernel(e, instr, err);
    case MERAK_INSTR_SLICE:
        copy_slice(e, instr);
        return MERAK_OK;
    case MERAK_INSTR_COPY:
        copy_slot(e, instr);
        return MERAK_OK;
    case MERAK_INSTR_EXCHANGE:
    case MERAK_INSTR_SEND:
    case MERAK_INSTR_RECV:
        break;
    }
    return merak_fail(err, MERAK_ERR_PARAM,
                      "instruction %d (%s) transfers data and is in the "
                      "compute queue",
                      instr->id, instr->name);
}

static enum merak_status timed_out(struct merak_engine *e,
                                   const struct merak_instr *instr, int pending,
                                   struct merak_error *err)
{
    char mine[128], theirs[128];

    merak_engine_describe(e, instr, mine, sizeof(mine));
    merak_engine_describe(e, &e->program->instr[pending], theirs,
                          sizeof(theirs));
    return merak_fail(
        err, MERAK_ERR_TIMEOUT, "step %llu: %.100s waited %.0f s for %.100s",
        (unsigned long long)e->step->step, mine, e->opt.deadline_s, theirs);
}

/* The compute thread sleeps until progress_count differs from `seen`. */
static void sleep_on(struct merak_engine *e, uint32_t seen, int64_t ns)
{
    atomic_store(&e->slept_at, seen);
    atomic_store(&e->compute_sleeps, true);
    futex_wait(&e->progress_count, seen, ns);
    atomic_store(&e->compute_sleeps, false);
}

/* Wait until all of instr's waits are complete. */
static enum merak_status wait_for(struct merak_engine *e,
                                  const struct merak_instr *instr,
                                  struct merak_error *err)
{
    int64_t start = 0, now;
    /* an exchange may not have begun yet, since hosts wait to hear from an
     * earlier one whether it is needed */
    double patience = e->opt.accel != NULL ? MERAK_PATIENCE : 1;
    int pending;

    for (;;) {
        uint32_t seen = atomic_load(&e->progress_count);

        pending = merak_engine_pending(e, instr);
        if (pending < 0)
            return MERAK_OK;
        if (atomic_load(&e->failed_ready)) {
            *err = e->error;
            return e->error.status;
        }
        now = merak_clock_ns();
        if (start == 0)
            start = now;
        if (now - start < e->compute_spin_ns)
            continue;
        if (merak_is_overdue(now - start, patience * e->opt.deadline_s))
            return timed_out(e, instr, pending, err);
        sleep_on(e, seen, 100000000);
    }
}

/* The start time of a compute instruction whose waits are complete: the end of
 * the one before; if it has waits, now, since the communication thread may
 * have used this core until then; if emulated, not before the last of the
 * waits was over. */
static int64_t start_ns(struct merak_engine *e, const struct merak_instr *instr)
{
    int64_t due;

    if (e->opt.backend->emulated) {
        due = merak_engine_due_ns(e, instr);
        if (due > e->compute_ns)
            e->compute_ns = due;
    } else if (instr->n_wait > 0) {
        e->compute_ns = merak_clock_ns();
    }
    return e->compute_ns;
}

static void record_instr(struct merak_engine *e,
                         const struct merak_instr *instr, int64_t start)
{
    struct merak_trace_record *r = &e->record[instr->id];

    if (!e->opt.backend->emulated)
        e->compute_ns = merak_clock_ns();
    r->start_ns = start - e->opt.epoch_ns;
    r->end_ns = e->compute_ns - e->opt.epoch_ns;
    r->step = (int32_t)e->step->step;
}

static enum merak_status run_compute(struct merak_engine *e,
                                     struct merak_error *err)
{
    const struct engine_queue *q = &e->queue[MERAK_QUEUE_COMPUTE];
    enum merak_status rc;

    for (int i = 0; i < q->n; i++) {
        const struct merak_instr *instr = &e->program->instr[q->instr[i]];
        int64_t start;

        atomic_store_explicit(&e->compute_since_ns, e->compute_ns,
                              memory_order_relaxed);
        atomic_store_explicit(&e->compute_at, instr->id, memory_order_relaxed);
        rc = wait_for(e, instr, err);
        if (rc != MERAK_OK)
            return rc;
        start = start_ns(e, instr);
        rc = merak_engine_local(e, instr, err);
        if (rc != MERAK_OK) {
            merak_error_wrap(err, "step %llu, %s",
                             (unsigned long long)e->step->step, instr->name);
            return rc;
        }
        record_instr(e, instr, start);
        merak_engine_complete(e, instr);
    }
    atomic_store_explicit(&e->compute_at, -1, memory_order_relaxed);
    if (e->opt.backend->emulated)
        merak_emu_wait(e->compute_ns);
    return MERAK_OK;
}

/* Wait until the communication thread has finished this run. */
static enum merak_status wait_for_comm(struct merak_engine *e,
                                       struct merak_error *err)
{
    int64_t start = merak_clock_ns();

    while (e->comm.has_thread && atomic_load(&e->comm.run) != e->run) {
        uint32_t seen = atomic_load(&e->progress_count);

        if (atomic_load(&e->comm.run) == e->run)
            break;
        if (merak_clock_ns() - start < e->compute_spin_ns)
            continue;
        sleep_on(e, seen, 10000000);
    }
    if (atomic_load(&e->failed_ready)) {
        *err = e->error;
        return e->error.status;
    }
    return MERAK_OK;
}

enum merak_status merak_engine_run(struct merak_engine *e,
                                   const struct merak_step *step,
                                   struct merak_error *err)
{
    struct merak_error own = {.status = MERAK_OK};
    enum merak_status rc;
    uint64_t one = 1;

    e->step = step;
    e->at_step = step->step;
    /* a failure here is reported to peers like one in the step */
    rc = merak_engine_accel_begin(e, &own);
    e->compute_ns = merak_clock_ns();
    e->run++;
#ifdef MERAK_DEBUG
    for (int i = 0; i < e->program->n_slots; i++)
        atomic_store(&e->users_left[i], e->users[i]);
#endif
    if (e->comm.has_thread) {
        atomic_store(&e->comm.go, e->run);
        if (write(e->comm.wake_fd, &one, sizeof(one)) < 0)
            return merak_fail(err, MERAK_ERR_SYSTEM, "eventfd: %s",
                              strerror(errno));
    }
    merak_noalloc_begin();
    if (rc == MERAK_OK)
        rc = run_compute(e, &own);
    merak_noalloc_end();
    if (rc != MERAK_OK)
        merak_engine_fail(e, &own);
    rc = wait_for_comm(e, err != NULL ? err : &own);
    if (rc != MERAK_OK)
        return rc;
    rc = merak_engine_accel_finish(e, err);
    if (rc == MERAK_OK && e->opt.accel != NULL)
        rc = merak_engine_times_end(e, err);
    if (rc != MERAK_OK)
        merak_error_wrap(err, "step %llu", (unsigned long long)step->step);
    return rc;
}

const struct merak_trace_record *
merak_engine_records(const struct merak_engine *e)
{
    return e->record;
}
