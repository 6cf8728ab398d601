/* SPDX-License-Identifier: Apache-2.0 */
/* epoch.c - a common zero of time for the traces of all ranks
 *
 * CLOCK_MONOTONIC differs between nodes.  The first rank of each node except
 * rank 0's asks rank 0 for its time, takes the answer of the fastest of
 * several rounds, and broadcasts it on its node.  The error is at most half of
 * that round trip, some microseconds.  Source: Cristian 1989, "Probabilistic
 * clock synchronization".
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>

#define ROUNDS 16
#define TAG_ASK 1
#define TAG_TELL 2

static enum merak_status finish(struct merak_trainer *t, enum merak_status rc,
                                struct merak_request *req,
                                struct merak_error *err)
{
    return rc == MERAK_OK ? merak_request_wait(t->tr, req, err) : rc;
}

static enum merak_status put(struct merak_trainer *t, int peer, uint64_t tag,
                             const int64_t *ns, struct merak_error *err)
{
    struct merak_request *req = NULL;
    enum merak_status rc =
        merak_send(t->tr, ns, sizeof(*ns), peer, tag, &req, err);

    return finish(t, rc, req, err);
}

static enum merak_status get(struct merak_trainer *t, int peer, uint64_t tag,
                             int64_t *ns, struct merak_error *err)
{
    struct merak_request *req = NULL;
    enum merak_status rc =
        merak_recv(t->tr, ns, sizeof(*ns), peer, tag, &req, err);

    return finish(t, rc, req, err);
}

/* Rank 0: answer all rounds of one rank. */
static enum merak_status tell(struct merak_trainer *t, int peer,
                              struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    int64_t ns;

    for (int i = 0; i < ROUNDS && rc == MERAK_OK; i++) {
        rc = get(t, peer, TAG_ASK, &ns, err);
        ns = merak_clock_ns();
        if (rc == MERAK_OK)
            rc = put(t, peer, TAG_TELL, &ns, err);
    }
    return rc;
}

/* Rank 0's clock minus this rank's. */
static enum merak_status ask(struct merak_trainer *t, int first,
                             int64_t *ahead_ns, struct merak_error *err)
{
    int64_t best = INT64_MAX, asked, answer = 0, took;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < ROUNDS && rc == MERAK_OK; i++) {
        asked = merak_clock_ns();
        rc = put(t, first, TAG_ASK, &asked, err);
        if (rc == MERAK_OK)
            rc = get(t, first, TAG_TELL, &answer, err);
        took = merak_clock_ns() - asked;
        if (rc != MERAK_OK || took >= best)
            continue;
        best = took;
        *ahead_ns = answer - (asked + took / 2);
    }
    return rc;
}

/* The ranks of the transport that are on this node; team->rank is for the
 * caller to free. */
static enum merak_status node_team(const struct merak_boot *boot,
                                   struct merak_team *team,
                                   struct merak_error *err)
{
    int *rank = calloc((size_t)boot->size, sizeof(*rank));

    if (rank == NULL)
        return merak_fail_nomem(err, (size_t)boot->size * sizeof(*rank));
    *team = (struct merak_team){.rank = rank};
    for (int r = 0; r < boot->size; r++) {
        if (boot->node_of[r] != boot->node_of[boot->rank])
            continue;
        if (r == boot->rank)
            team->me = team->n;
        rank[team->n++] = r;
    }
    return MERAK_OK;
}

/* Rank 0 answers the first rank of every other node, node by node. */
static enum merak_status tell_nodes(struct merak_trainer *t,
                                    struct merak_error *err)
{
    const struct merak_boot *boot = t->boot;
    enum merak_status rc = MERAK_OK;

    for (int node = 0; node < boot->n_nodes && rc == MERAK_OK; node++) {
        int r = 0;

        if (node == boot->node_of[boot->rank])
            continue;
        while (boot->node_of[r] != node)
            r++;
        rc = tell(t, r, err);
    }
    return rc;
}

enum merak_status merak_trainer_epoch(struct merak_trainer *t,
                                      struct merak_error *err)
{
    const int *node_of = t->boot->node_of; /* by rank of the transport */
    int first = t->world.rank[0], me = t->tr->rank;
    int64_t zero = t->start.ns, ahead = 0;
    struct merak_team node = {.n = 0};
    enum merak_status rc =
        merak_broadcast(t->tr, &t->world, &zero, sizeof(zero), 0, err);

    if (rc == MERAK_OK && node_of[me] == node_of[first]) {
        if (me == first)
            rc = tell_nodes(t, err);
    } else if (rc == MERAK_OK) {
        rc = node_team(t->boot, &node, err);
        if (rc == MERAK_OK && node.me == 0)
            rc = ask(t, first, &ahead, err);
        if (rc == MERAK_OK)
            rc = merak_broadcast(t->tr, &node, &ahead, sizeof(ahead), 0, err);
        free((void *)(uintptr_t)node.rank);
    }
    t->start.epoch_ns = zero - ahead;
    return rc;
}
