/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks.h - what tests of forked ranks share
 *
 * A rank is not the process cmocka knows, so its checks print and leave.
 */
#ifndef MERAK_TESTS_RANKS_H
#define MERAK_TESTS_RANKS_H

#include "unit/forkboot.h"

#include "runtime/transport/arena.h"
#include "runtime/transport/transport.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(cond)                                                            \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)
#define CHECK_OK(call)                                                         \
    do {                                                                       \
        struct merak_error *e_ = &test_error;                                  \
        enum merak_status rc_ = (call);                                        \
                                                                               \
        if (rc_ != MERAK_OK) {                                                 \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__,             \
                    merak_status_name(rc_), e_->text);                         \
            _exit(1);                                                          \
        }                                                                      \
    } while (0)

/* Of the last call that got it; a rank is one process. */
static struct merak_error test_error;
#define ERR (&test_error)

/* How the ranks of a test are set up: a row of every table. */
struct setup {
    const char *tls;    /* UCX_TLS, or NULL */
    int n;
    const int *node_of; /* NULL: one node */
    bool arena;         /* shared with node peers */
    double deadline_s;
};

/* One rank of a test. */
struct rank {
    struct merak_boot *boot;
    struct merak_transport *tr;
    struct merak_team all;
    struct merak_arena arena;
    int rank_of[64];
};

typedef void (*rank_fn)(struct rank *me, const void *arg);

struct rank_job {
    const struct setup *setup;
    rank_fn fn;
    const void *arg;
};

#define TEST_ARENA_BYTES ((size_t)32 << 20)

static inline int run_rank(struct merak_boot *boot, void *arg)
{
    const struct rank_job *job = arg;
    struct rank me = {.boot = boot};
    struct merak_transport_options opt = {
        .deadline_s = job->setup->deadline_s, .arena_fd = -1};

    if (job->setup->tls != NULL)
        setenv("UCX_TLS", job->setup->tls, 1);
    if (job->setup->deadline_s == 0)
        opt.deadline_s = 120;
    CHECK_OK(merak_arena_create(TEST_ARENA_BYTES, true, &me.arena, ERR));
    if (job->setup->arena) {
        opt.arena = me.arena.base;
        opt.arena_bytes = me.arena.bytes;
        opt.arena_fd = me.arena.fd;
    }
    CHECK_OK(merak_transport_open("ucx", boot, &opt, &me.tr, ERR));
    me.all.n = boot->size;
    me.all.me = boot->rank;
    me.all.rank = me.rank_of;
    for (int r = 0; r < boot->size; r++)
        me.rank_of[r] = r;
    job->fn(&me, job->arg);
    merak_transport_close(me.tr);
    merak_arena_destroy(&me.arena);
    return 0;
}

/* Half a second from now, stop a rank for three seconds, as a machine does that
 * has other work. */
static inline void stop_rank(pid_t me)
{
    if (fork() == 0) {
        usleep(500000);
        kill(me, SIGSTOP);
        usleep(3000000);
        kill(me, SIGCONT);
        _exit(0);
    }
}

/* Run fn on setup->n ranks; returns how many failed. */
static inline int run_ranks(const struct setup *setup, rank_fn fn,
                            const void *arg)
{
    struct rank_job job = {.setup = setup, .fn = fn, .arg = arg};

    return fork_ranks(setup->n, setup->node_of, 600, run_rank, &job);
}

static inline double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
