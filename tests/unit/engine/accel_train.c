/* SPDX-License-Identifier: Apache-2.0 */
/* accel_train.c - some steps of small models, on the host or the fake device */
#include "config.h"

#include "unit/engine/accel_train.h"
#include "unit/test_ranks.h"

#include "base/clock.h"
#include "kernels/kernels.h"
#include "partitioner/program/streams.h"
#include "runtime/engine/engine.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS (2 * 16) /* of a micro-batch */
#define VOCAB 61

/* How what the event stands for ends. */
enum merak_status accel_settle(struct merak_accel *a, struct merak_event *event,
                               struct merak_error *err)
{
    const struct timespec pause = {0, 10000};
    enum merak_status rc;

    for (;;) {
        rc = a->ops->query(a, event, err);
        if (rc != MERAK_IN_PROGRESS)
            return rc;
        nanosleep(&pause, NULL);
    }
}

const struct accel_row accel_rows[N_ACCEL_ROWS] = {
    {.name = "one rank", 1, 1, 1, 1, "1f1b"},
    {.name = "two stages", 1, 2, 1, 1, "1f1b"},
    {.name = "three stages, gpipe", 1, 3, 1, 1, "gpipe"},
    {.name = "two stages, zb-h1", 1, 2, 1, 1, "zb-h1"},
    {.name = "two stages of two chunks", 1, 2, 1, 2, "interleaved"},
    {.name = "two stages, zb-v", 1, 2, 1, 2, "zb-v"},
    {.name = "tensor parallel", 2, 1, 1, 1, "1f1b"},
    {.name = "tensor parallel, bf16", 2, 1, 1, 1, "1f1b", .bf16 = true},
    {.name = "data parallel, ZeRO-1", 1, 1, 2, 1, "1f1b", .zero = 1},
    {.name = "tp 2, pp 2, recomputed", 2, 2, 1, 1, "1f1b", .recompute = true},
    {.name = "tp 2, pp 2, dp 2, ZeRO-1", 2, 2, 2, 1, "1f1b", .zero = 1},
    {.name = "pp 2, dp 2, ZeRO-2", 1, 2, 2, 1, "zb-h1", .zero = 2},
    {.name = "dp 2, ZeRO-3", 1, 1, 2, 1, "1f1b", .zero = 3, .bf16 = true},
    {.name = "tp 2, pp 2, dp 2, ZeRO-3", 2, 2, 2, 1, "1f1b", .zero = 3},
    {.name = "stages 2x1, 1x1",
     .pp = 2,
     .chunks = 1,
     .schedule = "1f1b",
     .zero = 1,
     .stage = {{2, 1}, {1, 1}}},
    {.name = "stages 1x2, 2x1",
     .pp = 2,
     .chunks = 1,
     .schedule = "zb-h1",
     .stage = {{1, 2}, {2, 1}}},
    {.name = "stages 1x1, 2x2, 1x1",
     .pp = 3,
     .chunks = 1,
     .schedule = "1f1b",
     .zero = 1,
     .recompute = true,
     .stage = {{1, 1}, {2, 2}, {1, 1}}},
    {.name = "state offloaded", 1, 1, 1, 1, "1f1b", .bf16 = true, .away = true},
    {.name = "tp 2, dp 2, ZeRO-3, state offloaded",
     2,
     1,
     2,
     1,
     "1f1b",
     .zero = 3,
     .bf16 = true,
     .away = true},
    {.name = "activations and state offloaded",
     1,
     2,
     1,
     1,
     "1f1b",
     .recompute = true,
     .bf16 = true,
     .away = true},
    {.name = "experts over 2, all rows have a place",
     1,
     1,
     1,
     1,
     "1f1b",
     .ep = 2},
    {.name = "experts over 2, rows are left",
     1,
     1,
     1,
     1,
     "1f1b",
     .ep = 2,
     .left = true},
    {.name = "pp 2, experts over 2, rows are left",
     1,
     2,
     1,
     1,
     "1f1b",
     .recompute = true,
     .ep = 2,
     .left = true},
    {.name = "three stages, zb-v, in part", 1, 3, 1, 2, "zb-v", .lossy = 4},
};

static enum merak_status load_input(void *arg, const struct merak_load *load,
                                    void *out, struct merak_error *err)
{
    const struct merak_program *p = arg;
    int32_t *ids = out;
    int tokens = TOKENS / 2 * (int)p->mesh.batch;

    (void)err;
    for (int i = 0; i < tokens; i++)
        ids[i] = (i * 5 + load->microbatch * 7 + (int)load->of->class) % VOCAB;
    return MERAK_OK;
}

/* Where weights live: host memory, or a device's. */
struct memory {
    struct merak_accel *accel;
    unsigned char *base, *tables, *host;
    struct merak_event *event;
};

/* Of memory that the host addresses; NULL: it is the device's. */
static unsigned char *addressed(const struct memory *m,
                                const struct merak_slot *s)
{
    if (s->host)
        return m->host + s->offset;
    return m->accel == NULL ? m->base + s->offset : NULL;
}

static void put(const struct memory *m, const struct merak_slot *s,
                const void *from)
{
    unsigned char *to = addressed(m, s);

    if (to != NULL) {
        memcpy(to, from, s->bytes);
        return;
    }
    CHECK_OK(m->accel->ops->write(m->accel, 0, m->base + s->offset, from,
                                  s->bytes, ERR));
    CHECK_OK(m->accel->ops->record(m->accel, 0, m->event, ERR));
    CHECK_OK(accel_settle(m->accel, m->event, ERR));
}

static void get(const struct memory *m, const struct merak_slot *s, void *to)
{
    const unsigned char *from = addressed(m, s);

    if (from != NULL) {
        memcpy(to, from, s->bytes);
        return;
    }
    CHECK_OK(m->accel->ops->read(m->accel, 0, to, m->base + s->offset, s->bytes,
                                 ERR));
    CHECK_OK(m->accel->ops->record(m->accel, 0, m->event, ERR));
    CHECK_OK(accel_settle(m->accel, m->event, ERR));
}

/* Numbers near 0 that say nothing else, in a slot's dtype. */
static void start_slot(const struct memory *m, const struct merak_slot *s,
                       bool zero)
{
    size_t elem = merak_dtype_bytes(s->dtype), n = s->bytes / elem;
    unsigned char *values = calloc(n, elem);

    CHECK(values != NULL);
    for (size_t i = 0; !zero && i < n; i++) {
        float x = (float)((i + s->flat_lo) * 7 % 11) * 0.01f - 0.05f;
        uint16_t half = merak_f32_to_bf16(x);

        memcpy(values + i * elem, s->dtype == MERAK_BF16 ? (void *)&half : &x,
               elem);
    }
    put(m, s, values);
    free(values);
}

static void start_weights(const struct memory *m, const struct merak_program *p)
{
    for (int i = 0; i < p->n_params; i++) {
        start_slot(m, &p->slot[p->param[i].home], false);
        start_slot(m, &p->slot[p->param[i].master], false);
        start_slot(m, &p->slot[p->param[i].m], true);
        start_slot(m, &p->slot[p->param[i].v], true);
    }
}

/* Times of a step that took so long by the host's clock: what an instruction
 * waited for was over when it began, and so was the one before it. */
static void check_times(const struct merak_program *p,
                        const struct merak_trace_record *r, int64_t took_ns)
{
    int64_t first = INT64_MAX, last = INT64_MIN, before = INT64_MIN;

    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *in = &p->instr[i];

        CHECK(r[i].start_ns <= r[i].end_ns);
        for (int w = 0; w < in->n_wait; w++)
            CHECK(r[p->wait[in->first_wait + w]].end_ns <= r[i].start_ns);
        if (in->queue == MERAK_QUEUE_COMPUTE) {
            CHECK(before <= r[i].start_ns);
            before = r[i].end_ns;
        }
        first = r[i].start_ns < first ? r[i].start_ns : first;
        last = r[i].end_ns > last ? r[i].end_ns : last;
    }
    CHECK(first < last && last - first <= took_ns);
}

/* Threads of this process whose naps end in time. */
static int short_naps(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int n = 0;

    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        char path[300], text[32] = "";
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%s/timerslack_ns", entry->d_name);
        f = fopen(path, "re");
        if (f == NULL)
            continue;
        n += fgets(text, sizeof(text), f) != NULL && atol(text) <= 1000;
        fclose(f);
    }
    closedir(tasks);
    return n;
}

/* Weights and moments after some steps, one behind the other; from malloc. */
static unsigned char *train(struct rank *me, const struct merak_program *p,
                            const struct merak_backend *backend,
                            const struct memory *m, struct merak_link *link,
                            bool times, size_t *bytes_p)
{
    struct merak_engine_options eo = {.backend = backend,
                                      .tr = me->tr,
                                      .transport_rank = me->rank_of,
                                      .arena = m->base,
                                      .accel = m->accel,
                                      .staging = me->arena.base,
                                      .host = m->host,
                                      .tables = m->tables,
                                      .device_times = times,
                                      .link = link,
                                      .load = load_input,
                                      .load_arg = (void *)(uintptr_t)p,
                                      .deadline_s = 20};
    struct merak_step step = {.lr = 1e-2f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .clip = 0.5f,
                              .grad_scale = 0.25f,
                              .token_share = 1,
                              .train = true};
    struct merak_engine *engine;
    unsigned char *out = malloc(p->arena_bytes + p->host_bytes);
    size_t at = 0;

    CHECK(out != NULL);
    CHECK_OK(merak_engine_create(p, &eo, &engine, ERR));
    CHECK(m->accel == NULL || short_naps() >= (p->ranks > 1 ? 2 : 1));
    CHECK_OK(merak_engine_warm_up(engine, ERR)); /* as a trainer */
    start_weights(m, p);
    for (step.step = 0; step.step < ACCEL_STEPS; step.step++) {
        int64_t start = merak_clock_ns();

        CHECK_OK(merak_engine_run(engine, &step, ERR));
        if (times)
            check_times(p, merak_engine_records(engine),
                        merak_clock_ns() - start);
    }
    merak_engine_destroy(engine);
    for (int i = 0; i < p->n_params; i++) {
        const int slot[] = {p->param[i].home, p->param[i].m, p->param[i].v};

        for (int k = 0; k < 3; k++) {
            const struct merak_slot *s = &p->slot[slot[k]];

            get(m, s, out + at);
            at += s->bytes;
        }
    }
    *bytes_p = at;
    return out;
}

static struct merak_link *open_link(struct rank *me,
                                    const struct merak_program *p,
                                    const struct accel_how *how,
                                    const struct memory *m)
{
    const struct merak_link_options opt = {.ops = how->link,
                                           .boot = me->boot,
                                           .tr = me->tr,
                                           .accel = m->accel,
                                           .transport_rank = me->rank_of,
                                           .program = &p,
                                           .n_programs = 1,
                                           .deadline_s = 60,
                                           .trial = m->base,
                                           .trial_bytes = p->arena_bytes,
                                           .fast = how->fast};
    struct merak_link *link = NULL;

    if (how->link != NULL)
        CHECK_OK(merak_link_open(&opt, &link, ERR));
    return link;
}

unsigned char *accel_train(struct rank *me, const struct merak_program *p,
                           const struct accel_how *how, size_t *bytes_p)
{
    const struct merak_backend *b;
    struct memory m = {.base = me->arena.base,
                       .host = calloc(p->host_bytes + 1, 1)};
    struct merak_link *link;
    unsigned char *out;
    size_t tables, arena = (p->arena_bytes + 255) / 256 * 256;
    void *base;
    char text[16];

    snprintf(text, sizeof(text), "%d", how->seed);
    setenv("MERAK_FAKE_SEED", text, 1);
    CHECK(m.host != NULL);
    CHECK_OK(merak_backend_find(how->fake ? "fake" : "cpu", &b, ERR));
    if (!how->fake) {
        out = train(me, p, b, &m, NULL, false, bytes_p);
        free(m.host);
        return out;
    }
    CHECK_OK(merak_engine_table_bytes(p, b, &tables, ERR));
    CHECK(tables > 0);
    CHECK_OK(
        b->accel->open(0, how->link != NULL ? MERAK_STREAMS : MERAK_QUEUE_COUNT,
                       1, &m.accel, ERR));
    CHECK_OK(b->accel->alloc(m.accel, arena + tables, &base, ERR));
    CHECK_OK(b->accel->event_create(m.accel, &m.event, ERR));
    if (how->opened != NULL)
        how->opened(m.accel);
    m.base = base;
    m.tables = how->tables ? m.base + arena : NULL;
    link = open_link(me, p, how, &m);
    out = train(me, p, b, &m, link, how->times, bytes_p);
    CHECK(m.accel->allocated == arena + tables); /* links take nothing beside */
    merak_link_close(link);
    b->accel->event_destroy(m.accel, m.event);
    b->accel->close(m.accel);
    free(m.host);
    return out;
}

int accel_ranks(const struct accel_row *row)
{
    return row->stage[0].dp > 0
               ? merak_stages_ranks(row->stage, row->pp)
               : row->tp * row->pp * row->dp * (row->ep > 0 ? row->ep : 1);
}

struct merak_planned *accel_build(const struct accel_row *row,
                                  const struct merak_backend *cpu, bool direct)
{
    const struct small_model model = {.layers = 4,
                                      .vocab = VOCAB,
                                      .hidden = 32,
                                      .heads = 4,
                                      .experts = row->ep > 0 ? 4 : 0,
                                      .chosen = 2,
                                      .skewed = row->left,
                                      .dropout = 0.1f,
                                      .dtype =
                                          row->bf16 ? MERAK_BF16 : MERAK_F32};
    struct merak_program_options po = {.direct = direct,
                                       .memory = merak_backend_memory(cpu)};
    struct merak_plan plan =
        planned_plan(row->tp, row->pp, row->dp,
                     row->microbatches > 0 ? row->microbatches : 4,
                     row->schedule, row->zero);

    if (row->stage[0].dp > 0) {
        plan.micro_batch = 2; /* of all replicas together */
        CHECK_OK(merak_plan_set_stages(&plan, row->stage, row->pp, ERR));
    }
    plan.chunks = row->chunks;
    plan.lossy.all = (uint8_t)row->lossy;
    plan.threads = 1;
    plan.recompute = row->recompute ? MERAK_RECOMPUTE_FULL : plan.recompute;
    plan.dtype = model.dtype;
    plan.ep = row->ep;
    plan.ep_form = row->ep > 0 ? MERAK_EP_EXCHANGE : MERAK_EP_GATHER;
    plan.expert_room = row->left ? 100 : 200; /* 200: of all rows */
    if (row->away)
        plan.offload = row->recompute ? MERAK_OFFLOAD_ALL : MERAK_OFFLOAD_STATE;
    return planned_build(&model, &plan, &po);
}

/* --- what is left out -------------------------------------------------------
 */

static const struct merak_link_ops *counted;
static int n_moves; /* groups of messages */

static enum merak_status count_move(struct merak_link_comm *comm, void *stream,
                                    const struct merak_link_message *message,
                                    int n, struct merak_error *err)
{
    n_moves++;
    return counted->move(comm, stream, message, n, err);
}

static int moves_of(struct rank *me, const struct accel_row *row)
{
    struct merak_link_ops ops;
    const struct accel_how how = {
        .fake = true, .link = &ops, .seed = me->all.me};
    const struct merak_backend *cpu;
    struct merak_planned *planned;
    size_t bytes;

    CHECK_OK(merak_link_load("nccl", &counted, ERR));
    ops = *counted;
    ops.move = count_move;
    n_moves = 0;
    CHECK_OK(merak_backend_find("cpu", &cpu, ERR));
    CHECK_OK(cpu->open(1, ERR));
    planned = accel_build(row, cpu, true);
    free(accel_train(me, planned->program[me->all.me], &how, &bytes));
    merak_planned_destroy(planned);
    return n_moves;
}

/* Of steps that differ in nothing else. */
static void compare_moves(struct rank *me, const void *arg)
{
    const struct accel_row *both = arg;

    CHECK(moves_of(me, &both[0]) < moves_of(me, &both[1]));
}

void accel_leaves_out_what_no_row_needs(void **state)
{
    const struct setup setup = {.n = 2, .arena = true, .deadline_s = 60};
    int first = 0;

    (void)state;
    while (accel_rows[first].ep == 0)
        first++;
    assert_true(!accel_rows[first].left && accel_rows[first + 1].left);
    assert_int_equal(run_ranks(&setup, compare_moves, &accel_rows[first]), 0);
}
