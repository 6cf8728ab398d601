/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h - joining the ranks of a transport benchmark */
#ifndef MERAK_BENCH_RANKS_H
#define MERAK_BENCH_RANKS_H

#include "bench/bench.h"

#include "base/error.h"
#include "runtime/transport/arena.h"
#include "runtime/transport/transport.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define BENCH_MAX_RANKS 64

struct bench {
    struct merak_boot *boot;
    struct merak_transport *tr;
    struct merak_arena arena;
    struct merak_team all;
    int rank_of[BENCH_MAX_RANKS];
    struct merak_error err;
};

/* A benchmark has nothing to clean up: say why, and leave. */
static inline void bench_need(struct bench *b, enum merak_status rc)
{
    if (rc == MERAK_OK)
        return;
    fprintf(stderr, "%s\n", b->err.text);
    exit(1);
}

static inline void bench_open(struct bench *b, size_t arena_bytes)
{
    struct merak_transport_options opt = {0};

    memset(b, 0, sizeof(*b));
    bench_need(b, merak_boot_open(&b->boot, &b->err));
    if (b->boot->size < 2 || b->boot->size > BENCH_MAX_RANKS)
        bench_need(b, merak_fail(&b->err, MERAK_ERR_CONFIG,
                                 "%d ranks, expected 2..%d: mpirun -n 2 ..",
                                 b->boot->size, BENCH_MAX_RANKS));
    bench_need(b, merak_arena_create(arena_bytes, true, &b->arena, &b->err));
    memset(b->arena.base, 1, arena_bytes);
    opt.arena = b->arena.base;
    opt.arena_bytes = b->arena.bytes;
    opt.arena_fd = b->arena.fd;
    bench_need(b, merak_transport_open("ucx", b->boot, &opt, &b->tr, &b->err));
    b->all.n = b->boot->size;
    b->all.me = b->boot->rank;
    b->all.rank = b->rank_of;
    for (int r = 0; r < b->boot->size; r++)
        b->rank_of[r] = r;
}

static inline void bench_close(struct bench *b)
{
    merak_transport_close(b->tr);
    merak_arena_destroy(&b->arena);
    merak_boot_close(b->boot);
}

/* A transfer that a thread sees through while its owner computes. */
struct bench_mover {
    struct bench *b;
    struct merak_request *req;
    atomic_bool over;
    double over_us; /* when */
};

/* A pthread_create() routine: progress until it is over. */
static inline void *bench_see_through(void *arg)
{
    struct bench_mover *m = arg;
    struct merak_transport *tr = m->b->tr;
    struct pollfd p = {.fd = tr->ops->event_fd(tr), .events = POLLIN};
    enum merak_status rc = merak_request_test(tr, m->req, &m->b->err);

    while (rc == MERAK_IN_PROGRESS) {
        if (tr->ops->progress(tr) == 0 && tr->ops->arm(tr) == MERAK_OK)
            poll(&p, 1, 100);
        rc = merak_request_test(tr, m->req, &m->b->err);
    }
    bench_need(m->b, rc);
    m->over_us = bench_now_us();
    atomic_store(&m->over, true);
    return NULL;
}

#endif
