/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_alone.c - what each rank measures alone
 *
 * The rate of matrix products in each type, the bandwidth of elementwise
 * kernels, the cost of a kernel without work, and copies and wake-ups between
 * two processes of the node.  Every value is the median of several runs, so
 * that brief disturbances by other users do not count.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "kernels/geometry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNS 7
#define ALIGN 64
#define STREAM_ELEMENTS ((size_t)8 << 20) /* three exceed any cache */
#define COPY_BYTES ((size_t)64 << 20)
#define PINGS 400

struct alone {
    const struct merak_backend *backend;
    struct merak_device *device;
};

/* --- one kernel ----------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double calibrate_median(double *value, size_t n)
{
    qsort(value, n, sizeof(*value), compare_doubles);
    return value[n / 2];
}

static void shape_operand(struct merak_operand *op, enum merak_dtype dtype,
                          int ndim, size_t a, size_t b)
{
    *op = (struct merak_operand){.dtype = dtype,
                                 .local = {.ndim = ndim, .dim = {a, b}},
                                 .full = {.ndim = ndim, .dim = {a, b}}};
}

/* Touched memory, with small numbers, neither zero nor subnormal. */
static void *make_data(const struct merak_operand *op, struct merak_error *err)
{
    size_t bytes = merak_size_align(merak_local_bytes(op), ALIGN);
    void *data = aligned_alloc(ALIGN, bytes);

    if (data == NULL) {
        merak_fail_nomem(err, bytes);
        return NULL;
    }
    memset(data, 0x3c, bytes); /* 0.0115 in f32 and in bf16 */
    return data;
}

/* Seconds of a kernel: the median run, after a warm-up. */
static enum merak_status time_call(const struct merak_kernel *kernel,
                                   struct merak_kernel_call *call,
                                   double *seconds_p, struct merak_error *err)
{
    double seconds[RUNS];
    enum merak_status rc = kernel->fn(call, err);

    for (int i = 0; i < RUNS && rc == MERAK_OK; i++) {
        int64_t start = merak_clock_ns();

        rc = kernel->fn(call, err);
        seconds[i] = merak_clock_since_s(start);
    }
    if (rc == MERAK_OK)
        *seconds_p = calibrate_median(seconds, RUNS);
    return rc;
}

/* Give the operands of a call, which have shapes, data and scratch; time
 * it. */
static enum merak_status time_kernel(const struct alone *c, const char *op,
                                     struct merak_kernel_call *call,
                                     double *seconds_p, struct merak_error *err)
{
    const struct merak_kernel *kernel = NULL;
    struct merak_operand scratch = {.dtype = MERAK_F32, .local = {.ndim = 1}};
    enum merak_status rc = merak_kernel_find(c->backend, op, &kernel, err);
    int n = call->n_in + call->n_out;

    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        call->operand[i].data = make_data(&call->operand[i], err);
        if (call->operand[i].data == NULL)
            rc = MERAK_ERR_NOMEM;
    }
    if (rc == MERAK_OK && kernel->scratch != NULL)
        call->scratch_bytes = kernel->scratch(call);
    scratch.local.dim[0] = call->scratch_bytes / sizeof(float) + 1;
    if (rc == MERAK_OK && call->scratch_bytes > 0) {
        call->scratch = make_data(&scratch, err);
        if (call->scratch == NULL)
            rc = MERAK_ERR_NOMEM;
    }
    if (rc == MERAK_OK)
        rc = time_call(kernel, call, seconds_p, err);
    for (int i = 0; i < n; i++)
        free(call->operand[i].data);
    free(call->scratch);
    return rc;
}

/* --- what is measured ----------------------------------------------------- */

/* FLOP/s of y[m,n] = x[m,k] w[n,k]'. */
static enum merak_status gemm_rate(const struct alone *c,
                                   enum merak_dtype dtype, size_t m, size_t n,
                                   size_t k, double *rate_p,
                                   struct merak_error *err)
{
    const struct merak_attrs attrs = {.i = {1}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .n_in = 2, .n_out = 1, .first = true};
    double seconds = 1;
    enum merak_status rc;

    shape_operand(&call.operand[0], dtype, 2, m, k);
    shape_operand(&call.operand[1], dtype, 2, n, k);
    shape_operand(&call.operand[2], dtype, 2, m, n);
    rc = time_kernel(c, "linear", &call, &seconds, err);
    *rate_p = 2.0 * (double)m * (double)n * (double)k / seconds;
    return rc;
}

/* With sizes of transformers; the peak is the best of them. */
static enum merak_status measure_gemm(struct alone *c, enum merak_dtype dtype,
                                      struct merak_error *err)
{
    static const size_t size[][3] = {{256, 768, 768},   {512, 1024, 1024},
                                     {256, 3072, 768},  {256, 768, 3072},
                                     {1024, 3072, 768}, {1024, 1024, 4096},
                                     {64, 4096, 1024}};
    enum { SIZES = sizeof(size) / sizeof(size[0]) };
    double rate[SIZES];
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < SIZES && rc == MERAK_OK; i++) {
        rc = gemm_rate(c, dtype, size[i][0], size[i][1], size[i][2], &rate[i],
                       err);
        if (rc == MERAK_OK)
            printf("  linear %s %4zu x %4zu x %4zu  %9.1f GFLOP/s\n",
                   merak_dtype_name(dtype), size[i][0], size[i][1], size[i][2],
                   rate[i] / 1e9);
    }
    if (rc != MERAK_OK)
        return rc;
    c->device->flops_per_s[dtype] = calibrate_median(rate, SIZES);
    c->device->peak_flops_per_s[dtype] = rate[SIZES - 1]; /* sorted by now */
    return MERAK_OK;
}

static enum merak_status time_add(const struct alone *c, size_t n,
                                  double *seconds_p, struct merak_error *err)
{
    const struct merak_attrs attrs = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 2, .n_out = 1};

    for (int i = 0; i < 3; i++)
        shape_operand(&call.operand[i], MERAK_F32, 1, n, 0);
    return time_kernel(c, "add", &call, seconds_p, err);
}

static enum merak_status measure_memory(struct alone *c,
                                        struct merak_error *err)
{
    double few = 0, many = 1;
    enum merak_status rc = time_add(c, 16, &few, err);

    if (rc == MERAK_OK)
        rc = time_add(c, STREAM_ELEMENTS, &many, err);
    if (rc != MERAK_OK)
        return rc;
    c->device->kernel_s = few;
    c->device->bytes_per_s =
        3.0 * sizeof(float) * (double)STREAM_ELEMENTS / many;
    printf("  add f32 of 16 elements          %9.3f us\n", few * 1e6);
    printf("  add f32, streamed               %9.2f GB/s\n",
           c->device->bytes_per_s / 1e9);
    return MERAK_OK;
}

/* Peers of a node copy from each other's memory. */
static enum merak_status measure_copy(struct alone *c, struct merak_error *err)
{
    struct merak_operand op = {.dtype = MERAK_F32,
                               .local = {1, {COPY_BYTES / sizeof(float)}}};
    char *from = make_data(&op, err);
    char *to = from == NULL ? NULL : make_data(&op, err);
    double seconds[RUNS];

    if (to == NULL) {
        free(from);
        return MERAK_ERR_NOMEM;
    }
    for (int i = 0; i < RUNS; i++) {
        int64_t start = merak_clock_ns();

        from[i] = (char)i;
        memcpy(to, from, COPY_BYTES);
        seconds[i] = merak_clock_since_s(start);
    }
    c->device->links.level[0].bytes_per_s =
        (double)COPY_BYTES / calibrate_median(seconds, RUNS);
    printf("  copy                            %9.2f GB/s\n",
           c->device->links.level[0].bytes_per_s / 1e9);
    free(from);
    free(to);
    return MERAK_OK;
}

void calibrate_echo(int fd)
{
    char byte;

    while (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1)
        ;
}

bool calibrate_ping(int fd, double *seconds_p)
{
    int64_t start = merak_clock_ns();
    char byte = 0;

    if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
        return false;
    *seconds_p = (double)(merak_clock_ns() - start) * 0.5e-9;
    return true;
}

/* A rank that waits for a peer sleeps until a descriptor is ready. */
static enum merak_status measure_wake(struct alone *c, struct merak_error *err)
{
    double seconds[PINGS];
    bool well = true;
    int fd[2];
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) != 0)
        return merak_fail(err, MERAK_ERR_SYSTEM, "socketpair: %m");
    fflush(stdout);
    child = fork();
    if (child == 0) {
        close(fd[0]);
        calibrate_echo(fd[1]);
        _exit(0);
    }
    close(fd[1]);
    for (int i = 0; i < PINGS && well && child > 0; i++)
        well = calibrate_ping(fd[0], &seconds[i]);
    close(fd[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    if (child < 0 || !well)
        return merak_fail(err, MERAK_ERR_SYSTEM,
                          "no answer from a child process: %m");
    c->device->links.level[0].latency_s = calibrate_median(seconds, PINGS);
    printf("  wake-up of a peer               %9.3f us\n",
           c->device->links.level[0].latency_s * 1e6);
    return MERAK_OK;
}

enum merak_status calibrate_wake(struct merak_device *device,
                                 struct merak_error *err)
{
    struct alone a = {.device = device};

    return measure_wake(&a, err);
}

/* The text for bf16 mentions if it is emulated. */
static void print_backend(const struct merak_backend *backend)
{
    char text[256];

    merak_backend_describe(backend, MERAK_BF16, text, sizeof(text));
    if (*text != '\0')
        printf("  backend %s: %s\n", backend->name, text);
}

/* All ranks measure the same at the same time. */
enum merak_status calibrate_alone(const struct merak_backend *backend,
                                  int threads, struct merak_device *device,
                                  struct merak_error *err)
{
    struct alone a = {backend, device};
    enum merak_status rc = MERAK_OK;

    if (backend->open != NULL)
        rc = backend->open(threads, err);
    if (rc == MERAK_OK)
        print_backend(backend);
    if (rc == MERAK_OK)
        rc = measure_wake(&a, err);
    if (rc == MERAK_OK)
        rc = measure_gemm(&a, MERAK_F32, err);
    if (rc == MERAK_OK)
        rc = measure_gemm(&a, MERAK_BF16, err);
    if (rc == MERAK_OK)
        rc = measure_memory(&a, err);
    if (rc == MERAK_OK)
        rc = measure_copy(&a, err);
    return rc;
}
