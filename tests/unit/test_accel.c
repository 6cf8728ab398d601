/* SPDX-License-Identifier: Apache-2.0 */
/* test_accel.c - an accelerator's rules, and the engine that drives one
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
#define N_RULES 9 /* tests that are no layouts */

/* --- the device's rules ----------------------------------------------------
 */

static const struct merak_accel_ops *ops(void)
{
    const struct merak_backend *fake;

    assert_int_equal(merak_backend_find("fake", &fake, ERR), MERAK_OK);
    return fake->accel;
}

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

static void wait_for(struct merak_accel *a, struct merak_event *event)
{
    assert_int_equal(settle(a, event), MERAK_OK);
}

struct device {
    struct merak_accel *a;
    void *memory;
    struct merak_event *event[2];
};

static void device_open(struct device *d)
{
    assert_int_equal(ops()->open(0, 2, 1, &d->a, ERR), MERAK_OK);
    assert_int_equal(ops()->alloc(d->a, 4096, &d->memory, ERR), MERAK_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ops()->event_create(d->a, &d->event[i], ERR),
                         MERAK_OK);
}

static void device_close(struct device *d)
{
    for (int i = 0; i < 2; i++)
        ops()->event_destroy(d->a, d->event[i]);
    ops()->free(d->a, d->memory);
    ops()->close(d->a);
}

/* A queue runs what it was given in order, and another that waits for its
 * event comes behind. */
static void queues_keep_their_order(void **state)
{
    struct device d;

    (void)state;
    device_open(&d);
    for (int n = 0; n < 200; n++) {
        int in = n, out = -1;

        assert_int_equal(ops()->fill(d.a, 0, d.memory, 0xff, 64, ERR), 0);
        assert_int_equal(ops()->write(d.a, 0, d.memory, &in, sizeof(in), ERR),
                         0);
        assert_int_equal(ops()->record(d.a, 0, d.event[0], ERR), 0);
        assert_int_equal(ops()->wait(d.a, 1, d.event[0], ERR), 0);
        assert_int_equal(ops()->read(d.a, 1, &out, d.memory, sizeof(out), ERR),
                         0);
        assert_int_equal(ops()->record(d.a, 1, d.event[1], ERR), 0);
        wait_for(d.a, d.event[1]);
        assert_int_equal(out, n);
    }
    device_close(&d);
}

/* As with CUDA: it does not hang, and it does not wait. */
static void waiting_for_an_event_never_recorded_is_no_wait(void **state)
{
    struct device d;

    (void)state;
    device_open(&d);
    assert_int_equal(ops()->query(d.a, d.event[0], ERR), MERAK_OK);
    assert_int_equal(ops()->wait(d.a, 1, d.event[0], ERR), MERAK_OK);
    assert_int_equal(ops()->record(d.a, 1, d.event[1], ERR), MERAK_OK);
    wait_for(d.a, d.event[1]);
    device_close(&d);
}

static void a_box_is_packed(void **state)
{
    const size_t full[] = {3, 4, 5}, lo[] = {1, 1, 2}, len[] = {2, 2, 3};
    const struct merak_accel_box box = {3, full, lo, len, sizeof(int)};
    int in[60], out[12], *packed;
    struct device d;

    (void)state;
    for (int i = 0; i < 60; i++)
        in[i] = i;
    device_open(&d);
    packed = (int *)d.memory + 60;
    assert_int_equal(ops()->write(d.a, 0, d.memory, in, sizeof(in), ERR), 0);
    assert_int_equal(ops()->pack(d.a, 0, packed, d.memory, &box, ERR), 0);
    assert_int_equal(ops()->read(d.a, 0, out, packed, sizeof(out), ERR), 0);
    assert_int_equal(ops()->record(d.a, 0, d.event[0], ERR), 0);
    wait_for(d.a, d.event[0]);
    for (int i = 0; i < 12; i++)
        assert_int_equal(out[i],
                         (1 + i / 6) * 20 + (1 + i / 3 % 2) * 5 + 2 + i % 3);
    device_close(&d);
}

static enum merak_status refuse(const struct merak_kernel_call *call,
                                struct merak_error *err)
{
    (void)call;
    return merak_fail(err, MERAK_ERR_PARAM, "refused by a test");
}

/* The first failure is what every later call says. */
static void the_first_failure_is_what_every_later_call_says(void **state)
{
    const struct merak_kernel kernel = {.name = "refuse", .fn = refuse};
    const struct merak_step step = {.step = 0};
    const struct merak_kernel_call call = {.step = &step};
    struct device d;
    enum merak_status rc;

    (void)state;
    device_open(&d);
    assert_int_equal(ops()->launch(d.a, 0, &kernel, &call, ERR), MERAK_OK);
    (void)ops()->record(d.a, 0, d.event[0], ERR);
    assert_int_equal(settle(d.a, d.event[0]), MERAK_ERR_PARAM);
    assert_string_equal(ERR->text, "refused by a test");
    rc = ops()->fill(d.a, 1, d.memory, 0, 64, ERR);
    assert_int_equal(rc, MERAK_ERR_PARAM);
    assert_string_equal(ERR->text, "refused by a test");
    device_close(&d);
}

/* What is captured runs when it is replayed, with the arguments it had. */
static void what_is_captured_is_replayed(void **state)
{
    const size_t full[] = {4}, lo[] = {1}, len[] = {2};
    const struct merak_accel_box box = {1, full, lo, len, 1};
    struct merak_replay *replay = NULL;
    unsigned char out[4];
    struct device d;

    (void)state;
    device_open(&d);
    assert_int_equal(ops()->fill(d.a, 0, d.memory, 1, 4, ERR), 0);
    assert_int_equal(ops()->capture_begin(d.a, 0, ERR), 0);
    assert_int_equal(ops()->fill(d.a, 0, d.memory, 2, 3, ERR), 0);
    assert_int_equal(
        ops()->pack(d.a, 0, (char *)d.memory + 2, d.memory, &box, ERR), 0);
    assert_int_equal(ops()->capture_end(d.a, 0, &replay, ERR), 0);
    for (int n = 0; n < 3; n++) {
        static const unsigned char want[2][4] = {{1, 1, 1, 1}, {2, 2, 2, 2}};

        if (n > 0)
            assert_int_equal(ops()->replay(d.a, 0, replay, ERR), 0);
        assert_int_equal(ops()->read(d.a, 0, out, d.memory, 4, ERR), 0);
        assert_int_equal(ops()->record(d.a, 0, d.event[0], ERR), 0);
        wait_for(d.a, d.event[0]);
        assert_memory_equal(out, want[n > 0], 4);
        assert_int_equal(ops()->fill(d.a, 0, d.memory, n == 0 ? 1 : 7, 4, ERR),
                         0);
    }
    assert_int_equal(ops()->record(d.a, 0, d.event[0], ERR), 0);
    wait_for(d.a, d.event[0]);
    ops()->replay_destroy(d.a, replay);
    device_close(&d);
}

/* The host's memory may change or be gone when a graph runs. */
static void copies_are_not_captured(void **state)
{
    struct merak_replay *replay = NULL;
    struct device d;
    int in = 1;

    (void)state;
    device_open(&d);
    assert_int_equal(ops()->capture_begin(d.a, 0, ERR), 0);
    assert_int_not_equal(ops()->write(d.a, 0, d.memory, &in, sizeof(in), ERR),
                         MERAK_OK);
    assert_int_not_equal(ops()->capture_end(d.a, 0, &replay, ERR), MERAK_OK);
    device_close(&d);
}

/* Two pieces are pinned apart, and a copy is in one of them or in neither. */
static void pinned_memory_is_copied_as_a_whole(void **state)
{
    static unsigned char host[4096];
    struct device d;

    (void)state;
    device_open(&d);
    assert_true(ops()->pin(d.a, host, 1024));
    assert_false(ops()->pin(d.a, host + 512, 1024));
    assert_true(ops()->pin(d.a, host + 2048, 1024));
    assert_int_equal(ops()->write(d.a, 0, d.memory, host + 100, 200, ERR), 0);
    assert_int_equal(ops()->write(d.a, 0, d.memory, host + 1024, 200, ERR), 0);
    assert_int_equal(ops()->write(d.a, 0, d.memory, host + 1000, 200, ERR),
                     MERAK_ERR_PARAM);
    ops()->unpin(d.a, host);
    assert_int_equal(ops()->write(d.a, 0, d.memory, host + 1000, 200, ERR), 0);
    assert_true(ops()->pin(d.a, host + 512, 1024));
    assert_int_equal(ops()->record(d.a, 0, d.event[0], ERR), 0);
    wait_for(d.a, d.event[0]);
    device_close(&d);
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

/* --- the trainer's own copies ----------------------------------------------
 */

static enum merak_status stuck_record(struct merak_accel *a, int queue,
                                      struct merak_event *event,
                                      struct merak_error *err)
{
    (void)a;
    (void)queue;
    (void)event;
    (void)err;
    return MERAK_OK;
}

static enum merak_status stuck_read(struct merak_accel *a, int queue, void *to,
                                    const void *from, size_t bytes,
                                    struct merak_error *err)
{
    (void)to;
    (void)from;
    (void)bytes;
    return stuck_record(a, queue, NULL, err);
}

static enum merak_status stuck_query(struct merak_accel *a,
                                     struct merak_event *event,
                                     struct merak_error *err)
{
    (void)a;
    (void)event;
    (void)err;
    return MERAK_IN_PROGRESS;
}

/* A device that finishes nothing: a checkpoint or a loss that is read from it
 * ends at the deadline. */
static void a_copy_that_never_ends_times_out(void **state)
{
    static const struct merak_accel_ops stuck = {
        .record = stuck_record, .read = stuck_read, .query = stuck_query};
    struct merak_accel accel = {.ops = &stuck};
    struct merak_slot slot = {.bytes = 8};
    struct merak_program program = {.slot = &slot, .n_slots = 1};
    struct merak_trainer t = {.accel = &accel, .opt = {.deadline_s = 0.05}};
    unsigned char device[8], host[8];
    struct merak_error err;

    (void)state;
    t.accel_arena = device;
    assert_int_equal(merak_slot_read(&t, &program, 0, 0, host, 8, &err),
                     MERAK_ERR_TIMEOUT);
    assert_string_equal(err.text, "the accelerator has not finished what was "
                                  "issued 0.05 s ago");
}

static enum merak_status no_event(struct merak_accel *a,
                                  struct merak_event **event_p,
                                  struct merak_error *err)
{
    (void)a;
    (void)event_p;
    (void)err;
    return MERAK_OK;
}

static enum merak_status full_alloc(struct merak_accel *a, size_t bytes,
                                    void **address_p, struct merak_error *err)
{
    (void)a;
    (void)address_p;
    return merak_fail(err, MERAK_ERR_NOMEM, "cannot allocate %zu", bytes);
}

static enum merak_status full_memory(struct merak_accel *a, size_t *left_p,
                                     size_t *all_p, struct merak_error *err)
{
    (void)a;
    (void)err;
    *left_p = (size_t)3 << 30;
    *all_p = (size_t)80 << 30;
    return MERAK_OK;
}

/* What was not there is told by what it was for. */
static void memory_that_is_not_there_is_told_with_its_uses(void **state)
{
    static const struct merak_accel_ops full = {
        .event_create = no_event, .alloc = full_alloc, .memory = full_memory};
    static const struct merak_backend backend = {.name = "full",
                                                 .accel = &full};
    struct merak_accel accel = {.ops = &full};
    struct merak_program program = {
        .category_bytes = {[MERAK_CAT_PARAM] = (size_t)1 << 30,
                           [MERAK_CAT_ACTIVATION] = (size_t)3 << 30}};
    struct merak_trainer t = {.accel = &accel,
                              .backend = &backend,
                              .program = &program,
                              .arena_bytes = (size_t)4 << 30};
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_slots_open(&t, &err), MERAK_ERR_NOMEM);
    assert_string_equal(
        err.text, "the plan needs 4.00 GiB of the GPU at once and 3.00 of "
                  "80.00 are free; use more stages, a larger tp or a smaller "
                  "micro-batch (MiB: parameters 1024.0, activations 3072.0)");
}

int main(void)
{
    struct CMUnitTest tests[N_RULES + sizeof(rows) / sizeof(*rows)] = {
        cmocka_unit_test(queues_keep_their_order),
        cmocka_unit_test(waiting_for_an_event_never_recorded_is_no_wait),
        cmocka_unit_test(a_box_is_packed),
        cmocka_unit_test(the_first_failure_is_what_every_later_call_says),
        cmocka_unit_test(what_is_captured_is_replayed),
        cmocka_unit_test(copies_are_not_captured),
        cmocka_unit_test(pinned_memory_is_copied_as_a_whole),
        cmocka_unit_test(a_copy_that_never_ends_times_out),
        cmocka_unit_test(memory_that_is_not_there_is_told_with_its_uses),
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tests[N_RULES + i] = (struct CMUnitTest){
            .name = rows[i].name,
            .test_func = delays_change_no_bit,
            .initial_state = &rows[i],
        };
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("accelerators", tests, NULL, NULL);
}
