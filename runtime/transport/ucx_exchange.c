/* SPDX-License-Identifier: Apache-2.0 */
/* ucx_exchange.c - collectives: in place if possible, else by messages */
#include "config.h"

#include "runtime/transport/ucx.h"

#include "base/error.h"

static enum merak_status start_messages(struct ucx_request *r,
                                        const struct merak_exchange_args *a,
                                        struct merak_error *err)
{
    r->in_place = false;
    return merak_exchange_run_start(r->run, a, err);
}

static enum merak_status start_in_place(struct ucx_request *r,
                                        const struct merak_exchange_args *a,
                                        struct merak_error *err)
{
    r->in_place = true;
    return merak_ucx_inplace_start(r->inplace, a, err);
}

enum merak_status merak_ucx_exchange(struct merak_transport *base,
                                     const struct merak_team *team,
                                     const struct merak_exchange *ex,
                                     const void *in, void *out, void *scratch,
                                     uint64_t tag, struct merak_request **req_p,
                                     struct merak_error *err)
{
    struct ucx *tr = (struct ucx *)base;
    size_t bytes = merak_shape_count(&ex->out) * merak_dtype_bytes(ex->dtype);
    struct ucx_request *r = merak_ucx_request_exchange(tr, bytes, tag);
    enum merak_status rc;

    if (r == NULL)
        return merak_fail_nomem(err, sizeof(*r));
    r->args = (struct merak_exchange_args){.tr = base,
                                           .team = team,
                                           .ex = ex,
                                           .in = in,
                                           .out = out,
                                           .scratch = scratch,
                                           .tag = tag};
    rc = merak_ucx_inplace_suits(&r->args) ? start_in_place(r, &r->args, err)
                                           : start_messages(r, &r->args, err);
    if (rc != MERAK_OK)
        return rc; /* what it posted is kept until close */
    merak_ucx_list_add(&tr->exchanging, r);
    *req_p = &r->base;
    return MERAK_OK;
}

static enum merak_status reserve_exchange(struct ucx *tr, int members,
                                          struct ucx_request **list,
                                          struct merak_error *err)
{
    struct ucx_request *r = merak_ucx_request_exchange(tr, 0, 0);
    enum merak_status rc;

    if (r == NULL)
        return merak_fail_nomem(err, sizeof(*r));
    r->next = *list;
    *list = r;
    rc = merak_exchange_run_reserve(r->run, members, err);
    return rc == MERAK_OK ? merak_ucx_inplace_reserve(r->inplace, members, err)
                          : rc;
}

/* An exchange of n members has up to 4 n messages in flight: two fragments to
 * and two from each of the others. */
enum merak_status merak_ucx_reserve(struct merak_transport *base, int messages,
                                    int exchanges, int members,
                                    struct merak_error *err)
{
    struct ucx *tr = (struct ucx *)base;
    struct ucx_request *list = NULL, *next;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < exchanges && rc == MERAK_OK; i++)
        rc = reserve_exchange(tr, members, &list, err);
    for (int i = 0; i < messages + 4 * members * exchanges && rc == MERAK_OK;
         i++) {
        struct ucx_request *r = merak_ucx_request_new(tr, "", -1, 0, 0);

        if (r == NULL)
            rc = merak_fail_nomem(err, sizeof(*r));
        else
            r->next = list;
        list = r == NULL ? list : r;
    }
    for (; list != NULL; list = next) {
        next = list->next;
        merak_ucx_request_free(list);
    }
    return rc;
}

static enum merak_status advance(struct ucx_request *r)
{
    enum merak_status rc;

    if (!r->in_place)
        return merak_exchange_run_advance(r->run, &r->base.err);
    rc = merak_ucx_inplace_advance(r->inplace, &r->base.err);
    if (rc != MERAK_ERR_UNSUPPORTED)
        return rc;
    rc = start_messages(r, &r->args, &r->base.err);
    return rc == MERAK_OK ? merak_exchange_run_advance(r->run, &r->base.err)
                          : rc;
}

static bool is_busy(const struct ucx_request *r)
{
    return r->in_place ? merak_ucx_inplace_is_busy(r->inplace)
                       : merak_exchange_run_is_busy(r->run);
}

unsigned merak_ucx_advance_exchanges(struct ucx *tr)
{
    struct ucx_request **p = &tr->exchanging.first;
    unsigned n = 0;

    while (*p != NULL) {
        struct ucx_request *r = *p;

        r->base.status = advance(r);
        if (r->base.status == MERAK_IN_PROGRESS) {
            n += is_busy(r);
            p = &r->next;
        } else {
            *p = r->next;
            n++;
        }
    }
    tr->exchanging.last = p;
    return n;
}

bool merak_ucx_exchanges_busy(const struct ucx *tr)
{
    for (struct ucx_request *r = tr->exchanging.first; r != NULL; r = r->next) {
        if (is_busy(r))
            return true;
    }
    return false;
}
