/* SPDX-License-Identifier: Apache-2.0 */
/* test_accel_rules.c - what an accelerator's queues, events and memory are
 * held to, on the fake device, and what a trainer makes of one that fails
 */
#include "config.h"

#include "unit/near.h"

#include "base/error.h"
#include "kernels/kernels.h"
#include "runtime/train/trainer.h"

#include <string.h>
#include <time.h>

static struct merak_error last_error;
#define ERR (&last_error)

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
    const size_t full[] = {4}, lo[] = {0}, len[] = {2};
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
    struct merak_trainer t = {.compute.accel = &accel,
                              .opt = {.deadline_s = 0.05}};
    unsigned char device[8], host[8];
    struct merak_error err;

    (void)state;
    t.memory.accel_arena = device;
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
    struct merak_trainer t = {.compute.accel = &accel,
                              .compute.backend = &backend,
                              .program = &program,
                              .memory.arena_bytes = (size_t)4 << 30};
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_slots_open(&t, &err), MERAK_ERR_NOMEM);
    assert_string_equal(
        err.text, "the plan needs 4.00 GiB of the GPU at once and 3.00 of "
                  "80.00 are free; use more stages, a larger tp or a smaller "
                  "micro-batch (MiB: parameters 1024.0, activations 3072.0)");
}

/* Of 3 GiB that are free each of n tasks plans with its share, less what its
 * libraries take. */
static void memory_is_divided_by_the_tasks_that_share_it(void **state)
{
    static const struct merak_accel_ops ops = {.memory = full_memory};
    static const struct {
        int tasks;
        double gib;
    } row[] = {{0, 2}, {1, 2}, {2, 0.5}, {3, 0}, {4, 0}};
    struct merak_accel accel = {.ops = &ops};
    struct merak_trainer t = {.compute.accel = &accel};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        t.compute.card_tasks = row[i].tasks;
        assert_int_equal(merak_task_memory(&t), (size_t)(row[i].gib * 0x1p30));
    }
}

/* A rank of three stages sends to one and receives from the other, is in one
 * group of two and one of its own: five communicators, for which NCCL takes
 * 1.25 GiB beside the arena. */
static void memory_of_communicators_is_counted(void **state)
{
    static const struct merak_accel_ops ops = {.memory = full_memory};
    struct merak_group group[] = {{.n = 2, .rank = (int[]){1, 3}},
                                  {.n = 1, .rank = (int[]){1}}};
    struct merak_instr instr[] = {
        {.kind = MERAK_INSTR_RECV, .peer = 0, .phase = MERAK_PHASE_F},
        {.kind = MERAK_INSTR_SEND, .peer = 2, .phase = MERAK_PHASE_F},
        {.kind = MERAK_INSTR_SEND, .peer = 2, .phase = MERAK_PHASE_F},
        {.kind = MERAK_INSTR_RECV, .peer = 2, .phase = MERAK_PHASE_B},
        {.kind = MERAK_INSTR_SEND, .peer = 0, .phase = MERAK_PHASE_B},
        {.kind = MERAK_INSTR_EXCHANGE, .group = 0},
        {.kind = MERAK_INSTR_EXCHANGE, .group = 1},
    };
    struct merak_program program = {
        .rank = 1,
        .instr = instr,
        .n_instrs = sizeof(instr) / sizeof(*instr),
        .group = group,
        .n_groups = 2,
        .category_bytes = {[MERAK_CAT_PARAM] = (size_t)1 << 30}};
    struct merak_accel accel = {.ops = &ops};
    struct merak_trainer t = {.compute.accel = &accel,
                              .program = &program,
                              .eval = &program,
                              .memory.arena_bytes = (size_t)1 << 30,
                              .ranks = {.transport_rank = (int[]){0, 1, 2, 3}}};
    struct merak_error err;

    (void)state;
    /* 2 GiB are left for tensors and NCCL */
    assert_int_equal(merak_memory_check(&t, &err), MERAK_OK);
    t.linked.direct = true;
    assert_int_equal(merak_memory_check(&t, &err), MERAK_ERR_NOMEM);
    assert_int_equal(t.linked.comms, 5);
    assert_string_equal(
        err.text, "the plan needs 2.2 GiB a task and 2.0 GiB are available on "
                  "its GPU; use more stages, a larger tp, --transport ucx or a "
                  "smaller micro-batch (MiB: NCCL about 1280, parameters "
                  "1024.0)");
    t.memory.arena_bytes /= 2;
    assert_int_equal(merak_memory_check(&t, &err), MERAK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_keep_their_order),
        cmocka_unit_test(waiting_for_an_event_never_recorded_is_no_wait),
        cmocka_unit_test(a_box_is_packed),
        cmocka_unit_test(the_first_failure_is_what_every_later_call_says),
        cmocka_unit_test(what_is_captured_is_replayed),
        cmocka_unit_test(copies_are_not_captured),
        cmocka_unit_test(pinned_memory_is_copied_as_a_whole),
        cmocka_unit_test(a_copy_that_never_ends_times_out),
        cmocka_unit_test(memory_that_is_not_there_is_told_with_its_uses),
        cmocka_unit_test(memory_is_divided_by_the_tasks_that_share_it),
        cmocka_unit_test(memory_of_communicators_is_counted),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("accelerators' rules", tests, NULL,
                                       NULL);
}
