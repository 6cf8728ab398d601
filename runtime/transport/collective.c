/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c - blocking collectives over whole buffers
 *
 * For set-up and the end of a step.  Barrier and agreement are the same
 * dissemination: in round k every member sends what it knows of failures to
 * the one 2^k further on, and the first failing member wins.  Taking the first
 * is idempotent, so any member count needs ceil(log2 n) rounds.
 */
#include "config.h"

#include "runtime/transport/transport_impl.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct verdict {
    int member; /* the first that failed; n: none */
    struct merak_error err;
};

/* Post both, then wait for both, so that neither delays the other's peer. */
static enum merak_status sendrecv(struct merak_transport *tr, const void *out,
                                  int to, void *in, int from, size_t bytes,
                                  uint64_t tag, struct merak_error *err)
{
    struct merak_request *send, *recv;
    enum merak_status rc;

    rc = tr->ops->recv(tr, in, bytes, from, tag, &recv, err);
    if (rc != MERAK_OK)
        return rc;
    rc = tr->ops->send(tr, out, bytes, to, tag, &send, err);
    if (rc != MERAK_OK)
        return rc;
    rc = merak_request_wait(tr, recv, err);
    if (rc != MERAK_OK)
        return rc;
    return merak_request_wait(tr, send, err);
}

static enum merak_status check(const struct merak_transport *tr,
                               const struct merak_team *team,
                               struct merak_error *err)
{
    if (tr == NULL || team == NULL || team->n < 1 || team->me < 0 ||
        team->me >= team->n)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "a collective without transport or team");
    return MERAK_OK;
}

static enum merak_status disseminate(struct merak_transport *tr,
                                     const struct merak_team *team,
                                     struct verdict *v, struct merak_error *err)
{
    struct verdict theirs;
    int n = team->n;
    enum merak_status rc;

    for (int distance = 1; distance < n; distance *= 2) {
        rc = sendrecv(tr, v, team->rank[(team->me + distance) % n], &theirs,
                      team->rank[(team->me + n - distance) % n], sizeof(theirs),
                      MERAK_TAG_OWN + MERAK_TAG_AGREE, err);
        if (rc != MERAK_OK)
            return rc;
        if (theirs.member < v->member)
            *v = theirs;
    }
    return MERAK_OK;
}

/* More messages than UCX's shared-memory queues of short messages hold; and
 * sizes up to nearly their largest, to use all of UCX's short protocols. */
#define WARM_UP_COUNT 256
#define WARM_UP_BYTES 8000
static const size_t warm_up_sizes[] = {8, 200, 4000, WARM_UP_BYTES};

static size_t warm_up_bytes(int i)
{
    return warm_up_sizes[(size_t)i %
                         (sizeof(warm_up_sizes) / sizeof(*warm_up_sizes))];
}

/* Send all messages at once: receives are posted when messages have already
 * arrived, which a barrier ensures, since its messages come after them. */
static enum merak_status warm_up(struct merak_transport *tr,
                                 const struct merak_team *team, char *buf,
                                 struct merak_request **req,
                                 struct merak_error *err)
{
    const uint64_t tag = MERAK_TAG_OWN + MERAK_TAG_WARM_UP;
    int to = team->rank[(team->me + 1) % team->n];
    int from = team->rank[(team->me + team->n - 1) % team->n];
    enum merak_status rc = MERAK_OK;
    int posted = 0;

    for (int i = 0; i < WARM_UP_COUNT && rc == MERAK_OK; i++) {
        rc = tr->ops->send(tr, buf, warm_up_bytes(i), to, tag, &req[posted],
                           err);
        posted += rc == MERAK_OK;
    }
    if (rc == MERAK_OK)
        rc = merak_barrier(tr, team, err);
    for (int i = 0; i < WARM_UP_COUNT && rc == MERAK_OK; i++) {
        rc = tr->ops->recv(tr, buf + WARM_UP_BYTES, warm_up_bytes(i), from, tag,
                           &req[posted], err);
        posted += rc == MERAK_OK;
    }
    for (int i = 0; i < posted && rc == MERAK_OK; i++)
        rc = merak_request_wait(tr, req[i], err);
    return rc;
}

enum merak_status merak_transport_warm_up(struct merak_transport *tr,
                                          const struct merak_team *team,
                                          struct merak_error *err)
{
    enum merak_status rc = check(tr, team, err);
    struct merak_request **req;
    char *buf;

    if (rc != MERAK_OK || team->n == 1)
        return rc;
    req = calloc(2 * WARM_UP_COUNT, sizeof(*req));
    buf = calloc(2, WARM_UP_BYTES);
    rc = req == NULL || buf == NULL ? merak_fail_nomem(err, 2 * WARM_UP_BYTES)
                                    : warm_up(tr, team, buf, req, err);
    free(req);
    /* After a failure the fabric may still use it. */
    if (rc == MERAK_OK)
        free(buf);
    return rc;
}

enum merak_status merak_agree(struct merak_transport *tr,
                              const struct merak_team *team,
                              enum merak_status mine, struct merak_error *err)
{
    struct verdict v = {0};
    enum merak_status rc = check(tr, team, err);

    if (rc != MERAK_OK)
        return rc;
    /* This rank has already waited for the full deadline. */
    if (mine == MERAK_ERR_TIMEOUT && tr->timed_out)
        return mine;
    v.member = mine == MERAK_OK ? team->n : team->me;
    if (mine != MERAK_OK) {
        if (err != NULL && err->status == mine)
            v.err = *err;
        else
            merak_fail(&v.err, mine, "%s", merak_status_name(mine));
    }
    rc = disseminate(tr, team, &v, err);
    if (rc != MERAK_OK || v.member == team->n)
        return rc;
    v.err.text[sizeof(v.err.text) - 1] = '\0';
    merak_error_wrap(&v.err, "rank %d", team->rank[v.member]);
    if (err != NULL)
        *err = v.err;
    return v.err.status;
}

enum merak_status merak_barrier(struct merak_transport *tr,
                                const struct merak_team *team,
                                struct merak_error *err)
{
    struct verdict v = {0};
    enum merak_status rc = check(tr, team, err);

    if (rc != MERAK_OK)
        return rc;
    v.member = team->n;
    return disseminate(tr, team, &v, err);
}

/*
 * A binomial tree over positions counted from the root: the parent of p is p
 * with its lowest set bit cleared.
 */
enum merak_status merak_broadcast(struct merak_transport *tr,
                                  const struct merak_team *team, void *buf,
                                  size_t bytes, int root,
                                  struct merak_error *err)
{
    const uint64_t tag = MERAK_TAG_OWN + MERAK_TAG_BROADCAST;
    struct merak_request *req[32];
    int n_reqs = 0, bit = 1, position;
    enum merak_status rc = check(tr, team, err);

    if (rc != MERAK_OK)
        return rc;
    if (root < 0 || root >= team->n)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "broadcast root %d, expected a member of 0..%d", root,
                          team->n - 1);
    position = (team->me + team->n - root) % team->n;
    while (bit < team->n && (position & bit) == 0)
        bit *= 2;
    if (position != 0) {
        rc = tr->ops->recv(tr, buf, bytes,
                           team->rank[(position - bit + root) % team->n], tag,
                           &req[0], err);
        if (rc == MERAK_OK)
            rc = merak_request_wait(tr, req[0], err);
    }
    while (rc == MERAK_OK && (bit /= 2) > 0) {
        if (position + bit >= team->n)
            continue;
        rc = tr->ops->send(tr, buf, bytes,
                           team->rank[(position + bit + root) % team->n], tag,
                           &req[n_reqs], err);
        n_reqs += rc == MERAK_OK;
    }
    for (int i = 0; i < n_reqs && rc == MERAK_OK; i++)
        rc = merak_request_wait(tr, req[i], err);
    return rc;
}

static enum merak_status sum_scratch(struct merak_transport *tr, size_t count,
                                     struct merak_error *err)
{
    size_t bytes = count * sizeof(double);

    if (bytes <= tr->sum_scratch_bytes)
        return MERAK_OK;
    free(tr->sum_scratch);
    tr->sum_scratch_bytes = 0;
    tr->sum_scratch = malloc(bytes);
    if (tr->sum_scratch == NULL)
        return merak_fail_nomem(err, bytes);
    tr->sum_scratch_bytes = bytes;
    return MERAK_OK;
}

/* With more members than this, short sums use allgather_sum(). */
#define SUM_DIRECT 8
#define SUM_GATHERED_BYTES ((size_t)256 << 10)

/*
 * Every member gets all numbers and adds them in member order, as an exchange
 * does: in round k it receives from the one 2^k further on, which has those of
 * 2^k members by then.  In an exchange each member connects to all.  Source:
 * Bruck et al. 1997, "Efficient algorithms for all-to-all communications in
 * multiport message-passing systems".
 */
static enum merak_status allgather_sum(struct merak_transport *tr,
                                       const struct merak_team *team,
                                       double *inout, size_t n,
                                       struct merak_error *err)
{
    const int members = team->n;
    double *all = tr->sum_scratch; /* [members * n], mine first */
    enum merak_status rc = MERAK_OK;

    memcpy(all, inout, n * sizeof(*all));
    for (int distance = 1; distance < members && rc == MERAK_OK;
         distance *= 2) {
        int count =
            distance < members - distance ? distance : members - distance;

        rc = sendrecv(tr, all,
                      team->rank[(team->me + members - distance) % members],
                      all + (size_t)distance * n,
                      team->rank[(team->me + distance) % members],
                      (size_t)count * n * sizeof(*all),
                      MERAK_TAG_OWN + MERAK_TAG_SUM, err);
    }
    for (int m = 0; m < members && rc == MERAK_OK; m++) {
        const double *theirs =
            all + (size_t)((m - team->me + members) % members) * n;

        for (size_t i = 0; i < n; i++)
            inout[i] = m == 0 ? theirs[i] : inout[i] + theirs[i];
    }
    return rc;
}

static enum merak_status exchange_sum(struct merak_transport *tr,
                                      const struct merak_team *team,
                                      const struct merak_exchange *ex,
                                      double *inout, struct merak_error *err)
{
    struct merak_request *req;
    enum merak_status rc =
        tr->ops->exchange(tr, team, ex, inout, inout, tr->sum_scratch,
                          MERAK_TAG_OWN + MERAK_TAG_SUM, &req, err);

    return rc == MERAK_OK ? merak_request_wait(tr, req, err) : rc;
}

enum merak_status merak_all_reduce_sum(struct merak_transport *tr,
                                       const struct merak_team *team,
                                       double *inout, size_t n,
                                       struct merak_error *err)
{
    struct merak_exchange ex = {.kind = MERAK_CONVERT_ALL_REDUCE,
                                .combine = MERAK_SUM,
                                .dtype = MERAK_F64};
    enum merak_status rc = check(tr, team, err);
    size_t members;
    bool gather;

    if (rc != MERAK_OK || n == 0)
        return rc;
    members = (size_t)team->n;
    gather = team->n > SUM_DIRECT &&
             n <= SUM_GATHERED_BYTES / sizeof(double) / members;
    ex.n = team->n;
    ex.me = team->me;
    ex.in = ex.out = (struct merak_shape){.ndim = 1, .dim = {n}};
    /* Scratch of an exchange: cuts of the n - 1 others, each at most one
     * element over an even share and rounded up to 64 bytes. */
    if (gather)
        rc = sum_scratch(tr, members * n, err);
    else if (!merak_exchange_is_small(&ex))
        rc = sum_scratch(tr, n + members * 9, err);
    if (rc != MERAK_OK)
        return rc;
    rc = gather ? allgather_sum(tr, team, inout, n, err)
                : exchange_sum(tr, team, &ex, inout, err);
    if (rc != MERAK_OK) { /* the fabric may still write into it: leak it */
        tr->sum_scratch = NULL;
        tr->sum_scratch_bytes = 0;
    }
    return rc;
}
