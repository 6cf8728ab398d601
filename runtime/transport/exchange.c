/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c - collectives by a transport's sends and receives
 *
 * A round sends each member a box of the input and receives one from each:
 * directly from and into the operands if a box is contiguous, through scratch
 * if it must be packed, unpacked or combined.  Everything but an all-reduce is
 * one round.  An all-reduce is
 *
 *   small   one round: all send everything to all, each combines all of it
 *   large   a round that combines this member's flat cut, then one that
 *           gathers the cuts
 *
 * Every element is combined in ascending member order, from the same operands,
 * by one of the members or by all: the bits are the same either way.
 *
 * A round that combines moves its messages in fragments
 * (merak_exchange_fragment()), two of them in flight at a time: each pair of
 * members sends and receives them in order, so they share a tag.
 *
 * Scratch is walked in member order, each message rounded up to 64 bytes, or
 * two fragments of it: the packed send box, then the received one
 * (merak_exchange_scratch() counts the same).  A small all-reduce stages in a
 * buffer of the run, since the plan has room only for cuts.
 */
#include "config.h"

#include "runtime/transport/transport_impl.h"

#include "base/error.h"
#include "base/size.h"
#include "runtime/transport/tensor_box.h"

#include <stdlib.h>
#include <string.h>

#define STAGING_ALIGN 64
/* Below this a second round's latency costs more than sending all to all. */
#define SMALL_BYTES ((size_t)4096)
/* The most that a small all-reduce stages; larger teams use cuts. */
#define SMALL_STAGING ((size_t)64 << 10)
/* Local work done in one advance(), so that others progress too. */
#define SLICE_BYTES ((size_t)512 << 10)

struct member {
    char *packed; /* in scratch, or NULL: sent from the operand */
    char *staged; /* in scratch, or NULL: received in the operand */
    struct merak_view unpacked; /* what remains to be packed */
};

/* The messages of one fragment. */
struct window {
    int n_reqs, first_open;     /* requests before it are done */
    struct merak_request **req; /* [2 * cap] */
};

struct merak_exchange_run {
    struct merak_exchange_args a;
    const char *in; /* of this round */
    char *out;
    size_t count; /* all-reduce: elements */
    int round, n_rounds;
    bool small;
    enum merak_combine combine; /* of this round */
    size_t fragment;            /* bytes of a message that move at a time */
    /* Of this round: the fragments, those posted, the one being waited for or
     * combined, and its elements that remain. */
    size_t n_fragments, posted, at, left;
    bool moving; /* requests are in flight; else local work is under way */
    int unpack;  /* member whose box is unpacked next */
    struct merak_view to;
    struct merak_view *from; /* [cap] when combining, else one */
    struct window window[2];
    struct member *member; /* [cap] */
    int cap;
    char *small_staging;
};

struct merak_exchange_run *merak_exchange_run_create(void)
{
    return calloc(1, sizeof(struct merak_exchange_run));
}

static void free_members(struct merak_exchange_run *run)
{
    free(run->window[0].req); /* both windows' */
    free(run->member);
    free(run->from);
    free(run->small_staging);
    run->cap = 0;
}

void merak_exchange_run_destroy(struct merak_exchange_run *run)
{
    if (run == NULL)
        return;
    free_members(run);
    free(run);
}

enum merak_status merak_exchange_run_reserve(struct merak_exchange_run *run,
                                             int n, struct merak_error *err)
{
    struct window *w = run->window;
    size_t m = (size_t)n;

    if (n <= run->cap)
        return MERAK_OK;
    free_members(run);
    run->small_staging = malloc(SMALL_STAGING);
    w[0].req = calloc(4 * m, sizeof(*w->req));
    run->member = calloc(m, sizeof(*run->member));
    run->from = calloc(m, sizeof(*run->from));
    if (w[0].req == NULL || run->member == NULL || run->from == NULL ||
        run->small_staging == NULL)
        return merak_fail_nomem(err, m * sizeof(*run->member));
    w[1].req = w[0].req + 2 * m;
    run->cap = n;
    return MERAK_OK;
}

/* Elements [lo, hi) of `count` elements. */
static void flat_box(struct merak_box *box, size_t count, size_t lo, size_t hi)
{
    box->ndim = 1; /* other dims are not read, so not cleared: it takes time */
    box->full[0] = count;
    box->lo[0] = lo;
    box->len[0] = hi - lo;
}

static void cut_box(const struct merak_exchange_run *run, int q,
                    struct merak_box *box)
{
    size_t n = (size_t)run->a.team->n, i = (size_t)q;

    flat_box(box, run->count, merak_cut(run->count, n, i),
             merak_cut(run->count, n, i + 1));
}

/* The input's box that goes to member q in this round; next, the output's box
 * that comes from it. */
static void send_box(const struct merak_exchange_run *run, int q,
                     struct merak_box *box)
{
    if (run->a.ex->kind != MERAK_CONVERT_ALL_REDUCE)
        *box = run->a.ex->send[q];
    else if (run->small)
        flat_box(box, run->count, 0, run->count);
    else
        cut_box(run, run->round == 0 ? q : run->a.team->me, box);
}

static void recv_box(const struct merak_exchange_run *run, int q,
                     struct merak_box *box)
{
    if (run->a.ex->kind != MERAK_CONVERT_ALL_REDUCE)
        *box = run->a.ex->recv[q];
    else if (run->small)
        flat_box(box, run->count, 0, run->count);
    else
        cut_box(run, run->round == 0 ? run->a.team->me : q, box);
}

static size_t box_bytes(const struct merak_exchange_run *run,
                        const struct merak_box *box)
{
    return merak_box_count(box) * merak_dtype_bytes(run->a.ex->dtype);
}

/* Bytes of the k-th fragment of a message; 0 past its end. */
static size_t fragment_bytes(const struct merak_exchange_run *run, size_t bytes,
                             size_t k)
{
    if (run->fragment == SIZE_MAX)
        return k == 0 ? bytes : 0;
    if (bytes <= k * run->fragment)
        return 0;
    bytes -= k * run->fragment;
    return bytes < run->fragment ? bytes : run->fragment;
}

static size_t fragment_count(const struct merak_exchange_run *run, size_t bytes)
{
    return bytes == 0 ? 0 : (bytes - 1) / run->fragment + 1;
}

static char *take(const struct merak_exchange_run *run, char **at, size_t bytes)
{
    char *p = *at;

    bytes = merak_size_align(bytes, STAGING_ALIGN);
    *at += bytes / 2 < run->fragment ? bytes : 2 * run->fragment;
    return p;
}

/* The offset of fragment k of a staged message: fragments alternate between
 * two.
 */
static size_t place_in_staging(const struct merak_exchange_run *run, size_t k)
{
    return k % 2 == 0 ? 0 : run->fragment;
}

/* Set the number of fragments to that of the round's longest message. */
static void count_fragments(struct merak_exchange_run *run,
                            const struct merak_box *box)
{
    size_t n;

    if (run->fragment == SIZE_MAX)
        return; /* always one fragment */
    n = fragment_count(run, box_bytes(run, box));
    if (n > run->n_fragments)
        run->n_fragments = n;
}

static void lay_out_scratch(struct merak_exchange_run *run)
{
    char *at = run->small ? run->small_staging : run->a.scratch;
    struct merak_box box;

    for (int q = 0; q < run->a.team->n; q++) {
        struct member *m = &run->member[q];

        m->packed = NULL;
        m->staged = NULL;
        if (q == run->a.team->me)
            continue;
        send_box(run, q, &box);
        if (!merak_box_contiguous(&box, NULL)) {
            m->packed = take(run, &at, box_bytes(run, &box));
            merak_view_box(&m->unpacked, run->in, run->a.ex->dtype, &box);
        }
        count_fragments(run, &box);
        recv_box(run, q, &box);
        if (run->combine != MERAK_STORE || !merak_box_contiguous(&box, NULL))
            m->staged = take(run, &at, box_bytes(run, &box));
        count_fragments(run, &box);
    }
}

static void keep(struct merak_exchange_run *run, struct merak_request *req)
{
    struct window *w = &run->window[run->posted % 2];

    w->req[w->n_reqs++] = req;
}

static enum merak_status post_recv(struct merak_exchange_run *run, int q,
                                   struct merak_error *err)
{
    struct merak_transport *tr = run->a.tr;
    struct merak_request *req;
    struct merak_box box;
    size_t offset = 0, bytes;
    enum merak_status rc;
    char *to = run->member[q].staged;

    recv_box(run, q, &box);
    bytes = fragment_bytes(run, box_bytes(run, &box), run->posted);
    if (bytes == 0)
        return MERAK_OK;
    if (to == NULL) { /* nothing to combine: all of it */
        merak_box_contiguous(&box, &offset);
        to = run->out + offset * merak_dtype_bytes(run->a.ex->dtype);
    } else {
        to += place_in_staging(run, run->posted);
    }
    rc = tr->ops->recv(tr, to, bytes, run->a.team->rank[q], run->a.tag, &req,
                       err);
    if (rc == MERAK_OK)
        keep(run, req);
    return rc;
}

static enum merak_status post_send(struct merak_exchange_run *run, int q,
                                   struct merak_error *err)
{
    struct merak_transport *tr = run->a.tr;
    struct merak_request *req;
    struct merak_box box;
    struct merak_view to;
    size_t offset = 0, bytes, es = merak_dtype_bytes(run->a.ex->dtype);
    enum merak_status rc;
    const char *buf = run->member[q].packed;

    send_box(run, q, &box);
    bytes = fragment_bytes(run, box_bytes(run, &box), run->posted);
    if (bytes == 0)
        return MERAK_OK;
    if (buf != NULL) {
        buf += place_in_staging(run, run->posted);
        merak_view_flat(&to, buf, run->a.ex->dtype, bytes / es);
        merak_view_copy(&to, &run->member[q].unpacked, bytes / es);
    } else {
        merak_box_contiguous(&box, &offset);
        buf = run->in + offset * es;
        buf += run->posted > 0 ? run->posted * run->fragment : 0;
    }
    rc = tr->ops->send(tr, buf, bytes, run->a.team->rank[q], run->a.tag, &req,
                       err);
    if (rc == MERAK_OK)
        keep(run, req);
    return rc;
}

/* Receives first, then sends, each member starting with its successor so that
 * not all send to the same one at the same time. */
static enum merak_status post_fragment(struct merak_exchange_run *run,
                                       struct merak_error *err)
{
    int n = run->a.team->n, me = run->a.team->me;
    struct window *w = &run->window[run->posted % 2];
    enum merak_status rc = MERAK_OK;

    w->n_reqs = 0;
    w->first_open = 0;
    for (int i = 1; i < n && rc == MERAK_OK; i++)
        rc = post_recv(run, (me + n - i) % n, err);
    for (int i = 1; i < n && rc == MERAK_OK; i++)
        rc = post_send(run, (me + i) % n, err);
    run->posted++;
    return rc;
}

static enum merak_status start_round(struct merak_exchange_run *run,
                                     struct merak_error *err)
{
    enum merak_status rc;

    run->fragment = run->combine == MERAK_STORE || run->small
                        ? SIZE_MAX
                        : merak_exchange_fragment(run->a.ex);
    run->n_fragments = 1;
    run->posted = run->at = 0;
    run->moving = true;
    lay_out_scratch(run);
    rc = post_fragment(run, err);
    return rc == MERAK_OK && run->n_fragments > 1 ? post_fragment(run, err)
                                                  : rc;
}

bool merak_exchange_is_small(const struct merak_exchange *ex)
{
    size_t peers = (size_t)ex->n - 1;
    size_t bytes = merak_shape_count(&ex->in) * merak_dtype_bytes(ex->dtype);

    return ex->kind == MERAK_CONVERT_ALL_REDUCE && bytes <= SMALL_BYTES &&
           peers * merak_size_align(bytes, STAGING_ALIGN) <= SMALL_STAGING;
}

static void plan_all_reduce(struct merak_exchange_run *run)
{
    run->count = merak_shape_count(&run->a.ex->in);
    run->small = merak_exchange_is_small(run->a.ex);
    run->n_rounds = run->small ? 1 : 2;
}

enum merak_status merak_exchange_run_start(struct merak_exchange_run *run,
                                           const struct merak_exchange_args *a,
                                           struct merak_error *err)
{
    enum merak_status rc = merak_exchange_run_reserve(run, a->team->n, err);

    if (rc != MERAK_OK)
        return rc;
    run->a = *a;
    run->in = a->in;
    run->out = a->out;
    run->round = 0;
    run->n_rounds = 1;
    run->small = false;
    run->combine = a->ex->combine;
    if (a->ex->kind == MERAK_CONVERT_ALL_REDUCE)
        plan_all_reduce(run);
    return start_round(run, err);
}

/* --- local work: combine or unpack messages -------------------- */

/* Combine the fragment that has arrived; this rank's own operand continues
 * where it stopped. */
static void start_combine(struct merak_exchange_run *run)
{
    enum merak_dtype dtype = run->a.ex->dtype;
    size_t place = place_in_staging(run, run->at);
    int me = run->a.team->me;
    struct merak_box box;

    recv_box(run, me, &box);
    run->left = fragment_bytes(run, box_bytes(run, &box), run->at) /
                merak_dtype_bytes(dtype);
    if (run->at == 0)
        merak_view_box(&run->to, run->out, dtype, &box);
    for (int q = 0; q < run->a.team->n; q++) {
        if (q != me)
            merak_view_flat(&run->from[q], run->member[q].staged + place, dtype,
                            run->left);
    }
    if (run->at > 0)
        return;
    send_box(run, me, &box);
    merak_view_box(&run->from[me], run->in, dtype, &box);
}

/* The views of the next box to unpack; false if there is none. */
static bool start_unpack(struct merak_exchange_run *run)
{
    enum merak_dtype dtype = run->a.ex->dtype;
    int me = run->a.team->me;
    struct merak_box box;
    int q;

    while (run->unpack != me && run->unpack < run->a.team->n &&
           run->member[run->unpack].staged == NULL)
        run->unpack++;
    if (run->unpack >= run->a.team->n)
        return false;
    q = run->unpack++;
    recv_box(run, q, &box);
    merak_view_box(&run->to, run->out, dtype, &box);
    if (q == me) {
        send_box(run, q, &box);
        merak_view_box(run->from, run->in, dtype, &box);
    } else {
        merak_view_flat(run->from, run->member[q].staged, dtype,
                        merak_box_count(&box));
    }
    return true;
}

static void start_local(struct merak_exchange_run *run)
{
    run->moving = false;
    if (run->combine != MERAK_STORE) {
        start_combine(run);
        return;
    }
    run->unpack = 0;
    run->from->left = 0;
}

/* One slice of local work; true when there is no more. */
static bool local_slice(struct merak_exchange_run *run)
{
    enum merak_dtype dtype = run->a.ex->dtype;
    size_t left = SLICE_BYTES / merak_dtype_bytes(dtype);

    if (run->combine != MERAK_STORE) {
        if (left > run->left)
            left = run->left;
        run->left -= merak_view_combine(&run->to, 1, run->from, run->a.team->n,
                                        run->combine, dtype, left);
        return run->left == 0;
    }
    while (left > 0) {
        if (run->from->left == 0 && !start_unpack(run))
            return true;
        left -= merak_view_copy(&run->to, run->from, left);
    }
    return false;
}

static enum merak_status check_requests(struct merak_exchange_run *run,
                                        struct merak_error *err)
{
    struct merak_transport *tr = run->a.tr;
    struct window *w = &run->window[run->at % 2];
    enum merak_status rc;

    while (w->first_open < w->n_reqs) {
        rc = tr->ops->test(tr, w->req[w->first_open], err);
        if (rc != MERAK_OK)
            return rc;
        w->first_open++;
    }
    return MERAK_OK;
}

/* An all-reduce's second round gathers what the first one put in `out`. */
static enum merak_status next_round(struct merak_exchange_run *run,
                                    struct merak_error *err)
{
    enum merak_status rc;

    if (++run->round == run->n_rounds)
        return MERAK_OK;
    run->in = run->out;
    run->combine = MERAK_STORE;
    rc = start_round(run, err);
    return rc == MERAK_OK ? MERAK_IN_PROGRESS : rc;
}

/* Post the fragment after next, now that its staging is free: the requests are
 * done and the fragment is combined. */
static enum merak_status next_fragment(struct merak_exchange_run *run,
                                       struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (++run->at == run->n_fragments)
        return next_round(run, err);
    run->moving = true;
    if (run->posted < run->n_fragments)
        rc = post_fragment(run, err);
    return rc == MERAK_OK ? MERAK_IN_PROGRESS : rc;
}

enum merak_status merak_exchange_run_advance(struct merak_exchange_run *run,
                                             struct merak_error *err)
{
    enum merak_status rc;

    /* A round may be over as soon as it is posted, so check again. */
    do {
        if (run->moving) {
            rc = check_requests(run, err);
            if (rc != MERAK_OK)
                return rc;
            start_local(run);
        }
        if (!local_slice(run))
            return MERAK_IN_PROGRESS;
        rc = next_fragment(run, err);
    } while (rc == MERAK_IN_PROGRESS);
    return rc;
}

bool merak_exchange_run_is_busy(const struct merak_exchange_run *run)
{
    return !run->moving;
}
