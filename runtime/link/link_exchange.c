/* SPDX-License-Identifier: Apache-2.0 */
/* link_exchange.c - collectives by messages between accelerators
 *
 * Like runtime/transport/exchange.c, in a queue: a contiguous box is sent
 * directly from the input or received directly into the output; else it is
 * packed before or unpacked afterwards.  What is combined is received into
 * scratch, in fragments (partitioner/program/staged.h), and added by the
 * accelerator in member order: the bits are those of the transport, since each
 * element is the same sum of the same numbers.
 *
 * An all-reduce is a reduce-scatter of flat cuts, then an all-gather of the
 * cuts; if it is short, or has two members, every member sends everything to
 * every other and combines it all.
 *
 * The queue keeps the order, so messages and memory can be reused as soon as
 * their use is queued.
 *
 * Scratch of an exchange that combines: what is received, then what is packed,
 * then the result if it must be unpacked.  Other exchanges use it as
 * exchange.c does.
 */
#include "config.h"

#include "runtime/link/link_impl.h"

#include "base/error.h"
#include "base/size.h"
#include "partitioner/program/staged.h"

/* Gathers that a library is asked for at a time. */
enum { MOST_GATHERS = 16 };

/* The state of an exchange under way. */
struct work {
    struct merak_link *link;
    const struct merak_link_call *call;
    const struct merak_exchange *ex;
    int comm;
    size_t es;       /* bytes of an element */
    size_t fragment; /* of a message that are combined at a time */
    unsigned char *in, *out;
    int n_messages;
};

static struct merak_accel_box as_accel(const struct merak_box *box, size_t es)
{
    return (struct merak_accel_box){.ndim = box->ndim,
                                    .full = box->full,
                                    .lo = box->lo,
                                    .len = box->len,
                                    .elem_bytes = es};
}

static size_t box_bytes(const struct work *w, const struct merak_box *box)
{
    return merak_box_count(box) * w->es;
}

static size_t aligned(size_t bytes)
{
    return merak_size_align(bytes, MERAK_STAGED_ALIGN);
}

static enum merak_status pack(struct work *w, void *to, const void *from,
                              const struct merak_box *box,
                              struct merak_error *err)
{
    const struct merak_accel_box b = as_accel(box, w->es);
    struct merak_accel *a = w->link->accel;

    if (merak_box_count(box) == 0)
        return MERAK_OK;
    return a->ops->pack(a, w->call->queue, to, from, &b, err);
}

static enum merak_status unpack(struct work *w, void *to,
                                const struct merak_box *box, const void *from,
                                struct merak_error *err)
{
    const struct merak_accel_box b = as_accel(box, w->es);
    struct merak_accel *a = w->link->accel;

    if (merak_box_count(box) == 0)
        return MERAK_OK;
    return a->ops->unpack(a, w->call->queue, to, &b, from, err);
}

/* --- messages ---------------------------------------------------------------
 */

static void add_message(struct work *w, bool send, void *at, size_t bytes,
                        int q)
{
    if (bytes > 0)
        w->link->message[w->n_messages++] =
            (struct merak_link_message){send, at, bytes, q};
}

/* Wait until it is queued: nothing may be appended before that. */
static enum merak_status queued(struct work *w, enum merak_status rc,
                                struct merak_error *err)
{
    return rc == MERAK_IN_PROGRESS ? merak_link_settle(w->link, w->comm, err)
                                   : rc;
}

static void *stream(const struct work *w)
{
    return w->link->accel->ops->stream(w->link->accel, w->call->queue);
}

static enum merak_status move(struct work *w, struct merak_error *err)
{
    int n = w->n_messages;

    w->n_messages = 0;
    if (n == 0)
        return MERAK_OK;
    return queued(w,
                  w->link->ops->move(w->link->comm[w->comm].comm, stream(w),
                                     w->link->message, n, err),
                  err);
}

/* --- what is stored ---------------------------------------------------------
 */

/* Copy this rank's own box. */
static enum merak_status store_own(struct work *w, struct merak_error *err)
{
    const struct merak_box *from = &w->ex->send[w->ex->me];
    const struct merak_box *to = &w->ex->recv[w->ex->me];
    size_t offset = 0;
    enum merak_status rc;

    if (merak_box_contiguous(to, &offset))
        return pack(w, w->out + offset * w->es, w->in, from, err);
    if (merak_box_contiguous(from, &offset))
        return unpack(w, w->out, to, w->in + offset * w->es, err);
    rc = pack(w, w->call->scratch, w->in, from, err);
    return rc == MERAK_OK ? unpack(w, w->out, to, w->call->scratch, err) : rc;
}

/* Is it an all-gather of equal rows?  The same on all members. */
static bool is_plain_gather(const struct merak_exchange *ex)
{
    size_t offset = 0, count = merak_shape_count(&ex->in);

    if (ex->kind != MERAK_CONVERT_ALL_GATHER || ex->n < 2)
        return false;
    for (int q = 0; q < ex->n; q++) {
        if (merak_box_count(&ex->send[q]) != count ||
            merak_box_count(&ex->recv[q]) != count ||
            !merak_box_contiguous(&ex->recv[q], &offset) ||
            offset != (size_t)q * count)
            return false;
    }
    return true;
}

/* Pack and exchange the messages of all other members; place_boxes() repeats
 * the walk to find what to unpack. */
static enum merak_status send_boxes(struct work *w, struct merak_error *err)
{
    unsigned char *scratch = w->call->scratch;
    enum merak_status rc = MERAK_OK;
    size_t offset;

    for (int q = 0; q < w->ex->n && rc == MERAK_OK; q++) {
        const struct merak_box *to = &w->ex->send[q], *from = &w->ex->recv[q];
        size_t out = box_bytes(w, to), in = box_bytes(w, from);

        if (q == w->ex->me)
            continue;
        if (merak_box_contiguous(to, &offset)) {
            add_message(w, true, w->in + offset * w->es, out, q);
        } else {
            rc = pack(w, scratch, w->in, to, err);
            add_message(w, true, scratch, out, q);
            scratch += aligned(out);
        }
        if (merak_box_contiguous(from, &offset)) {
            add_message(w, false, w->out + offset * w->es, in, q);
        } else {
            add_message(w, false, scratch, in, q);
            scratch += aligned(in);
        }
    }
    return rc == MERAK_OK ? move(w, err) : rc;
}

static enum merak_status place_boxes(struct work *w, struct merak_error *err)
{
    unsigned char *scratch = w->call->scratch;
    enum merak_status rc = MERAK_OK;

    for (int q = 0; q < w->ex->n && rc == MERAK_OK; q++) {
        const struct merak_box *to = &w->ex->send[q], *from = &w->ex->recv[q];

        if (q == w->ex->me)
            continue;
        if (!merak_box_contiguous(to, NULL))
            scratch += aligned(box_bytes(w, to));
        if (merak_box_contiguous(from, NULL))
            continue;
        rc = unpack(w, w->out, from, scratch, err);
        scratch += aligned(box_bytes(w, from));
    }
    return rc;
}

/* Such gathers, of w->call[0] to [n - 1]: each rank's part is of equal size, so
 * all members call the library as often. */
static enum merak_status gather(struct work *w, int n, struct merak_error *err)
{
    struct merak_link_gather gather[MOST_GATHERS];
    enum merak_status rc = MERAK_OK;

    for (int i = 0, k = 0; i < n && rc == MERAK_OK; i++) {
        const struct merak_link_call *call = &w->call[i];

        gather[k++] =
            (struct merak_link_gather){call->out, call->in,
                                       merak_shape_count(&call->ex->in) *
                                           merak_dtype_bytes(call->ex->dtype)};
        if (k < MOST_GATHERS && i + 1 < n)
            continue;
        rc = queued(w,
                    w->link->ops->gather(w->link->comm[w->comm].comm, stream(w),
                                         gather, k, err),
                    err);
        k = 0;
    }
    return rc;
}

static enum merak_status store(struct work *w, struct merak_error *err)
{
    enum merak_status rc;

    if (is_plain_gather(w->ex))
        return gather(w, 1, err);
    rc = store_own(w, err);
    if (rc == MERAK_OK)
        rc = send_boxes(w, err);
    return rc == MERAK_OK ? place_boxes(w, err) : rc;
}

/* --- what is combined -------------------------------------------------------
 */

size_t merak_link_scratch(const struct merak_link *link,
                          const struct merak_exchange *ex)
{
    return merak_staged_bytes(ex, link->fragment);
}

/* Where the message for member q begins: in the input, or packed after what is
 * received if it is not contiguous; called in member order. */
static enum merak_status sent_from(struct work *w, int q,
                                   unsigned char **free_p,
                                   const unsigned char **from_p,
                                   struct merak_error *err)
{
    struct merak_box box = merak_staged_sent(w->ex, q);
    size_t offset = 0;

    if (merak_box_contiguous(&box, &offset)) {
        *from_p = w->in + offset * w->es;
        return MERAK_OK;
    }
    *from_p = *free_p;
    *free_p += aligned(box_bytes(w, &box));
    return pack(w, (void *)(uintptr_t)*from_p, w->in, &box, err);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Fragment at byte `at` of every message.  The walk is that of
 * sent_from(), so it finds the packed ones. */
static enum merak_status move_fragment(struct work *w, size_t at, size_t mine,
                                       struct merak_error *err)
{
    size_t stride = merak_staged_stride(w->ex, w->fragment);
    unsigned char *staged = w->call->scratch;
    unsigned char *packed = staged + (size_t)(w->ex->n - 1) * stride;

    for (int q = 0; q < w->ex->n; q++) {
        struct merak_box box = merak_staged_sent(w->ex, q);
        size_t bytes = box_bytes(w, &box), offset = 0;
        unsigned char *from = packed;

        if (merak_box_contiguous(&box, &offset))
            from = w->in + offset * w->es;
        else
            packed += aligned(bytes);
        if (q == w->ex->me)
            continue;
        if (at < bytes)
            add_message(w, true, from + at, least(bytes - at, w->fragment), q);
        if (at < mine)
            add_message(w, false, staged, least(mine - at, w->fragment), q);
        staged += stride;
    }
    return move(w, err);
}

static enum merak_status combine_fragment(struct work *w,
                                          const unsigned char *own,
                                          unsigned char *to, size_t at,
                                          size_t mine, struct merak_error *err)
{
    struct merak_accel *a = w->link->accel;
    const struct merak_accel_terms terms = {
        .n = w->ex->n,
        .me = w->ex->me,
        .mine = own + at,
        .staged = w->call->scratch,
        .stride = merak_staged_stride(w->ex, w->fragment),
        .count = at < mine ? least(mine - at, w->fragment) / w->es : 0,
        .dtype = w->ex->dtype,
        .max = w->ex->combine == MERAK_MAX,
    };

    if (terms.count == 0)
        return MERAK_OK;
    return a->ops->combine(a, w->call->queue, to + at, &terms, err);
}

/* Combine this rank's part, in as many rounds as the largest part needs. */
static enum merak_status combine(struct work *w, struct merak_error *err)
{
    const struct merak_box box = merak_staged_combined(w->ex);
    size_t mine = box_bytes(w, &box), most = mine, offset = 0;
    unsigned char *packed =
        w->call->scratch +
        (size_t)(w->ex->n - 1) * merak_staged_stride(w->ex, w->fragment);
    const unsigned char *own = NULL, *from;
    bool in_place = merak_box_contiguous(&box, &offset);
    unsigned char *to;
    enum merak_status rc = MERAK_OK;

    for (int q = 0; q < w->ex->n && rc == MERAK_OK; q++) {
        struct merak_box sent = merak_staged_sent(w->ex, q);

        rc = sent_from(w, q, &packed, &from, err);
        own = q == w->ex->me ? from : own;
        most = box_bytes(w, &sent) > most ? box_bytes(w, &sent) : most;
    }
    to = in_place ? w->out + offset * w->es : packed;
    for (size_t at = 0; at < most && rc == MERAK_OK; at += w->fragment) {
        rc = move_fragment(w, at, mine, err);
        if (rc == MERAK_OK)
            rc = combine_fragment(w, own, to, at, mine, err);
    }
    return rc == MERAK_OK && !in_place ? unpack(w, w->out, &box, to, err) : rc;
}

/* An all-reduce's second half: all-gather the cuts. */
static enum merak_status gather_cuts(struct work *w, struct merak_error *err)
{
    const struct merak_exchange *ex = w->ex;
    size_t offset = 0;

    for (int q = 0; q < ex->n; q++) {
        if (q == ex->me)
            continue;
        merak_box_contiguous(&ex->recv[ex->me], &offset);
        add_message(w, true, w->out + offset * w->es,
                    box_bytes(w, &ex->recv[ex->me]), q);
        merak_box_contiguous(&ex->send[q], &offset);
        add_message(w, false, w->out + offset * w->es,
                    box_bytes(w, &ex->send[q]), q);
    }
    return move(w, err);
}

/* Is it a reduce-scatter to equal rows of the input, as NCCL has? */
static bool is_plain_scatter(const struct merak_exchange *ex)
{
    size_t offset = 0, count = merak_box_count(&ex->recv[ex->me]);

    if (ex->kind != MERAK_CONVERT_REDUCE_SCATTER ||
        merak_shape_count(&ex->out) != count)
        return false;
    for (int q = 0; q < ex->n; q++) {
        if (merak_box_count(&ex->send[q]) != count ||
            !merak_box_contiguous(&ex->send[q], &offset) ||
            offset != (size_t)q * count)
            return false;
    }
    return true;
}

/* Use the library's reduction, if it has that form. */
static enum merak_status combine_fast(struct work *w, struct merak_error *err)
{
    const struct merak_link_sum sum = {
        .in = w->in,
        .out = w->out,
        .count = merak_shape_count(&w->ex->out),
        .dtype = w->ex->dtype,
        .max = w->ex->combine == MERAK_MAX,
        .scatter = w->ex->kind == MERAK_CONVERT_REDUCE_SCATTER,
    };

    return queued(
        w, w->link->ops->sum(w->link->comm[w->comm].comm, stream(w), &sum, err),
        err);
}

static enum merak_status exchange_one(struct merak_link *link, int comm,
                                      const struct merak_link_call *call,
                                      struct merak_error *err)
{
    const struct merak_exchange *ex = call->ex;
    struct work w = {.link = link,
                     .call = call,
                     .ex = ex,
                     .comm = comm,
                     .es = merak_dtype_bytes(ex->dtype),
                     .fragment = link->fragment > 0
                                     ? link->fragment
                                     : merak_staged_fragment(ex->n),
                     .in = (unsigned char *)(uintptr_t)call->in,
                     .out = call->out};
    struct merak_box all;
    enum merak_status rc;

    if (ex->n == 1 && ex->kind == MERAK_CONVERT_ALL_REDUCE) {
        all = merak_staged_combined(ex);
        return w.in == w.out ? MERAK_OK : pack(&w, w.out, w.in, &all, err);
    }
    if (ex->n == 1 || ex->combine == MERAK_STORE)
        return ex->n == 1 ? store_own(&w, err) : store(&w, err);
    if (link->fast &&
        (ex->kind == MERAK_CONVERT_ALL_REDUCE || is_plain_scatter(ex)))
        return combine_fast(&w, err);
    rc = combine(&w, err);
    if (rc == MERAK_OK && ex->kind == MERAK_CONVERT_ALL_REDUCE &&
        !merak_staged_is_short(ex))
        rc = gather_cuts(&w, err);
    return rc;
}

enum merak_status merak_link_exchange(struct merak_link *link, int comm,
                                      const struct merak_link_call *call, int n,
                                      struct merak_error *err)
{
    struct work w = {.link = link, .call = call, .comm = comm};
    bool plain = n > 1;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < n && plain; i++)
        plain = is_plain_gather(call[i].ex);
    if (plain)
        return gather(&w, n, err);
    for (int i = 0; i < n && rc == MERAK_OK; i++)
        rc = exchange_one(link, comm, &call[i], err);
    return rc;
}
