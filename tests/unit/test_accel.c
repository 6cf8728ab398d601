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
#define N_RULES 5 /* tests that are no layouts */

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
    unsigned char *base;
    struct merak_event *event;
};

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
    for (step.step = 0; step.step < STEPS; step.step++)
        CHECK_OK(merak_engine_run(engine, &step, ERR));
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

static unsigned char *train_on_fake(struct rank *me,
                                    const struct merak_program *p, int seed,
                                    size_t *bytes_p)
{
    const struct merak_backend *fake;
    struct memory m = {NULL};
    unsigned char *out;
    void *base;
    char text[16];

    snprintf(text, sizeof(text), "%d", seed);
    setenv("MERAK_FAKE_SEED", text, 1);
    CHECK_OK(merak_backend_find("fake", &fake, ERR));
    CHECK_OK(fake->accel->open(0, MERAK_QUEUE_COUNT, 1, &m.accel, ERR));
    CHECK_OK(fake->accel->alloc(m.accel, p->arena_bytes, &base, ERR));
    CHECK_OK(fake->accel->event_create(m.accel, &m.event, ERR));
    m.base = base;
    out = train(me, p, fake, &m, bytes_p);
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
        unsigned char *got = train_on_fake(me, p, seed * 64 + me->all.me, &n);

        CHECK(n == bytes);
        if (memcmp(got, want, bytes) != 0) {
            fprintf(stderr, "%s: rank %d differs with seed %d\n", row->name,
                    me->all.me, seed * 64 + me->all.me);
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

int main(void)
{
    struct CMUnitTest tests[N_RULES + sizeof(rows) / sizeof(*rows)] = {
        cmocka_unit_test(queues_keep_their_order),
        cmocka_unit_test(waiting_for_an_event_never_recorded_is_no_wait),
        cmocka_unit_test(a_box_is_packed),
        cmocka_unit_test(the_first_failure_is_what_every_later_call_says),
        cmocka_unit_test(a_copy_that_never_ends_times_out),
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
