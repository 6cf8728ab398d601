/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_kernels.c - kernels by size, timed one by one
 *
 * What models call, with the operands that they call it with: programs of
 * models of one layer are made, in many widths and numbers of tokens, and of
 * each their distinct kernels are run.  In a step a kernel's operands were
 * written some kernels ago: they lie in a cache that is shared, not in the
 * core's own.  So runs go round a ring of memory that is larger than the
 * latter, and of the kind that a run's arena is: its pages may be smaller than
 * other memory's.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/clock.h"
#include "base/error.h"
#include "io/hf_config.h"
#include "partitioner/plan.h"
#include "runtime/transport/arena.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 64
#define RING ((size_t)48 << 20) /* bytes, or what the largest call takes */
#define MOST_RUNS 9
#define ENOUGH_NS 20000000 /* for the runs of one kernel */

struct timer {
    const struct merak_backend *backend;
    struct merak_rates *rates;
    struct merak_arena ring;
    size_t at;
    struct merak_step step;
    struct merak_error *err;
};

static const struct {
    size_t hidden, seq, batch;
} sizes[] = {{128, 64, 1},  {128, 128, 2}, {256, 128, 1}, {256, 128, 4},
             {256, 256, 4}, {512, 128, 1}, {512, 256, 2}, {512, 256, 4},
             {768, 512, 1}, {1024, 256, 2}};

/* --- one kernel ----------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t operand_bytes(const struct merak_operand *op)
{
    return aligned(merak_shape_count(&op->local) *
                   merak_dtype_bytes(op->dtype));
}

static size_t call_bytes(const struct merak_kernel_call *call)
{
    size_t bytes = aligned(call->scratch_bytes);

    for (int i = 0; i < call->n_in + call->n_out; i++)
        bytes += operand_bytes(&call->operand[i]);
    return bytes;
}

/* Place the operands behind those of the run before. */
static void place(struct timer *t, struct merak_kernel_call *call, size_t bytes)
{
    char *data;

    if (t->at + bytes > t->ring.bytes)
        t->at = 0;
    data = (char *)t->ring.base + t->at;
    t->at += bytes;
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        struct merak_operand *op = &call->operand[i];

        op->data = data;
        if (op->dtype == MERAK_I32) /* tokens: all are the first */
            memset(data, 0, operand_bytes(op));
        data += operand_bytes(op);
    }
    call->scratch = call->scratch_bytes > 0 ? data : NULL;
}

/* What runs will read are small numbers, 0.0115, neither zeros nor subnormal:
 * those take longer. */
static void refresh(struct timer *t, size_t bytes)
{
    memset(t->ring.base, 0x3c, bytes < t->ring.bytes ? bytes : t->ring.bytes);
    t->at = 0;
}

static enum merak_status grow(struct timer *t, size_t bytes)
{
    if (bytes <= t->ring.bytes)
        return MERAK_OK;
    merak_arena_destroy(&t->ring);
    return merak_arena_create(bytes, &t->ring, t->err);
}

/* The lower quartile of runs, after one that warms up: neighbours on the
 * machine only ever add.  `far`: nobody has touched the operands since the
 * last step. */
static enum merak_status run(struct timer *t, const struct merak_kernel *kernel,
                             struct merak_kernel_call *call, bool far,
                             double *seconds_p)
{
    size_t bytes = call_bytes(call);
    double seconds[MOST_RUNS];
    enum merak_status rc = grow(t, bytes > RING ? bytes : RING);
    int64_t began;
    int n = -1;

    if (far && bytes < RING / (MOST_RUNS + 1))
        bytes = RING / (MOST_RUNS + 1);
    if (rc == MERAK_OK)
        refresh(t, (MOST_RUNS + 1) * bytes);
    began = merak_clock_ns();
    while (rc == MERAK_OK && n < MOST_RUNS &&
           (n < 3 || merak_clock_ns() - began < ENOUGH_NS)) {
        int64_t start;

        place(t, call, bytes);
        start = merak_clock_ns();
        rc = kernel->fn(call, t->err);
        if (n >= 0)
            seconds[n] = (double)(merak_clock_ns() - start) * 1e-9;
        n++;
    }
    if (rc != MERAK_OK)
        return rc;
    qsort(seconds, (size_t)n, sizeof(*seconds), calibrate_compare_doubles);
    *seconds_p = seconds[n / 4];
    return MERAK_OK;
}

static enum merak_status time_instr(struct timer *t,
                                    const struct merak_program *prog,
                                    const struct merak_instr *in)
{
    const struct merak_kernel *kernel;
    struct merak_kernel_call call;
    struct merak_rate_point point = {.flops = in->flops,
                                     .bytes = (double)in->bytes};
    enum merak_status rc =
        merak_kernel_find(t->backend, in->op->name, &kernel, t->err);

    if (rc != MERAK_OK)
        return rc;
    merak_program_call(prog, in, &call);
    call.step = &t->step;
    if (kernel->scratch != NULL)
        call.scratch_bytes = kernel->scratch(&call);
    rc = run(t, kernel, &call, in->microbatch < 0, &point.seconds);
    if (rc == MERAK_OK && point.seconds > 0)
        merak_rates_add(t->rates, in->op->name, &point);
    return rc;
}

/* --- all of a model ------------------------------------------------------- */

/* Was one of this op and size timed in this program? */
static bool is_repeat(const struct merak_program *prog, int at)
{
    const struct merak_instr *in = &prog->instr[at];

    for (int i = 0; i < at; i++) {
        const struct merak_instr *other = &prog->instr[i];

        if (other->kind == MERAK_INSTR_KERNEL && other->op == in->op &&
            other->flops == in->flops && other->bytes == in->bytes)
            return true;
    }
    return false;
}

static enum merak_status time_program(struct timer *t,
                                      const struct merak_program *prog)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < prog->n_instrs && rc == MERAK_OK; i++) {
        if (prog->instr[i].kind != MERAK_INSTR_KERNEL || is_repeat(prog, i))
            continue;
        rc = time_instr(t, prog, &prog->instr[i]);
    }
    return rc;
}

static enum merak_status time_model(struct timer *t, enum merak_family family,
                                    enum merak_dtype dtype, size_t size)
{
    size_t hidden = sizes[size].hidden;
    struct merak_hf_config config = {.family = family,
                                     .layers = 1,
                                     .hidden = hidden,
                                     .heads = hidden / 64,
                                     .kv_heads = hidden / 64,
                                     .head_dim = 64,
                                     .ffn = 4 * hidden,
                                     .vocab = 8 * hidden,
                                     .positions = sizes[size].seq,
                                     .norm_eps = 1e-5f,
                                     .rope_theta = 1e4f,
                                     .init_std = 0.02f,
                                     .embd_dropout = 0.1f, /* gpt2 */
                                     .resid_dropout = 0.1f,
                                     .gelu_tanh = true,
                                     .attn_bias = family == MERAK_GPT2,
                                     .mlp_bias = family == MERAK_GPT2};
    const struct merak_plan plan = {.tp = 1,
                                    .pp = 1,
                                    .dp = 1,
                                    .microbatches = 2,
                                    .micro_batch = sizes[size].batch,
                                    .schedule = "1f1b",
                                    .dtype = dtype,
                                    .threads = 1};
    struct merak_planned *planned = NULL;
    enum merak_status rc =
        merak_plan_build(&plan, sizes[size].seq, merak_hf_describe, &config,
                         MERAK_PLAN_ALL, NULL, &planned, t->err);

    if (rc == MERAK_OK)
        rc = time_program(t, planned->program[0]);
    merak_planned_destroy(planned);
    return rc;
}

enum merak_status calibrate_kernels(const struct merak_backend *backend,
                                    enum merak_dtype dtype,
                                    struct merak_rates *rates,
                                    struct merak_error *err)
{
    struct timer t = {.backend = backend,
                      .rates = rates,
                      .step = {.lr = 1e-9f,
                               .beta1 = 0.9f,
                               .beta2 = 0.95f,
                               .eps = 1e-8f,
                               .clip = 1,
                               .grad_scale = 1,
                               .train = true},
                      .err = err};
    enum merak_status rc = MERAK_OK;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes) && rc == MERAK_OK;
         i++) {
        rc = time_model(&t, MERAK_GPT2, dtype, i);
        if (rc == MERAK_OK)
            rc = time_model(&t, MERAK_LLAMA, dtype, i);
    }
    merak_arena_destroy(&t.ring);
    return rc;
}
