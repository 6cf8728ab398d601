/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - the communication thread of an engine
 *
 * During a run only this thread uses the transport.  It starts the
 * instructions of all queues but compute, each in program order, as soon as
 * what they wait for is complete, and advances what is in flight while kernels
 * compute.  Between runs it sleeps and the caller may use the transport.
 */
#include "config.h"

#include "runtime/engine/engine_impl.h"
#include "runtime/engine/noalloc.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_LATE_NS 200000
#define STAGING_POLL_NS 50000
/* The most transfers of a device link in queues: more than there are queues, so
 * that it is proved that nothing queued waits for what is held back (direct.c);
 * and enough for exchanges of tensor ranks to be queued while sums over slow
 * links are some layers behind. */
#define MAX_DIRECT 256
_Static_assert(MAX_DIRECT > MERAK_STREAMS, "a queue may hold two");

static enum merak_status post(struct merak_engine *e,
                              const struct merak_instr *instr,
                              struct merak_request **req_p,
                              struct merak_error *err)
{
    const struct merak_program *p = e->program;
    void *slot0 = merak_engine_staged_slot(e, instr->slot[0]);

    switch (instr->kind) {
    case MERAK_INSTR_SEND:
        return merak_send(e->opt.tr, slot0, p->slot[instr->slot[0]].bytes,
                          e->opt.transport_rank[instr->peer], instr->tag, req_p,
                          err);
    case MERAK_INSTR_RECV:
        return merak_recv(e->opt.tr, slot0, p->slot[instr->slot[0]].bytes,
                          e->opt.transport_rank[instr->peer], instr->tag, req_p,
                          err);
    case MERAK_INSTR_EXCHANGE:
        return merak_exchange(
            e->opt.tr, &e->team[instr->group], instr->exchange, slot0,
            merak_engine_staged_slot(e, instr->slot[instr->n_in]),
            instr->scratch < 0 ? NULL
                               : merak_engine_staged_slot(e, instr->scratch),
            instr->tag, req_p, err);
    case MERAK_INSTR_LOAD:
    case MERAK_INSTR_KERNEL:
    case MERAK_INSTR_SLICE:
    case MERAK_INSTR_COPY:
        break;
    }
    *req_p = NULL;
    return merak_engine_local(e, instr, err);
}

/* Start an instruction.  *goes_on_p: it is over later.  MERAK_IN_PROGRESS:
 * whether it takes place is not known yet. */
static enum merak_status start(struct merak_engine *e,
                               const struct merak_instr *instr,
                               struct started *started, bool *goes_on_p,
                               struct merak_error *err)
{
    bool left_out;
    enum merak_status rc = merak_engine_leave_out(e, instr, &left_out, err);

    *started = (struct started){.instr = instr->id};
    *goes_on_p = false;
    if (rc != MERAK_OK || left_out)
        return rc;
    if (e->opt.link != NULL && merak_instr_moves(instr)) {
        started->direct = *goes_on_p = true;
        rc = merak_engine_move(e, instr, err);
        if (rc == MERAK_OK) /* complete means issued; its end is tested for the
                               trace and the deadline */
            merak_engine_complete(e, instr);
        return rc;
    }
    if (e->opt.accel != NULL && merak_instr_moves(instr)) {
        started->staged = *goes_on_p = true;
        return merak_engine_stage_out(e, instr, err);
    }
    rc = post(e, instr, &started->req, err);
    *goes_on_p = started->req != NULL;
    return rc;
}

/* Advance what was started; MERAK_OK when it is over. */
static enum merak_status advance(struct merak_engine *e,
                                 struct started *started,
                                 const struct merak_instr *instr,
                                 struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (started->direct)
        return merak_engine_stage_test(e, instr, err);
    if (started->staged) {
        rc = merak_engine_stage_test(e, instr, err);
        if (rc != MERAK_OK)
            return rc;
        started->staged = false;
        e->comm.n_staged--;
        rc = post(e, instr, &started->req, err);
    }
    if (rc == MERAK_OK && started->req != NULL)
        rc = merak_request_test(e->opt.tr, started->req, err);
    if (rc == MERAK_OK && e->opt.accel != NULL)
        rc = merak_engine_stage_in(e, instr, err);
    return rc;
}

static void finish(struct merak_engine *e, const struct merak_instr *instr,
                   bool direct)
{
    struct merak_trace_record *r = &e->record[instr->id];

    r->end_ns = merak_clock_ns() - e->opt.epoch_ns;
    if (!direct)
        merak_engine_complete(e, instr);
}

static enum merak_status wrap(struct merak_engine *e,
                              const struct merak_instr *instr,
                              enum merak_status rc, struct merak_error *err)
{
    char what[128];

    merak_engine_describe(e, instr, what, sizeof(what));
    merak_error_wrap(err, "step %llu, %s", (unsigned long long)e->step->step,
                     what);
    return rc;
}

/* What a device link moves is in the program's one sequence. */
static bool is_in_sequence(int q)
{
    return q != MERAK_QUEUE_COMPUTE && q != MERAK_QUEUE_COPY;
}

/* With a device link exchanges and messages are issued as one sequence: must
 * this one wait for another queue, or for room? */
static bool must_wait_for_order(const struct merak_engine *e, int q, int id)
{
    if (e->opt.link == NULL || !is_in_sequence(q))
        return false;
    if (e->comm.n_direct == MAX_DIRECT)
        return true;
    for (int other = 0; other < MERAK_QUEUE_COUNT; other++) {
        const struct engine_queue *queue = &e->queue[other];

        if (is_in_sequence(other) && e->comm.next[other] < queue->n &&
            queue->instr[e->comm.next[other]] < id)
            return true;
    }
    return false;
}

/* The instruction that a queue starts next, if its waits are complete;
 * *due_ns_p is set to when they are over. */
static const struct merak_instr *next_ready(const struct merak_engine *e, int q,
                                            int64_t *due_ns_p)
{
    const struct engine_queue *queue = &e->queue[q];
    const struct merak_instr *instr;

    if (q == MERAK_QUEUE_COMPUTE || e->comm.next[q] == queue->n)
        return NULL;
    if (merak_queue_exchanges((enum merak_queue)q) &&
        e->comm.n_exchanging[q] == MERAK_MAX_EXCHANGES)
        return NULL;
    instr = &e->program->instr[queue->instr[e->comm.next[q]]];
    if (must_wait_for_order(e, q, instr->id) ||
        merak_engine_pending(e, instr) >= 0)
        return NULL;
    *due_ns_p = merak_engine_due_ns(e, instr);
    return instr;
}

/* Start what can be started in one queue; adds to *did. */
static enum merak_status start_queue(struct merak_engine *e, int q,
                                     unsigned *did, struct merak_error *err)
{
    const struct merak_instr *instr;
    enum merak_status rc;
    int64_t due_ns;

    for (;;) {
        struct started started;
        bool goes_on;
        int64_t now;
        int id;

        instr = next_ready(e, q, &due_ns);
        now = merak_clock_ns();
        if (instr == NULL || due_ns > now)
            return MERAK_OK;
        id = instr->id;
        e->record[id].start_ns = now - e->opt.epoch_ns;
        e->record[id].step = (int32_t)e->step->step;
        rc = start(e, instr, &started, &goes_on, err);
        if (rc == MERAK_IN_PROGRESS)
            return MERAK_OK;
        if (rc != MERAK_OK)
            return wrap(e, instr, rc, err);
        e->comm.next[q]++;
        (*did)++;
        if (!goes_on) {
            finish(e, instr, false);
            continue;
        }
        e->comm.started[e->comm.n_started++] = started;
        e->comm.n_staged += started.staged;
        e->comm.n_direct += started.direct;
        e->comm.n_exchanging[q] += instr->kind == MERAK_INSTR_EXCHANGE;
    }
}

static enum merak_status test_started(struct merak_engine *e, unsigned *did,
                                      struct merak_error *err)
{
    /* The transport is called in program order, queue by queue. */
    bool held[MERAK_QUEUE_COUNT] = {false};
    /* What is behind something that is not over in its stream is not asked. */
    bool behind[MERAK_STREAMS] = {false};

    for (int i = 0; i < e->comm.n_started;) {
        struct started *started = &e->comm.started[i];
        const struct merak_instr *instr = &e->program->instr[started->instr];
        bool direct = started->direct;
        bool waits = (direct && behind[e->accel.stream[instr->id]]) ||
                     (started->staged && held[instr->queue]);
        enum merak_status rc =
            waits ? MERAK_IN_PROGRESS : advance(e, started, instr, err);

        if (rc == MERAK_IN_PROGRESS) {
            held[instr->queue] = held[instr->queue] || started->staged;
            if (direct)
                behind[e->accel.stream[instr->id]] = true;
            i++;
            continue;
        }
        /* Order is kept: the oldest transfers are tested first. */
        memmove(&e->comm.started[i], &e->comm.started[i + 1],
                (size_t)(e->comm.n_started - i - 1) * sizeof(*e->comm.started));
        e->comm.n_started--;
        e->comm.n_direct -= direct;
        e->comm.n_exchanging[instr->queue] -=
            instr->kind == MERAK_INSTR_EXCHANGE;
        if (rc != MERAK_OK)
            return wrap(e, instr, rc, err);
        (*did)++;
        finish(e, instr, direct);
    }
    return MERAK_OK;
}

/* Start what can be started and advance what is in flight; counts in *did. */
static enum merak_status comm_progress(struct merak_engine *e, unsigned *did,
                                       struct merak_error *err)
{
    enum merak_status rc;
    const struct merak_error *why;

    *did = e->opt.tr->ops->progress(e->opt.tr);
    why = merak_transport_aborted(e->opt.tr);
    if (why != NULL)
        return merak_fail(err, why->status, "%s", why->text);
    for (int q = 0; q < MERAK_QUEUE_COUNT; q++) {
        rc = start_queue(e, q, did, err);
        if (rc != MERAK_OK)
            return rc;
    }
    return test_started(e, did, err);
}

static bool run_finished(const struct merak_engine *e)
{
    if (e->comm.n_started > 0)
        return false;
    for (int q = 0; q < MERAK_QUEUE_COUNT; q++) {
        if (q != MERAK_QUEUE_COMPUTE && e->comm.next[q] < e->queue[q].n)
            return false;
    }
    return true;
}

/* When the next instruction can be started: 0: now; INT64_MAX: not before some
 * event. */
static int64_t next_start_ns(const struct merak_engine *e)
{
    int64_t next = INT64_MAX, due_ns;

    for (int q = 0; q < MERAK_QUEUE_COUNT; q++) {
        const struct merak_instr *instr = next_ready(e, q, &due_ns);

        if (instr != NULL && instr->id != e->accel.left.asks && due_ns < next)
            next = due_ns;
    }
    return next;
}

/* When to wake up at the latest; 0: now.  The last part of a wait for emulated
 * work is spent spinning. */
static int64_t wake_ns(const struct merak_engine *e, int64_t now, int64_t most)
{
    int64_t next = next_start_ns(e), wake;

    if (next == INT64_MAX)
        return now + most;
    wake = next - MERAK_SPIN_NS - e->comm.timer_late_ns;
    return wake <= now ? 0 : wake < now + most ? wake : now + most;
}

/* Sleep until an event or until wake.  Timers of virtual machines fire 0.1 ms
 * late; the delay is measured and subtracted, so that emulated work is on
 * time. */
static void sleep_until(struct merak_engine *e, struct pollfd fds[3],
                        int64_t now, int64_t wake)
{
    struct timespec timeout = {0, (long)(wake - now)};

    if (ppoll(fds, 3, &timeout, NULL) == 0)
        e->comm.timer_late_ns +=
            (merak_clock_ns() - wake - e->comm.timer_late_ns) / 8;
    if (e->comm.timer_late_ns > MAX_LATE_NS)
        e->comm.timer_late_ns = MAX_LATE_NS;
}

static void drain_fd(int fd)
{
    uint64_t count;

    while (read(fd, &count, sizeof(count)) > 0)
        ;
}

/*
 * Sleep until the transport or the compute thread has an event, or a peer's
 * process has ended; true if the transport has one.  While UCX connects over
 * TCP it always has events, but nothing moves until the peer answers, which
 * may need this core to do so: ignore transport events for backoff_ns.
 */
static bool sleep_for_event(struct merak_engine *e, int64_t waited_ns,
                            int64_t backoff_ns)
{
    struct pollfd fds[3] = {
        {.fd = e->comm.wake_fd, .events = POLLIN},
        {.fd = -1, .events = POLLIN},
        {.fd = merak_transport_lost_fd(e->opt.tr), .events = POLLIN}};
    int64_t most = 100000000, now, wake;

    if (e->opt.tr->ops->event_fd != NULL && backoff_ns == 0)
        fds[1].fd = e->opt.tr->ops->event_fd(e->opt.tr);
    if (backoff_ns > 0)
        most = backoff_ns;
    else if (e->comm.n_staged > 0 || e->comm.n_direct > 0 ||
             e->accel.left.asks >= 0)
        /* accelerators do not wake us */
        most = merak_patient_nap_ns(STAGING_POLL_NS, waited_ns);
    else if (fds[1].fd < 0)
        most = 1000000; /* nothing wakes us: poll */
    if (fds[1].fd >= 0 && e->opt.tr->ops->arm(e->opt.tr) != MERAK_OK)
        return true;
    atomic_store(&e->comm.sleeps, true);
    now = merak_clock_ns();
    wake = wake_ns(e, now, most);
    if (wake > 0 && !atomic_load(&e->failed))
        sleep_until(e, fds, now, wake);
    atomic_store(&e->comm.sleeps, false);
    if (fds[2].revents != 0)
        merak_transport_find_lost(e->opt.tr);
    drain_fd(e->comm.wake_fd);
    return fds[1].revents != 0;
}

static void sleep_with_backoff(struct merak_engine *e, int64_t waited_ns,
                               bool *had_events, int64_t *backoff_ns)
{
    bool backs_off = *had_events;

    *had_events = sleep_for_event(e, waited_ns, backs_off ? *backoff_ns : 0);
    if (backs_off)
        *backoff_ns = merak_longer_nap_ns(*backoff_ns);
}

static enum merak_status first_timed_out(struct merak_engine *e,
                                         struct merak_error *err)
{
    int first =
        e->comm.n_started > 0 ? e->comm.started[0].instr : e->accel.left.asks;
    const struct merak_instr *instr = &e->program->instr[first];
    char what[128];

    merak_engine_describe(e, instr, what, sizeof(what));
    return merak_fail(
        err, MERAK_ERR_TIMEOUT, "step %llu: %.120s timed out after %.0f s",
        (unsigned long long)e->step->step, what, e->opt.deadline_s);
}

/* Does the compute thread use this core, or will it, since it was just
 * woken? */
static bool should_yield_core(const struct merak_engine *e)
{
    return e->crowded &&
           (!atomic_load(&e->compute_sleeps) ||
            atomic_load(&e->slept_at) != atomic_load(&e->progress_count));
}

/* Nothing moves: does the device link report an error? */
static enum merak_status check_link(struct merak_engine *e,
                                    struct merak_error *err)
{
    return e->opt.link != NULL ? merak_link_test(e->opt.link, err) : MERAK_OK;
}

/* Notify the peers, unless a peer has failed first, and abort what is in
 * queues. */
static void give_up(struct merak_engine *e)
{
    if (e->opt.tr->ops->abort != NULL && e->error.status != MERAK_ERR_PEER)
        e->opt.tr->ops->abort(e->opt.tr, e->error.text);
    if (e->opt.link != NULL)
        merak_link_abort(e->opt.link);
}

static void run_comm(struct merak_engine *e)
{
    struct merak_error err = {.status = MERAK_OK};
    int64_t idle_since = 0, last = merak_clock_ns(), now;
    enum merak_status rc = MERAK_OK;
    bool had_events = false; /* an event arrived, but nothing has moved since */
    int64_t backoff_ns = MERAK_BACKOFF_NS;
    unsigned did = 0;

    memset(e->comm.next, 0, sizeof(e->comm.next));
    memset(e->comm.n_exchanging, 0, sizeof(e->comm.n_exchanging));
    e->comm.n_started = e->comm.n_staged = e->comm.n_direct = 0;
    e->accel.left.asks = -1;
    if (e->opt.link != NULL)
        merak_link_stop(e->opt.link, &e->failed_ready);
    while (rc == MERAK_OK && !run_finished(e)) {
        rc = comm_progress(e, &did, &err);
        if (atomic_load(&e->failed_ready))
            break;
        now = merak_clock_ns();
        if (did > 0) {
            idle_since = 0;
            last = now;
            had_events = false;
            backoff_ns = MERAK_BACKOFF_NS;
            continue;
        }
        if (rc == MERAK_OK)
            rc = check_link(e, &err);
        if ((e->comm.n_started > 0 || e->accel.left.asks >= 0) &&
            rc == MERAK_OK &&
            merak_is_overdue(now - last, e->opt.deadline_s))
            rc = first_timed_out(e, &err);
        if (idle_since == 0)
            idle_since = now;
        if (now - idle_since >= e->comm.spin_ns || should_yield_core(e))
            sleep_with_backoff(e, now - idle_since, &had_events, &backoff_ns);
    }
    if (rc != MERAK_OK)
        merak_engine_fail(e, &err);
    if (atomic_load(&e->failed_ready))
        give_up(e);
    if (e->opt.link != NULL)
        merak_link_stop(e->opt.link, NULL);
}

static void *comm_main(void *arg)
{
    struct merak_engine *e = arg;
    struct pollfd fd = {.fd = e->comm.wake_fd, .events = POLLIN};

    if (e->opt.backend->emulated)
        merak_emu_thread();
    while (!atomic_load(&e->comm.quit)) {
        uint32_t go = atomic_load(&e->comm.go);

        if (go == atomic_load(&e->comm.run)) {
            poll(&fd, 1, -1);
            drain_fd(e->comm.wake_fd);
            continue;
        }
        merak_noalloc_begin();
        run_comm(e);
        merak_noalloc_end();
        atomic_store(&e->comm.run, go);
        atomic_fetch_add(&e->progress_count, 1);
        merak_futex_wake(&e->progress_count);
    }
    return NULL;
}

enum merak_status merak_comm_start(struct merak_engine *e,
                                   struct merak_error *err)
{
    bool needed = false;
    int rc;

    for (int q = 0; q < MERAK_QUEUE_COUNT; q++) {
        if (q != MERAK_QUEUE_COMPUTE && e->queue[q].n > 0)
            needed = true;
    }
    if (!needed)
        return MERAK_OK;
    e->comm.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (e->comm.wake_fd < 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "eventfd: %s",
                          strerror(errno));
    rc = pthread_create(&e->comm.thread, NULL, comm_main, e);
    if (rc != 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "cannot start a thread: %s",
                          strerror(rc));
    e->comm.has_thread = true;
    return MERAK_OK;
}

void merak_comm_stop(struct merak_engine *e)
{
    uint64_t one = 1;

    if (!e->comm.has_thread)
        return;
    atomic_store(&e->comm.quit, true);
    if (write(e->comm.wake_fd, &one, sizeof(one)) < 0) {
        /* The counter is full: the thread wakes anyway. */
    }
    pthread_join(e->comm.thread, NULL);
    e->comm.has_thread = false;
}
