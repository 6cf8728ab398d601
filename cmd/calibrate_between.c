/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_between.c - `merak calibrate --between FILE`: measure the ways
 * between islands, for `merak plan --links`
 *
 * One pair of islands after another: each rank of one exchanges messages with a
 * rank of the other, all at the same time and in both directions, so that what
 * is measured is what all ranks have together while as much comes back.  The
 * messages grow until they take long beside what starts them.  A direction
 * takes as long as its slowest rank, and of several rounds the fastest counts:
 * over TCP, what acknowledges one direction waits behind the bytes of the
 * other, which may cost a quarter of its rate.  The latency is half of what the
 * smallest message takes there and back between two ranks.  Through host
 * memory, as messages between sites go.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/output.h"
#include "base/progress.h"
#include "partitioner/device/island_ways.h"
#include "runtime/runtime.h"
#include "runtime/train/run_islands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_BYTES ((size_t)64 << 10)
#define MOST_BYTES ((size_t)32 << 20)
#define LONG_S 0.5     /* messages that take so long are long enough */
#define LATENCIES 20.0 /* .. and so many times their latency */
#define PINGS 16
#define MOST_ROUNDS 100

/* Ranks of two islands that exchange messages, and this one among them. */
struct pair {
    int a, b;    /* islands */
    int n;       /* ranks of each that take part */
    int partner; /* of this rank; -1: it is in neither */
    bool in_a;   /* this rank is of a */
    bool first;  /* of its island */
    double ping_s[MOST_ROUNDS];
};

struct between {
    const struct calibrate_ways *how;
    struct calibrate_world world;
    struct merak_islands *islands; /* rank 0's; of the others a copy of it, with
                                      names alone */
    int *island_of;                /* [node] */
    double *of_rank;               /* [size] */
    struct merak_error *err;
};

/* --- one pair ------------------------------------------------------------- */

/* The k-th rank of an island, in order; -1: it has fewer. */
static int rank_of(const struct between *b, int island, int k)
{
    const struct merak_boot *boot = b->world.boot;

    for (int r = 0; r < boot->size; r++) {
        if (b->island_of[boot->node_of[r]] == island && k-- == 0)
            return r;
    }
    return -1;
}

static void find_partner(const struct between *b, struct pair *p)
{
    int me = b->world.boot->rank;

    p->partner = -1;
    for (p->n = 0;; p->n++) {
        int of_a = rank_of(b, p->a, p->n), of_b = rank_of(b, p->b, p->n);

        if (of_a < 0 || of_b < 0)
            return;
        if (me != of_a && me != of_b)
            continue;
        p->in_a = me == of_a;
        p->first = p->n == 0;
        p->partner = p->in_a ? of_b : of_a;
    }
}

/* Send and receive at once; the seconds until all had come. */
static enum merak_status swap(const struct between *b, const struct pair *p,
                              size_t bytes, double *seconds_p)
{
    struct merak_transport *tr = b->world.tr;
    char *data = b->world.arena.base;
    struct merak_request *send, *recv;
    int64_t start = merak_clock_ns();
    enum merak_status rc;

    rc = merak_recv(tr, data + MOST_BYTES, bytes, p->partner, 0, &recv, b->err);
    if (rc == MERAK_OK)
        rc = merak_send(tr, data, bytes, p->partner, 0, &send, b->err);
    if (rc == MERAK_OK)
        rc = merak_request_wait(tr, recv, b->err);
    *seconds_p = merak_clock_since_s(start);
    return rc == MERAK_OK ? merak_request_wait(tr, send, b->err) : rc;
}

/* One message there, then one back; the seconds of one of the two. */
static enum merak_status ping(const struct between *b, const struct pair *p,
                              double *seconds_p)
{
    struct merak_transport *tr = b->world.tr;
    char *data = b->world.arena.base;
    int64_t start = merak_clock_ns();
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < 2 * PINGS && rc == MERAK_OK; i++) {
        bool sends = p->in_a == (i % 2 == 0);
        struct merak_request *req;

        rc = sends ? merak_send(tr, data, 8, p->partner, 0, &req, b->err)
                   : merak_recv(tr, data + MOST_BYTES, 8, p->partner, 0, &req,
                                b->err);
        if (rc == MERAK_OK)
            rc = merak_request_wait(tr, req, b->err);
    }
    *seconds_p = merak_clock_since_s(start) / (2 * PINGS);
    return rc;
}

/* Give all ranks what each measured: of_rank. */
static enum merak_status share(struct between *b, double seconds)
{
    int n = b->world.all.n;

    memset(b->of_rank, 0, (size_t)n * sizeof(*b->of_rank));
    b->of_rank[b->world.all.me] = seconds;
    return merak_all_reduce_sum(b->world.tr, &b->world.all, b->of_rank,
                                (size_t)n, b->err);
}

/* The longest that ranks of an island waited for what came. */
static double longest(const struct between *b, const struct pair *p, int island)
{
    double most = 0;

    for (int k = 0; k < p->n; k++)
        most = fmax(most, b->of_rank[rank_of(b, island, k)]);
    return most;
}

/* All begin at the same time, but for what it takes to tell them. */
static enum merak_status time_swap(struct between *b, const struct pair *p,
                                   size_t bytes, double way_s[2])
{
    double seconds = 0;
    enum merak_status rc = share(b, 0);

    if (rc == MERAK_OK && p->partner >= 0)
        rc = swap(b, p, bytes, &seconds);
    if (rc == MERAK_OK)
        rc = share(b, seconds);
    way_s[0] = longest(b, p, p->b);
    way_s[1] = longest(b, p, p->a);
    return rc;
}

static enum merak_status time_ping(struct between *b, const struct pair *p,
                                   double *seconds_p)
{
    double seconds = 0;
    enum merak_status rc = share(b, 0);

    if (rc == MERAK_OK && p->partner >= 0 && p->first)
        rc = ping(b, p, &seconds);
    if (rc == MERAK_OK)
        rc = share(b, seconds);
    *seconds_p = b->of_rank[rank_of(b, p->a, 0)];
    return rc;
}

static enum merak_status measure_pair(struct between *b, struct pair *p,
                                      struct merak_island_way way[2])
{
    size_t bytes = LEAST_BYTES;
    double way_s[2], least_s[2] = {INFINITY, INFINITY}, latency = 0;
    int rounds = b->how->rounds;
    enum merak_status rc = MERAK_OK;

    find_partner(b, p);
    for (int i = 0; i < rounds && rc == MERAK_OK; i++)
        rc = time_ping(b, p, &p->ping_s[i]);
    if (rc == MERAK_OK)
        latency = calibrate_median(p->ping_s, (size_t)rounds);
    /* the first ones also open connections and their windows */
    for (; rc == MERAK_OK; bytes *= 2) {
        rc = time_swap(b, p, bytes, way_s);
        if (bytes == MOST_BYTES ||
            fmin(way_s[0], way_s[1]) > fmax(LONG_S, LATENCIES * latency))
            break;
    }
    for (int i = 0; i < 2 * rounds + 1 && rc == MERAK_OK; i++) {
        rc = time_swap(b, p, bytes, way_s);
        least_s[0] = fmin(least_s[0], way_s[0]);
        least_s[1] = fmin(least_s[1], way_s[1]);
    }
    for (int d = 0; d < 2 && rc == MERAK_OK; d++) {
        double s = least_s[d];

        way[d].latency_s = latency;
        way[d].bytes_per_s =
            p->n * (double)bytes / fmax(s - latency, s / LATENCIES);
    }
    return rc;
}

/* --- all pairs ------------------------------------------------------------ */

static void tell(const struct between *b, const struct pair *p,
                 const struct merak_island_way way[2])
{
    const char *from = b->islands->island[p->a].name;
    const char *to = b->islands->island[p->b].name;

    printf("  %s -> %s %9.3g bytes/s, back %9.3g, by %d rank%s each at once; "
           "latency %.3g s\n",
           from, to, way[0].bytes_per_s, way[1].bytes_per_s, p->n,
           p->n > 1 ? "s" : "", way[0].latency_s);
    if (fabs(log(way[0].bytes_per_s / way[1].bytes_per_s)) > 0.2)
        printf("  the file has the slower of both for either direction\n");
}

static enum merak_status measure(struct between *b)
{
    struct merak_islands *islands = b->islands;
    struct pair *p = calloc(1, sizeof(*p));
    struct merak_progress progress;
    enum merak_status rc =
        p == NULL ? merak_fail_nomem(b->err, sizeof(*p)) : MERAK_OK;

    rc = merak_boot_agree(b->world.boot, rc, b->err);
    merak_progress_init(&progress, b->world.boot->rank == 0 ? stderr : NULL,
                        "links", "pairs of islands",
                        islands->n * (islands->n - 1) / 2.0);
    for (int i = 0; i < islands->n && rc == MERAK_OK; i++) {
        for (int k = i + 1; k < islands->n && rc == MERAK_OK; k++) {
            struct merak_island_way way[2] = {{0, 0}, {0, 0}};

            p->a = i;
            p->b = k;
            rc = measure_pair(b, p, way);
            islands->way[i][k] = islands->way[k][i] =
                way[way[0].bytes_per_s > way[1].bytes_per_s];
            merak_progress_add(&progress, 1);
            if (rc == MERAK_OK && b->world.boot->rank == 0)
                tell(b, p, way);
        }
    }
    merak_progress_clear(&progress);
    free(p);
    return calibrate_world_tell(&b->world, rc, b->err);
}

/* --- the file ------------------------------------------------------------- */

/* On rank 0: the islands, and which nodes of the job are of them. */
static enum merak_status find(struct between *b)
{
    const struct merak_boot *boot = b->world.boot;
    enum merak_status rc = merak_error_as_config(
        merak_islands_load_bare(b->how->between, &b->islands, b->err), b->err);

    if (rc == MERAK_OK)
        rc = merak_run_islands_find(boot, b->islands, b->island_of, b->err);
    for (int k = 0; rc == MERAK_OK && k < b->islands->n; k++) {
        int n = 0;

        for (int node = 0; node < boot->n_nodes; node++)
            n += b->island_of[node] == k;
        if (n == 0)
            rc = merak_fail(b->err, MERAK_ERR_CONFIG,
                            "%.80s: island \"%s\" has no node of this job: ask "
                            "for at least one of each island (srun -w)",
                            b->how->between, b->islands->island[k].name);
    }
    if (rc == MERAK_OK)
        rc = merak_output_check("--out", b->how->out, b->err);
    if (rc == MERAK_ERR_CONFIG)
        merak_error_wrap(b->err, "--between");
    return rc;
}

static enum merak_status set_up(struct between *b)
{
    struct merak_boot *boot = b->world.boot;
    size_t nodes = (size_t)boot->n_nodes, size = (size_t)boot->size;
    enum merak_status rc = MERAK_OK;

    b->island_of = calloc(nodes, sizeof(*b->island_of));
    b->of_rank = calloc(size, sizeof(*b->of_rank));
    if (boot->rank != 0)
        b->islands = calloc(1, sizeof(*b->islands));
    if (b->island_of == NULL || b->of_rank == NULL ||
        (boot->rank != 0 && b->islands == NULL))
        rc = merak_fail_nomem(b->err, size * sizeof(*b->of_rank));
    else if (boot->rank == 0)
        rc = find(b);
    rc = merak_boot_agree(boot, rc, b->err);
    if (rc == MERAK_OK)
        rc = boot->ops->broadcast(boot, &b->islands->n, sizeof(b->islands->n),
                                  b->err);
    if (rc == MERAK_OK)
        rc = boot->ops->broadcast(boot, b->island_of,
                                  nodes * sizeof(*b->island_of), b->err);
    return merak_boot_agree(boot, rc, b->err);
}

int calibrate_between(const struct calibrate_ways *how, struct merak_boot *boot)
{
    struct merak_error err = {0};
    struct between b = {.how = how, .world = {.boot = boot}, .err = &err};
    enum merak_status rc = set_up(&b);

    if (rc == MERAK_OK)
        rc = calibrate_world_open(&b.world, 2 * MOST_BYTES, NULL, &err);
    if (rc == MERAK_OK)
        rc = measure(&b);
    calibrate_world_close(&b.world);
    if (rc == MERAK_OK && boot->rank == 0)
        rc = merak_islands_save(b.islands, how->out, &err);
    rc = merak_boot_agree(boot, rc, &err);
    merak_islands_destroy(b.islands);
    free(b.island_of);
    free(b.of_rank);
    if (rc == MERAK_OK)
        return MERAK_EXIT_DONE;
    if (boot->rank == 0)
        fprintf(stderr, "merak calibrate: %s\n", err.text);
    return rc == MERAK_ERR_CONFIG || rc == MERAK_ERR_UNSUPPORTED
               ? MERAK_EXIT_CONFIG
               : MERAK_EXIT_RESOURCE;
}
