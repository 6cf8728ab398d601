/* SPDX-License-Identifier: Apache-2.0 */
/* ucx_inplace.c - collectives of node peers, in place in each other's arenas
 *
 * When all members share a node and their operands are in mapped arenas, only
 * two rounds of short messages are sent:
 *
 *   announce   to every member: where my operands are, and which box of my
 *              input is yours
 *   (work)     all-reduce: combine my flat cut of all inputs and write it to
 *              all outputs; reduce-scatter: combine my part of all
 *              inputs; all-gather: copy what I need of all inputs
 *   done       to every member: I no longer touch your operands
 *
 * Elements are combined in member order as in exchange.c, with the same bits.
 * If any operand is elsewhere, all members see it in the announcements and use
 * exchange.c instead.
 */
#include "config.h"

#include "runtime/transport/ucx.h"

#include "base/error.h"
#include "base/size.h"
#include "runtime/transport/tensor_box.h"

#include <stdlib.h>
#include <string.h>

/* Below this, sending the data itself costs less than announcing it. */
#define INPLACE_BYTES ((size_t)8192)
#define SLICE_BYTES ((size_t)512 << 10)

struct announcement {
    uint64_t in, out;     /* offsets in the arena */
    uint64_t usable;      /* both are in it */
    struct merak_box box; /* of my input, for the receiver */
};

enum phase { ANNOUNCE, WORK, DONE };

struct ucx_inplace {
    struct merak_exchange_args a;
    enum phase phase;
    int next; /* all-gather: member whose part comes next */
    int n_reqs, first_open;
    struct merak_request **req;        /* [2 * cap] */
    struct announcement *said, *heard; /* [cap] */
    struct merak_view *to, *from;      /* [cap] */
    int cap;
};

struct ucx_inplace *merak_ucx_inplace_create(void)
{
    return calloc(1, sizeof(struct ucx_inplace));
}

static void free_members(struct ucx_inplace *run)
{
    free(run->req);
    free(run->said);
    free(run->heard);
    free(run->to);
    free(run->from);
    run->cap = 0;
}

void merak_ucx_inplace_destroy(struct ucx_inplace *run)
{
    if (run == NULL)
        return;
    free_members(run);
    free(run);
}

enum merak_status merak_ucx_inplace_reserve(struct ucx_inplace *run, int n,
                                            struct merak_error *err)
{
    size_t m = (size_t)n;

    if (n <= run->cap)
        return MERAK_OK;
    free_members(run);
    run->req = calloc(2 * m, sizeof(*run->req));
    run->said = calloc(m, sizeof(*run->said));
    run->heard = calloc(m, sizeof(*run->heard));
    run->to = calloc(m, sizeof(*run->to));
    run->from = calloc(m, sizeof(*run->from));
    if (run->req == NULL || run->said == NULL || run->heard == NULL ||
        run->to == NULL || run->from == NULL)
        return merak_fail_nomem(err, m * sizeof(*run->to));
    run->cap = n;
    return MERAK_OK;
}

/* A size that is the same on every member, or 0 for kinds that use
 * exchange.c. */
static size_t common_bytes(const struct merak_exchange *ex)
{
    size_t es = merak_dtype_bytes(ex->dtype);

    switch (ex->kind) {
    case MERAK_CONVERT_ALL_REDUCE:
    case MERAK_CONVERT_REDUCE_SCATTER:
        return merak_shape_count(&ex->in) * es;
    case MERAK_CONVERT_ALL_GATHER:
        return merak_shape_count(&ex->out) * es;
    default:
        return 0;
    }
}

bool merak_ucx_inplace_suits(const struct merak_exchange_args *a)
{
    const struct ucx *tr = (const struct ucx *)a->tr;

    if (common_bytes(a->ex) < INPLACE_BYTES)
        return false;
    for (int q = 0; q < a->team->n; q++) {
        if (tr->arena[a->team->rank[q]].base == NULL)
            return false;
    }
    return true;
}

static bool in_arena(const struct ucx_arena *arena, const void *p, size_t bytes,
                     uint64_t *offset_p)
{
    const char *at = p;

    if (at < arena->base || bytes > arena->bytes ||
        (size_t)(at - arena->base) > arena->bytes - bytes)
        return false;
    *offset_p = (uint64_t)(at - arena->base);
    return true;
}

static void announce(const struct ucx_inplace *run, int q,
                     struct announcement *out)
{
    const struct merak_exchange *ex = run->a.ex;
    const struct ucx *tr = (const struct ucx *)run->a.tr;
    const struct ucx_arena *mine = &tr->arena[run->a.tr->rank];
    size_t es = merak_dtype_bytes(ex->dtype);

    memset(out, 0, sizeof(*out));
    out->usable =
        in_arena(mine, run->a.in, merak_shape_count(&ex->in) * es, &out->in) &&
        in_arena(mine, run->a.out, merak_shape_count(&ex->out) * es, &out->out);
    if (ex->kind != MERAK_CONVERT_ALL_REDUCE)
        out->box = ex->send[q];
}

/* Post a send to and a receive from every other member. */
static enum merak_status sendrecv_with_all(struct ucx_inplace *run,
                                           enum ucx_kind kind,
                                           struct merak_error *err)
{
    const struct merak_team *team = run->a.team;
    size_t bytes = kind == UCX_ANNOUNCE ? sizeof(*run->said) : 0;
    enum merak_status rc = MERAK_OK;

    run->n_reqs = 0;
    run->first_open = 0;
    for (int i = 1; i < 2 * team->n && rc == MERAK_OK; i++) {
        bool send = i > team->n;
        int q = (team->me + i) % team->n;
        struct merak_request **req = &run->req[run->n_reqs];

        if (q == team->me)
            continue;
        if (send)
            rc = merak_ucx_send_kind(run->a.tr, &run->said[q], bytes,
                                     team->rank[q], run->a.tag, kind, req, err);
        else
            rc = merak_ucx_recv_kind(run->a.tr, &run->heard[q], bytes,
                                     team->rank[q], run->a.tag, kind, req, err);
        if (rc == MERAK_OK)
            run->n_reqs++;
    }
    return rc;
}

enum merak_status merak_ucx_inplace_start(struct ucx_inplace *run,
                                          const struct merak_exchange_args *a,
                                          struct merak_error *err)
{
    enum merak_status rc = merak_ucx_inplace_reserve(run, a->team->n, err);

    if (rc != MERAK_OK)
        return rc;
    run->a = *a;
    run->phase = ANNOUNCE;
    for (int q = 0; q < a->team->n; q++)
        announce(run, q, &run->said[q]);
    run->heard[a->team->me] = run->said[a->team->me];
    return sendrecv_with_all(run, UCX_ANNOUNCE, err);
}

/* --- work -------------------------------------------------------------------
 */

static char *operand(const struct ucx_inplace *run, int q, uint64_t offset)
{
    const struct ucx *tr = (const struct ucx *)run->a.tr;

    return tr->arena[run->a.team->rank[q]].base + offset;
}

static void view_cuts(struct ucx_inplace *run)
{
    const struct merak_exchange *ex = run->a.ex;
    size_t n = (size_t)run->a.team->n, me = (size_t)run->a.team->me;
    size_t count = merak_shape_count(&ex->in);
    size_t lo = merak_cut(count, n, me), hi = merak_cut(count, n, me + 1);
    size_t skip = lo * merak_dtype_bytes(ex->dtype);

    for (int q = 0; q < run->a.team->n; q++) {
        merak_view_flat(&run->from[q], operand(run, q, run->heard[q].in) + skip,
                        ex->dtype, hi - lo);
        merak_view_flat(&run->to[q], operand(run, q, run->heard[q].out) + skip,
                        ex->dtype, hi - lo);
    }
}

static void view_boxes(struct ucx_inplace *run)
{
    const struct merak_exchange *ex = run->a.ex;

    for (int q = 0; q < run->a.team->n; q++) {
        merak_view_box(&run->from[q], operand(run, q, run->heard[q].in),
                       ex->dtype, &run->heard[q].box);
        merak_view_box(&run->to[q], run->a.out, ex->dtype, &ex->recv[q]);
    }
}

/* One slice; true when there is no more. */
static bool work_slice(struct ucx_inplace *run)
{
    const struct merak_exchange *ex = run->a.ex;
    int n = run->a.team->n;
    size_t left = SLICE_BYTES / merak_dtype_bytes(ex->dtype);

    if (ex->kind != MERAK_CONVERT_ALL_GATHER) {
        merak_view_combine(run->to,
                           ex->kind == MERAK_CONVERT_ALL_REDUCE ? n : 1,
                           run->from, n, ex->combine, ex->dtype, left);
        return run->from[0].left == 0;
    }
    while (run->next < n && left > 0) {
        left -=
            merak_view_copy(&run->to[run->next], &run->from[run->next], left);
        run->next += run->from[run->next].left == 0;
    }
    return run->next == n;
}

static bool all_usable(const struct ucx_inplace *run)
{
    for (int q = 0; q < run->a.team->n; q++) {
        if (!run->heard[q].usable)
            return false;
    }
    return true;
}

static enum merak_status check_requests(struct ucx_inplace *run,
                                        struct merak_error *err)
{
    struct merak_transport *tr = run->a.tr;

    while (run->first_open < run->n_reqs) {
        enum merak_status rc =
            tr->ops->test(tr, run->req[run->first_open], err);

        if (rc != MERAK_OK)
            return rc;
        run->first_open++;
    }
    return MERAK_OK;
}

enum merak_status merak_ucx_inplace_advance(struct ucx_inplace *run,
                                            struct merak_error *err)
{
    enum merak_status rc;

    if (run->phase != WORK) {
        rc = check_requests(run, err);
        if (rc != MERAK_OK || run->phase == DONE)
            return rc;
        if (!all_usable(run))
            return MERAK_ERR_UNSUPPORTED;
        if (run->a.ex->kind == MERAK_CONVERT_ALL_REDUCE)
            view_cuts(run);
        else
            view_boxes(run);
        run->next = 0;
        run->phase = WORK;
    }
    if (!work_slice(run))
        return MERAK_IN_PROGRESS;
    run->phase = DONE;
    rc = sendrecv_with_all(run, UCX_DONE, err);
    return rc == MERAK_OK ? check_requests(run, err) : rc;
}

bool merak_ucx_inplace_is_busy(const struct ucx_inplace *run)
{
    return run->phase == WORK;
}
