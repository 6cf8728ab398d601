/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate.c - `merak calibrate`: measure this machine into a device file
 *
 * What a step's time is predicted from (partitioner/search/device.h): the rate
 * of matrix products in each type, the bandwidth of elementwise kernels, what a
 * kernel costs that has nothing to do, and copies and wake-ups between two
 * processes of the node.  Every figure is the median of several runs, so that
 * a neighbour who comes and goes does not count.  Then kernels and, where
 * several ranks were started, exchanges as training steps have them
 * (calibrate_kernels.c).
 */
#include "config.h"

#include "cmd/calibrate.h"
#include "cmd/cmd.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "kernels/kernels.h"
#include "partitioner/search/device.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNS 7
#define ROUNDS 3
#define ALIGN 64
#define STREAM_ELEMENTS                                   \
    ((size_t)8 << 20) /* beyond any cache, with 3 of them \
                       */
#define COPY_BYTES ((size_t)64 << 20)
#define PINGS 400

struct calibrate {
    const char *out, *backend_name;
    const char *from, *base;
    int threads, rounds;
    double memory_gib;
    bool help;
    struct calibrate_world world;
    struct merak_device device;
};

/* --- one kernel ----------------------------------------------------------- */

int calibrate_compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *value, size_t n)
{
    qsort(value, n, sizeof(*value), calibrate_compare_doubles);
    return value[n / 2];
}

static void shape_operand(struct merak_operand *op, enum merak_dtype dtype,
                          int ndim, size_t a, size_t b)
{
    *op = (struct merak_operand){.dtype = dtype,
                                 .local = {.ndim = ndim, .dim = {a, b}},
                                 .full = {.ndim = ndim, .dim = {a, b}}};
}

static size_t operand_bytes(const struct merak_operand *op)
{
    return merak_shape_count(&op->local) * merak_dtype_bytes(op->dtype);
}

/* Memory that has been touched: small numbers, neither zeros nor subnormal. */
static void *make_data(const struct merak_operand *op, struct merak_error *err)
{
    size_t bytes = (operand_bytes(op) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    void *data = aligned_alloc(ALIGN, bytes);

    if (data == NULL) {
        merak_fail_nomem(err, bytes);
        return NULL;
    }
    memset(data, 0x3c, bytes); /* 0.0115 in f32 and in bf16 */
    return data;
}

/* Seconds of a kernel: the median run after one that warms up. */
static enum merak_status time_call(const struct merak_kernel *kernel,
                                   struct merak_kernel_call *call,
                                   double *seconds_p, struct merak_error *err)
{
    double seconds[RUNS];
    enum merak_status rc = kernel->fn(call, err);

    for (int i = 0; i < RUNS && rc == MERAK_OK; i++) {
        int64_t start = merak_clock_ns();

        rc = kernel->fn(call, err);
        seconds[i] = (double)(merak_clock_ns() - start) * 1e-9;
    }
    if (rc == MERAK_OK)
        *seconds_p = median(seconds, RUNS);
    return rc;
}

/* Gives a call, whose operands have shapes, data and scratch; times it. */
static enum merak_status time_kernel(const struct calibrate *c, const char *op,
                                     struct merak_kernel_call *call,
                                     double *seconds_p, struct merak_error *err)
{
    const struct merak_kernel *kernel = NULL;
    struct merak_operand scratch = {.dtype = MERAK_F32, .local = {.ndim = 1}};
    enum merak_status rc =
        merak_kernel_find(c->world.backend, op, &kernel, err);
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
static enum merak_status gemm_rate(const struct calibrate *c,
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

/* Of the sizes that transformers have; the peak is the best of them. */
static enum merak_status measure_gemm(struct calibrate *c,
                                      enum merak_dtype dtype,
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
    c->device.flops_per_s[dtype] = median(rate, SIZES);
    c->device.peak_flops_per_s[dtype] = rate[SIZES - 1]; /* sorted by now */
    return MERAK_OK;
}

static enum merak_status time_add(const struct calibrate *c, size_t n,
                                  double *seconds_p, struct merak_error *err)
{
    const struct merak_attrs attrs = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 2, .n_out = 1};

    for (int i = 0; i < 3; i++)
        shape_operand(&call.operand[i], MERAK_F32, 1, n, 0);
    return time_kernel(c, "add", &call, seconds_p, err);
}

static enum merak_status measure_memory(struct calibrate *c,
                                        struct merak_error *err)
{
    double few = 0, many = 1;
    enum merak_status rc = time_add(c, 16, &few, err);

    if (rc == MERAK_OK)
        rc = time_add(c, STREAM_ELEMENTS, &many, err);
    if (rc != MERAK_OK)
        return rc;
    c->device.kernel_s = few;
    c->device.bytes_per_s =
        3.0 * sizeof(float) * (double)STREAM_ELEMENTS / many;
    printf("  add f32 of 16 elements          %9.3f us\n", few * 1e6);
    printf("  add f32, streamed               %9.2f GB/s\n",
           c->device.bytes_per_s / 1e9);
    return MERAK_OK;
}

/* Peers of a node copy from each other's memory. */
static enum merak_status measure_copy(struct calibrate *c,
                                      struct merak_error *err)
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
        seconds[i] = (double)(merak_clock_ns() - start) * 1e-9;
    }
    c->device.link_bytes_per_s = (double)COPY_BYTES / median(seconds, RUNS);
    printf("  copy                            %9.2f GB/s\n",
           c->device.link_bytes_per_s / 1e9);
    free(from);
    free(to);
    return MERAK_OK;
}

/* The other end of the wake-ups: sends back what comes until it is closed. */
static void echo(int fd)
{
    char byte;

    while (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1)
        ;
}

static bool ping(int fd, double *seconds_p)
{
    int64_t start = merak_clock_ns();
    char byte = 0;

    if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
        return false;
    *seconds_p = (double)(merak_clock_ns() - start) * 0.5e-9;
    return true;
}

/* A rank that waits for a peer sleeps until a descriptor is ready. */
static enum merak_status measure_wake(struct calibrate *c,
                                      struct merak_error *err)
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
        echo(fd[1]);
        _exit(0);
    }
    close(fd[1]);
    for (int i = 0; i < PINGS && well && child > 0; i++)
        well = ping(fd[0], &seconds[i]);
    close(fd[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
    if (child < 0 || !well)
        return merak_fail(err, MERAK_ERR_SYSTEM,
                          "no answer from a child process: %m");
    c->device.link_latency_s = median(seconds, PINGS);
    printf("  wake-up of a peer               %9.3f us\n",
           c->device.link_latency_s * 1e6);
    return MERAK_OK;
}

/* One after the other, all ranks at the same time. */
static enum merak_status measure(struct calibrate *c, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (c->world.backend->open != NULL)
        rc = c->world.backend->open(c->threads, err);
    if (rc == MERAK_OK)
        rc = measure_wake(c, err);
    if (rc == MERAK_OK)
        rc = measure_gemm(c, MERAK_F32, err);
    if (rc == MERAK_OK)
        rc = measure_gemm(c, MERAK_BF16, err);
    if (rc == MERAK_OK)
        rc = measure_memory(c, err);
    if (rc == MERAK_OK)
        rc = measure_copy(c, err);
    rc = merak_boot_agree(c->world.boot, rc, err);
    if (rc == MERAK_OK)
        rc = calibrate_kernels(&c->world, c->threads, c->rounds, &c->device,
                               err);
    /* Between nodes nothing was measured: as far as is known, the same. */
    c->device.net_bytes_per_s = c->device.link_bytes_per_s;
    c->device.net_latency_s = c->device.link_latency_s;
    return rc;
}

/* --- the command ---------------------------------------------------------- */

#define AT(field) offsetof(struct calibrate, field)

static const struct merak_option rows[] = {
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "where to; ends in .json (required)", .arg = "FILE"},
    {"threads", MERAK_OPTION_INT, AT(threads), .about = "of a rank (1)",
     .least = 1, .most = 4096},
    {"rounds", MERAK_OPTION_INT, AT(rounds),
     .about = "over all models that are timed (3)", .least = 1, .most = 100},
    {"ranks-per-node", MERAK_OPTION_INT, AT(device.ranks_per_node),
     .about = "to be noted in the file (as many as were started)", .least = 1,
     .most = 4096},
    {"memory-gib", MERAK_OPTION_REAL, AT(memory_gib),
     .about = "that a rank may take (7/8 of this machine's, shared out)",
     .positive = true, .most = 1e6},
    {"backend", MERAK_OPTION_TEXT, AT(backend_name), .about = "kernels (cpu)",
     .arg = "NAME"},
    {"from", MERAK_OPTION_TEXT, AT(from),
     .about = "measure nothing: take the times of a run from its trace",
     .arg = "DIR"},
    {"device", MERAK_OPTION_TEXT, AT(base),
     .about = "what --from corrects: a name or a file (cpu)", .arg = "WORD"},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static void print_help(void)
{
    puts("usage: merak calibrate --out FILE [OPTION]...\n"
         "\n"
         "Measure this machine's kernels, memory and copies into a device "
         "file,\n"
         "for `merak plan`.  Start it as ranks will be, as many on a node, on "
         "as\n"
         "many cores each: srun -N 1 -n 8 -c 4 merak calibrate --threads 4 "
         "..\n"
         "\n"
         "With --from, in one process, correct a device by what a traced run "
         "took\n"
         "instead.\n");
    merak_options_help(&table, stdout);
}

static enum merak_status parse(int argc, char **argv, struct calibrate *c,
                               struct merak_error *err)
{
    enum merak_status rc =
        merak_options_parse(&table, argc, argv, c, &c->help, err);
    size_t n = c->out == NULL ? 0 : strlen(c->out);

    if (rc != MERAK_OK || c->help)
        return rc;
    if (n < 6 || strcmp(c->out + n - 5, ".json") != 0)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "give --out FILE.json, where the device file goes");
    if (c->from == NULL && c->base != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--device %.100s is what a trace corrects: give "
                          "--from DIR, too",
                          c->base);
    if (c->from != NULL &&
        (c->threads > 0 || c->rounds > 0 || c->memory_gib > 0 ||
         c->device.ranks_per_node > 0))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--from measures nothing: --threads, --rounds, "
                          "--ranks-per-node and --memory-gib are the "
                          "device's that it corrects");
    return MERAK_OK;
}

static enum merak_status check_ranks(struct calibrate *c,
                                     struct merak_error *err)
{
    const struct merak_boot *boot = c->world.boot;

    if (boot->n_nodes > 1)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%d ranks on %d nodes: start those of one node "
                          "(srun -N 1 -n %d)",
                          boot->size, boot->n_nodes, boot->local_size);
    if (c->device.ranks_per_node == 0)
        c->device.ranks_per_node = boot->size;
    return MERAK_OK;
}

static void fill_device(struct calibrate *c)
{
    double bytes = (double)sysconf(_SC_PHYS_PAGES) *
                   (double)sysconf(_SC_PAGESIZE) * 7 / 8 /
                   c->device.ranks_per_node;

    if (c->memory_gib > 0)
        bytes = c->memory_gib * 0x1p30;
    c->device.memory_bytes = (size_t)bytes;
    snprintf(c->device.name, sizeof(c->device.name), "%s, %d thread%s",
             c->backend_name, c->threads, c->threads > 1 ? "s" : "");
}

/* What all ranks found alike is rank 0's to print and to write. */
static int run(struct calibrate *c)
{
    struct merak_error err = {0};
    const struct merak_boot *boot = c->world.boot;
    enum merak_status rc = check_ranks(c, &err);

    if (rc == MERAK_OK && boot->rank > 0 &&
        freopen("/dev/null", "w", stdout) == NULL)
        rc = merak_fail(&err, MERAK_ERR_SYSTEM, "/dev/null: %m");
    rc = merak_boot_agree(c->world.boot, rc, &err);
    if (rc == MERAK_OK)
        rc = measure(c, &err);
    if (rc == MERAK_OK && boot->rank == 0) {
        fill_device(c);
        rc = merak_device_save(&c->device, c->out, &err);
    }
    rc = merak_boot_agree(c->world.boot, rc, &err);
    if (rc == MERAK_OK)
        return MERAK_EXIT_DONE;
    if (boot->rank == 0)
        fprintf(stderr, "merak calibrate: %s\n", err.text);
    return rc == MERAK_ERR_CONFIG ? MERAK_EXIT_CONFIG : MERAK_EXIT_RESOURCE;
}

int merak_cmd_calibrate(int argc, char **argv)
{
    struct calibrate c = {.backend_name = "cpu"};
    struct merak_error err = {0};
    enum merak_status rc = parse(argc, argv, &c, &err);
    int code;

    if (rc == MERAK_OK && c.help) {
        print_help();
        return MERAK_EXIT_DONE;
    }
    if (rc == MERAK_OK)
        rc = merak_backend_find(c.backend_name, &c.world.backend, &err);
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak calibrate: %s\n", err.text);
        return MERAK_EXIT_CONFIG;
    }
    if (c.from != NULL)
        return calibrate_from_trace(&(struct calibrate_from){
            c.from, c.base != NULL ? c.base : "cpu", c.backend_name, c.out});
    c.threads = c.threads > 0 ? c.threads : 1;
    c.rounds = c.rounds > 0 ? c.rounds : ROUNDS;
    rc = merak_boot_open(&c.world.boot, &err);
    if (rc != MERAK_OK) {
        fprintf(stderr, "merak calibrate: %s\n", err.text);
        return MERAK_EXIT_LAUNCH;
    }
    code = run(&c);
    merak_device_fini(&c.device);
    merak_boot_close(c.world.boot);
    return code;
}
