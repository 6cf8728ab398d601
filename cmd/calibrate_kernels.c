/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_kernels.c - time kernels and exchanges in small models
 *
 * Models of many widths, with enough layers for their weights to exceed a
 * core's private cache, are trained for some steps (calibrate_run.c), in
 * several rounds over all of them.  Each size of an op gets the mean of its
 * calls.  All ranks train at the same time: each its own model, some of them
 * as replicas (calibrate_beside.c), and the ranks of a node one that is split
 * by tensor parallelism.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/error.h"
#include "base/progress.h"
#include "io/hf_config.h"
#include "partitioner/refine/line.h"
#include "partitioner/program/instr_cost.h"

#include <stdio.h>
#include <stdlib.h>

static const struct shape {
    size_t hidden, head_dim, layers, seq, batch, vocab;
} shapes[] = {
    {64, 16, 4, 64, 2, 256},    {128, 32, 3, 96, 1, 512},
    {128, 32, 4, 160, 3, 384},  {128, 64, 4, 64, 8, 2048},
    {96, 32, 3, 192, 8, 256},   {128, 32, 3, 192, 6, 384},
    {192, 48, 4, 96, 2, 1024},  {256, 64, 3, 128, 1, 1024},
    {256, 32, 3, 256, 1, 4096}, {256, 64, 2, 160, 5, 512},
    {384, 64, 2, 128, 1, 2048}, {512, 64, 2, 192, 1, 1024},
    {512, 128, 1, 96, 2, 4096}, {768, 64, 1, 128, 1, 2048},
    {1024, 64, 1, 96, 1, 1024}, {64, 32, 3, 128, 6, 512},
    {192, 32, 2, 128, 3, 640},  {256, 64, 2, 128, 4, 384},
};

#define SHAPES ((int)(sizeof(shapes) / sizeof(*shapes)))
/* For accelerators with their own memory, where the shapes above would only
 * measure launches. */
static const struct shape large_shapes[SHAPES] = {
    {256, 64, 3, 256, 1, 4096},     {768, 64, 2, 1024, 1, 8192},
    {768, 64, 2, 1024, 8, 50257},   {1024, 64, 2, 512, 4, 8192},
    {1280, 64, 1, 1024, 8, 8192},   {1600, 64, 1, 1024, 8, 50257},
    {2048, 128, 1, 2048, 2, 32000}, {2048, 64, 1, 1024, 4, 8192},
    {4096, 128, 1, 2048, 1, 32000}, {512, 64, 3, 512, 2, 8192},
    {768, 64, 2, 1024, 4, 8192},    {1024, 128, 2, 1024, 8, 32000},
    {1536, 64, 1, 1024, 8, 8192},   {256, 32, 3, 512, 8, 4096},
    {512, 128, 2, 2048, 2, 8192},   {1024, 64, 1, 4096, 1, 8192},
    {2560, 80, 1, 1024, 4, 8192},   {384, 64, 3, 1024, 4, 8192},
};
#define MODELS (4 * SHAPES) /* two families, two dtypes */
#define TRIALS (6 * MODELS) /* alone, as replicas, split; other orders */
#define LINK_LATENCY_S 2e-5
#define LINK_BYTES_PER_S 4e9
_Static_assert(SHAPES <= CALIBRATE_REPLICAS, "each is trained by replicas");

struct model {
    const struct shape *shape;
    enum merak_family family;
    enum merak_dtype dtype;
    int tp, dp;
    enum merak_recompute recompute;
    const char *schedule;
};

/* A model in one of the ways it is trained. */
struct trial {
    struct model model;
    struct calibrate_steps steps;
};

/* Samples are weighted by an exchange's estimated time with typical numbers of
 * a node, not by its measured time, else the few that found all members
 * waiting would dominate.
 */
struct exchanges {
    struct merak_line line;
    int n;
};

struct timer {
    struct calibrate_world *world;
    struct merak_device *device;
    int threads, ranks, rounds;
    bool quick;  /* a third of the shapes, and no other orders */
    bool direct; /* programs are for a link */
    int n_trials;
    struct trial trial[TRIALS]; /* replicas come right after the same alone */
    struct exchanges link;
    struct calibrate_beside beside;
    struct merak_error *err;
};

/* --- models --------------------------------------------------------------- */

static const struct shape *shapes_of(const struct timer *t)
{
    const struct merak_accel *accel = t->world->accel;

    return accel != NULL && accel->ops->memory != NULL ? large_shapes : shapes;
}

static struct model model_of(const struct timer *t, int i)
{
    return (struct model){
        .shape = &shapes_of(t)[i / 2 % SHAPES],
        .family = i % 2 == 0 ? MERAK_GPT2 : MERAK_LLAMA,
        .dtype = i < 2 * SHAPES ? MERAK_F32 : MERAK_BF16,
        .tp = 1,
        .dp = 1,
        .schedule = "1f1b",
    };
}

static struct merak_hf_config config_of(const struct model *m)
{
    const struct shape *s = m->shape;
    enum merak_family family = m->family;

    return (struct merak_hf_config){
        .family = family,
        .layers = s->layers,
        .hidden = s->hidden,
        .heads = s->hidden / s->head_dim,
        .kv_heads = s->hidden / s->head_dim,
        .head_dim = s->head_dim,
        .ffn = family == MERAK_GPT2 ? 4 * s->hidden : 3 * s->hidden,
        .vocab = s->vocab,
        .positions = s->seq,
        .norm.eps = 1e-5f,
        .rope.theta = 1e4f,
        .init_std = 0.02f,
        .embd_dropout = family == MERAK_GPT2 ? 0.1f : 0.0f,
        .resid_dropout = 0.1f,
        .act = family == MERAK_GPT2 ? MERAK_HF_GELU_TANH : MERAK_HF_SILU,
        .attn_bias = family == MERAK_GPT2,
        .mlp_bias = family == MERAK_GPT2};
}

static enum merak_status build(const struct timer *t, const struct model *m,
                               struct merak_planned **planned_p)
{
    struct merak_hf_config config = config_of(m);
    struct merak_plan plan = {.tp = m->tp,
                              .pp = 1,
                              .dp = m->dp,
                              .microbatches = 2,
                              .micro_batch = m->shape->batch,
                              .zero = 1,
                              .dtype = m->dtype,
                              .threads = t->threads,
                              .recompute = m->recompute};
    const struct merak_program_options opt = {
        .direct = t->direct,
        .memory = merak_backend_memory(t->world->backend),
    };

    snprintf(plan.schedule, sizeof(plan.schedule), "%s", m->schedule);
    return merak_plan_build(&plan, m->shape->seq, merak_hf_describe, &config,
                            MERAK_PLAN_ALL, &opt, planned_p, t->err);
}

static const struct merak_program *
own_program(const struct timer *t, const struct model *m,
            const struct merak_planned *planned)
{
    bool several = m->tp * m->dp > 1;

    return planned->program[several ? t->world->boot->local_rank : 0];
}

/* Heads are divided among tensor ranks. */
static bool divides(const struct model *m)
{
    return m->shape->hidden / m->shape->head_dim % (size_t)m->tp == 0;
}

/* --- results of a run
 * ------------------------------------------------------ */

/* Add the mean over all calls of an instruction's op and size to the table,
 * once, at the first of them. */
static void add_kernel(const struct merak_program *prog, int at,
                       const double *seconds, struct merak_rates *rates)
{
    const struct merak_instr *in = &prog->instr[at];
    struct merak_rate_point point = {.size = merak_instr_size(prog, in)};
    int calls = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *other = &prog->instr[i];

        if (other->kind != MERAK_INSTR_KERNEL || other->op != in->op ||
            other->flops != in->flops || other->bytes != in->bytes ||
            other->reuse != in->reuse)
            continue;
        if (i < at)
            return;
        point.seconds += seconds[i];
        calls++;
    }
    point.seconds /= calls;
    if (point.seconds > 0 && point.size.flops + point.size.bytes > 0)
        merak_rates_add(rates, in->op->name, &point);
}

/* Use only exposed ones: others share the core with kernels and say less about
 * links. */
static void add_exchange(struct timer *t, const struct merak_program *prog,
                         int id, double seconds)
{
    const struct merak_instr *in = &prog->instr[id];
    int rounds = merak_convert_rounds(in->exchange->kind);
    double r = rounds * (prog->group[in->group].n - 1), b = (double)in->bytes;
    double weight = 1 / (r * LINK_LATENCY_S + b / LINK_BYTES_PER_S);
    int before, behind;

    if (!calibrate_exposed(prog, id, &before, &behind))
        return;
    merak_line_add(&t->link.line, weight * weight, r, b, seconds);
    t->link.n++;
}

static void take_times(struct timer *t, const struct merak_program *prog,
                       const struct calibrate_times *times,
                       struct merak_rates *rates)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_KERNEL)
            add_kernel(prog, i, times->seconds, rates);
        else if (in->kind == MERAK_INSTR_EXCHANGE)
            add_exchange(t, prog, i, times->shared[i]);
    }
}

/* Fit latency and bandwidth of exchanges, if both can be determined. */
static void fit_link(const struct timer *t)
{
    const struct exchanges *l = &t->link;
    double latency, per_byte;

    if (l->n < 2 || merak_line_det(&l->line) <= 0)
        return;
    merak_line_solve(&l->line, &latency, &per_byte);
    if (latency <= 0 || per_byte <= 0)
        return;
    t->device->links.level[0].latency_s = latency;
    t->device->links.level[0].bytes_per_s = 1 / per_byte;
    printf("  exchanges: %.1f us a round, %.2f GB/s, by %s\n", latency * 1e6,
           1e-9 / per_byte, calibrate_world_mover(t->world));
}

/* --- trials --------------------------------------------------------------- */

/* Every shape is also run as replicas, alternating between the families. */
static bool has_replicas(const struct timer *t, int i)
{
    struct model m = model_of(t, i);
    bool even = (m.shape - shapes_of(t)) % 2 == 0;

    return t->ranks > 1 && m.dtype == MERAK_F32 &&
           even == (m.family == MERAK_GPT2);
}

static void add_trial(struct timer *t, const struct model *m)
{
    if (divides(m))
        t->trial[t->n_trials++] = (struct trial){.model = *m};
}

/* Kernels read what was touched just before if all is recomputed, and long
 * before if weight gradients come after all others.  (Not with tensor ranks:
 * there kernels overlap with other exchanges, and lose less to them.) */
static void add_other_orders(struct timer *t, struct model m)
{
    if (m.dtype != MERAK_F32 || t->quick)
        return;
    m.recompute = MERAK_RECOMPUTE_FULL;
    add_trial(t, &m);
    if (m.tp > 1)
        return;
    m.recompute = MERAK_RECOMPUTE_NONE;
    m.schedule = "zb-h1";
    add_trial(t, &m);
}

static void add_trials(struct timer *t)
{
    for (int i = 0; i < MODELS; i++) {
        struct model alone = model_of(t, i), replica = alone, cut = alone;

        if (t->quick && (alone.shape - shapes_of(t)) % 3 != 0)
            continue;
        replica.dp = t->ranks;
        cut.tp = t->ranks;
        add_trial(t, &alone);
        if (has_replicas(t, i))
            add_trial(t, &replica);
        add_other_orders(t, alone);
        if (t->ranks > 1) {
            add_trial(t, &cut);
            add_other_orders(t, cut);
        }
    }
}

/* The arena of the largest program. */
static enum merak_status find_arena(const struct timer *t, size_t *bytes_p)
{
    enum merak_status rc = MERAK_OK;

    *bytes_p = 0;
    for (int i = 0; i < t->n_trials && rc == MERAK_OK; i++) {
        const struct model *m = &t->trial[i].model;
        struct merak_planned *planned = NULL;
        size_t bytes = 0;

        rc = build(t, m, &planned);
        if (rc == MERAK_OK)
            bytes = own_program(t, m, planned)->arena_bytes;
        *bytes_p = bytes > *bytes_p ? bytes : *bytes_p;
        merak_planned_destroy(planned);
    }
    return rc;
}

static enum merak_status run_trial(struct timer *t, struct trial *trial)
{
    const struct model *m = &trial->model;
    struct merak_planned *planned = NULL;
    enum merak_status rc = build(t, m, &planned);

    rc = merak_boot_agree(t->world->boot, rc, t->err);
    if (rc == MERAK_OK)
        rc = calibrate_run(t->world, own_program(t, m, planned),
                           m->shape->vocab, &trial->steps, t->err);
    merak_planned_destroy(planned);
    return rc;
}

static enum merak_status run_trials(struct timer *t)
{
    struct merak_progress progress;
    enum merak_status rc = MERAK_OK;

    merak_progress_init(&progress, t->world->boot->rank == 0 ? stderr : NULL,
                        "calibrate", "models", (double)t->rounds * t->n_trials);
    for (int round = 0; round < t->rounds; round++) {
        for (int i = 0; i < t->n_trials && rc == MERAK_OK; i++) {
            rc = run_trial(t, &t->trial[i]);
            merak_progress_add(&progress, 1);
        }
    }
    merak_progress_clear(&progress);
    return rc;
}

/* --- results -------------------------------------------------------- */

/* The caller frees both, also after a failure. */
static enum merak_status sum_up(const struct timer *t,
                                const struct trial *trial,
                                struct merak_planned **planned_p,
                                struct calibrate_times *times)
{
    enum merak_status rc = build(t, &trial->model, planned_p);

    if (rc != MERAK_OK)
        return rc;
    return calibrate_middle(&trial->steps,
                            own_program(t, &trial->model, *planned_p), times,
                            t->err);
}

static enum merak_status add_rates(struct timer *t, const struct trial *trial)
{
    const struct model *m = &trial->model;
    struct merak_rates **rates = m->tp > 1 ? &t->device->tp_rates[m->dtype]
                                           : &t->device->rates[m->dtype];
    struct merak_planned *planned = NULL;
    struct calibrate_times times = {0};
    enum merak_status rc = MERAK_OK;

    if (*rates == NULL)
        *rates = calloc(1, sizeof(**rates));
    if (*rates == NULL)
        return merak_fail_nomem(t->err, sizeof(**rates));
    rc = sum_up(t, trial, &planned, &times);
    if (rc == MERAK_OK)
        take_times(t, own_program(t, m, planned), &times, *rates);
    calibrate_times_fini(&times);
    merak_planned_destroy(planned);
    return rc;
}

static enum merak_status add_beside(struct timer *t, const struct trial *alone,
                                    const struct trial *many)
{
    struct merak_planned *planned[2] = {NULL, NULL};
    struct calibrate_times times[2] = {{0}};
    enum merak_status rc = sum_up(t, alone, &planned[0], &times[0]);

    if (rc == MERAK_OK)
        rc = sum_up(t, many, &planned[1], &times[1]);
    if (rc == MERAK_OK) {
        calibrate_beside_add(
            &t->beside, own_program(t, &alone->model, planned[0]), &times[0],
            planned[1], t->world->boot->local_rank, &times[1]);
        planned[1] = NULL;
    }
    for (int i = 0; i < 2; i++) {
        calibrate_times_fini(&times[i]);
        merak_planned_destroy(planned[i]);
    }
    return rc;
}

static void print_tables(const char *what, struct merak_rates *const *rates)
{
    int points[MERAK_DTYPE_COUNT] = {0};

    for (int d = 0; d < MERAK_DTYPE_COUNT; d++) {
        for (int i = 0; rates[d] != NULL && i < rates[d]->n; i++)
            points[d] += rates[d]->op[i].n;
    }
    printf("  %-31s %9d sizes in f32, %d in bf16\n", what, points[MERAK_F32],
           points[MERAK_BF16]);
}

static enum merak_status fill_device(struct timer *t)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < t->n_trials && rc == MERAK_OK; i++) {
        const struct trial *trial = &t->trial[i];

        rc = trial->model.dp > 1 ? add_beside(t, trial - 1, trial)
                                 : add_rates(t, trial);
    }
    rc = merak_boot_agree(t->world->boot, rc, t->err);
    if (rc != MERAK_OK)
        return rc;
    print_tables("kernels", t->device->rates);
    if (t->ranks > 1)
        print_tables("kernels of tensor ranks", t->device->tp_rates);
    fit_link(t);
    return calibrate_beside_fit(&t->beside, t->device, t->err);
}

enum merak_status calibrate_kernels(struct calibrate_world *world, int threads,
                                    int rounds, bool quick,
                                    struct merak_device *device,
                                    struct merak_error *err)
{
    struct timer t = {.world = world,
                      .device = device,
                      .threads = threads,
                      .ranks = world->boot->local_size,
                      .rounds = rounds,
                      .quick = quick,
                      .direct = world->link_ops != NULL,
                      .err = err};
    size_t bytes;
    enum merak_status rc;

    add_trials(&t);
    rc = merak_boot_agree(world->boot, find_arena(&t, &bytes), err);
    if (rc == MERAK_OK)
        rc = calibrate_world_open(world, bytes, NULL, err);
    if (rc == MERAK_OK)
        rc = calibrate_world_tell(world, run_trials(&t), err);
    if (rc == MERAK_OK)
        rc = fill_device(&t);
    calibrate_beside_fini(&t.beside);
    for (int i = 0; i < t.n_trials; i++)
        calibrate_steps_fini(&t.trial[i].steps);
    calibrate_world_close(world);
    return rc;
}
