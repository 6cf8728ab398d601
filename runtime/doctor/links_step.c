/* SPDX-License-Identifier: Apache-2.0 */
/* links_step.c - links between the tasks of a step: rates, and nodes' clocks
 *
 * Messages use the same transport as a run.  First the first two tasks of each
 * node exchange messages, then each node's first task sends to the next
 * node's, all at the same time.  Then each node's first task asks rank 0 for
 * the time of day (Cristian 1989, "Probabilistic clock synchronization"): the
 * fastest of several rounds gives the clock offset.
 */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "runtime/runtime.h"
#include "runtime/transport/transport.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESSAGE_BYTES ((size_t)8 << 20)
#define DEADLINE_S 10.0
/* With a larger offset, file times and logs of nodes cannot be compared. */
#define APART_S 0.1
enum { MESSAGES = 4, ROUNDS = 16 };
enum { TAG_RATE = 1, TAG_ASK, TAG_TELL };

struct links {
    struct merak_boot *boot;
    struct merak_transport *tr;
    struct merak_findings *found;
    char *data; /* [2][MESSAGE_BYTES] */
};

/* The i-th task of a node; -1: it has fewer. */
static int task_of(const struct merak_boot *boot, int node, int i)
{
    for (int r = 0; r < boot->size; r++) {
        if (boot->node_of[r] == node && i-- == 0)
            return r;
    }
    return -1;
}

/* Send to one peer while receiving from another; -1: neither. */
static enum merak_status pass(struct links *l, int to, int from,
                              struct merak_error *err)
{
    struct merak_request *in = NULL, *out = NULL;
    enum merak_status rc = MERAK_OK;

    if (from >= 0)
        rc = merak_recv(l->tr, l->data + MESSAGE_BYTES, MESSAGE_BYTES, from,
                        TAG_RATE, &in, err);
    if (rc == MERAK_OK && to >= 0)
        rc = merak_send(l->tr, l->data, MESSAGE_BYTES, to, TAG_RATE, &out, err);
    if (rc == MERAK_OK && in != NULL)
        rc = merak_request_wait(l->tr, in, err);
    if (rc == MERAK_OK && out != NULL)
        rc = merak_request_wait(l->tr, out, err);
    return rc;
}

/* The receive rate; the first message, not timed, makes the connection. */
static enum merak_status measure(struct links *l, int to, int from,
                                 double *bytes_per_s, struct merak_error *err)
{
    int64_t start = 0;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i <= MESSAGES && rc == MERAK_OK; i++) {
        if (i == 1)
            start = merak_clock_ns();
        rc = pass(l, to, from, err);
    }
    *bytes_per_s =
        MESSAGES * (double)MESSAGE_BYTES / (merak_clock_since_s(start));
    return rc;
}

static enum merak_status within_node(struct links *l, struct merak_error *err)
{
    const struct merak_boot *boot = l->boot;
    char text[MERAK_BYTES_TEXT];
    double rate;
    enum merak_status rc;
    int peer;

    if (boot->local_size < 2 || boot->local_rank > 1)
        return MERAK_OK;
    peer = task_of(boot, boot->node_of[boot->rank], 1 - boot->local_rank);
    rc = measure(l, peer, peer, &rate, err);
    if (rc != MERAK_OK || boot->local_rank != 0)
        return rc;
    merak_bytes_text(rate, text);
    merak_find(l->found, MERAK_FINDING_OK, "links",
               "between two tasks of a node %s/s, both ways at once", text);
    return rc;
}

static enum merak_status between_nodes(struct links *l, struct merak_error *err)
{
    const struct merak_boot *boot = l->boot;
    int n = boot->n_nodes, node = boot->node_of[boot->rank], before;
    char text[MERAK_BYTES_TEXT];
    double rate;
    enum merak_status rc;

    if (n < 2 || boot->local_rank > 0)
        return MERAK_OK;
    before = (node + n - 1) % n;
    rc = measure(l, task_of(boot, (node + 1) % n, 0), task_of(boot, before, 0),
                 &rate, err);
    if (rc != MERAK_OK)
        return rc;
    merak_bytes_text(rate, text);
    merak_find(l->found, MERAK_FINDING_OK, "between nodes",
               "%s/s from %.64s, all nodes at once", text, boot->hosts[before]);
    return rc;
}

/* --- clocks --------------------------------------------------------------- */

static int64_t time_of_day_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static enum merak_status put(struct links *l, int peer, uint64_t tag,
                             const int64_t *ns, struct merak_error *err)
{
    struct merak_request *req = NULL;
    enum merak_status rc =
        merak_send(l->tr, ns, sizeof(*ns), peer, tag, &req, err);

    return rc == MERAK_OK ? merak_request_wait(l->tr, req, err) : rc;
}

static enum merak_status get(struct links *l, int peer, uint64_t tag,
                             int64_t *ns, struct merak_error *err)
{
    struct merak_request *req = NULL;
    enum merak_status rc =
        merak_recv(l->tr, ns, sizeof(*ns), peer, tag, &req, err);

    return rc == MERAK_OK ? merak_request_wait(l->tr, req, err) : rc;
}

static enum merak_status tell_time(struct links *l, int peer,
                                   struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    int64_t ns;

    for (int i = 0; i < ROUNDS && rc == MERAK_OK; i++) {
        rc = get(l, peer, TAG_ASK, &ns, err);
        ns = time_of_day_ns();
        if (rc == MERAK_OK)
            rc = put(l, peer, TAG_TELL, &ns, err);
    }
    return rc;
}

/* This clock minus rank 0's, in seconds, and the largest error of that. */
static enum merak_status ask_time(struct links *l, double *ahead_s,
                                  double *error_s, struct merak_error *err)
{
    int64_t best = INT64_MAX, asked, answer = 0, took;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < ROUNDS && rc == MERAK_OK; i++) {
        asked = time_of_day_ns();
        rc = put(l, 0, TAG_ASK, &asked, err);
        if (rc == MERAK_OK)
            rc = get(l, 0, TAG_TELL, &answer, err);
        took = time_of_day_ns() - asked;
        if (rc != MERAK_OK || took >= best)
            continue;
        best = took;
        *ahead_s = (double)(asked + took / 2 - answer) * 1e-9;
        *error_s = (double)took * 0.5e-9;
    }
    return rc;
}

static enum merak_status compare_clocks(struct links *l,
                                        struct merak_error *err)
{
    const struct merak_boot *boot = l->boot;
    double ahead = 0, wrong = 0;
    enum merak_status rc = MERAK_OK;
    struct merak_finding *f;

    if (boot->rank == 0) {
        for (int node = 1; node < boot->n_nodes && rc == MERAK_OK; node++)
            rc = tell_time(l, task_of(boot, node, 0), err);
        return rc;
    }
    if (boot->local_rank > 0 || boot->node_of[boot->rank] == 0)
        return MERAK_OK;
    rc = ask_time(l, &ahead, &wrong, err);
    if (rc != MERAK_OK || fabs(ahead) - wrong < APART_S)
        return rc;
    f = merak_find(l->found, MERAK_FINDING_WARNING, "clocks",
                   "%.3f s %s %.64s's", fabs(ahead),
                   ahead > 0 ? "ahead of" : "behind", boot->hosts[0]);
    merak_find_fix(f, "have an NTP client (chronyd) on all nodes");
    return rc;
}

/* --- all ------------------------------------------------------------------ */

static void say_failed(const struct merak_error *err,
                       struct merak_findings *found)
{
    struct merak_finding *f =
        merak_find(found, MERAK_FINDING_ERROR, "links", "%.220s", err->text);

    merak_find_fix(f, "ucx_info -d on both nodes; a firewall between them; "
                      "UCX_NET_DEVICES, where there are several networks");
    merak_find_code(f, MERAK_EXIT_CRASH);
}

void merak_links_step(struct merak_boot *boot, struct merak_findings *found)
{
    struct merak_transport_options opt = {.deadline_s = DEADLINE_S,
                                          .arena_fd = -1};
    struct links l = {
        .boot = boot, .found = found, .data = calloc(2, MESSAGE_BYTES)};
    struct merak_error err = {.status = MERAK_OK};
    enum merak_status rc = MERAK_OK;

    if (boot->size < 2) {
        free(l.data);
        return;
    }
    if (l.data == NULL)
        rc = merak_fail_nomem(&err, 2 * MESSAGE_BYTES);
    rc = merak_boot_agree(boot, rc, &err);
    if (rc == MERAK_OK)
        rc = merak_transport_open("ucx", boot, &opt, &l.tr, &err);
    if (rc == MERAK_OK)
        rc = within_node(&l, &err);
    if (rc == MERAK_OK)
        rc = between_nodes(&l, &err);
    if (rc == MERAK_OK)
        rc = compare_clocks(&l, &err);
    if (rc != MERAK_OK) {
        if (l.tr != NULL && l.tr->ops->abort != NULL && rc != MERAK_ERR_PEER)
            l.tr->ops->abort(l.tr, err.text);
        say_failed(&err, found);
    }
    merak_transport_close(l.tr);
    free(l.data);
}
