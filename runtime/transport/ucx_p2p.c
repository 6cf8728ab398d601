/* SPDX-License-Identifier: Apache-2.0 */
/* ucx_p2p.c - messages between two ranks
 *
 * Short messages, and those from outside the arena or to another node, are UCX
 * tag messages.  A long one between node peers is a rendezvous: the sender
 * sends an offer (UCX's RTS), where in its arena the data is; the receiver
 * reads it there, slice by slice in progress(), then sends an acknowledgement
 * (ATS).  The sender runs no code meanwhile and the data is copied once.  The
 * receiver need not know in advance: an offer has the tag of the data, is
 * received into the buffer that the data will overwrite, and is recognized by
 * its length and magic (UCX 1.13 does not always return which tag it matched).
 */
#include "config.h"

#include "runtime/transport/ucx.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From this size on one copy and two control messages beat UCX's two
 * copies. */
#define OFFER_BYTES ((size_t)8192)
#define SLICE_BYTES ((size_t)1 << 20)
#define OFFER_MAGIC UINT64_C(0x6d6572616b6f6666) /* "merakoff" */

#define KIND_SHIFT 61
#define RANK_SHIFT 41

static uint64_t make_tag(enum ucx_kind kind, int sender, uint64_t tag)
{
    return (uint64_t)kind << KIND_SHIFT | (uint64_t)sender << RANK_SHIFT | tag;
}

/* Take a request from a list of spare ones.  This and the other inline
 * functions save much of a short message's instructions. */
static inline struct ucx_request *take(struct ucx *tr,
                                       struct ucx_request **spare,
                                       const char *what, int peer, size_t bytes,
                                       uint64_t tag)
{
    struct ucx_request *r = *spare;

    if (r != NULL) {
        *spare = r->next;
    } else {
        r = calloc(1, sizeof(*r));
        if (r == NULL)
            return NULL;
        r->older = tr->all;
        tr->all = r;
    }
    r->tr = tr;
    r->next = NULL;
    r->state = UCX_POSTED;
    r->send = r->recv = NULL;
    r->base.status = MERAK_IN_PROGRESS;
    r->base.what = what;
    r->base.peer = peer;
    r->base.bytes = bytes;
    r->base.tag = tag;
    return r;
}

struct ucx_request *merak_ucx_request_new(struct ucx *tr, const char *what,
                                          int peer, size_t bytes, uint64_t tag)
{
    return take(tr, &tr->spare, what, peer, bytes, tag);
}

struct ucx_request *merak_ucx_request_exchange(struct ucx *tr, size_t bytes,
                                               uint64_t tag)
{
    struct ucx_request *r =
        take(tr, &tr->spare_exchange, "exchange", -1, bytes, tag);

    if (r == NULL)
        return NULL;
    if (r->run == NULL)
        r->run = merak_exchange_run_create();
    if (r->inplace == NULL)
        r->inplace = merak_ucx_inplace_create();
    if (r->run != NULL && r->inplace != NULL)
        return r;
    merak_ucx_request_free(r);
    return NULL;
}

void merak_ucx_request_free(struct ucx_request *r)
{
    bool exchanged = r->run != NULL || r->inplace != NULL;
    struct ucx_request **spare =
        exchanged ? &r->tr->spare_exchange : &r->tr->spare;

    r->next = *spare;
    *spare = r;
}

void merak_ucx_list_init(struct ucx_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

void merak_ucx_list_add(struct ucx_list *list, struct ucx_request *r)
{
    r->next = NULL;
    *list->last = r;
    list->last = &r->next;
}

static struct ucx_request *take_first(struct ucx_list *list)
{
    struct ucx_request *r = list->first;

    list->first = r->next;
    if (list->first == NULL)
        list->last = &list->first;
    return r;
}

/* Has the process of a peer on this node ended?  Its memory is gone a moment
 * before its end of the watch is closed. */
static bool peer_has_ended(struct ucx *tr, int peer)
{
    if (peer < 0 || tr->boot->node_of[peer] != tr->boot->node_of[tr->base.rank])
        return false;
    for (int i = 0; i < 10 && !merak_watch_has_ended(tr->watch, peer); i++) {
        tr->base.ops->find_lost(&tr->base);
        usleep(2000);
    }
    return merak_watch_has_ended(tr->watch, peer);
}

static int peer_name(const struct ucx_request *r)
{
    return r->base.peer < 0
               ? r->base.peer
               : merak_transport_rank_name(&r->tr->base, r->base.peer);
}

/* If the peer is dead, UCX's error about its shared memory, or of a send before
 * it says that the connection is lost, is not the cause. */
static void fail_request(struct ucx_request *r, const char *call,
                         ucs_status_t status)
{
    if (r->base.status != MERAK_IN_PROGRESS)
        return;
    if (r->base.peer >= 0 && merak_ucx_is_lost(status))
        merak_ucx_note_lost(r->tr, r->base.peer, status);
    if ((peer_has_ended(r->tr, r->base.peer) || merak_ucx_is_lost(status)) &&
        r->tr->aborted.status == MERAK_ERR_LOST) {
        r->base.err = r->tr->aborted;
        r->base.status = MERAK_ERR_LOST;
        return;
    }
    r->base.status = merak_ucx_fail(&r->base.err, call, status);
    merak_error_wrap(&r->base.err, "%s of %zu bytes, rank %d", r->base.what,
                     r->base.bytes, peer_name(r));
}

/* Done when no UCX operation and no copy is left. */
static inline void settle(struct ucx_request *r)
{
    if (r->send == NULL && r->recv == NULL && r->state == UCX_POSTED &&
        r->base.status == MERAK_IN_PROGRESS)
        r->base.status = MERAK_OK;
}

static void on_sent(void *handle, ucs_status_t status, void *arg)
{
    struct ucx_request *r = arg;

    r->send = NULL;
    ucp_request_free(handle);
    if (status != UCS_OK)
        fail_request(r, "ucp_tag_send_nbx", status);
    settle(r);
}

static inline void post_send(struct ucx_request *r, ucp_ep_h ep,
                             const void *buf, size_t bytes, enum ucx_kind kind)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = on_sent,
        .user_data = r,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    uint64_t tag = make_tag(kind, r->tr->base.rank, r->base.tag);
    ucs_status_ptr_t p = ucp_tag_send_nbx(ep, buf, bytes, tag, &param);

    if (UCS_PTR_IS_ERR(p))
        fail_request(r, "ucp_tag_send_nbx", UCS_PTR_STATUS(p));
    else
        r->send = p; /* NULL: sent already */
}

static enum merak_status check_offer(const struct ucx_request *r,
                                     struct merak_error *err)
{
    const struct ucx_arena *arena = &r->tr->arena[r->base.peer];
    const struct ucx_offer *o = &r->offer;

    if (o->bytes != r->base.bytes)
        return merak_fail(err, MERAK_ERR_PEER,
                          "rank %d sent %llu bytes (tag 0x%llx), expected %zu",
                          peer_name(r), (unsigned long long)o->bytes,
                          (unsigned long long)r->base.tag, r->base.bytes);
    if (o->offset > arena->bytes || o->bytes > arena->bytes - o->offset)
        return merak_fail(err, MERAK_ERR_PEER,
                          "rank %d offered bytes outside its arena",
                          peer_name(r));
    return MERAK_OK;
}

static void accept_offer(struct ucx_request *r)
{
    enum merak_status rc;

    rc = check_offer(r, &r->base.err);
    if (rc != MERAK_OK) {
        r->base.status = rc;
        return;
    }
    r->copied = 0;
    r->state = UCX_COPYING;
    merak_ucx_list_add(&r->tr->copying, r);
}

static bool is_offer(struct ucx_request *r, size_t length)
{
    if (r->expected < OFFER_BYTES || length != sizeof(r->offer))
        return false;
    memcpy(&r->offer, r->buf, sizeof(r->offer));
    return r->offer.magic == OFFER_MAGIC;
}

static void received(struct ucx_request *r, ucs_status_t status,
                     const ucp_tag_recv_info_t *info)
{
    if (status != UCS_OK) {
        fail_request(r, "ucp_tag_recv_nbx", status);
    } else if (is_offer(r, info->length)) {
        accept_offer(r);
    } else if (info->length != r->expected) {
        r->base.status = merak_fail(
            &r->base.err, MERAK_ERR_PEER,
            "rank %d sent %zu bytes (tag 0x%llx), expected %zu", peer_name(r),
            info->length, (unsigned long long)r->base.tag, r->base.bytes);
    }
    settle(r);
}

static void on_received(void *handle, ucs_status_t status,
                        const ucp_tag_recv_info_t *info, void *arg)
{
    struct ucx_request *r = arg;

    if (r->recv == handle)
        ucp_request_free(handle);
    r->recv = NULL; /* post_recv() frees it if this is called from there */
    received(r, status, info);
}

/*
 * Receive exactly this tag.  UCX before 1.16 does not return what it received
 * when a receive completes immediately (its issue 9425), so it is made to call
 * back then too.
 */
static inline void post_recv(struct ucx_request *r, void *buf, size_t bytes,
                             uint64_t tag)
{
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
            UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv = on_received,
        .user_data = r,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    ucs_status_ptr_t p;

    r->buf = buf;
    r->expected = bytes;
    r->recv = r; /* a marker, not UCX's: on_received() clears it */
    p = ucp_tag_recv_nbx(r->tr->worker, buf, bytes, tag, UINT64_MAX, &param);
    if (UCS_PTR_IS_ERR(p)) {
        r->recv = NULL;
        fail_request(r, "ucp_tag_recv_nbx", UCS_PTR_STATUS(p));
    } else if (r->recv == NULL) {
        ucp_request_free(p);
    } else {
        r->recv = p;
    }
}

/* Can the peer read buf where it is? */
static bool can_offer(const struct ucx *tr, const char *buf, size_t bytes,
                      int peer)
{
    const struct ucx_arena *mine = &tr->arena[tr->base.rank];

    return bytes >= OFFER_BYTES && mine->base != NULL &&
           tr->boot->node_of[peer] == tr->boot->node_of[tr->base.rank] &&
           buf >= mine->base && bytes <= mine->bytes &&
           (size_t)(buf - mine->base) <= mine->bytes - bytes;
}

static inline enum merak_status return_request(struct ucx_request *r,
                                               struct merak_request **req_p,
                                               struct merak_error *err)
{
    enum merak_status rc;

    settle(r);
    rc = r->base.status;
    if (rc != MERAK_OK && rc != MERAK_IN_PROGRESS) {
        if (err != NULL)
            *err = r->base.err;
        return rc; /* the request is kept until close */
    }
    *req_p = &r->base;
    return MERAK_OK;
}

/* Prepare a send that is not posted yet, with the endpoint of its peer. */
static inline enum merak_status
start_send(struct ucx *tr, size_t bytes, int peer, uint64_t tag,
           struct ucx_request **r_p, ucp_ep_h *ep_p, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    *ep_p = tr->ep[peer];
    if (*ep_p == NULL)
        rc = merak_ucx_ep(tr, peer, ep_p, err);
    if (rc != MERAK_OK)
        return rc;
    *r_p = merak_ucx_request_new(tr, "send", peer, bytes, tag);
    return *r_p == NULL ? merak_fail_nomem(err, sizeof(**r_p)) : MERAK_OK;
}

enum merak_status merak_ucx_send(struct merak_transport *base, const void *buf,
                                 size_t bytes, int peer, uint64_t tag,
                                 struct merak_request **req_p,
                                 struct merak_error *err)
{
    struct ucx *tr = (struct ucx *)base;
    struct ucx_request *r;
    enum merak_status rc;
    ucp_ep_h ep;

    if (!can_offer(tr, buf, bytes, peer))
        return merak_ucx_send_kind(base, buf, bytes, peer, tag, UCX_DATA, req_p,
                                   err);
    rc = start_send(tr, bytes, peer, tag, &r, &ep, err);
    if (rc != MERAK_OK)
        return rc;
    r->offer.offset =
        (uint64_t)((const char *)buf - tr->arena[base->rank].base);
    r->offer.bytes = bytes;
    r->offer.magic = OFFER_MAGIC;
    post_recv(r, NULL, 0, make_tag(UCX_ACK, peer, tag));
    post_send(r, ep, &r->offer, sizeof(r->offer), UCX_DATA);
    return return_request(r, req_p, err);
}

enum merak_status merak_ucx_recv(struct merak_transport *tr, void *buf,
                                 size_t bytes, int peer, uint64_t tag,
                                 struct merak_request **req_p,
                                 struct merak_error *err)
{
    return merak_ucx_recv_kind(tr, buf, bytes, peer, tag, UCX_DATA, req_p, err);
}

enum merak_status merak_ucx_send_kind(struct merak_transport *base,
                                      const void *buf, size_t bytes, int peer,
                                      uint64_t tag, enum ucx_kind kind,
                                      struct merak_request **req_p,
                                      struct merak_error *err)
{
    struct ucx_request *r;
    ucp_ep_h ep;
    enum merak_status rc =
        start_send((struct ucx *)base, bytes, peer, tag, &r, &ep, err);

    if (rc != MERAK_OK)
        return rc;
    post_send(r, ep, buf, bytes, kind);
    return return_request(r, req_p, err);
}

enum merak_status merak_ucx_recv_kind(struct merak_transport *base, void *buf,
                                      size_t bytes, int peer, uint64_t tag,
                                      enum ucx_kind kind,
                                      struct merak_request **req_p,
                                      struct merak_error *err)
{
    struct ucx_request *r =
        merak_ucx_request_new((struct ucx *)base, "recv", peer, bytes, tag);

    if (r == NULL)
        return merak_fail_nomem(err, sizeof(*r));
    post_recv(r, buf, bytes, make_tag(kind, peer, tag));
    return return_request(r, req_p, err);
}

static void send_ack(struct ucx_request *r)
{
    struct merak_error err;
    ucp_ep_h ep;
    enum merak_status rc = merak_ucx_ep(r->tr, r->base.peer, &ep, &err);

    r->state = UCX_POSTED;
    if (rc == MERAK_OK) {
        post_send(r, ep, NULL, 0, UCX_ACK);
    } else {
        r->base.status = rc;
        r->base.err = err;
    }
    settle(r);
}

void merak_ucx_copy_slice(struct ucx *tr)
{
    struct ucx_request *r = tr->copying.first;
    const char *from = tr->arena[r->base.peer].base + r->offer.offset;
    size_t n = r->base.bytes - r->copied;

    if (n > SLICE_BYTES)
        n = SLICE_BYTES;
    memcpy(r->buf + r->copied, from + r->copied, n);
    r->copied += n;
    if (r->copied == r->base.bytes)
        send_ack(take_first(&tr->copying));
}
