/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c - the registry, the checked calls, and waiting */
#include "config.h"

#include "runtime/transport/transport_impl.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_DEADLINE_S 300.0
/* Longest single block, in ms: an abort arrives as an event; this limits the
 * delay if one is lost. */
#define BLOCK_MS 500

/* What a peer sent last arrives in fewer passes, where others go on sending. */
#define LAST_PASSES 1000

static const struct merak_transport_ops *const transports[] = {
    &merak_transport_self,
#ifdef HAVE_UCX
    &merak_transport_ucx,
#endif
};
#define N_TRANSPORTS (sizeof(transports) / sizeof(*transports))

/* Each task of the node waits for the others. */
static int64_t spin_ns(const struct merak_boot *boot)
{
    return merak_spin_ns((int)sysconf(_SC_NPROCESSORS_ONLN), boot->local_size);
}

enum merak_status merak_transport_open(const char *name,
                                       struct merak_boot *boot,
                                       const struct merak_transport_options *o,
                                       struct merak_transport **tr_p,
                                       struct merak_error *err)
{
    struct merak_transport_options opt = {.arena_fd = -1};
    enum merak_status rc;

    if (name == NULL || boot == NULL || tr_p == NULL)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a transport needs a name, a boot and a place");
    if (o != NULL)
        opt = *o;
    if (opt.deadline_s <= 0)
        opt.deadline_s = DEFAULT_DEADLINE_S;
    if (opt.arena == NULL || opt.arena_bytes == 0)
        opt.arena_fd = -1;
    for (size_t i = 0; i < N_TRANSPORTS; i++) {
        if (strcmp(transports[i]->name, name) != 0)
            continue;
        rc = transports[i]->open(boot, &opt, tr_p, err);
        if (rc == MERAK_OK)
            (*tr_p)->spin_ns = spin_ns(boot);
        return rc;
    }
    return merak_fail(err, MERAK_ERR_NOT_FOUND, "no transport \"%s\"; there %s",
                      name,
                      N_TRANSPORTS > 1 ? "are self and ucx"
                                       : "is self, for one task: this Merak "
                                         "was built without UCX");
}

void merak_transport_close(struct merak_transport *tr)
{
    void *scratch;

    if (tr == NULL)
        return;
    scratch = tr->sum_scratch;
    tr->ops->close(tr);
    free(scratch);
}

enum merak_status merak_transport_abandon(struct merak_transport **tr_p,
                                          struct merak_boot *boot,
                                          struct merak_error *err)
{
    (*tr_p)->abandoned = true;
    merak_transport_close(*tr_p);
    *tr_p = NULL;
    return merak_boot_agree(boot, MERAK_OK, err);
}

static enum merak_status check_message(const struct merak_transport *tr,
                                       const void *buf, size_t bytes, int peer,
                                       uint64_t tag,
                                       struct merak_request *const *req_p,
                                       struct merak_error *err)
{
    if (tr == NULL || req_p == NULL || (buf == NULL && bytes > 0))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a message without transport, buffer or request");
    if (peer < 0 || peer >= tr->size)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "peer %d, expected a rank of 0..%d", peer,
                          tr->size - 1);
    if (tag >> MERAK_TAG_BITS != 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "tag 0x%llx is longer than %d bits",
                          (unsigned long long)tag, MERAK_TAG_BITS);
    return MERAK_OK;
}

enum merak_status merak_send(struct merak_transport *tr, const void *buf,
                             size_t bytes, int peer, uint64_t tag,
                             struct merak_request **req_p,
                             struct merak_error *err)
{
    enum merak_status rc = check_message(tr, buf, bytes, peer, tag, req_p, err);

    return rc == MERAK_OK ? tr->ops->send(tr, buf, bytes, peer, tag, req_p, err)
                          : rc;
}

enum merak_status merak_recv(struct merak_transport *tr, void *buf,
                             size_t bytes, int peer, uint64_t tag,
                             struct merak_request **req_p,
                             struct merak_error *err)
{
    enum merak_status rc = check_message(tr, buf, bytes, peer, tag, req_p, err);

    return rc == MERAK_OK ? tr->ops->recv(tr, buf, bytes, peer, tag, req_p, err)
                          : rc;
}

static enum merak_status check_team(const struct merak_transport *tr,
                                    const struct merak_team *team,
                                    struct merak_error *err)
{
    if (tr == NULL || team == NULL || team->n < 1 || team->me < 0 ||
        team->me >= team->n || team->rank == NULL)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a collective without transport or team");
    if (team->rank[team->me] != tr->rank)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "member %d of the team is rank %d, this is rank %d",
                          team->me, team->rank[team->me], tr->rank);
    for (int i = 0; i < team->n; i++) {
        if (team->rank[i] < 0 || team->rank[i] >= tr->size)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "member %d of the team is rank %d, of %d", i,
                              team->rank[i], tr->size);
    }
    return MERAK_OK;
}

enum merak_status merak_exchange(struct merak_transport *tr,
                                 const struct merak_team *team,
                                 const struct merak_exchange *ex,
                                 const void *in, void *out, void *scratch,
                                 uint64_t tag, struct merak_request **req_p,
                                 struct merak_error *err)
{
    enum merak_status rc = check_team(tr, team, err);

    if (rc != MERAK_OK)
        return rc;
    if (ex == NULL || ex->n != team->n || ex->me != team->me)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "an exchange of %d members, this is %d, in a team "
                          "of %d, this is %d",
                          ex == NULL ? 0 : ex->n, ex == NULL ? 0 : ex->me,
                          team->n, team->me);
    if (scratch == NULL && merak_exchange_scratch(ex) > 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "an exchange needs %zu bytes of scratch, got none",
                          merak_exchange_scratch(ex));
    rc = check_message(tr, out, 0, tr->rank, tag, req_p, err);
    if (rc != MERAK_OK)
        return rc;
    return tr->ops->exchange(tr, team, ex, in, out, scratch, tag, req_p, err);
}

enum merak_status merak_transport_reserve(struct merak_transport *tr,
                                          int messages, int exchanges,
                                          int members, struct merak_error *err)
{
    if (tr->ops->reserve == NULL)
        return MERAK_OK;
    return tr->ops->reserve(tr, messages, exchanges, members, err);
}

enum merak_status merak_request_test(struct merak_transport *tr,
                                     struct merak_request *req,
                                     struct merak_error *err)
{
    if (tr == NULL || req == NULL)
        return merak_fail(err, MERAK_ERR_PARAM, "no request to test");
    return tr->ops->test(tr, req, err);
}

const struct merak_error *merak_transport_aborted(struct merak_transport *tr)
{
    return tr->ops->aborted == NULL ? NULL : tr->ops->aborted(tr);
}

int merak_transport_lost_fd(struct merak_transport *tr)
{
    return tr->ops->lost_fd == NULL ? -1 : tr->ops->lost_fd(tr);
}

int merak_transport_rank_name(const struct merak_transport *tr, int rank)
{
    return tr->rank_name == NULL ? rank : tr->rank_name[rank];
}

void merak_transport_describe_wait(const struct merak_transport *tr, char *text,
                                   size_t size)
{
    const struct merak_request *req = tr->waiting;
    char peer[32] = "";

    text[0] = '\0';
    if (req == NULL)
        return;
    if (req->peer >= 0)
        snprintf(peer, sizeof(peer), ", peer rank %d",
                 merak_transport_rank_name(tr, req->peer));
    snprintf(text, size, "waits for a %s of %zu bytes%s, for %.1f s", req->what,
             req->bytes, peer, merak_clock_since_s(tr->waiting_since_ns));
}

void merak_transport_linger(struct merak_transport *tr, int64_t ns)
{
    int64_t limit = merak_clock_ns() + ns;

    while (merak_clock_ns() < limit) {
        if (tr->ops->progress(tr) == 0)
            merak_nap(MERAK_BACKOFF_MAX_NS);
    }
}

void merak_transport_find_lost(struct merak_transport *tr)
{
    for (int i = 0; i < LAST_PASSES && tr->ops->progress(tr) > 0; i++)
        continue;
    tr->ops->find_lost(tr);
}

/* Block until the transport has events or a peer is gone, at most left_ns;
 * true if it has events. */
static bool block(struct merak_transport *tr, int64_t left_ns)
{
    struct pollfd fds[2] = {
        {.fd = tr->ops->event_fd(tr), .events = POLLIN},
        {.fd = merak_transport_lost_fd(tr), .events = POLLIN}};
    int64_t ms = left_ns / 1000000 + 1;
    bool has_some = false;

    if (fds[0].fd < 0)
        merak_nap(MERAK_BACKOFF_NS);
    else if (tr->ops->arm(tr) != MERAK_OK)
        has_some = true;
    else if (poll(fds, 2, ms < BLOCK_MS ? (int)ms : BLOCK_MS) > 0)
        has_some = fds[0].revents != 0; /* EINTR: harmless */
    if (fds[1].revents != 0)
        merak_transport_find_lost(tr);
    return has_some;
}

static enum merak_status timed_out(struct merak_transport *tr,
                                   const struct merak_request *req,
                                   struct merak_error *err)
{
    const char *way = strcmp(req->what, "send") == 0 ? "to" : "from";
    int me = merak_transport_rank_name(tr, tr->rank);

    tr->timed_out = true;
    if (req->peer < 0)
        return merak_fail(err, MERAK_ERR_TIMEOUT,
                          "rank %d: %s of %zu bytes (tag 0x%llx) timed out "
                          "after %.3g s",
                          me, req->what, req->bytes,
                          (unsigned long long)req->tag, tr->deadline_s);
    return merak_fail(err, MERAK_ERR_TIMEOUT,
                      "rank %d: %s of %zu bytes %s rank %d (tag 0x%llx) timed "
                      "out after %.3g s",
                      me, req->what, req->bytes, way,
                      merak_transport_rank_name(tr, req->peer),
                      (unsigned long long)req->tag, tr->deadline_s);
}

/* The state of a wait: its deadline, and when anything last moved. */
struct wait_state {
    int64_t limit, idle;
    unsigned passes; /* wraps in a long wait */
    bool moved;
    bool had_events; /* the transport had events when it last blocked */
    int64_t backoff_ns; /* the last sleep after events that moved nothing */
};

/* Reading the clock and checking for an abort cost more than a pass, so only
 * every 16th does.  While UCX connects over TCP it has events that move
 * nothing until the peer answers, which may need this core. */
static enum merak_status wait_check(struct merak_transport *tr,
                                    const struct merak_request *req,
                                    struct wait_state *w,
                                    struct merak_error *err)
{
    const struct merak_error *why;
    int64_t now;

    if (++w->passes % 16 != 0)
        return MERAK_IN_PROGRESS;
    why = merak_transport_aborted(tr);
    if (why != NULL)
        return merak_fail(err, why->status, "%s", why->text);
    now = merak_clock_ns();
    if (w->limit == 0) {
        w->limit = now + (int64_t)(tr->deadline_s * 1e9);
        w->idle = now;
        tr->waiting = req;
        tr->waiting_since_ns = now;
    }
    if (now >= w->limit)
        return timed_out(tr, req, err);
    if (w->moved)
        w->idle = now;
    w->backoff_ns =
        w->moved || !w->had_events ? 0 : merak_longer_nap_ns(w->backoff_ns);
    if (w->backoff_ns > 0)
        merak_nap(w->backoff_ns);
    w->had_events =
        !w->moved && now - w->idle >= tr->spin_ns && block(tr, w->limit - now);
    w->moved = false;
    return MERAK_IN_PROGRESS;
}

enum merak_status merak_request_wait(struct merak_transport *tr,
                                     struct merak_request *req,
                                     struct merak_error *err)
{
    struct wait_state wait = {0};
    enum merak_status rc = MERAK_IN_PROGRESS;

    if (tr == NULL || req == NULL)
        return merak_fail(err, MERAK_ERR_PARAM, "no request to wait for");
    while (req->status == MERAK_IN_PROGRESS && rc == MERAK_IN_PROGRESS) {
        if (tr->ops->progress(tr) > 0)
            wait.moved = true;
        if (req->status == MERAK_IN_PROGRESS)
            rc = wait_check(tr, req, &wait, err);
    }
    if (req->status == MERAK_IN_PROGRESS)
        return rc; /* tr->waiting stays set, for ranks that ask */
    tr->waiting = NULL;
    return tr->ops->test(tr, req, err);
}
