/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_run.c - run and time programs as in training
 *
 * A kernel is faster alone in a loop than among others: its operands are still
 * in cache, and nothing else uses the cache, the memory or, if a rank's
 * communication thread shares it, the core.  So the engine runs whole steps,
 * with its arena, threads and transport, and its trace records give the time
 * of each instruction.
 *
 * The middle third of the steps, by length, is used: a plan predicts the usual
 * step, and this excludes brief disturbances by other users.  Disturbances of
 * a second would still matter, so the steps of a program are spread over
 * several rounds, between which other programs run.  In each step the slowest
 * rank counts: with any plan, ranks wait for each other in every step, and
 * which of them is slow changes.  Tensor ranks wait for each other in every
 * exchange, so there the slowest rank of each stretch between two exchanges
 * counts: the more often they meet, the more they wait.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/error.h"
#include "base/rng.h"
#include "runtime/engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_FLOPS 1.5e10 /* to be spent on all of them, if that is more */
#define NORMALS ((size_t)1 << 16)
#define SEED 1
#define UPLOAD_S 300 /* at most */

/* --- one run -------------------------------------------------------------- */

struct run {
    struct calibrate_world *world;
    const struct merak_program *prog;
    struct merak_engine *engine;
    size_t vocab, tokens; /* of a micro-batch */
    int count;            /* steps in this round */
    struct calibrate_steps *steps;
    double *all;     /* [rank][instr] of one step on this node */
    double *of_node; /* [node] lengths of one step */
    struct merak_error *err;
};

static void *slot_data(const struct run *r, int slot)
{
    return (char *)r->world->arena.base + r->prog->slot[slot].offset;
}

static enum merak_status load_input(void *arg, const struct merak_load *load,
                                    void *out, struct merak_error *err)
{
    const struct run *r = arg;
    uint64_t key =
        merak_rng_mix((uint64_t)load->of->class, (uint64_t)load->microbatch);
    int32_t *ids = out;

    (void)err;
    for (size_t i = 0; i < r->tokens; i++)
        ids[i] = (int32_t)(merak_rng_mix(key, i) % r->vocab);
    return MERAK_OK;
}

/* Repeated normal numbers: times depend on the values, so they should be like
 * a model's, and distinct ones take long to generate. */
static void fill_slot(const struct run *r, int slot,
                      const struct merak_init *init, const float *normal)
{
    const struct merak_slot *s = &r->prog->slot[slot];
    size_t n = s->flat_hi - s->flat_lo;
    float *f = slot_data(r, slot);
    uint16_t *b = slot_data(r, slot);

    for (size_t i = 0; i < n; i++) {
        float x = init->kind == MERAK_INIT_ONES ? 1.0f : 0.0f;

        if (init->kind == MERAK_INIT_NORMAL || init->kind == MERAK_INIT_UNIFORM)
            x = init->std * normal[i % NORMALS];
        if (s->dtype == MERAK_BF16)
            b[i] = merak_f32_to_bf16(x);
        else
            f[i] = x;
    }
}

/* Fill an accelerator's arena: zeros, and what the host has filled. */
static enum merak_status upload(const struct run *r)
{
    struct merak_accel *a = r->world->accel;
    struct merak_event *over = NULL;
    enum merak_status rc;

    if (a == NULL)
        return MERAK_OK;
    rc = a->ops->event_create(a, &over, r->err);
    if (rc == MERAK_OK)
        rc = a->ops->write(a, MERAK_QUEUE_COPY, r->world->device,
                           r->world->arena.base, r->prog->arena_bytes, r->err);
    if (rc == MERAK_OK)
        rc = a->ops->record(a, MERAK_QUEUE_COPY, over, r->err);
    if (rc == MERAK_OK)
        rc = merak_accel_wait(a, over, UPLOAD_S, NULL, r->err);
    if (over != NULL)
        a->ops->event_destroy(a, over);
    return rc;
}

static enum merak_status fill_weights(const struct run *r)
{
    float *normal = malloc(NORMALS * sizeof(*normal));

    if (normal == NULL)
        return merak_fail_nomem(r->err, NORMALS * sizeof(*normal));
    for (size_t i = 0; i < NORMALS; i++)
        normal[i] = merak_rng_normal(SEED, i);
    for (int i = 0; i < r->prog->n_params; i++) {
        const struct merak_param_slots *p = &r->prog->param[i];

        fill_slot(r, p->home, &p->init, normal);
        if (p->master != p->home)
            fill_slot(r, p->master, &p->init, normal);
    }
    free(normal);
    return upload(r);
}

static size_t tokens_of(const struct merak_program *prog)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind == MERAK_INSTR_LOAD)
            return prog->slot[in->slot[0]].bytes / sizeof(int32_t);
    }
    return 0;
}

static enum merak_status start(struct run *r)
{
    const struct merak_engine_options opt = {
        .backend = r->world->backend,
        .tr = r->world->tr,
        .transport_rank = r->world->node.rank,
        .arena =
            r->world->accel != NULL ? r->world->device : r->world->arena.base,
        .accel = r->world->accel,
        .staging = r->world->arena.base,
        .device_times = true,
        .link = r->world->link,
        .load = load_input,
        .load_arg = r,
    };
    enum merak_status rc =
        merak_engine_create(r->prog, &opt, &r->engine, r->err);

    if (rc == MERAK_OK)
        rc = merak_engine_warm_up(r->engine, r->err);
    /* Pages of the previous model are reused, without faulting them in
     * again. */
    memset(r->world->arena.base, 0, r->prog->arena_bytes);
    if (rc == MERAK_OK)
        rc = fill_weights(r);
    return merak_boot_agree(r->world->boot, rc, r->err);
}

/* Does a kernel start when all members of a group have arrived? */
static bool is_meeting(const struct merak_program *prog, size_t at)
{
    const struct merak_instr *in = &prog->instr[at];

    if (in->queue != MERAK_QUEUE_COMPUTE)
        return false;
    for (int i = 0; i < in->n_wait; i++) {
        int id = prog->wait[in->first_wait + i];

        if (prog->instr[id].kind == MERAK_INSTR_EXCHANGE)
            return true;
    }
    return false;
}

/* The rank that computed longest in [from, to). */
static size_t slowest(const struct run *r, size_t from, size_t to)
{
    size_t n = (size_t)r->prog->n_instrs, slow = 0;
    double most = 0;

    for (size_t q = 0; q < (size_t)r->world->node.n; q++) {
        double sum = 0;

        for (size_t i = from; i < to; i++) {
            if (r->prog->instr[i].queue == MERAK_QUEUE_COMPUTE)
                sum += r->all[q * n + i];
        }
        if (sum > most) {
            most = sum;
            slow = q;
        }
    }
    return slow;
}

/* For each stretch between two meetings take the times of the rank that the
 * others waited for. */
static void take_slowest(const struct run *r, double *seconds)
{
    size_t n = (size_t)r->prog->n_instrs, to;

    for (size_t from = 0; from < n; from = to) {
        size_t slow;

        for (to = from + 1; to < n && !is_meeting(r->prog, to);)
            to++;
        slow = slowest(r, from, to);
        memcpy(seconds + from, r->all + slow * n + from,
               (to - from) * sizeof(*seconds));
    }
}

static int next_kernel(const struct merak_program *prog, int at)
{
    for (int i = at + 1; i < prog->n_instrs; i++) {
        if (prog->instr[i].queue == MERAK_QUEUE_COMPUTE)
            return i;
    }
    return -1;
}

bool calibrate_exposed(const struct merak_program *prog, int id, int *before_p,
                       int *behind_p)
{
    const struct merak_instr *in = &prog->instr[id];
    int before = -1, behind;

    for (int i = 0; i < in->n_wait; i++) {
        int wait = prog->wait[in->first_wait + i];

        if (prog->instr[wait].queue == MERAK_QUEUE_COMPUTE && wait > before)
            before = wait;
    }
    if (in->kind != MERAK_INSTR_EXCHANGE || before < 0)
        return false;
    behind = next_kernel(prog, before);
    *before_p = before;
    *behind_p = behind;
    return behind > id && prog->instr[behind].n_wait == 1 &&
           prog->wait[prog->instr[behind].first_wait] == id;
}

/* This rank's time.  Threads have to be woken before and after an exchange: if
 * the compute queue waits for it, that whole wait counts. */
static double seconds_of(const struct run *r, int id)
{
    const struct merak_trace_record *record = merak_engine_records(r->engine);
    int64_t start = record[id].start_ns, end = record[id].end_ns;
    int before, behind;

    if (calibrate_exposed(r->prog, id, &before, &behind)) {
        start = record[before].end_ns;
        end = record[behind].start_ns;
    }
    return (double)(end - start) * 1e-9;
}

/* Nodes that train one model also wait for the slowest: all take its times. */
static enum merak_status take_slowest_node(struct run *r, double *length,
                                           double *seconds, double *shared)
{
    const struct merak_boot *boot = r->world->boot;
    const struct merak_team *all = &r->world->all;
    size_t n = (size_t)r->prog->n_instrs;
    int nodes = boot->n_nodes, slow = 0, root = 0;
    enum merak_status rc;

    if (nodes == 1)
        return MERAK_OK;
    memset(r->of_node, 0, (size_t)nodes * sizeof(*r->of_node));
    if (r->world->node.me == 0)
        r->of_node[boot->node_of[boot->rank]] = *length;
    rc = merak_all_reduce_sum(r->world->tr, all, r->of_node, (size_t)nodes,
                              r->err);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < nodes; i++)
        slow = r->of_node[i] > r->of_node[slow] ? i : slow;
    while (boot->node_of[root] != slow)
        root++;
    *length = r->of_node[slow];
    rc = merak_broadcast(r->world->tr, all, seconds, n * sizeof(*seconds), root,
                         r->err);
    if (rc != MERAK_OK)
        return rc;
    return merak_broadcast(r->world->tr, all, shared, n * sizeof(*shared), root,
                           r->err);
}

/* Reduce one step over ranks: the time of each instruction on the slowest
 * rank, and the least, which for an exchange is that of the last member to
 * arrive. */
static enum merak_status add_step(struct run *r)
{
    size_t n = (size_t)r->prog->n_instrs, size = (size_t)r->world->node.n;
    struct calibrate_steps *steps = r->steps;
    double *all = r->all;
    double *seconds = steps->seconds + (size_t)steps->n * n;
    double *least = steps->shared + (size_t)steps->n * n;
    double *length = steps->length + steps->n;
    enum merak_status rc = MERAK_OK;

    memset(all, 0, n * size * sizeof(*all));
    for (size_t i = 0; i < n; i++)
        all[(size_t)r->world->node.me * n + i] = seconds_of(r, (int)i);
    if (size > 1)
        rc = merak_all_reduce_sum(r->world->tr, &r->world->node, all, n * size,
                                  r->err);
    if (rc == MERAK_OK)
        take_slowest(r, seconds);
    *length = 0;
    for (size_t i = 0; i < n && rc == MERAK_OK; i++) {
        least[i] = INFINITY;
        for (size_t q = 0; q < size; q++)
            least[i] = fmin(least[i], all[q * n + i]);
        if (r->prog->instr[i].queue == MERAK_QUEUE_COMPUTE)
            *length += seconds[i];
    }
    if (rc == MERAK_OK)
        rc = take_slowest_node(r, length, seconds, least);
    steps->n++;
    return rc;
}

/* The first, step -1, is not counted: caches are cold.  For a step so long
 * that a round has only one this does not matter. */
static enum merak_status run_steps(struct run *r)
{
    struct merak_step step = {.seed = SEED,
                              .lr = 1e-4f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .clip = 1,
                              .grad_scale = 1,
                              .token_share = 1,
                              .train = true};
    enum merak_status rc = MERAK_OK;

    for (int i = r->count > 1 ? -1 : 0; i < r->count && rc == MERAK_OK; i++) {
        step.step = (uint64_t)(i + 1);
        rc = merak_engine_run(r->engine, &step, r->err);
        if (rc == MERAK_OK && i >= 0)
            rc = add_step(r);
    }
    return rc;
}

/* Steps of accelerators are short. */
static int steps_for(const struct calibrate_world *world,
                     const struct merak_program *prog)
{
    double flops = 1, spend = STEPS_FLOPS;
    int steps;

    if (world->accel != NULL && world->accel->ops->memory != NULL)
        spend *= 2e4;

    for (int i = 0; i < prog->n_instrs; i++)
        flops += prog->instr[i].flops;
    steps = (int)fmin(spend / flops, world->most_steps);
    return steps > 1 ? steps : 1;
}

static bool grow(double **p, size_t n)
{
    double *more = realloc(*p, n * sizeof(**p));

    if (more != NULL)
        *p = more;
    return more != NULL;
}

static enum merak_status allocate(struct run *r)
{
    struct calibrate_steps *s = r->steps;
    size_t n = (size_t)r->prog->n_instrs;
    size_t steps = (size_t)(s->n + r->count);

    r->all = calloc((size_t)r->world->node.n * n, sizeof(double));
    r->of_node = calloc((size_t)r->world->boot->n_nodes, sizeof(double));
    if (r->all == NULL || r->of_node == NULL || !grow(&s->seconds, steps * n) ||
        !grow(&s->shared, steps * n) || !grow(&s->length, steps))
        return merak_fail_nomem(r->err, steps * n * sizeof(double));
    return MERAK_OK;
}

enum merak_status calibrate_run(struct calibrate_world *world,
                                const struct merak_program *program,
                                size_t vocab, struct calibrate_steps *steps,
                                struct merak_error *err)
{
    struct run r = {.world = world,
                    .prog = program,
                    .vocab = vocab,
                    .tokens = tokens_of(program),
                    .count = steps_for(world, program),
                    .steps = steps,
                    .err = err};
    enum merak_status rc = merak_boot_agree(world->boot, allocate(&r), err);

    if (rc == MERAK_OK)
        rc = start(&r);
    if (rc == MERAK_OK)
        rc = run_steps(&r);
    merak_engine_destroy(r.engine);
    free(r.all);
    free(r.of_node);
    return rc;
}

void calibrate_steps_fini(struct calibrate_steps *steps)
{
    free(steps->length);
    free(steps->seconds);
    free(steps->shared);
    *steps = (struct calibrate_steps){0};
}

/* --- the middle steps ----------------------------------------------------- */

/* The number of shorter steps. */
static int place_of(const struct calibrate_steps *s, int step)
{
    int place = 0;

    for (int i = 0; i < s->n; i++)
        place += s->length[i] < s->length[step] ||
                 (s->length[i] == s->length[step] && i < step);
    return place;
}

enum merak_status calibrate_middle(const struct calibrate_steps *steps,
                                   const struct merak_program *program,
                                   struct calibrate_times *times,
                                   struct merak_error *err)
{
    size_t n = (size_t)program->n_instrs;
    int low = steps->n / 3, high = steps->n - low, count = high - low;

    times->seconds = calloc(n, sizeof(double));
    times->shared = calloc(n, sizeof(double));
    if (times->seconds == NULL || times->shared == NULL) {
        calibrate_times_fini(times);
        return merak_fail_nomem(err, n * sizeof(double));
    }
    for (int s = 0; s < steps->n; s++) {
        int place = place_of(steps, s);

        if (place < low || place >= high)
            continue;
        for (size_t i = 0; i < n; i++) {
            times->seconds[i] += steps->seconds[(size_t)s * n + i] / count;
            times->shared[i] += steps->shared[(size_t)s * n + i] / count;
        }
    }
    return MERAK_OK;
}

void calibrate_times_fini(struct calibrate_times *times)
{
    free(times->seconds);
    free(times->shared);
    *times = (struct calibrate_times){0};
}
