/* SPDX-License-Identifier: Apache-2.0 */
/* ucx_exchange.c - collectives: in place where that suits, else by messages */
#include "config.h"

#include "runtime/transport/ucx.h"

#include "base/error.h"

static enum merak_status start_messages(struct ucx_request *r,
                                        const struct merak_exchange_args *a,
                                        struct merak_error *err)
{
    r->in_place = false;
    if (r->run == NULL)
        r->run = merak_exchange_run_create();
    if (r->run == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory for an exchange");
    return merak_exchange_run_start(r->run, a, err);
}

static enum merak_status start_in_place(struct ucx_request *r,
                                        const struct merak_exchange_args *a,
                                        struct merak_error *err)
{
    r->in_place = true;
    if (r->inplace == NULL)
        r->inplace = merak_ucx_inplace_create();
    if (r->inplace == NULL)
        return merak_fail(err, MERAK_ERR_NOMEM, "no memory for an exchange");
    return merak_ucx_inplace_start(r->inplace, a, err);
}

enum merak_status merak_ucx_exchange(struct merak_transport *base,
                                     const struct merak_team *team,
                                     const struct merak_exchange *ex,
                                     const void *in, void *out, void *scratch,
                                     uint64_t tag,
                                     struct merak_request **req_p,
                                     struct merak_error *err)
{
    struct ucx *tr = (struct ucx *)base;
    size_t bytes = merak_shape_count(&ex->out) * merak_dtype_bytes(ex->dtype);
    struct ucx_request *r =
        merak_ucx_request_new(tr, "exchange", -1, bytes, tag);
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
        return rc; /* what it posted stays ours until close */
    merak_ucx_list_add(&tr->exchanging, r);
    *req_p = &r->base;
    return MERAK_OK;
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
    for (struct ucx_request *r = tr->exchanging.first; r != NULL;
         r = r->next) {
        if (is_busy(r))
            return true;
    }
    return false;
}
