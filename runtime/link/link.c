/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - creating, watching and ending a link's communicators */
#include "config.h"

#include "runtime/link/link_impl.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/size.h"
#include "base/wait.h"
#include "kernels/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long to spin before naps.  NCCL queues an operation of a non-blocking
 * communicator on a thread of its own, which takes some 100 us, and a nap ends
 * late. */
/* What a rehearsal sends between two members, each way. */
#define TRIAL_BYTES (MERAK_LINK_TRIAL_BYTES / 2)
#define ALIGNED 16
/* Messages of pairs run concurrently with matrix products and each other: a
 * few thread blocks are fast enough, and all must fit on the device at
 * once. */
#define PAIR_CTAS 4

enum merak_status merak_link_load(const char *name,
                                  const struct merak_link_ops **ops_p,
                                  struct merak_error *err)
{
    char built[64];
    const struct merak_module_ask ask = {
        .name = name,
        .kind = "transport",
        .built = built,
        .symbol = MERAK_LINK_SYMBOL,
        .mend = "install it, or use --transport ucx",
    };
    const struct merak_link_module *module;
    const void *symbol;
    enum merak_status rc;

    snprintf(built, sizeof(built), "runtime/%s", name);
    rc = merak_module_symbol(&ask, &symbol, NULL, err);
    if (rc != MERAK_OK)
        return rc;
    module = symbol;
    if (module->abi != MERAK_LINK_ABI ||
        strcmp(module->version, PACKAGE_VERSION) != 0 ||
        module->ops_bytes != sizeof(struct merak_link_ops))
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "merak_%s.so is from another build of Merak than "
                          "this one (%s): install both from one build",
                          name, PACKAGE_VERSION);
    *ops_p = module->ops;
    return MERAK_OK;
}

/* --- waiting ----------------------------------------------------------------
 */

/* "messages from rank 1 to rank 0", "the group of ranks 0, 2, .. (8)" */
static void name_comm(const struct merak_link *link, const struct link_comm *c,
                      char *text, size_t size)
{
    size_t n;

    if (c->pair) {
        snprintf(text, size, "messages from rank %d to rank %d",
                 merak_transport_rank_name(link->tr, c->rank[0]),
                 merak_transport_rank_name(link->tr, c->rank[1]));
        return;
    }
    n = (size_t)snprintf(text, size, "the group of ranks");
    for (int i = 0; i < c->n && i < 4; i++)
        n += (size_t)snprintf(text + n, size - n, "%s %d", i > 0 ? "," : "",
                              merak_transport_rank_name(link->tr, c->rank[i]));
    if (c->n > 4)
        snprintf(text + n, size - n, ", .. (%d)", c->n);
}

static enum merak_status wrap(const struct merak_link *link,
                              const struct link_comm *c, enum merak_status rc,
                              struct merak_error *err)
{
    char name[96];

    name_comm(link, c, name, sizeof(name));
    merak_error_wrap(err, "%s", name);
    return rc;
}

/* How long a wait spins: `cores` that the process may use, 0 if unknown;
 * shared: tasks share them. */
static int64_t spin_ns(int cores, bool shared)
{
    /* NCCL's thread and both of ours */
    return shared || merak_spin_ns(cores, 3) == 0 ? MERAK_SPIN_NS
                                                  : MERAK_LONG_SPIN_NS;
}

/* May a wait that began at `start` continue? */
static enum merak_status keep_on(struct merak_link *link, int64_t start,
                                 struct merak_error *err)
{
    const struct merak_error *why;
    int64_t waited = merak_clock_ns() - start;

    (void)link->tr->ops->progress(link->tr);
    why = merak_transport_aborted(link->tr);
    if (why != NULL)
        return merak_fail(err, why->status, "%s", why->text);
    if (link->stop != NULL && atomic_load(link->stop) != 0)
        return merak_fail(err, MERAK_ERR_PEER, "this rank has failed");
    if (merak_is_overdue(waited, link->deadline_s))
        return merak_fail(err, MERAK_ERR_TIMEOUT,
                          "%s: not all of its members have joined after %.3g s",
                          link->about, link->deadline_s);
    if (waited > link->spin_ns)
        merak_nap(merak_patient_nap_ns(MERAK_NAP_NS, waited));
    return MERAK_OK;
}

enum merak_status merak_link_settle(struct merak_link *link, int comm,
                                    struct merak_error *err)
{
    struct link_comm *c = &link->comm[comm];
    int64_t start = merak_clock_ns();
    enum merak_status rc;

    for (;;) {
        rc = link->ops->test(c->comm, err);
        if (rc == MERAK_IN_PROGRESS) {
            rc = keep_on(link, start, err);
            if (rc == MERAK_OK)
                continue;
        }
        return rc == MERAK_OK ? rc : wrap(link, c, rc, err);
    }
}

void merak_link_stop(struct merak_link *link, const atomic_int *stop)
{
    link->stop = stop;
}

enum merak_status merak_link_test(struct merak_link *link,
                                  struct merak_error *err)
{
    for (int i = 0; i < link->n_comms; i++) {
        enum merak_status rc = link->ops->test(link->comm[i].comm, err);

        if (rc != MERAK_OK && rc != MERAK_IN_PROGRESS)
            return wrap(link, &link->comm[i], rc, err);
    }
    return MERAK_OK;
}

/* --- messages ---------------------------------------------------------------
 */

/* Wait for what a call of the library began. */
static enum merak_status settled(struct merak_link *link, int comm,
                                 enum merak_status rc, struct merak_error *err)
{
    if (rc == MERAK_IN_PROGRESS)
        return merak_link_settle(link, comm, err);
    return rc == MERAK_OK ? rc : wrap(link, &link->comm[comm], rc, err);
}

/* Queue a group of messages. */
static enum merak_status move(struct merak_link *link, int comm, int queue,
                              int n, struct merak_error *err)
{
    struct merak_accel *a = link->accel;
    enum merak_status rc = link->ops->move(
        link->comm[comm].comm, a->ops->stream(a, queue), link->message, n, err);

    return settled(link, comm, rc, err);
}

enum merak_status merak_link_message(struct merak_link *link, int comm,
                                     int queue,
                                     const struct merak_link_message *message,
                                     struct merak_error *err)
{
    link->message[0] = *message;
    link->message[0].peer = message->send ? 1 : 0;
    return move(link, comm, queue, 1, err);
}

/* --- rehearsal --------------------------------------------------------------
 */

/* Block the host until a queue is empty. */
static enum merak_status drain(struct merak_link *link, int queue,
                               struct merak_event *event,
                               struct merak_error *err)
{
    const struct merak_accel_ops *ops = link->accel->ops;
    int64_t start = merak_clock_ns();
    enum merak_status rc = ops->record(link->accel, queue, event, err);

    while (rc == MERAK_OK) {
        rc = ops->query(link->accel, event, err);
        if (rc == MERAK_OK)
            return MERAK_OK;
        if (rc == MERAK_IN_PROGRESS)
            rc = keep_on(link, start, err);
    }
    return rc;
}

/* Short messages between all members, or from the first to the second of a
 * pair; with little room, several are received at one address. */
static int fill_trial(struct merak_link *link, const struct link_comm *c)
{
    int n = 0;

    for (int q = 0; q < c->n; q++) {
        unsigned char *at =
            link->trial + (size_t)q % link->trials * 2 * TRIAL_BYTES;
        const struct merak_link_message out = {true, at, TRIAL_BYTES, q};
        const struct merak_link_message in = {false, at + TRIAL_BYTES,
                                              TRIAL_BYTES, q};

        if (q == c->me)
            continue;
        if (!c->pair || c->me == 0)
            link->message[n++] = out;
        if (!c->pair || c->me == 1)
            link->message[n++] = in;
    }
    return n;
}

/* Libraries set up a group's channels for collectives, separate from those for
 * messages, at its first collective: run a short all-gather, and a sum if the
 * library's sums are used. */
static enum merak_status gather_trial(struct merak_link *link, int comm,
                                      struct merak_error *err)
{
    struct link_comm *c = &link->comm[comm];
    size_t room = link->trials * MERAK_LINK_TRIAL_BYTES / ((size_t)c->n + 1);
    size_t bytes =
        (room < TRIAL_BYTES ? room : TRIAL_BYTES) / ALIGNED * ALIGNED;
    void *stream =
        link->accel->ops->stream(link->accel, MERAK_QUEUE_COLLECTIVE);
    const struct merak_link_sum sum = {.in = link->trial,
                                       .out = link->trial,
                                       .count = bytes / sizeof(float),
                                       .dtype = MERAK_F32};
    const struct merak_link_gather gather = {
        .in = link->trial, .out = link->trial + bytes, .bytes = bytes};
    enum merak_status rc;

    if (c->pair || bytes == 0)
        return MERAK_OK;
    rc = link->ops->gather(c->comm, stream, &gather, 1, err);
    rc = settled(link, comm, rc, err);
    if (rc == MERAK_OK && link->fast)
        rc = settled(link, comm, link->ops->sum(c->comm, stream, &sum, err),
                     err);
    return rc;
}

static enum merak_status rehearse(struct merak_link *link, int comm,
                                  struct merak_event *event,
                                  struct merak_error *err)
{
    struct link_comm *c = &link->comm[comm];
    enum merak_status rc =
        move(link, comm, MERAK_QUEUE_COLLECTIVE, fill_trial(link, c), err);

    if (rc == MERAK_OK)
        rc = gather_trial(link, comm, err);
    if (rc == MERAK_OK)
        rc = drain(link, MERAK_QUEUE_COLLECTIVE, event, err);
    return rc;
}

static enum merak_status join(struct merak_link *link, int comm,
                              struct merak_error *err)
{
    struct link_comm *c = &link->comm[comm];
    const struct merak_link_join how = {.id = c->id,
                                        .n = c->n,
                                        .me = c->me,
                                        .most_ctas = c->pair ? PAIR_CTAS : 0};
    /* This sets the thread's device, which NCCL uses. */
    (void)link->accel->ops->stream(link->accel, MERAK_QUEUE_COLLECTIVE);
    enum merak_status rc = link->ops->join(link->library, &how, &c->comm, err);

    return rc == MERAK_OK ? merak_link_settle(link, comm, err)
                          : wrap(link, c, rc, err);
}

static enum merak_status join_all(struct merak_link *link,
                                  struct merak_error *err)
{
    const struct merak_accel_ops *ops = link->accel->ops;
    struct merak_event *event = NULL;
    enum merak_status rc = ops->event_create(link->accel, &event, err);

    for (int i = 0; i < link->n_comms && rc == MERAK_OK; i++) {
        rc = join(link, i, err);
        if (rc == MERAK_OK)
            rc = rehearse(link, i, event, err);
    }
    if (event != NULL)
        ops->event_destroy(link->accel, event);
    return rc;
}

/* --- open, close ------------------------------------------------------------
 */

static enum merak_status allocate(struct merak_link *link,
                                  const struct merak_link_options *opt,
                                  struct merak_error *err)
{
    size_t members = 2;

    for (int i = 0; i < link->n_comms; i++) {
        if ((size_t)link->comm[i].n > members)
            members = (size_t)link->comm[i].n;
    }
    link->message = calloc(2 * members, sizeof(*link->message));
    link->joined = calloc((size_t)link->n_comms + 1, sizeof(*link->joined));
    if (link->message == NULL || link->joined == NULL)
        return merak_fail_nomem(err, 2 * members * sizeof(*link->message));
    link->trial = opt->trial;
    link->trials = opt->trial_bytes / MERAK_LINK_TRIAL_BYTES;
    if (link->trials > 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "%zu bytes are too few for a rehearsal of %d",
                      opt->trial_bytes, MERAK_LINK_TRIAL_BYTES);
}

static enum merak_status begin(struct merak_link *link,
                               const struct merak_link_options *opt,
                               struct merak_error *err)
{
    const struct merak_accel_ops *accel = opt->accel->ops;
    enum merak_status rc;

    if (accel->stream == NULL || accel->unpack == NULL ||
        accel->combine == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "this backend's queues cannot be used by libraries: "
                          "use --transport ucx");
    rc = link->ops->open(accel->streams, &link->library, link->about, err);
    if (rc == MERAK_OK)
        rc = merak_link_find_comms(link, opt, err);
    return rc == MERAK_OK ? allocate(link, opt, err) : rc;
}

enum merak_status merak_link_open(const struct merak_link_options *opt,
                                  struct merak_link **link_p,
                                  struct merak_error *err)
{
    struct merak_link *link = calloc(1, sizeof(*link));
    enum merak_status rc = MERAK_OK;

    if (link == NULL) {
        rc = merak_fail_nomem(err, sizeof(*link));
    } else {
        link->ops = opt->ops;
        link->tr = opt->tr;
        link->accel = opt->accel;
        link->deadline_s = opt->deadline_s > 0 ? opt->deadline_s : 300;
        link->fast = opt->fast;
        link->fragment = opt->fragment_bytes;
        link->spin_ns = spin_ns(merak_cores_allowed(), opt->tr->spin_ns == 0);
        rc = begin(link, opt, err);
    }
    rc = merak_boot_agree(opt->boot, rc, err);
    if (rc == MERAK_OK)
        rc = merak_link_share_ids(link, opt->boot, err);
    if (rc == MERAK_OK) {
        rc = join_all(link, err);
        if (rc != MERAK_OK) /* notify those that wait for this rank */
            merak_link_abort(link);
        if (rc != MERAK_OK && rc != MERAK_ERR_PEER &&
            opt->tr->ops->abort != NULL)
            opt->tr->ops->abort(opt->tr, err != NULL ? err->text : "");
        rc = merak_boot_agree(opt->boot, rc, err);
    }
    if (rc == MERAK_OK) {
        *link_p = link;
    } else {
        if (link != NULL)
            merak_link_abort(link);
        merak_link_close(link);
    }
    return rc;
}

void merak_link_abort(struct merak_link *link)
{
    int n = 0;

    for (int i = 0; i < link->n_comms; i++) {
        if (link->comm[i].comm != NULL)
            link->joined[n++] = link->comm[i].comm;
    }
    if (n > 0)
        link->ops->abort(link->joined, n);
}

void merak_link_close(struct merak_link *link)
{
    if (link == NULL)
        return;
    merak_link_free_comms(link);
    if (link->library != NULL)
        link->ops->close(link->library);
    free(link->message);
    free(link->joined);
    free(link);
}

void merak_link_describe(const struct merak_link *link, char *text, size_t size)
{
    snprintf(text, size, "%s, %d communicator%s, sums %s", link->about,
             link->n_comms, link->n_comms == 1 ? "" : "s",
             link->fast ? "in its own order (--reduce fast)"
                        : "in member order");
}

/* --- which communicator ----------------------------------------------------
 */

int merak_link_team(const struct merak_link *link,
                    const struct merak_team *team)
{
    for (int i = 0; i < link->n_comms; i++) {
        const struct link_comm *c = &link->comm[i];

        if (!c->pair && c->n == team->n &&
            memcmp(c->rank, team->rank,
                   (size_t)team->n * sizeof(*team->rank)) == 0)
            return i;
    }
    return -1;
}

int merak_link_pair(const struct merak_link *link, int from, int to,
                    enum merak_flow_kind flow)
{
    for (int i = 0; i < link->n_comms; i++) {
        const struct link_comm *c = &link->comm[i];

        if (c->pair && c->flow == (int)flow && c->rank[0] == from &&
            c->rank[1] == to)
            return i;
    }
    return -1;
}
