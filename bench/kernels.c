/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - how fast a backend's kernels are at a GPT-2 step's shapes
 *
 * Times every kernel of a training step of GPT-2 124M (12 layers, 768
 * columns, vocabulary 50257) by itself on fresh-enough data, and adds them up
 * by how often a step runs them: what a step would take if nothing but
 * kernels took time.
 *
 * usage: kernels [f32|bf16 [threads [B [T [BACKEND [OP]]]]]]
 *
 * OP leaves out the ops whose names do not begin so.
 * Times are the least of several repetitions, by the wall and as CPU time
 * over threads: on a shared machine the second is what is ours.  Those of an
 * accelerator are by its own clock where it has one, of as many launches in a
 * row as take SPAN_S.
 */
#include "config.h"

#include "kernels/kernels.h"
#include "unit/with_accel.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAYERS 12
#define C 768
#define HEADS 12
#define D 64
#define V 50257
#define REPEAT 7
#define LAUNCHES 10    /* to find how many */
#define SPAN_S 4e-3    /* short against it is what starts and ends a row */
#define PATTERN 0x40000 /* elements that are filled one by one */
#define DEVICE_BYTES ((size_t)12 << 30) /* of logits at B = 16, T = 1024 */

struct shape_row {
    char type; /* 'c'ompute dtype, 'f'32, 'd'ouble, 'i'ds, 'b'f16, 0: none */
    int ndim;
    size_t dim[5];
};

struct bench_row {
    const char *op;
    int times; /* in a step of one micro-batch */
    int n_in, n_out;
    struct shape_row operand[9];
    double flops; /* 0: report GB/s alone */
    int64_t attr;
    bool accumulate;
};

static double read_clock(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (p == NULL) {
        fprintf(stderr, "kernels: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static size_t make_operand(struct merak_operand *op, const struct shape_row *s,
                           enum merak_dtype compute)
{
    size_t n, bytes;

    *op = (struct merak_operand){.dtype = s->type == 'c'   ? compute
                                          : s->type == 'd' ? MERAK_F64
                                          : s->type == 'i' ? MERAK_I32
                                          : s->type == 'b' ? MERAK_BF16
                                                           : MERAK_F32};
    op->local.ndim = s->ndim;
    memcpy(op->local.dim, s->dim, sizeof(s->dim));
    op->full = op->local;
    n = merak_shape_count(&op->local);
    bytes = n * merak_dtype_bytes(op->dtype);
    op->data = take(bytes);
    for (size_t i = 0; i < n && i < PATTERN; i++) {
        float x = (float)((i * 2654435761u >> 8 & 255) + 1) / 256.0f;

        if (op->dtype == MERAK_F32)
            ((float *)op->data)[i] = x;
        else if (op->dtype == MERAK_BF16)
            ((uint16_t *)op->data)[i] = merak_f32_to_bf16(x);
        else if (op->dtype == MERAK_I32)
            ((int32_t *)op->data)[i] = (int32_t)(i * 7919 % V);
    }
    for (size_t done = PATTERN; done < n; done *= 2)
        memcpy((char *)op->data + done * merak_dtype_bytes(op->dtype), op->data,
               (done < n - done ? done : n - done) *
                   merak_dtype_bytes(op->dtype));
    return bytes;
}

/* Least of REPEAT runs, by the wall and by CPU time over threads. */
struct seconds {
    double wall, cpu;
};

static struct with_accel device; /* of a backend that has one */

/* Bring a call's operands to the device; the host's copies go. */
static void move_to_device(struct merak_kernel_call *call)
{
    size_t used = 0;

    for (int o = 0; o < call->n_in + call->n_out; o++) {
        struct merak_operand *op = &call->operand[o];
        size_t bytes =
            merak_shape_count(&op->local) * merak_dtype_bytes(op->dtype);
        char *to = (char *)device.memory + used;

        used += (bytes + 255) / 256 * 256;
        if (used + call->scratch_bytes > device.bytes) {
            fprintf(stderr, "kernels: no memory on the device\n");
            exit(1);
        }
        with_accel_put(&device, to, op->data, bytes);
        free(op->data);
        op->data = to;
    }
    free(call->scratch);
    call->scratch = (char *)device.memory + used;
}

static struct merak_event *timer[2]; /* NULL: the device has no clock */

static void make_timers(void)
{
    struct merak_error err;

    for (int i = 0; i < 2 && device.a->ops->timer_create != NULL; i++)
        with_accel_check(
            device.a->ops->timer_create(device.a, &timer[i], &err), &err);
}

static void record(struct merak_event *event)
{
    struct merak_error err;

    if (event != NULL)
        with_accel_check(device.a->ops->record(device.a, 0, event, &err), &err);
}

/* Of `n` launches in a row. */
static double time_row_of(const struct merak_kernel *k,
                          const struct merak_kernel_call *call, int n)
{
    struct merak_error err;
    double start = read_clock(CLOCK_MONOTONIC);
    int64_t ns;

    record(timer[0]);
    for (int i = 0; i < n; i++)
        with_accel_check(device.a->ops->launch(device.a, 0, k, call, &err),
                         &err);
    record(timer[1]);
    with_accel_finish(&device);
    if (timer[0] == NULL)
        return read_clock(CLOCK_MONOTONIC) - start;
    with_accel_check(
        device.a->ops->elapsed(device.a, timer[0], timer[1], &ns, &err), &err);
    return 1e-9 * (double)ns;
}

static double time_launches(const struct merak_kernel *k,
                            const struct merak_kernel_call *call)
{
    double best, one;
    int n;

    (void)time_row_of(k, call, LAUNCHES); /* warms up */
    one = time_row_of(k, call, LAUNCHES) / LAUNCHES;
    n = one * LAUNCHES < SPAN_S ? (int)(SPAN_S / (one + 1e-7)) : LAUNCHES;
    best = one;
    for (int r = 0; r < REPEAT; r++) {
        double s = time_row_of(k, call, n) / n;

        best = s < best ? s : best;
    }
    return best;
}

/* Of a backend whose calls are done when they return. */
static struct seconds time_calls(const struct merak_kernel *k,
                                 const struct merak_kernel_call *call,
                                 int threads)
{
    struct seconds best = {1e30, 1e30};
    struct merak_error err;

    for (int r = 0; r < REPEAT; r++) {
        double wall = read_clock(CLOCK_MONOTONIC);
        double cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);

        if (k->fn(call, &err) != MERAK_OK) {
            fprintf(stderr, "kernels: %s: %s\n", k->name, err.text);
            exit(1);
        }
        wall = read_clock(CLOCK_MONOTONIC) - wall;
        cpu = (read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu) / threads;
        best.wall = wall < best.wall ? wall : best.wall;
        best.cpu = cpu < best.cpu ? cpu : best.cpu;
    }
    return best;
}

static struct seconds time_row(const struct bench_row *row,
                               const struct merak_backend *b,
                               enum merak_dtype compute, int threads)
{
    static const struct merak_step step = {.lr = 1e-4f,
                                           .beta1 = 0.9f,
                                           .beta2 = 0.95f,
                                           .eps = 1e-8f,
                                           .grad_scale = 1,
                                           .train = true};
    /* of norms an epsilon, of attention what is dropped */
    bool attends = strncmp(row->op, "attention", strlen("attention")) == 0;
    struct merak_attrs attrs = {.i = {row->attr}, .f = {attends ? 0 : 1e-5}};
    struct merak_kernel_call call = {.attrs = &attrs,
                                     .n_in = row->n_in,
                                     .n_out = row->n_out,
                                     .first = true,
                                     .accumulate = row->accumulate,
                                     .step = &step};
    const struct merak_kernel *k;
    struct merak_error err;
    struct seconds best = {1e30, 1e30};
    double bytes = 0;

    for (int o = 0; o < row->n_in + row->n_out; o++)
        bytes +=
            (double)make_operand(&call.operand[o], &row->operand[o], compute);
    if (merak_kernel_find(b, row->op, &k, &err) != MERAK_OK)
        exit(1);
    call.scratch_bytes =
        merak_kernel_scratch((void *)(uintptr_t)b, row->op, &call);
    call.scratch = take(call.scratch_bytes + 64);
    if (device.a != NULL) {
        move_to_device(&call);
        best.wall = best.cpu = time_launches(k, &call);
    } else {
        best = time_calls(k, &call, threads);
    }
    printf("%-20s %9.3f %9.3f x %3d = %8.1f %8.1f %8.1f", row->op,
           1e3 * best.wall, 1e3 * best.cpu, row->times,
           1e3 * best.wall * row->times, 1e3 * best.cpu * row->times,
           1e-9 * bytes / best.cpu);
    if (row->flops > 0)
        printf(" %8.1f", 1e-9 * row->flops / best.cpu);
    printf("\n");
    for (int o = 0; device.a == NULL && o < row->n_in + row->n_out; o++)
        free(call.operand[o].data);
    if (device.a == NULL)
        free(call.scratch);
    best.wall *= row->times;
    best.cpu *= row->times;
    return best;
}

#define X(last)        \
    {                  \
        'c', 3,        \
        {              \
            B, T, last \
        }              \
    }
#define W(out, in)  \
    {               \
        'c', 2,     \
        {           \
            out, in \
        }           \
    }
#define F1(n)   \
    {           \
        'f', 1, \
        {       \
            n   \
        }       \
    }
#define F2       \
    {            \
        'f', 2,  \
        {        \
            B, T \
        }        \
    }
#define QKV                   \
    {                         \
        'c', 5,               \
        {                     \
            B, T, 3, HEADS, D \
        }                     \
    }
#define O4                 \
    {                      \
        'c', 4,            \
        {                  \
            B, T, HEADS, D \
        }                  \
    }
#define LSE             \
    {                   \
        'f', 3,         \
        {               \
            B, T, HEADS \
        }               \
    }
#define LINEAR(in, out, times)                                  \
    {"linear",                                                  \
     times,                                                     \
     3,                                                         \
     1,                                                         \
     {X(in), W(out, in), F1(out), X(out)},                      \
     2e0 * M * (in) * (out),                                    \
     1,                                                         \
     false},                                                    \
        {"linear_dx",                                           \
         times,                                                 \
         2,                                                     \
         1,                                                     \
         {X(out), W(out, in), X(in)},                           \
         2e0 * M * (in) * (out),                                \
         1,                                                     \
         false},                                                \
        {"linear_dw",                                           \
         times,                                                 \
         2,                                                     \
         1,                                                     \
         {X(in), X(out), {'f', 2, {out, in}}},                  \
         2e0 * M * (in) * (out),                                \
         1,                                                     \
         true},                                                 \
    {                                                           \
        "linear_db", times, 1, 1, {X(out), F1(out)}, 0, 1, true \
    }

static struct seconds bench(const struct merak_backend *b,
                            enum merak_dtype dtype, int threads, size_t B,
                            size_t T, const char *op)
{
    const double M = (double)(B * T);
    const double pairs =
        2e0 * (double)(B * HEADS * D) * (double)(T * (T + 1) / 2);
    const size_t params = 124439808;
    const struct bench_row rows[] = {
        LINEAR(C, 3 * C, LAYERS),
        LINEAR(C, C, LAYERS),
        LINEAR(C, 4 * C, LAYERS),
        LINEAR(4 * C, C, LAYERS),
        LINEAR(C, V, 1),
        {"attention_packed", LAYERS, 1, 2, {QKV, O4, LSE}, 2 * pairs, 0, false},
        {"attention_packed_dx",
         LAYERS,
         4,
         1,
         {O4, QKV, O4, LSE, QKV},
         5 * pairs,
         0,
         false},
        {"layernorm",
         2 * LAYERS + 1,
         3,
         3,
         {X(C), F1(C), F1(C), X(C), F2, F2},
         0,
         0,
         false},
        {"layernorm_dx",
         2 * LAYERS + 1,
         5,
         1,
         {X(C), X(C), F1(C), F2, F2, X(C)},
         0,
         0,
         false},
        {"layernorm_dw",
         2 * LAYERS + 1,
         4,
         2,
         {X(C), X(C), F2, F2, F1(C), F1(C)},
         0,
         0,
         true},
        {"gelu", LAYERS, 1, 1, {X(4 * C), X(4 * C)}, 0, 1, false},
        {"gelu_dx", LAYERS, 2, 1, {X(4 * C), X(4 * C), X(4 * C)}, 0, 1, false},
        {"add", 4 * LAYERS, 2, 1, {X(C), X(C), X(C)}, 0, 0, false},
        {"dropout", 0, 1, 1, {X(C), X(C)}, 0, 0, false},
        {"embedding", 1, 2, 1, {{'i', 2, {B, T}}, W(V, C), X(C)}, 0, 0, false},
        {"embedding_dw",
         1,
         2,
         1,
         {{'i', 2, {B, T}}, X(C), {'f', 2, {V, C}}},
         0,
         0,
         false},
        {"add_position", 1, 2, 1, {X(C), W(1024, C), X(C)}, 0, 0, false},
        {"add_position_dw",
         1,
         1,
         1,
         {X(C), {'f', 2, {1024, C}}},
         0,
         1024,
         false},
        {"xent_max", 1, 1, 1, {X(V), F2}, 0, 0, false},
        {"xent_sum",
         1,
         3,
         2,
         {X(V), F2, {'i', 2, {B, T}}, F2, F2},
         0,
         0,
         false},
        {"xent_dlogits",
         1,
         4,
         1,
         {X(V), F2, F2, {'i', 2, {B, T}}, X(V)},
         0,
         0,
         false},
        {"grad_add", 0, 1, 1, {F1(params / 4), F1(params / 4)}, 0, 0, false},
        {"sumsq", 4, 1, 1, {F1(params / 4), {'d', 1, {1}}}, 0, 0, false},
        {"adamw",
         4,
         2,
         dtype == MERAK_BF16 ? 4 : 3,
         {F1(params / 4),
          F1(2),
          F1(params / 4),
          F1(params / 4),
          F1(params / 4),
          {'b', 1, {params / 4}}},
         0,
         1,
         false},
    };
    struct seconds total = {0, 0};

    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
        struct seconds s;

        if (strncmp(rows[r].op, op, strlen(op)) != 0)
            continue;
        s = time_row(&rows[r], b, dtype, threads);
        total.wall += s.wall;
        total.cpu += s.cpu;
    }
    return total;
}

int main(int argc, char **argv)
{
    bool bf16 = argc > 1 && strcmp(argv[1], "bf16") == 0;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    size_t B = argc > 3 ? (size_t)atoi(argv[3]) : 4;
    size_t T = argc > 4 ? (size_t)atoi(argv[4]) : 256;
    const char *name = argc > 5 ? argv[5] : "cpu";
    const struct merak_backend *b;
    struct merak_error err;
    struct seconds total;

    if (merak_backend_find(name, &b, &err) != MERAK_OK ||
        (b->open != NULL && b->open(threads, &err) != MERAK_OK)) {
        fprintf(stderr, "kernels: %s\n", err.text);
        return 1;
    }
    if (b->accel != NULL)
        with_accel_open(&device, b, DEVICE_BYTES);
    if (b->accel != NULL)
        make_timers();
    printf("# GPT-2 124M, B=%zu T=%zu, %s, %s, %d threads; ms by the wall and "
           "by CPU time, GB/s and GFLOP/s by CPU time (of an accelerator, all "
           "by its clock)\n",
           B, T, bf16 ? "bf16" : "f32", name, threads);
    total = bench(b, bf16 ? MERAK_BF16 : MERAK_F32, threads, B, T,
                  argc > 6 ? argv[6] : "");
    if (argc > 6)
        return 0;
    printf("# kernels of a step: %.3f s, %.0f tokens/s; by CPU time %.3f s, "
           "%.0f tokens/s\n",
           total.wall, (double)(B * T) / total.wall, total.cpu,
           (double)(B * T) / total.cpu);
    return 0;
}
