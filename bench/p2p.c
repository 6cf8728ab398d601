/* SPDX-License-Identifier: Apache-2.0 */
/* p2p.c - ping-pong between ranks 0 and 1, and overlap with compute
 *
 *   mpirun -n 2 bench/p2p            "p2p BYTES MICROSECONDS", one way
 *   mpirun -n 2 bench/p2p overlap    a transfer posted before 50 ms of
 *                                    compute, with a thread that progresses;
 *                                    exit code 1 if it is not over by then
 */
#include "config.h"

#include "bench/ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static void ping(struct bench *b, char *out, char *in, size_t bytes)
{
    int other = 1 - b->all.me;
    struct merak_request *send, *recv;

    bench_need(b, merak_recv(b->tr, in, bytes, other, 1, &recv, &b->err));
    if (b->all.me == 1)
        bench_need(b, merak_request_wait(b->tr, recv, &b->err));
    bench_touch(out, bytes, 1);
    bench_need(b, merak_send(b->tr, out, bytes, other, 1, &send, &b->err));
    if (b->all.me == 0)
        bench_need(b, merak_request_wait(b->tr, recv, &b->err));
    bench_need(b, merak_request_wait(b->tr, send, &b->err));
}

static void ping_pong(struct bench *b, size_t bytes)
{
    char *out = b->arena.base, *in = out + BENCH_MAX;
    double batch[BENCH_BATCHES];
    int n = bench_repeats(bytes);

    ping(b, out, in, bytes);
    for (int i = 0; i < BENCH_BATCHES; i++) {
        double start;

        bench_need(b, merak_barrier(b->tr, &b->all, &b->err));
        start = bench_now_us();
        for (int k = 0; k < n; k++)
            ping(b, out, in, bytes);
        batch[i] = (bench_now_us() - start) / (2 * n);
    }
    if (b->all.me == 0)
        bench_print("p2p", bytes, batch);
}

/* --- overlap -------------------------------------------------------------- */

#define COMPUTE_US 50e3
#define OVERLAP_BYTES ((size_t)16 << 20)

/* Arithmetic for that long; the result keeps the compiler from dropping it. */
static double compute(double us)
{
    double start = bench_now_us(), x = 1.0;

    while (bench_now_us() - start < us) {
        for (int i = 0; i < 1000; i++)
            x = x * 0.999999 + 1e-6;
    }
    return x;
}

static bool overlaps(struct bench *b)
{
    struct bench_mover m = {.b = b};
    char *buf = b->arena.base;
    double start, worth;
    pthread_t thread;
    bool over;

    bench_need(b, merak_barrier(b->tr, &b->all, &b->err));
    start = bench_now_us();
    if (b->all.me == 0)
        bench_need(b, merak_send(b->tr, buf, OVERLAP_BYTES, 1, 2, &m.req,
                                 &b->err));
    else
        bench_need(b, merak_recv(b->tr, buf + BENCH_MAX, OVERLAP_BYTES, 0, 2,
                                 &m.req, &b->err));
    if (pthread_create(&thread, NULL, bench_see_through, &m) != 0)
        exit(1);
    worth = compute(COMPUTE_US);
    over = atomic_load(&m.over);
    pthread_join(thread, NULL);
    printf("overlap rank %d: %zu bytes %s after %.1f ms of %.0f ms compute "
           "(%g)\n",
           b->all.me, OVERLAP_BYTES, over ? "over" : "NOT over",
           (m.over_us - start) / 1e3, COMPUTE_US / 1e3, worth);
    return over;
}

int main(int argc, char **argv)
{
    struct bench b;
    bool ok = true;

    bench_open(&b, 2 * BENCH_MAX);
    if (b.all.n != 2)
        bench_need(&b, merak_fail(&b.err, MERAK_ERR_CONFIG,
                                  "%d ranks, a ping-pong has 2", b.all.n));
    if (argc > 1 && strcmp(argv[1], "overlap") == 0) {
        for (int i = 0; i < 5; i++)
            ok = overlaps(&b) && ok;
    } else {
        for (size_t bytes = BENCH_MIN; bytes <= BENCH_MAX; bytes *= 2)
            ping_pong(&b, bytes);
    }
    bench_close(&b);
    return ok ? 0 : 1;
}
