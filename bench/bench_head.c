/* SPDX-License-Identifier: Apache-2.0 */
/* bench_head.c - how fast the cpu backend runs a head and its cross-entropy,
 * and in how much memory
 *
 * usage: head ROWS CHANNELS VOCABULARY PIECES THREADS STEPS
 *
 * Prints the least seconds, of processor time over threads, of the kernels that
 * programs run with --loss-pieces PIECES, forward and backward, and by how many
 * bytes the process grew over input, weights and their gradients.  f32.  Called
 * by head.py.
 */
#include "config.h"

#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double busy_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t resident_bytes(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (size_t)use.ru_maxrss * 1024;
}

/* [rows, last], or [rows] for 0. */
static struct merak_operand make(enum merak_dtype dtype, size_t rows,
                                 size_t last)
{
    struct merak_operand op = {.dtype = dtype};
    size_t n = rows * (last > 0 ? last : 1);

    op.local.dim[op.local.ndim++] = rows;
    if (last > 0)
        op.local.dim[op.local.ndim++] = last;
    op.full = op.local;
    op.data = aligned_alloc(64, (n * 4 + 63) / 64 * 64);
    if (op.data == NULL) {
        fprintf(stderr, "head: no memory for %zu numbers\n", n);
        exit(1);
    }
    for (size_t i = 0; i < n && dtype == MERAK_F32; i++)
        ((float *)op.data)[i] = (float)(i % 17) * 0.01f - 0.08f;
    for (size_t i = 0; i < n && dtype == MERAK_I32; i++)
        ((int32_t *)op.data)[i] = (int32_t)(i % 1000);
    return op;
}

/* The rows of a piece. */
static struct merak_operand part(const struct merak_operand *op, size_t piece,
                                 size_t pieces)
{
    struct merak_operand of = *op;
    size_t rows = op->local.dim[0] / pieces;
    size_t row = op->local.ndim > 1 ? op->local.dim[1] * 4 : 4;

    of.local.dim[0] = rows;
    of.lo[0] = piece * rows;
    of.data = (char *)op->data + piece * rows * row;
    return of;
}

static void run(const struct merak_backend *b, const char *op, int n_in,
                int n_out, bool accumulate, const struct merak_operand *operand)
{
    static const struct merak_attrs attrs = {.i = {1}};
    static const struct merak_attrs loss = {.f = {1}};
    static const struct merak_step step = {.grad_scale = 1, .token_share = 1};
    struct merak_kernel_call call = {
        .attrs = operand[0].dtype == MERAK_F32 && strncmp(op, "linear", 6) == 0
                     ? &attrs
                     : &loss,
        .n_in = n_in,
        .n_out = n_out,
        .accumulate = accumulate,
        .first = true,
        .step = &step};
    const struct merak_kernel *k;
    struct merak_error err;

    memcpy(call.operand, operand, (size_t)(n_in + n_out) * sizeof(*operand));
    if (merak_kernel_find(b, op, &k, &err) == MERAK_OK) {
        call.scratch_bytes =
            (merak_kernel_call_scratch(k, &call) + 63) / 64 * 64;
        call.scratch = aligned_alloc(64, call.scratch_bytes + 64);
        if (merak_kernel_run(b, k, &call, &err) == MERAK_OK) {
            free(call.scratch);
            return;
        }
    }
    fprintf(stderr, "head: %s\n", err.text);
    exit(1);
}

struct head {
    const struct merak_backend *b;
    struct merak_operand x, w, y, max, sum, z, t, dx, dw;
    size_t pieces;
};

#define RUN(op, n_in, n_out, accumulate, ...) \
    run(h->b, op, n_in, n_out, accumulate,    \
        (const struct merak_operand[]){__VA_ARGS__})

/* As programs do: gradients of a piece's rows follow its losses. */
static void step(const struct head *h)
{
    for (size_t k = 0; k < h->pieces; k++) {
        struct merak_operand x = part(&h->x, k, h->pieces);
        struct merak_operand max = part(&h->max, k, h->pieces);
        struct merak_operand sum = part(&h->sum, k, h->pieces);
        struct merak_operand t = part(&h->t, k, h->pieces);

        RUN("linear", 2, 1, false, x, h->w, h->y);
        RUN("xent_max", 1, 1, false, h->y, max);
        RUN("xent_sum", 3, 2, false, h->y, max, t, sum,
            part(&h->z, k, h->pieces));
        RUN("xent_dlogits", 4, 1, false, h->y, max, sum, t, h->y);
        RUN("linear_dx", 2, 1, false, h->y, h->w, part(&h->dx, k, h->pieces));
        RUN("linear_dw", 2, 1, k > 0, x, h->y, h->dw);
    }
}

int main(int argc, char **argv)
{
    struct head h = {.b = NULL};
    size_t n[3], before;
    int threads;
    double best = 1e9;

    if (argc != 7) {
        fprintf(stderr, "usage: head ROWS CHANNELS VOCABULARY PIECES THREADS "
                        "STEPS\n");
        return 64;
    }
    for (int i = 0; i < 3; i++)
        n[i] = strtoul(argv[1 + i], NULL, 10);
    h.pieces = strtoul(argv[4], NULL, 10);
    threads = atoi(argv[5]);
    if (merak_backend_find("cpu", &h.b, NULL) != MERAK_OK ||
        h.b->open(threads, NULL) != MERAK_OK)
        return 1;
    h.x = make(MERAK_F32, n[0], n[1]);
    h.w = make(MERAK_F32, n[2], n[1]);
    h.dx = make(MERAK_F32, n[0], n[1]);
    h.dw = make(MERAK_F32, n[2], n[1]);
    h.t = make(MERAK_I32, n[0], 0);
    before = resident_bytes();
    h.max = make(MERAK_F32, n[0], 0);
    h.sum = make(MERAK_F32, n[0], 0);
    h.z = make(MERAK_F32, n[0], 0);
    h.y = make(MERAK_F32, n[0] / h.pieces, n[2]);
    for (int i = 0; i < atoi(argv[6]); i++) {
        double from = busy_seconds(), took;

        step(&h);
        took = (busy_seconds() - from) / threads;
        best = took < best ? took : best;
    }
    printf("%.6f %zu\n", best, resident_bytes() - before);
    return 0;
}
