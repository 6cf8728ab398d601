/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_accel.c - what each rank measures on its accelerator
 *
 * The same quantities as in calibrate_alone.c, and attention's rate.  Operands
 * are random numbers in device memory, since products of zeros take less power
 * and so less time; times are measured on the device, over several consecutive
 * calls.  So the cost of a kernel without work is that of a launch when the
 * host is ahead.
 *
 * A transfer that goes through host memory (runtime/engine/accel.c) takes as
 * long as a copy from the device, one between processes, and one back.  What a
 * link moves is measured in calibrate_net.c.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "base/size.h"
#include "kernels/geometry.h"
#include "runtime/engine/engine.h"
#include "runtime/train/accel_choice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 7
#define CALLS 8 /* per run */
#define ALIGN 256
#define DEADLINE_S 60
#define RANDOMS ((size_t)1 << 18)
#define COPY_BYTES ((size_t)64 << 20)

struct probe {
    struct calibrate_world *world;
    struct merak_event *begin, *end;
    bool large; /* it has its own memory, and needs large operands */
};

/* --- one kernel ----------------------------------------------------------- */

static struct merak_accel *device_of(const struct probe *p)
{
    return p->world->accel;
}

static enum merak_status finish(const struct probe *p,
                                struct merak_event *event,
                                struct merak_error *err)
{
    return merak_accel_wait(device_of(p), event, DEADLINE_S, NULL, err);
}

/* Small numbers of both signs, repeated. */
static void fill(unsigned char *to, size_t bytes, enum merak_dtype dtype)
{
    for (size_t i = 0; i < RANDOMS && (i + 1) * 4 <= bytes; i++) {
        float x = 0.05f * merak_rng_normal(7, i);
        uint16_t two[2] = {merak_f32_to_bf16(x), merak_f32_to_bf16(-x)};

        memcpy(to + 4 * i, dtype == MERAK_BF16 ? (void *)two : (void *)&x, 4);
    }
    for (size_t at = RANDOMS * 4; at < bytes; at += RANDOMS * 4)
        memcpy(to + at, to,
               bytes - at < RANDOMS * 4 ? bytes - at : RANDOMS * 4);
}

static enum merak_status put(const struct probe *p, void *to,
                             const struct merak_operand *op, size_t bytes,
                             struct merak_error *err)
{
    const struct merak_accel_ops *ops = device_of(p)->ops;
    unsigned char *data = calloc(1, bytes + 4);
    enum merak_status rc;

    if (data == NULL)
        return merak_fail_nomem(err, bytes);
    fill(data, bytes, op->dtype);
    rc = ops->write(device_of(p), 0, to, data, bytes, err);
    if (rc == MERAK_OK)
        rc = ops->record(device_of(p), 0, p->end, err);
    if (rc == MERAK_OK)
        rc = finish(p, p->end, err);
    free(data);
    return rc;
}

static enum merak_status launch_run(const struct probe *p,
                                    const struct merak_kernel *kernel,
                                    const struct merak_kernel_call *call,
                                    double *seconds_p, struct merak_error *err)
{
    const struct merak_accel_ops *ops = device_of(p)->ops;
    enum merak_status rc = ops->record(device_of(p), 0, p->begin, err);
    int64_t ns = 0;

    for (int i = 0; i < CALLS && rc == MERAK_OK; i++)
        rc = ops->launch(device_of(p), 0, kernel, call, err);
    if (rc == MERAK_OK)
        rc = ops->record(device_of(p), 0, p->end, err);
    if (rc == MERAK_OK)
        rc = finish(p, p->end, err);
    if (rc == MERAK_OK)
        rc = ops->elapsed(device_of(p), p->begin, p->end, &ns, err);
    *seconds_p = (double)ns * 1e-9 / CALLS;
    return rc;
}

static size_t operand_bytes(const struct merak_operand *op)
{
    return merak_size_align(merak_local_bytes(op), ALIGN);
}

/* Give the operands of a call, which have shapes, addresses in `memory` and
 * data. */
static enum merak_status place(const struct probe *p, unsigned char *memory,
                               struct merak_kernel_call *call,
                               struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < call->n_in + call->n_out && rc == MERAK_OK; i++) {
        struct merak_operand *op = &call->operand[i];

        op->data = memory;
        memory += operand_bytes(op);
        if (i < call->n_in)
            rc = put(p, op->data, op, operand_bytes(op), err);
    }
    call->scratch = call->scratch_bytes > 0 ? memory : NULL;
    return rc;
}

/* What to do with a call whose operands are set. */
typedef enum merak_status (*use_fn)(const struct probe *p,
                                    const struct merak_kernel *kernel,
                                    const struct merak_kernel_call *call,
                                    void *arg, struct merak_error *err);

/* Give the operands of a call, which have shapes, memory while `use` runs. */
static enum merak_status with_call(const struct probe *p, const char *op,
                                   struct merak_kernel_call *call, use_fn use,
                                   void *arg, struct merak_error *err)
{
    static const struct merak_step step = {.train = true};
    const struct merak_kernel *kernel = NULL;
    size_t bytes = ALIGN;
    void *memory = NULL;
    enum merak_status rc =
        merak_kernel_find(p->world->backend, op, &kernel, err);

    if (rc != MERAK_OK)
        return rc;
    call->step = &step;
    call->scratch_bytes = kernel->scratch != NULL ? kernel->scratch(call) : 0;
    for (int i = 0; i < call->n_in + call->n_out; i++)
        bytes += operand_bytes(&call->operand[i]);
    bytes += call->scratch_bytes;
    rc = device_of(p)->ops->alloc(device_of(p), bytes, &memory, err);
    if (rc != MERAK_OK)
        return rc;
    rc = place(p, memory, call, err);
    if (rc == MERAK_OK)
        rc = use(p, kernel, call, arg, err);
    device_of(p)->ops->free(device_of(p), memory);
    return rc;
}

static enum merak_status time_call(const struct probe *p,
                                   const struct merak_kernel *kernel,
                                   const struct merak_kernel_call *call,
                                   void *arg, struct merak_error *err)
{
    double seconds[RUNS + 1];
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i <= RUNS && rc == MERAK_OK; i++)
        rc = launch_run(p, kernel, call, &seconds[i], err);
    if (rc == MERAK_OK)
        *(double *)arg = calibrate_median(seconds + 1, RUNS);
    return rc;
}

/* Seconds of a kernel: the median run, after a warm-up. */
static enum merak_status time_kernel(const struct probe *p, const char *op,
                                     struct merak_kernel_call *call,
                                     double *seconds_p, struct merak_error *err)
{
    return with_call(p, op, call, time_call, seconds_p, err);
}

struct told {
    void (*tell)(void *arg, const char *line);
    void *arg;
};

static enum merak_status tune_call(const struct probe *p,
                                   const struct merak_kernel *kernel,
                                   const struct merak_kernel_call *call,
                                   void *arg, struct merak_error *err)
{
    const struct told *told = arg;
    enum merak_status rc = device_of(p)->ops->tune(
        device_of(p), 0, kernel, call, told->tell, told->arg, err);

    if (rc == MERAK_OK)
        rc = device_of(p)->ops->record(device_of(p), 0, p->end, err);
    return rc == MERAK_OK ? finish(p, p->end, err) : rc;
}

enum merak_status
calibrate_accel_tune(struct calibrate_world *world, const char *op,
                     struct merak_kernel_call *call,
                     void (*tell)(void *arg, const char *line), void *arg,
                     struct merak_error *err)
{
    struct probe p = {.world = world};
    struct told told = {tell, arg};
    enum merak_status rc =
        world->accel->ops->event_create(world->accel, &p.end, err);

    if (rc == MERAK_OK)
        rc = with_call(&p, op, call, tune_call, &told, err);
    if (p.end != NULL)
        world->accel->ops->event_destroy(world->accel, p.end);
    return rc;
}

static void shape_operand(struct merak_operand *op, enum merak_dtype dtype,
                          const struct merak_shape *shape)
{
    *op =
        (struct merak_operand){.dtype = dtype, .local = *shape, .full = *shape};
}

/* --- what is measured ----------------------------------------------------- */

static enum merak_status gemm_rate(const struct probe *p,
                                   enum merak_dtype dtype, const size_t *size,
                                   double *rate_p, struct merak_error *err)
{
    static const struct merak_attrs attrs = {.i = {1}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .n_in = 2, .n_out = 1, .first = true};
    double seconds = 1;
    enum merak_status rc;

    shape_operand(&call.operand[0], dtype,
                  &(struct merak_shape){2, {size[0], size[2]}});
    shape_operand(&call.operand[1], dtype,
                  &(struct merak_shape){2, {size[1], size[2]}});
    shape_operand(&call.operand[2], dtype,
                  &(struct merak_shape){2, {size[0], size[1]}});
    rc = time_kernel(p, "linear", &call, &seconds, err);
    *rate_p =
        2.0 * (double)size[0] * (double)size[1] * (double)size[2] / seconds;
    return rc;
}

/* With sizes of transformers; the peak is the best of them. */
static enum merak_status measure_gemm(const struct probe *p,
                                      enum merak_dtype dtype,
                                      struct merak_device *device,
                                      struct merak_error *err)
{
    static const size_t large[][3] = {{8192, 2304, 768},   {8192, 3072, 768},
                                      {8192, 768, 3072},   {16384, 6400, 1600},
                                      {16384, 1600, 6400}, {8192, 4096, 4096},
                                      {8192, 8192, 8192}};
    static const size_t small[][3] = {
        {64, 96, 96},   {128, 128, 64}, {64, 256, 128}, {128, 96, 192},
        {32, 128, 256}, {96, 96, 96},   {128, 128, 128}};
    enum { SIZES = sizeof(large) / sizeof(*large) };
    double rate[SIZES];
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < SIZES && rc == MERAK_OK; i++) {
        const size_t *size = p->large ? large[i] : small[i];

        rc = gemm_rate(p, dtype, size, &rate[i], err);
        if (rc == MERAK_OK)
            printf("  linear %s %5zu x %4zu x %4zu %9.1f GFLOP/s\n",
                   merak_dtype_name(dtype), size[0], size[1], size[2],
                   rate[i] / 1e9);
    }
    if (rc != MERAK_OK)
        return rc;
    device->flops_per_s[dtype] = calibrate_median(rate, SIZES);
    device->peak_flops_per_s[dtype] = rate[SIZES - 1]; /* sorted by now */
    return MERAK_OK;
}

/* Causal, forward and backward, with the op's FLOPs. */
static enum merak_status measure_attention(const struct probe *p,
                                           enum merak_dtype dtype,
                                           struct merak_device *device,
                                           struct merak_error *err)
{
    static const struct merak_attrs attrs = {.i = {0}};
    const struct merak_op *op = merak_op_find("attention_packed");
    size_t B = p->large ? 8 : 1, T = p->large ? 1024 : 32;
    size_t H = p->large ? 16 : 2, D = p->large ? 64 : 16;
    const struct merak_shape qkv = {5, {B, T, 3, H, D}};
    const struct merak_shape out = {4, {B, T, H, D}}, lse = {3, {B, T, H}};
    struct merak_kernel_call call = {
        .attrs = &attrs, .n_in = 1, .n_out = 2, .first = true};
    struct merak_infer inf = {.attrs = &attrs, .n_in = 1, .n_out = 2};
    struct merak_cost cost = {0};
    double seconds = 1;
    enum merak_status rc;

    shape_operand(&call.operand[0], dtype, &qkv);
    shape_operand(&call.operand[1], dtype, &out);
    shape_operand(&call.operand[2], MERAK_F32, &lse);
    for (int i = 0; i < 3; i++) {
        inf.shape[i] = call.operand[i].local;
        inf.dtype[i] = call.operand[i].dtype;
    }
    op->cost(&inf, &cost);
    rc = time_kernel(p, "attention_packed", &call, &seconds, err);
    if (rc != MERAK_OK)
        return rc;
    device->attention_flops_per_s[dtype] = cost.flops / seconds;
    printf("  attention %s                  %9.1f GFLOP/s\n",
           merak_dtype_name(dtype), cost.flops / seconds / 1e9);
    return MERAK_OK;
}

static enum merak_status time_add(const struct probe *p, size_t n,
                                  double *seconds_p, struct merak_error *err)
{
    static const struct merak_attrs attrs = {.i = {0}};
    struct merak_kernel_call call = {.attrs = &attrs, .n_in = 2, .n_out = 1};

    for (int i = 0; i < 3; i++)
        shape_operand(&call.operand[i], MERAK_F32,
                      &(struct merak_shape){1, {n}});
    return time_kernel(p, "add", &call, seconds_p, err);
}

static enum merak_status measure_memory(const struct probe *p,
                                        struct merak_device *device,
                                        struct merak_error *err)
{
    size_t n = p->large ? (size_t)128 << 20 : (size_t)1 << 20;
    double few = 0, many = 1;
    enum merak_status rc = time_add(p, 16, &few, err);

    if (rc == MERAK_OK)
        rc = time_add(p, n, &many, err);
    if (rc != MERAK_OK)
        return rc;
    device->kernel_s = few;
    device->bytes_per_s = 3.0 * sizeof(float) * (double)n / many;
    printf("  launch, add f32 of 16 elements  %9.3f us\n", few * 1e6);
    printf("  add f32, streamed               %9.2f GB/s\n",
           device->bytes_per_s / 1e9);
    return MERAK_OK;
}

/* Time a copy between the device and pinned host memory, one way. */
static enum merak_status time_copy(const struct probe *p, void *memory,
                                   void *host, size_t bytes, bool out,
                                   double *seconds_p, struct merak_error *err)
{
    const struct merak_accel_ops *ops = device_of(p)->ops;
    int64_t start = merak_clock_ns();
    enum merak_status rc =
        out ? ops->read(device_of(p), 0, host, memory, bytes, err)
            : ops->write(device_of(p), 0, memory, host, bytes, err);

    if (rc == MERAK_OK)
        rc = ops->record(device_of(p), 0, p->end, err);
    if (rc == MERAK_OK)
        rc = finish(p, p->end, err);
    *seconds_p = merak_clock_since_s(start);
    return rc;
}

/* Seconds of a copy out, on the host and in, to a peer's memory; of one of the
 * first and third, the slower, and of one of few bytes. */
struct copies {
    double peer[RUNS], one_way[RUNS], few[RUNS];
};

static enum merak_status measure_copies(const struct probe *p, void *memory,
                                        unsigned char *host, struct copies *c,
                                        struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < RUNS && rc == MERAK_OK; i++) {
        double out = 0, in = 0;
        int64_t start;

        rc = time_copy(p, memory, host, COPY_BYTES, true, &out, err);
        start = merak_clock_ns();
        memcpy(host + COPY_BYTES, host, COPY_BYTES);
        c->peer[i] = merak_clock_since_s(start);
        if (rc == MERAK_OK)
            rc = time_copy(p, memory, host, COPY_BYTES, false, &in, err);
        if (rc == MERAK_OK)
            rc = time_copy(p, memory, host, sizeof(double), true, &c->few[i],
                           err);
        c->peer[i] += out + in;
        c->one_way[i] = fmax(out, in);
    }
    return rc;
}

/* What --offload and its like copy over: one way at a time. */
static void take_host(const struct copies *c, struct merak_device *device)
{
    double seconds[RUNS], few;

    memcpy(seconds, c->few, sizeof(seconds));
    few = calibrate_median(seconds, RUNS);
    memcpy(seconds, c->one_way, sizeof(seconds));
    device->host.latency_s = few;
    device->host.bytes_per_s =
        (double)COPY_BYTES / fmax(calibrate_median(seconds, RUNS) - few, 1e-9);
    printf("  copy to the host's memory       %9.2f GB/s, of 8 bytes %.3f us\n",
           device->host.bytes_per_s / 1e9, few * 1e6);
}

static enum merak_status measure_link(const struct probe *p,
                                      struct merak_device *device,
                                      struct merak_error *err)
{
    const struct merak_accel_ops *ops = device_of(p)->ops;
    unsigned char *host = aligned_alloc(4096, 2 * COPY_BYTES);
    struct copies copies;
    void *memory = NULL;
    bool pinned = false;
    enum merak_status rc;

    if (host == NULL)
        return merak_fail_nomem(err, 2 * COPY_BYTES);
    memset(host, 1, 2 * COPY_BYTES);
    rc = ops->alloc(device_of(p), COPY_BYTES, &memory, err);
    if (rc == MERAK_OK && ops->pin != NULL)
        pinned = ops->pin(device_of(p), host, 2 * COPY_BYTES);
    if (rc == MERAK_OK)
        rc = measure_copies(p, memory, host, &copies, err);
    if (rc == MERAK_OK) {
        device->links.level[0].bytes_per_s =
            (double)COPY_BYTES / calibrate_median(copies.peer, RUNS);
        take_host(&copies, device);
        printf("  copy to a peer's memory         %9.2f GB/s%s\n",
               device->links.level[0].bytes_per_s / 1e9,
               pinned ? "" : ", not pinned");
    }
    if (pinned)
        ops->unpin(device_of(p), host);
    if (memory != NULL)
        ops->free(device_of(p), memory);
    free(host);
    return rc;
}

static enum merak_status measure(const struct probe *p,
                                 struct merak_device *device,
                                 struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int d = 0; d < 2 && rc == MERAK_OK; d++) {
        enum merak_dtype dtype = d == 0 ? MERAK_F32 : MERAK_BF16;

        rc = measure_gemm(p, dtype, device, err);
        if (rc == MERAK_OK)
            rc = measure_attention(p, dtype, device, err);
    }
    if (rc == MERAK_OK)
        rc = measure_memory(p, device, err);
    return rc == MERAK_OK ? measure_link(p, device, err) : rc;
}

/* --- the device ------------------------------------------------------------
 */

enum merak_status calibrate_accel_open(struct calibrate_world *world,
                                       int threads, struct merak_error *err)
{
    const struct merak_accel_ops *ops = world->backend->accel;
    struct merak_accel_card see;
    enum merak_status rc;

    if (ops->timer_create == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--backend %s has no timers to measure with; use "
                          "another",
                          world->backend->name);
    rc = merak_accel_list(world->backend, &see, err);
    if (rc != MERAK_OK)
        return rc;
    world->card = see.device[see.n > 0 ? world->boot->local_rank % see.n : 0];
    return ops->open(world->card.number, MERAK_QUEUE_COUNT, threads,
                     &world->accel, err);
}

void calibrate_accel_close(struct calibrate_world *world)
{
    if (world->accel != NULL)
        world->accel->ops->close(world->accel);
    world->accel = NULL;
}

double calibrate_accel_memory(const struct calibrate_world *world)
{
    size_t left = 0, all = 0;

    if (world->accel == NULL || world->accel->ops->memory == NULL ||
        world->accel->ops->memory(world->accel, &left, &all, NULL) != MERAK_OK)
        return 0;
    return (double)left;
}

static enum merak_status probe_open(struct probe *p,
                                    struct calibrate_world *world,
                                    struct merak_error *err)
{
    const struct merak_accel_ops *ops = world->accel->ops;
    enum merak_status rc;

    *p = (struct probe){.world = world, .large = ops->memory != NULL};
    rc = ops->timer_create(world->accel, &p->begin, err);
    if (rc == MERAK_OK)
        rc = ops->timer_create(world->accel, &p->end, err);
    return rc;
}

static void probe_close(struct probe *p)
{
    const struct merak_accel_ops *ops = p->world->accel->ops;

    if (p->begin != NULL)
        ops->event_destroy(p->world->accel, p->begin);
    if (p->end != NULL)
        ops->event_destroy(p->world->accel, p->end);
}

enum merak_status calibrate_accel(struct calibrate_world *world,
                                  struct merak_device *device,
                                  struct merak_error *err)
{
    const struct merak_accel_ops *ops = world->accel->ops;
    struct probe p;
    char text[512] = "";
    enum merak_status rc = probe_open(&p, world, err);

    if (ops->describe != NULL)
        ops->describe(world->accel, text, sizeof(text));
    if (text[0] != '\0')
        printf("  backend %s: %s\n", world->backend->name, text);
    if (rc == MERAK_OK)
        rc = measure(&p, device, err);
    probe_close(&p);
    return rc;
}

enum merak_status calibrate_accel_time(struct calibrate_world *world,
                                       const char *op,
                                       struct merak_kernel_call *call,
                                       double *seconds_p,
                                       struct merak_error *err)
{
    struct probe p;
    enum merak_status rc = probe_open(&p, world, err);

    if (rc == MERAK_OK)
        rc = time_kernel(&p, op, call, seconds_p, err);
    probe_close(&p);
    return rc;
}
