/* SPDX-License-Identifier: Apache-2.0 */
/* link_make.c - load on the link between two nodes, for t/0002-links.bats and
 * t/0003-link-nodes.bats
 *
 *   srun -N2 -n2 link_make rate            rank 1 prints the Gbit/s of data
 *                                          that comes from rank 0
 *   srun -N2 -n2 link_make both            the same of single messages, with
 *                                          one the other way at a time
 *   srun -N2 -n2 link_make overlap BYTES   a transfer posted before 50 ms of
 *                                          compute: exit code 1 if it is not
 *                                          over by then, in most of the runs
 *
 * Compute is 50 ms of the processor's time: where others want the processor
 * too, it takes longer, and so may the transfer's thread.  That thread may
 * also be kept from running for once, hence most.
 */
#include "config.h"

#include "bench/ranks.h"

#include <pthread.h>
#include <stdbool.h>

#define RUNS 5
#define RATE_BYTES ((size_t)8 << 20)
#define COMPUTE_US 50e3

static struct merak_request *post(struct bench *b, int from, char *buf,
                                  size_t bytes)
{
    struct merak_request *req = NULL;

    if (b->all.me == from)
        bench_need(b, merak_send(b->tr, buf, bytes, 1 - from, 1, &req,
                                 &b->err));
    else
        bench_need(b, merak_recv(b->tr, buf, bytes, from, 1, &req, &b->err));
    return req;
}

static void print_rate(struct bench *b, double bytes, double us)
{
    if (b->all.me == 1)
        printf("%.4f\n", bytes * 8e-3 / us);
}

/* Messages follow each other at once, as the first has to fill the link. */
static void rate(struct bench *b)
{
    struct merak_request *req[RUNS + 1];
    char *buf = b->arena.base;
    double start = 0;

    for (int i = 0; i <= RUNS; i++)
        req[i] = post(b, 0, buf + (size_t)i * RATE_BYTES, RATE_BYTES);
    for (int i = 0; i <= RUNS; i++) {
        bench_need(b, merak_request_wait(b->tr, req[i], &b->err));
        if (i == 0)
            start = bench_now_us();
    }
    print_rate(b, RUNS * RATE_BYTES, bench_now_us() - start);
}

/* One message a way, as in an exchange: how each begins depends on what the
 * other has sent already. */
static void rate_both(struct bench *b)
{
    struct merak_request *req[2];
    char *buf = b->arena.base;
    double us = 0;

    for (int i = 0; i < RUNS; i++) {
        double start;

        bench_need(b, merak_barrier(b->tr, &b->all, &b->err));
        start = bench_now_us();
        for (int from = 0; from < 2; from++)
            req[from] = post(b, from, buf + (size_t)from * RATE_BYTES,
                             RATE_BYTES);
        for (int from = 0; from < 2; from++)
            bench_need(b, merak_request_wait(b->tr, req[from], &b->err));
        us += bench_now_us() - start;
    }
    print_rate(b, RUNS * RATE_BYTES, us);
}

/* --- overlap -------------------------------------------------------------- */

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void compute(void)
{
    double until = cpu_us() + COMPUTE_US;
    volatile double x = 1.0;

    while (cpu_us() < until) {
        for (int i = 0; i < 1000; i++)
            x = x * 0.999999 + 1e-6;
    }
}

static bool overlaps(struct bench *b, size_t bytes)
{
    struct bench_mover m = {.b = b};
    pthread_t thread;
    double start, end;

    bench_need(b, merak_barrier(b->tr, &b->all, &b->err));
    start = bench_now_us();
    m.req = post(b, 0, b->arena.base, bytes);
    if (pthread_create(&thread, NULL, bench_see_through, &m) != 0)
        exit(1);
    compute();
    end = bench_now_us();
    pthread_join(thread, NULL);
    if (b->all.me == 1)
        printf("transfer %.1f ms, compute %.1f ms\n",
               (m.over_us - start) / 1e3, (end - start) / 1e3);
    return m.over_us <= end;
}

/* Told by the receiver: what a sender gave away is not yet there. */
static bool mostly_overlaps(struct bench *b, size_t bytes)
{
    int in_time = 0;

    for (int i = 0; i < RUNS; i++)
        in_time += overlaps(b, bytes);
    if (b->all.me == 0)
        return true;
    printf("%d of %d in time\n", in_time, RUNS);
    return in_time > RUNS / 2;
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    bool ok = true;
    struct bench b;

    bench_open(&b, (RUNS + 1) * RATE_BYTES);
    if (argc > 1 && strcmp(argv[1], "both") == 0)
        rate_both(&b);
    else if (bytes == 0)
        rate(&b);
    else
        ok = mostly_overlaps(&b, bytes);
    bench_close(&b);
    return ok ? 0 : 1;
}
