/* SPDX-License-Identifier: Apache-2.0 */
/* allreduce.c - f32 sums over all ranks, input and output apart
 *
 *   mpirun -n N bench/allreduce      "allreduce BYTES MICROSECONDS"
 */
#include "config.h"

#include "bench/ranks.h"

static void reduce(struct bench *b, const struct merak_exchange *ex,
                   size_t bytes)
{
    char *in = b->arena.base, *out = in + bytes, *scratch = out + bytes;
    struct merak_request *req;

    bench_touch(in, bytes, 1);
    bench_need(b, merak_exchange(b->tr, &b->all, ex, in, out, scratch, 1, &req,
                                 &b->err));
    bench_need(b, merak_request_wait(b->tr, req, &b->err));
}

static void measure(struct bench *b, size_t bytes)
{
    struct merak_mesh mesh = {.n_axes = 1,
                              .axis = {{.name = "dp", .size = b->all.n}}};
    struct merak_layout from = {.at = {{MERAK_PARTIAL_SUM, -1}}};
    struct merak_shape shape = {1, {bytes / sizeof(float)}};
    struct merak_place to = {MERAK_REPLICATED, -1};
    struct merak_exchange ex;
    struct merak_hop hop;
    double batch[BENCH_BATCHES];
    int n = bench_repeats(bytes), me = b->all.me;

    if (!merak_layout_change(&mesh, &from, 0, to, &hop))
        exit(1);
    bench_need(b, merak_exchange_init(&ex, &mesh, &hop, &from, &shape,
                                      MERAK_F32, &me, &b->err));
    reduce(b, &ex, bytes);
    for (int i = 0; i < BENCH_BATCHES; i++) {
        double start;

        bench_need(b, merak_barrier(b->tr, &b->all, &b->err));
        start = bench_now_us();
        for (int k = 0; k < n; k++)
            reduce(b, &ex, bytes);
        batch[i] = (bench_now_us() - start) / n;
    }
    if (me == 0)
        bench_print("allreduce", bytes, batch);
    merak_exchange_fini(&ex);
}

int main(void)
{
    struct bench b;

    bench_open(&b, 3 * BENCH_MAX + 64 * BENCH_MAX_RANKS);
    for (size_t bytes = BENCH_MIN; bytes <= BENCH_MAX; bytes *= 2)
        measure(&b, bytes);
    bench_close(&b);
    return 0;
}
