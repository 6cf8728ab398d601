/* SPDX-License-Identifier: Apache-2.0 */
/* test_accel.c - the engine that drives an accelerator
 *
 * The fake device holds operations up at random: weights and moments after
 * some steps are compared, byte for byte, with those of the cpu backend on
 * host memory, for many sequences of delays.
 */
#include "config.h"

#include "unit/small_plans.h"
#include "unit/test_ranks.h"

#include "base/clock.h"
#include "base/error.h"
#include "kernels/kernels.h"
#include "runtime/engine/engine.h"
#include "runtime/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 4 /* of each of the ten layouts; MERAK_TEST_SEEDS: others */
#define STEPS 2
#define TOKENS (2 * 16) /* of a micro-batch */
#define VOCAB 61

/* How what the event stands for ends. */
static enum merak_status settle(struct merak_accel *a,
                                struct merak_event *event)
{
    const struct timespec pause = {0, 10000};
    enum merak_status rc;

    for (;;) {
        rc = a->ops->query(a, event, ERR);
        if (rc != MERAK_IN_PROGRESS)
            return rc;
        nanosleep(&pause, NULL);
    }
}

/* --- programs --------------------------------------------------------------
 */

struct row {
    const char *name;
    int tp, pp, dp, chunks;
    const char *schedule;
    bool zero1, recompute, bf16;
    size_t batch; /* percent of the model whose samples tensor ranks share */
};

static struct row rows[] = {
    {.name = "one rank", 1, 1, 1, 1, "1f1b"},
    {.name = "two stages", 1, 2, 1, 1, "1f1b"},
    {.name = "three stages, gpipe", 1, 3, 1, 1, "gpipe"},
    {.name = "two stages, zb-h1", 1, 2, 1, 1, "zb-h1"},
    {.name = "two stages of two chunks", 1, 2, 1, 2, "interleaved"},
    {.name = "tensor parallel", 2, 1, 1, 1, "1f1b"},
    {.name = "tensor parallel, bf16", 2, 1, 1, 1, "1f1b", .bf16 = true},
    {.name = "data parallel, ZeRO-1", 1, 1, 2, 1, "1f1b", .zero1 = true},
    {.name = "tp 2, pp 2, recomputed", 2, 2, 1, 1, "1f1b", .recompute = true},
    {.name = "tp 2, pp 2, dp 2, ZeRO-1", 2, 2, 2, 1, "1f1b", .zero1 = true},
};

static enum merak_status load(void *arg, enum merak_input_kind input,
                              int microbatch, int32_t *ids,
                              struct merak_error *err)
{
    (void)arg;
    (void)err;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (i * 5 + microbatch * 7 + (int)input) % VOCAB;
    return MERAK_OK;
}

/* Where weights live: host memory, or a device's. */
struct memory {
    struct merak_accel *accel;
    unsigned char *base, *tables;
    struct merak_event *event;
    bool times;
};

/* The fake device's own, and how often it was asked. */
static const struct merak_accel_ops *asked_of;
static int tables_launched, replayed;

static enum merak_status count_table(struct merak_accel *a, int queue,
                                     struct merak_table *table,
                                     const struct merak_step *step,
                                     struct merak_error *err)
{
    tables_launched++;
    return asked_of->table_launch(a, queue, table, step, err);
}

static enum merak_status count_replay(struct merak_accel *a, int queue,
                                      struct merak_replay *replay,
                                      struct merak_error *err)
{
    replayed++;
    return asked_of->replay(a, queue, replay, err);
}

static void count_calls(struct merak_accel *a)
{
    static struct merak_accel_ops counted;

    asked_of = a->ops;
    counted = *a->ops;
    counted.table_launch = count_table;
    counted.replay = count_replay;
    a->ops = &counted;
    tables_launched = replayed = 0;
}

static void put(const struct memory *m, size_t at, const void *from,
                size_t bytes)
{
    if (m->accel == NULL) {
        memcpy(m->base + at, from, bytes);
        return;
    }
    CHECK_OK(m->accel->ops->write(m->accel, 0, m->base + at, from, bytes, ERR));
    CHECK_OK(m->accel->ops->record(m->accel, 0, m->event, ERR));
    CHECK_OK(settle(m->accel, m->event));
}

static void get(const struct memory *m, size_t at, void *to, size_t bytes)
{
    if (m->accel == NULL) {
        memcpy(to, m->base + at, bytes);
        return;
    }
    CHECK_OK(m->accel->ops->read(m->accel, 0, to, m->base + at, bytes, ERR));
    CHECK_OK(m->accel->ops->record(m->accel, 0, m->event, ERR));
    CHECK_OK(settle(m->accel, m->event));
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
    put(m, s->offset, values, s->bytes);
    free(values);
}

static void start_weights(const struct memory *m, const struct merak_program *p)
{
    for (int i = 0; i < p->n_params; i++) {
        start_slot(m, &p->slot[p->param[i].param], false);
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

/* Weights and moments after some steps, one behind the other; from malloc. */
static unsigned char *train(struct rank *me, const struct merak_program *p,
                            const struct merak_backend *backend,
                            const struct memory *m, size_t *bytes_p)
{
    struct merak_engine_options eo = {.backend = backend,
                                      .tr = me->tr,
                                      .transport_rank = me->rank_of,
                                      .arena = m->base,
                                      .accel = m->accel,
                                      .staging = me->arena.base,
                                      .tables = m->tables,
                                      .device_times = m->times,
                                      .load = load,
                                      .deadline_s = 20};
    struct merak_step step = {.lr = 1e-2f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-8f,
                              .clip = 0.5f,
                              .grad_scale = 0.25f,
                              .train = true};
    struct merak_engine *engine;
    unsigned char *out = malloc(p->arena_bytes);
    size_t at = 0;

    CHECK(out != NULL);
    start_weights(m, p);
    CHECK_OK(merak_engine_create(p, &eo, &engine, ERR));
    for (step.step = 0; step.step < STEPS; step.step++) {
        int64_t start = merak_clock_ns();

        CHECK_OK(merak_engine_run(engine, &step, ERR));
        if (m->times)
            check_times(p, merak_engine_records(engine),
                        merak_clock_ns() - start);
    }
    merak_engine_destroy(engine);
    for (int i = 0; i < p->n_params; i++) {
        const int slot[] = {p->param[i].param, p->param[i].m, p->param[i].v};

        for (int k = 0; k < 3; k++) {
            const struct merak_slot *s = &p->slot[slot[k]];

            get(m, s->offset, out + at, s->bytes);
            at += s->bytes;
        }
    }
    *bytes_p = at;
    return out;
}

/* Of every four sequences of delays the first runs each instruction by itself,
 * the others have tables, the third replays, and the last takes times. */
static unsigned char *train_on_fake(struct rank *me,
                                    const struct merak_program *p, int seed,
                                    size_t *bytes_p)
{
    const struct merak_backend *fake;
    struct memory m = {.times = seed % 4 == 3};
    unsigned char *out;
    size_t tables, arena = (p->arena_bytes + 255) / 256 * 256;
    void *base;
    char text[16];

    snprintf(text, sizeof(text), "%d", seed * 64 + me->all.me);
    setenv("MERAK_FAKE_SEED", text, 1);
    setenv("MERAK_ACCEL_GRAPHS", seed % 4 == 2 ? "1" : "0", 1);
    CHECK_OK(merak_backend_find("fake", &fake, ERR));
    CHECK_OK(merak_engine_table_bytes(p, fake, &tables, ERR));
    CHECK_OK(fake->accel->open(0, MERAK_QUEUE_COUNT, 1, &m.accel, ERR));
    CHECK_OK(fake->accel->alloc(m.accel, arena + tables, &base, ERR));
    CHECK_OK(fake->accel->event_create(m.accel, &m.event, ERR));
    count_calls(m.accel);
    m.base = base;
    m.tables = seed % 4 == 0 ? NULL : m.base + arena;
    out = train(me, p, fake, &m, bytes_p);
    /* sums of squares, and updates */
    CHECK(tables > 0);
    CHECK(tables_launched == (seed % 4 == 0 ? 0 : 2 * STEPS));
    CHECK((replayed > 0) == (seed % 4 == 2));
    fake->accel->event_destroy(m.accel, m.event);
    fake->accel->close(m.accel);
    return out;
}

static struct merak_planned *build(const struct row *row,
                                   const struct merak_backend *cpu)
{
    const struct small_model model = {.layers = 4,
                                      .vocab = VOCAB,
                                      .hidden = 32,
                                      .heads = 4,
                                      .dropout = 0.1f,
                                      .dtype =
                                          row->bf16 ? MERAK_BF16 : MERAK_F32};
    struct merak_program_options po = {.scratch = merak_kernel_scratch,
                                       .scratch_arg = (void *)(uintptr_t)cpu};
    struct merak_plan plan =
        planned_plan(row->tp, row->pp, row->dp, 4, row->schedule, row->zero1);

    plan.chunks = row->chunks;
    plan.threads = 1;
    plan.recompute = row->recompute ? MERAK_RECOMPUTE_FULL : plan.recompute;
    plan.dtype = model.dtype;
    return planned_build(&model, &plan, &po);
}

static int seeds(void)
{
    const char *text = getenv("MERAK_TEST_SEEDS");

    return text != NULL ? atoi(text) : SEEDS;
}

static void compare_rank(struct rank *me, const void *arg)
{
    const struct row *row = arg;
    struct memory host = {.base = me->arena.base};
    const struct merak_backend *cpu;
    struct merak_planned *planned;
    const struct merak_program *p;
    unsigned char *want;
    size_t bytes;

    CHECK_OK(merak_backend_find("cpu", &cpu, ERR));
    CHECK_OK(cpu->open(1, ERR));
    planned = build(row, cpu);
    p = planned->program[me->all.me];
    CHECK(p->arena_bytes <= me->arena.bytes);
    want = train(me, p, cpu, &host, &bytes);
    CHECK(bytes > 0);
    for (int seed = 0; seed < seeds(); seed++) {
        size_t n;
        unsigned char *got = train_on_fake(me, p, seed, &n);

        CHECK(n == bytes);
        if (memcmp(got, want, bytes) != 0) {
            fprintf(stderr, "%s: rank %d differs with seed %d\n", row->name,
                    me->all.me, seed);
            _exit(1);
        }
        free(got);
    }
    free(want);
    merak_planned_destroy(planned);
}

/* Whatever the delays, weights are those of the host, to the bit. */
static void delays_change_no_bit(void **state)
{
    const struct row *row = *state;
    const struct setup setup = {
        .n = row->tp * row->pp * row->dp, .arena = true, .deadline_s = 60};

    assert_int_equal(run_ranks(&setup, compare_rank, row), 0);
}

int main(void)
{
    struct CMUnitTest tests[sizeof(rows) / sizeof(*rows)];

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tests[i] = (struct CMUnitTest){
            .name = rows[i].name,
            .test_func = delays_change_no_bit,
            .initial_state = &rows[i],
        };
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("accelerators", tests, NULL, NULL);
}
