/* SPDX-License-Identifier: Apache-2.0 */
/* boxes.c - what crosses between two stages of unlike ranks, there and back
 *
 *   srun -n RANKS bench/boxes DPxTP DPxTP SAMPLES VALUES
 *
 * A tensor of SAMPLES x VALUES f32, its samples cut over the replicas of each
 * stage, goes from the ranks of the first to those of the second as
 * layout/cross.h divides it, and back the same way.  Rank 0 prints a line
 * "box FROM TO FROM-BYTE TO-BYTE BYTES" for each, which boxes_pytorch.py sends
 * alike, and "boxes BYTES MICROSECONDS", one way.
 */
#include "config.h"

#include "bench/ranks.h"

#include "partitioner/layout/cross.h"

#define MOST_MOVES 64

struct stage {
    struct merak_cross_end end;
    int first; /* its first rank */
};

struct boxes {
    struct bench *b;
    struct stage from, to;
    struct merak_shape shape;
    struct merak_cross cross;
    size_t bytes; /* of this rank's part */
};

static void stage_init(struct stage *s, const char *text, int first)
{
    int dp, tp;

    if (sscanf(text, "%dx%d", &dp, &tp) != 2 || dp < 1 || tp < 1) {
        fprintf(stderr, "%s: expected replicas x tensor ranks\n", text);
        exit(1);
    }
    *s = (struct stage){
        .end = {.mesh = {.n_axes = 2,
                         .axis = {{.name = "dp", .size = dp},
                                  {.name = "tp", .size = tp}}},
                .layout = {.at = {{MERAK_SPLIT, 0}, {MERAK_REPLICATED, -1}}}},
        .first = first};
}

static size_t own_bytes(const struct boxes *x, const struct stage *s, int rank,
                        size_t *lo_p)
{
    struct merak_box own;

    merak_cross_box(&s->end, &x->shape, rank - s->first, &own);
    *lo_p = own.lo[0] * x->shape.dim[1] * sizeof(float);
    return merak_box_count(&own) * sizeof(float);
}

/* Where a move's bytes begin in the part of a rank of the stage. */
static size_t offset(const struct boxes *x, const struct stage *s, int member,
                     const struct merak_cross_move *m)
{
    size_t lo, at = m->box.lo[0] * x->shape.dim[1] + m->lo;

    (void)own_bytes(x, s, s->first + member, &lo);
    return at * sizeof(float) - lo;
}

static void cross(struct boxes *x, bool back, char *base)
{
    const struct stage *a = back ? &x->to : &x->from;
    const struct stage *z = back ? &x->from : &x->to;
    struct merak_request *req[MOST_MOVES];
    struct bench *b = x->b;
    int n = 0, me = b->all.me;

    for (int pass = 0; pass < 2; pass++) { /* receives are posted first */
        for (int i = 0; i < x->cross.n_moves; i++) {
            const struct merak_cross_move *m = &x->cross.move[i];
            int sender = back ? m->to : m->from;
            int receiver = back ? m->from : m->to;
            size_t bytes = (m->hi - m->lo) * sizeof(float);

            if (pass == 0 && z->first + receiver == me)
                bench_need(b,
                           merak_recv(b->tr, base + offset(x, z, receiver, m),
                                      bytes, a->first + sender, (uint64_t)i,
                                      &req[n++], &b->err));
            if (pass == 1 && a->first + sender == me)
                bench_need(b, merak_send(b->tr, base + offset(x, a, sender, m),
                                         bytes, z->first + receiver,
                                         (uint64_t)i, &req[n++], &b->err));
        }
        if (pass == 0 && a->first <= me &&
            me < a->first + merak_cross_members(&a->end))
            bench_touch(base, x->bytes, 1);
    }
    while (n > 0)
        bench_need(b, merak_request_wait(b->tr, req[--n], &b->err));
}

static void print_boxes(const struct boxes *x)
{
    for (int i = 0; i < x->cross.n_moves; i++) {
        const struct merak_cross_move *m = &x->cross.move[i];

        printf("box %d %d %zu %zu %zu\n", x->from.first + m->from,
               x->to.first + m->to, offset(x, &x->from, m->from, m),
               offset(x, &x->to, m->to, m), (m->hi - m->lo) * sizeof(float));
    }
}

static void measure(struct boxes *x)
{
    struct bench *b = x->b;
    size_t all = x->shape.dim[0] * x->shape.dim[1] * sizeof(float);
    double batch[BENCH_BATCHES];
    int n = bench_repeats(all);

    cross(x, false, b->arena.base);
    cross(x, true, b->arena.base);
    for (int i = 0; i < BENCH_BATCHES; i++) {
        double start;

        bench_need(b, merak_barrier(b->tr, &b->all, &b->err));
        start = bench_now_us();
        for (int k = 0; k < n; k++) {
            cross(x, false, b->arena.base);
            cross(x, true, b->arena.base);
        }
        batch[i] = (bench_now_us() - start) / (2 * n);
    }
    if (b->all.me == 0)
        bench_print("boxes", all, batch);
}

int main(int argc, char **argv)
{
    struct bench b;
    struct boxes x = {.b = &b};
    size_t lo;

    if (argc != 5) {
        fprintf(stderr, "usage: boxes DPxTP DPxTP SAMPLES VALUES\n");
        return 1;
    }
    stage_init(&x.from, argv[1], 0);
    stage_init(&x.to, argv[2], merak_cross_members(&x.from.end));
    x.shape = (struct merak_shape){
        2, {strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10)}};
    bench_open(&b, 2 * BENCH_MAX);
    bench_need(&b, merak_cross_init(&x.cross, &x.from.end, &x.to.end, &x.shape,
                                    SIZE_MAX, &b.err));
    if (b.all.n != x.to.first + merak_cross_members(&x.to.end) ||
        x.cross.n_moves > MOST_MOVES / 2)
        bench_need(&b, merak_fail(&b.err, MERAK_ERR_CONFIG,
                                  "%d ranks, and %d boxes", b.all.n,
                                  x.cross.n_moves));
    x.bytes =
        own_bytes(&x, b.all.me < x.to.first ? &x.from : &x.to, b.all.me, &lo);
    if (b.all.me == 0)
        print_boxes(&x);
    measure(&x);
    merak_cross_fini(&x.cross);
    bench_close(&b);
    return 0;
}
