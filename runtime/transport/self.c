/* SPDX-License-Identifier: Apache-2.0 */
/* self.c - the transport of a single rank
 *
 * A message is copied when the second of its send and receive is posted.  An
 * exchange copies the one box there is.
 */
#include "config.h"

#include "runtime/transport/transport_impl.h"

#include "base/error.h"
#include "runtime/transport/tensor_box.h"

#include <stdlib.h>
#include <string.h>

struct self_request {
    struct merak_request base;
    struct self_request *next; /* unmatched, or free */
    void *buf;
    bool is_send;
};

struct self {
    struct merak_transport base;
    struct self_request *unmatched; /* oldest first */
    struct self_request *spare;
};

static struct self_request *new_request(struct self *tr, const char *what,
                                        size_t bytes, uint64_t tag)
{
    struct self_request *r = tr->spare;

    if (r != NULL)
        tr->spare = r->next;
    else
        r = malloc(sizeof(*r));
    if (r == NULL)
        return NULL;
    memset(r, 0, sizeof(*r));
    r->base.status = MERAK_IN_PROGRESS;
    r->base.what = what;
    r->base.bytes = bytes;
    r->base.tag = tag;
    return r;
}

static struct self_request **find_match(struct self *tr,
                                        const struct self_request *r)
{
    struct self_request **p = &tr->unmatched;

    while (*p != NULL &&
           ((*p)->base.tag != r->base.tag || (*p)->is_send == r->is_send))
        p = &(*p)->next;
    return p;
}

static void complete_pair(struct self_request *a, struct self_request *b)
{
    struct self_request *from = a->is_send ? a : b, *to = a->is_send ? b : a;

    if (from->base.bytes == to->base.bytes) {
        if (to->base.bytes > 0)
            memmove(to->buf, from->buf, to->base.bytes);
        to->base.status = MERAK_OK;
    } else {
        to->base.status =
            merak_fail(&to->base.err, MERAK_ERR_PEER,
                       "received %zu bytes (tag 0x%llx), expected %zu",
                       from->base.bytes, (unsigned long long)to->base.tag,
                       to->base.bytes);
    }
    from->base.status = MERAK_OK;
}

static enum merak_status post(struct self *tr, bool is_send, void *buf,
                              size_t bytes, uint64_t tag,
                              struct merak_request **req_p,
                              struct merak_error *err)
{
    struct self_request *r =
        new_request(tr, is_send ? "send" : "recv", bytes, tag);
    struct self_request **p, *match;

    if (r == NULL)
        return merak_fail_nomem(err, sizeof(*r));
    r->buf = buf;
    r->is_send = is_send;
    p = find_match(tr, r);
    match = *p;
    if (match != NULL) {
        *p = match->next;
        complete_pair(r, match);
    } else {
        *p = r;
    }
    *req_p = &r->base;
    return MERAK_OK;
}

static enum merak_status self_send(struct merak_transport *tr, const void *buf,
                                   size_t bytes, int peer, uint64_t tag,
                                   struct merak_request **req_p,
                                   struct merak_error *err)
{
    (void)peer;
    return post((struct self *)tr, true, (void *)(uintptr_t)buf, bytes, tag,
                req_p, err);
}

static enum merak_status self_recv(struct merak_transport *tr, void *buf,
                                   size_t bytes, int peer, uint64_t tag,
                                   struct merak_request **req_p,
                                   struct merak_error *err)
{
    (void)peer;
    return post((struct self *)tr, false, buf, bytes, tag, req_p, err);
}

static enum merak_status self_exchange(struct merak_transport *tr,
                                       const struct merak_team *team,
                                       const struct merak_exchange *ex,
                                       const void *in, void *out,
                                       void *scratch, uint64_t tag,
                                       struct merak_request **req_p,
                                       struct merak_error *err)
{
    struct self_request *r = new_request((struct self *)tr, "exchange", 0, tag);
    struct merak_view from, to;

    (void)team;
    (void)scratch;
    if (r == NULL)
        return merak_fail_nomem(err, sizeof(*r));
    if (ex->kind == MERAK_CONVERT_ALL_REDUCE) {
        merak_view_flat(&from, in, ex->dtype, merak_shape_count(&ex->in));
        merak_view_flat(&to, out, ex->dtype, merak_shape_count(&ex->in));
    } else {
        merak_view_box(&from, in, ex->dtype, &ex->send[0]);
        merak_view_box(&to, out, ex->dtype, &ex->recv[0]);
    }
    merak_view_copy(&to, &from, SIZE_MAX);
    r->base.status = MERAK_OK;
    *req_p = &r->base;
    return MERAK_OK;
}

static enum merak_status self_test(struct merak_transport *base,
                                   struct merak_request *req,
                                   struct merak_error *err)
{
    struct self *tr = (struct self *)base;
    struct self_request *r = (struct self_request *)req;
    enum merak_status rc = req->status;

    if (rc == MERAK_IN_PROGRESS)
        return rc;
    if (rc != MERAK_OK && err != NULL)
        *err = req->err;
    r->next = tr->spare;
    tr->spare = r;
    return rc;
}

static unsigned self_progress(struct merak_transport *tr)
{
    (void)tr;
    return 0; /* everything happens when it is posted */
}

static int self_event_fd(struct merak_transport *tr)
{
    (void)tr;
    return -1;
}

static enum merak_status self_arm(struct merak_transport *tr)
{
    (void)tr;
    return MERAK_OK;
}

static void free_list(struct self_request *r)
{
    while (r != NULL) {
        struct self_request *next = r->next;

        free(r);
        r = next;
    }
}

static void self_close(struct merak_transport *base)
{
    struct self *tr = (struct self *)base;

    free_list(tr->unmatched);
    free_list(tr->spare);
    free(tr);
}

static enum merak_status self_open(struct merak_boot *boot,
                                   const struct merak_transport_options *opt,
                                   struct merak_transport **tr_p,
                                   struct merak_error *err)
{
    struct self *tr;

    if (boot->size != 1)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "transport self is for one rank, there are %d; "
                          "use ucx",
                          boot->size);
    tr = calloc(1, sizeof(*tr));
    if (tr == NULL)
        return merak_fail_nomem(err, sizeof(*tr));
    tr->base.ops = &merak_transport_self;
    tr->base.size = 1;
    tr->base.deadline_s = opt->deadline_s;
    tr->base.rank_name = opt->rank_name;
    *tr_p = &tr->base;
    return MERAK_OK;
}

const struct merak_transport_ops merak_transport_self = {
    .name = "self",
    .open = self_open,
    .close = self_close,
    .send = self_send,
    .recv = self_recv,
    .exchange = self_exchange,
    .test = self_test,
    .progress = self_progress,
    .event_fd = self_event_fd,
    .arm = self_arm,
};
