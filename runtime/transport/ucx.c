/* SPDX-License-Identifier: Apache-2.0 */
/* ucx.c - the transport over UCX: progress, failure, end
 *
 * One worker, used by one thread.  Endpoints are made on first use.  Between
 * nodes they report a dead peer.  On a node they do not, since with peer error
 * handling UCX does not use shared memory: there the peers' processes are
 * watched.
 */
#include "config.h"

#include "runtime/transport/ucx.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a rank that fails tries to notify its peers; a report of hangs is
 * made after that. */
#define ABORT_NS INT64_C(1000000000)
/* How long a rank that ends waits for what it sent. */
#define FLUSH_NS INT64_C(2000000000)
/* How long close() waits for peers that have not reached it yet. */
#define CLOSE_S 30.0

bool merak_ucx_is_lost(ucs_status_t status)
{
    return status == UCS_ERR_CONNECTION_RESET ||
           status == UCS_ERR_ENDPOINT_TIMEOUT ||
           status == UCS_ERR_UNREACHABLE || status == UCS_ERR_NOT_CONNECTED;
}

enum merak_status merak_ucx_fail(struct merak_error *err, const char *call,
                                 ucs_status_t status)
{
    enum merak_status rc = MERAK_ERR_FABRIC;

    switch (status) {
    case UCS_ERR_NO_MEMORY:
        rc = MERAK_ERR_NOMEM;
        break;
    case UCS_ERR_MESSAGE_TRUNCATED: /* sent more than expected */
        rc = MERAK_ERR_PEER;
        break;
    default:
        if (merak_ucx_is_lost(status))
            rc = MERAK_ERR_PEER;
        break;
    }
    return merak_fail(err, rc, "%s: %s", call, ucs_status_string(status));
}

/* --- endpoints ------------------------------------------------------------ */

static bool is_on_other_node(const struct ucx *tr, int peer)
{
    return tr->boot->node_of[peer] != tr->boot->node_of[tr->base.rank];
}

/* Only the first failure is recorded. */
static void note_lost(struct ucx *tr, int peer, const char *how)
{
    if (tr->closing)
        return;
    tr->failed = true;
    if (tr->aborted.status == MERAK_OK)
        merak_fail(&tr->aborted, MERAK_ERR_LOST, "rank %d on %s is gone: %s",
                   merak_transport_rank_name(&tr->base, peer),
                   tr->boot->hosts[tr->boot->node_of[peer]], how);
}

/* UCX's own words ("Endpoint timeout") are about its connection. */
void merak_ucx_note_lost(struct ucx *tr, int peer, ucs_status_t status)
{
    char how[128];

    if (merak_ucx_is_lost(status))
        snprintf(how, sizeof(how),
                 "its process or its node has ended, or the "
                 "network to it has");
    else
        snprintf(how, sizeof(how), "its connection failed: %s",
                 ucs_status_string(status));
    note_lost(tr, peer, how);
    merak_debug("transport", "rank %d: UCX says %s",
                merak_transport_rank_name(&tr->base, peer),
                ucs_status_string(status));
}

static void on_peer_gone(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct ucx *tr = arg;

    for (int r = 0; r < tr->base.size; r++) {
        if (tr->ep[r] == ep || tr->answer[r] == ep)
            merak_ucx_note_lost(tr, r, status);
    }
}

static int ucx_lost_fd(struct merak_transport *base)
{
    return merak_watch_fd(((struct ucx *)base)->watch);
}

static void ucx_find_lost(struct merak_transport *base)
{
    struct ucx *tr = (struct ucx *)base;
    int rank;

    while ((rank = merak_watch_next_ended(tr->watch)) >= 0)
        note_lost(tr, rank, "its process was killed or has crashed");
}

static enum merak_status make_ep(struct ucx *tr, int peer, ucp_ep_h *ep_p,
                                 struct merak_error *err)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
        .address =
            (const void *)(tr->address + (size_t)peer * tr->address_bytes),
    };
    ucs_status_t st;

    if (is_on_other_node(tr, peer)) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                             UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = on_peer_gone;
        params.err_handler.arg = tr;
    }
    st = ucp_ep_create(tr->worker, &params, ep_p);
    if (st == UCS_OK)
        return MERAK_OK;
    merak_ucx_fail(err, "ucp_ep_create", st);
    merak_error_wrap(err, "no route to rank %d",
                     merak_transport_rank_name(&tr->base, peer));
    return MERAK_ERR_FABRIC;
}

/*
 * Between nodes each direction has its own connection.  UCX shares one
 * connection between the first endpoints of two ranks to each other.  On TCP
 * that is one stream, in which the reply that a large message waits for queues
 * behind a large message in the other direction, so two ranks that send to
 * each other would take turns.  So the higher rank sends through its second
 * endpoint.
 */
enum merak_status merak_ucx_ep(struct ucx *tr, int peer, ucp_ep_h *ep_p,
                               struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (tr->answer[peer] == NULL && peer < tr->base.rank &&
        is_on_other_node(tr, peer))
        rc = make_ep(tr, peer, &tr->answer[peer], err);
    if (rc == MERAK_OK && tr->ep[peer] == NULL)
        rc = make_ep(tr, peer, &tr->ep[peer], err);
    if (rc == MERAK_OK)
        *ep_p = tr->ep[peer];
    return rc;
}

/* --- failure, out of band ------------------------------------------------- */

ucs_status_t merak_ucx_on_abort(void *arg, const void *header,
                                size_t header_bytes, void *data, size_t bytes,
                                const ucp_am_recv_param_t *param)
{
    struct ucx *tr = arg;

    (void)data;
    (void)bytes;
    (void)param;
    if (tr->aborted.status == MERAK_OK)
        merak_fail(&tr->aborted, MERAK_ERR_PEER, "%.*s", (int)header_bytes,
                   (const char *)header);
    return UCS_OK;
}

/* Progress until the UCX request is over, at most until limit. */
static void finish(struct ucx *tr, ucs_status_ptr_t p, int64_t limit)
{
    if (p == NULL || UCS_PTR_IS_ERR(p))
        return;
    while (ucp_request_check_status(p) == UCS_INPROGRESS &&
           merak_clock_ns() < limit)
        ucp_worker_progress(tr->worker);
    ucp_request_free(p);
}

/* Post to all peers first: a stopped rank, which receives nothing, must not
 * delay the others. */
static void ucx_abort(struct merak_transport *base, const char *why)
{
    struct ucx *tr = (struct ucx *)base;
    int64_t limit = merak_clock_ns() + ABORT_NS;
    ucp_request_param_t param = {0};
    ucp_ep_h ep;

    tr->failed = true;
    snprintf(tr->why, sizeof(tr->why), "rank %d: %s",
             merak_transport_rank_name(base, base->rank), why);
    for (int r = 0; r < base->size; r++) {
        tr->told[r] = NULL;
        if (r != base->rank && !merak_watch_has_ended(tr->watch, r) &&
            merak_ucx_ep(tr, r, &ep, NULL) == MERAK_OK)
            tr->told[r] = ucp_am_send_nbx(ep, UCX_AM_ABORT, tr->why,
                                          strlen(tr->why), NULL, 0, &param);
    }
    for (int r = 0; r < base->size; r++)
        finish(tr, tr->told[r], limit);
}

static const struct merak_error *ucx_aborted(struct merak_transport *base)
{
    const struct ucx *tr = (const struct ucx *)base;

    return tr->aborted.status == MERAK_OK ? NULL : &tr->aborted;
}

/* --- requests and progress ------------------------------------------------ */

static unsigned ucx_progress(struct merak_transport *base)
{
    struct ucx *tr = (struct ucx *)base;
    unsigned n = ucp_worker_progress(tr->worker);

    if (tr->copying.first != NULL) {
        merak_ucx_copy_slice(tr);
        n++;
    }
    if (tr->exchanging.first != NULL)
        n += merak_ucx_advance_exchanges(tr);
    if (tr->n_asked > 0)
        merak_ucx_answer(tr);
    return n;
}

static enum merak_status ucx_test(struct merak_transport *tr,
                                  struct merak_request *req,
                                  struct merak_error *err)
{
    enum merak_status rc = req->status;

    (void)tr;
    if (rc == MERAK_IN_PROGRESS)
        return rc;
    if (rc == MERAK_OK)
        merak_ucx_request_free((struct ucx_request *)req);
    else if (err != NULL)
        *err = req->err; /* UCX may still use a failed one: kept until close */
    return rc;
}

static int ucx_event_fd(struct merak_transport *base)
{
    return ((struct ucx *)base)->fd;
}

static enum merak_status ucx_arm(struct merak_transport *base)
{
    struct ucx *tr = (struct ucx *)base;

    if (tr->copying.first != NULL || merak_ucx_exchanges_busy(tr))
        return MERAK_IN_PROGRESS;
    return ucp_worker_arm(tr->worker) == UCS_OK ? MERAK_OK : MERAK_IN_PROGRESS;
}

/* --- end ------------------------------------------------------------------ */

/* Cancel what is still posted, so that nothing writes into its buffers. */
static bool cancel_all(struct ucx *tr)
{
    bool any = false;

    for (struct ucx_request *r = tr->all; r != NULL; r = r->older) {
        if (r->recv != NULL)
            ucp_request_cancel(tr->worker, r->recv);
        if (r->send != NULL)
            ucp_request_cancel(tr->worker, r->send);
        any = any || r->recv != NULL || r->send != NULL;
    }
    for (int i = 0; any && i < 100; i++)
        ucp_worker_progress(tr->worker);
    return any;
}

/*
 * Make sure that all ranks are here and all they sent has arrived: then
 * closing endpoints does not look like a failure to peers.  The second barrier
 * keeps every rank progressing until all have flushed.
 */
static void flush_with_peers(struct ucx *tr)
{
    struct merak_team all = {.n = tr->base.size, .me = tr->base.rank};
    ucp_request_param_t param = {0};
    int *rank = calloc((size_t)all.n, sizeof(*rank));
    enum merak_status rc;

    if (rank == NULL)
        return;
    for (int r = 0; r < all.n; r++)
        rank[r] = r;
    all.rank = rank;
    if (tr->base.deadline_s > CLOSE_S)
        tr->base.deadline_s = CLOSE_S;
    rc = merak_barrier(&tr->base, &all, NULL);
    tr->closing = true;
    if (rc == MERAK_OK) {
        finish(tr, ucp_worker_flush_nbx(tr->worker, &param),
               merak_clock_ns() + FLUSH_NS);
        rc = merak_barrier(&tr->base, &all, NULL);
    }
    tr->failed = tr->failed || rc != MERAK_OK;
    free(rank);
}

static ucs_status_ptr_t start_close(ucp_ep_h ep)
{
    ucp_request_param_t param = {0};

    return ep != NULL ? ucp_ep_close_nbx(ep, &param) : NULL;
}

/*
 * After a failure endpoints are destroyed with their worker: closing them
 * would wait for peers that may be gone.  Otherwise all are closed at once,
 * since each close waits for its peer: one after the other, ranks would wait
 * for each other in a cycle until the deadline.
 */
static void close_endpoints(struct ucx *tr)
{
    int64_t limit = merak_clock_ns() + FLUSH_NS;
    size_t n = (size_t)tr->base.size;
    ucs_status_ptr_t *end = tr->failed ? NULL : calloc(2 * n, sizeof(*end));

    if (end == NULL)
        return;
    for (size_t r = 0; r < n; r++) {
        end[r] = start_close(tr->ep[r]);
        end[n + r] = start_close(tr->answer[r]);
    }
    for (size_t i = 0; i < 2 * n; i++)
        finish(tr, end[i], limit);
    free(end);
}

static void free_requests(struct ucx *tr)
{
    struct ucx_request *older;

    for (struct ucx_request *r = tr->all; r != NULL; r = older) {
        older = r->older;
        merak_exchange_run_destroy(r->run);
        merak_ucx_inplace_destroy(r->inplace);
        free(r);
    }
}

static void destroy(struct ucx *tr)
{
    tr->closing = true;
    if (tr->worker != NULL) {
        close_endpoints(tr);
        ucp_worker_destroy(tr->worker);
    }
    if (tr->context != NULL)
        ucp_cleanup(tr->context);
    merak_ucx_unmap_arenas(tr);
    merak_watch_close(tr->watch);
    free_requests(tr);
    free(tr->asked);
    free(tr->told);
    free(tr->arena);
    free(tr->address);
    free(tr->ep);
    free(tr->answer);
    free(tr);
}

static void ucx_close(struct merak_transport *base)
{
    struct ucx *tr = (struct ucx *)base;

    tr->closing = tr->closing || base->abandoned;
    if (cancel_all(tr) || tr->aborted.status != MERAK_OK || base->abandoned)
        tr->failed = true;
    if (!tr->failed)
        flush_with_peers(tr);
    destroy(tr);
}

/* --- the table --------------------------------------------------------------
 */

static enum merak_status ucx_open(struct merak_boot *boot,
                                  const struct merak_transport_options *opt,
                                  struct merak_transport **tr_p,
                                  struct merak_error *err)
{
    struct ucx *tr = calloc(1, sizeof(*tr));
    enum merak_status rc;

    if (tr == NULL)
        return merak_fail_nomem(err, sizeof(*tr));
    if (boot->size > UCX_MAX_RANKS) {
        free(tr);
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%d ranks, the ucx transport has room for %d",
                          boot->size, UCX_MAX_RANKS);
    }
    tr->base.ops = &merak_transport_ucx;
    tr->base.rank = boot->rank;
    tr->base.size = boot->size;
    tr->base.deadline_s = opt->deadline_s;
    tr->base.rank_name = opt->rank_name;
    tr->base.tell = opt->tell;
    tr->base.tell_arg = opt->tell_arg;
    tr->boot = boot;
    rc = merak_ucx_set_up(tr, opt, err);
    if (rc != MERAK_OK) {
        destroy(tr);
        return rc;
    }
    *tr_p = &tr->base;
    return MERAK_OK;
}

const struct merak_transport_ops merak_transport_ucx = {
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .send = merak_ucx_send,
    .recv = merak_ucx_recv,
    .exchange = merak_ucx_exchange,
    .reserve = merak_ucx_reserve,
    .test = ucx_test,
    .progress = ucx_progress,
    .event_fd = ucx_event_fd,
    .arm = ucx_arm,
    .lost_fd = ucx_lost_fd,
    .find_lost = ucx_find_lost,
    .abort = ucx_abort,
    .aborted = ucx_aborted,
    .survey = merak_ucx_survey,
};
