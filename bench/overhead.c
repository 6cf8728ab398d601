/* SPDX-License-Identifier: Apache-2.0 */
/* overhead.c - what the engine and the trace cost besides the work itself
 *
 *   overhead MODEL.json [tp|pp]      alone, or 2 ranks under mpirun
 *
 * Prints lines "WHAT VALUE":
 *   instructions  of this rank's program
 *   engine_us     time of an instruction whose kernel does nothing: median
 *                 step / instructions.  With 2 ranks transfers are real and
 *                 in it: their latency, and hand-overs between threads.
 * and alone, with the real kernels on one thread:
 *   step_us       median step
 *   trace_pct     of it for records: reading the clock, keeping them, and
 *                 writing those of every 100th step to a file
 */
#include "config.h"

#include "bench/bench.h"

#include "base/clock.h"
#include "base/error.h"
#include "io/hf_config.h"
#include "partitioner/assembly/assembly.h"
#include "runtime/engine/engine.h"
#include "runtime/transport/arena.h"

#include <string.h>
#include <unistd.h>

#define MAX_SEQ 128
#define MICROBATCHES 8
#define STEPS 200
#define WARM_UP 20

struct rank {
    struct merak_boot *boot;
    struct merak_hf_config config;
    size_t seq;
    struct merak_planned *planned;
    struct merak_program *program;
    struct merak_arena arena;
    struct merak_transport *tr;
    struct merak_engine *engine;
    int transport_rank[2];
    struct merak_error err;
};

/* A benchmark has nothing to clean up: say why, and leave. */
static void need(const struct rank *r, enum merak_status rc)
{
    if (rc == MERAK_OK)
        return;
    fprintf(stderr, "overhead: %s\n", r->err.text);
    exit(1);
}

static enum merak_status load_input(void *arg, const struct merak_load *load,
                                    void *out, struct merak_error *err)
{
    const struct rank *r = arg;

    int32_t *ids = out;

    (void)err;
    for (size_t i = 0; i < r->seq; i++)
        ids[i] = (int32_t)(i * 7 + (size_t)load->microbatch) % 250;
    return MERAK_OK;
}

static void open_rank(struct rank *r, const struct merak_backend *backend,
                      const char *axis)
{
    struct merak_plan plan = {.tp = 1,
                              .pp = 1,
                              .dp = 1,
                              .microbatches = MICROBATCHES,
                              .micro_batch = 1,
                              .schedule = "1f1b",
                              .zero = 1,
                              .threads = 1};
    struct merak_program_options po = {.memory = merak_backend_memory(backend)};
    struct merak_transport_options to = {0};
    struct merak_engine_options eo = {.backend = backend,
                                      .transport_rank = r->transport_rank,
                                      .load = load_input,
                                      .load_arg = r};

    *(strcmp(axis, "tp") == 0 ? &plan.tp : &plan.pp) = r->boot->size;
    need(r, merak_plan_build(&plan, r->seq, merak_hf_describe, &r->config,
                             MERAK_PLAN_ALL, &po, &r->planned, &r->err));
    r->program = r->planned->program[r->boot->rank];
    need(r, merak_arena_create(r->program->arena_bytes, r->boot->local_size > 1,
                               &r->arena, &r->err));
    memset(r->arena.base, 0, r->arena.bytes);
    to.arena = r->arena.base;
    to.arena_bytes = r->arena.bytes;
    to.arena_fd = r->arena.fd;
    need(r, merak_transport_open(r->boot->size > 1 ? "ucx" : "self", r->boot,
                                 &to, &r->tr, &r->err));
    for (int i = 0; i < 2; i++)
        r->transport_rank[i] = i;
    eo.tr = r->tr;
    eo.arena = r->arena.base;
    need(r, merak_engine_create(r->program, &eo, &r->engine, &r->err));
}

static void close_rank(struct rank *r)
{
    merak_engine_destroy(r->engine);
    merak_transport_close(r->tr);
    merak_arena_destroy(&r->arena);
    merak_planned_destroy(r->planned);
}

static double median(double *value, int n)
{
    qsort(value, (size_t)n, sizeof(*value), bench_compare);
    return value[n / 2];
}

/* us of a step; trace: also of keeping its records, or NULL. */
static double run_steps(struct rank *r, struct merak_trace *trace,
                        double *trace_us_p)
{
    static double step_us[STEPS];
    struct merak_step step = {.lr = 1e-4f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .grad_scale = 1.0f / MICROBATCHES,
                              .train = true};
    double tracing = 0;

    for (int i = -WARM_UP; i < STEPS; i++) {
        double began = bench_now_us(), ran;

        step.step = (uint64_t)(i + WARM_UP);
        need(r, merak_engine_run(r->engine, &step, &r->err));
        ran = bench_now_us();
        if (trace != NULL)
            need(r, merak_trace_step(trace, merak_engine_records(r->engine),
                                     r->program->n_instrs, &r->err));
        if (i < 0)
            continue;
        step_us[i] = ran - began;
        tracing += bench_now_us() - ran;
    }
    if (trace_us_p != NULL)
        *trace_us_p = tracing / STEPS;
    return median(step_us, STEPS);
}

/* us to fill a record: as the engine does, one reading of the clock, which is
 * also the next one's start. */
static double record_us(void)
{
    enum { RECORDS = 1000, ROUNDS = 101 };
    static struct merak_trace_record record[RECORDS];
    volatile struct merak_trace_record *kept = record;
    static double us[ROUNDS];
    int64_t now = 0;

    for (int k = 0; k < ROUNDS; k++) {
        double began = bench_now_us();

        for (int i = 0; i < RECORDS; i++) {
            kept[i].start_ns = now;
            now = merak_clock_ns();
            kept[i].end_ns = now;
            kept[i].step = k;
        }
        us[k] = (bench_now_us() - began) / RECORDS;
    }
    return median(us, ROUNDS);
}

static void measure_trace(struct rank *r)
{
    struct merak_trace_info info = {.ranks = 1,
                                    .stages = 1,
                                    .tp = 1,
                                    .dp = 1,
                                    .microbatches = MICROBATCHES,
                                    .schedule = "1f1b",
                                    .transport = "self"};
    char dir[] = "merak-overhead-XXXXXX", command[64];
    const char **name = calloc((size_t)r->program->n_instrs + 1, sizeof(*name));
    struct merak_trace *trace;
    double step, kept;

    if (name == NULL || mkdtemp(dir) == NULL)
        need(r, merak_fail(&r->err, MERAK_ERR_SYSTEM, "no directory: %m"));
    info.n_instrs = r->program->n_instrs;
    info.instr_name = name;
    for (int i = 0; i < info.n_instrs; i++)
        name[i] = r->program->instr[i].name;
    need(r, merak_trace_create(dir, &info, 0, &trace, &r->err));
    step = run_steps(r, trace, &kept);
    need(r, merak_trace_close(trace, &r->err));
    printf("step_us %.1f\n", step);
    printf("trace_pct %.3f\n",
           100 * (kept + record_us() * info.n_instrs) / step);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    if (system(command) != 0)
        fprintf(stderr, "overhead: %s is left\n", dir);
    free(name);
}

int main(int argc, char **argv)
{
    const struct merak_backend *nothing, *cpu;
    struct rank r = {0};
    double us;

    if (argc < 2)
        need(&r, merak_fail(&r.err, MERAK_ERR_CONFIG,
                            "expected MODEL.json [tp|pp]"));
    need(&r, merak_boot_open(&r.boot, &r.err));
    if (r.boot->size > 2)
        need(&r, merak_fail(&r.err, MERAK_ERR_CONFIG, "expected 1 or 2 ranks"));
    need(&r, merak_hf_config_load(argv[1], &r.config, &r.err));
    r.seq = r.config.positions < MAX_SEQ ? r.config.positions : MAX_SEQ;
    need(&r, merak_backend_find("emu", &nothing, &r.err));
    need(&r, merak_backend_find("cpu", &cpu, &r.err));
    open_rank(&r, nothing, argc > 2 ? argv[2] : "tp");
    us = run_steps(&r, NULL, NULL);
    if (r.boot->rank == 0)
        printf("instructions %d\nengine_us %.3f\n", r.program->n_instrs,
               us / r.program->n_instrs);
    close_rank(&r);
    if (r.boot->size == 1) {
        if (cpu->open != NULL)
            need(&r, cpu->open(1, &r.err));
        open_rank(&r, cpu, "tp");
        measure_trace(&r);
        close_rank(&r);
    }
    merak_boot_close(r.boot);
    return 0;
}
