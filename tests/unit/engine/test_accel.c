/* SPDX-License-Identifier: Apache-2.0 */
/* test_accel.c - the engine that drives an accelerator
 *
 * The fake device holds operations up at random: weights and moments after
 * some steps are compared, byte for byte, with those of the cpu backend on
 * host memory, for many sequences of delays.
 */
#include "config.h"

#include "unit/engine/accel_train.h"
#include "unit/test_ranks.h"

#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIED_FROM 4 /* the last row's last stage */
#define SEEDS 4     /* of each layout; MERAK_TEST_SEEDS: others */

/* The fake device's own, and how often it was asked. */
static const struct merak_accel_ops *asked_of;
static int tables_launched, fused, replayed, staged;
static const unsigned char *staging; /* of staging_bytes */
static size_t staging_bytes;

static enum merak_status count_table(struct merak_accel *a, int queue,
                                     struct merak_table *table,
                                     const struct merak_step *step,
                                     struct merak_error *err)
{
    tables_launched++;
    return asked_of->table_launch(a, queue, table, step, err);
}

static enum merak_status
count_fused(struct merak_accel *a, int queue,
            const struct merak_kernel *const *kernel,
            const struct merak_kernel_call *const *call, const unsigned *unread,
            int n, struct merak_error *err)
{
    CHECK(n > 1 && n <= asked_of->fusable(kernel, call, n));
    CHECK(merak_calls_do_not_alias(call, n));
    fused++;
    return asked_of->launch_fused(a, queue, kernel, call, unread, n, err);
}

static enum merak_status count_replay(struct merak_accel *a, int queue,
                                      struct merak_replay *replay,
                                      struct merak_error *err)
{
    replayed++;
    return asked_of->replay(a, queue, replay, err);
}

static enum merak_status count_read(struct merak_accel *a, int queue, void *to,
                                    const void *from, size_t bytes,
                                    struct merak_error *err)
{
    const unsigned char *at = to;

    staged += at >= staging && at < staging + staging_bytes;
    return asked_of->read(a, queue, to, from, bytes, err);
}

static void count_calls(struct merak_accel *a)
{
    static struct merak_accel_ops counted;

    asked_of = a->ops;
    counted = *a->ops;
    counted.table_launch = count_table;
    counted.launch_fused = count_fused;
    counted.replay = count_replay;
    counted.read = count_read;
    a->ops = &counted;
    tables_launched = fused = replayed = staged = 0;
}

static bool is_sent(const struct merak_instr *in)
{
    return in->kind == MERAK_INSTR_SEND || in->kind == MERAK_INSTR_EXCHANGE;
}

/* What a program sends in a step at most, if what two transfers that follow
 * each other send is read from the device once. */
static int count_sent(const struct merak_program *p, int *twice_p)
{
    int sent = 0;

    *twice_p = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct merak_instr *in = &p->instr[i];

        sent += is_sent(in);
        *twice_p += i > 0 && is_sent(in) && is_sent(in - 1) &&
                    in->slot[0] == in[-1].slot[0];
    }
    return sent - *twice_p;
}

/* Of every four sequences of delays the first runs each instruction by itself,
 * the others have tables and fuse, the third replays, and the last takes
 * times. */
static unsigned char *train_on_fake(struct rank *me,
                                    const struct merak_program *p, int seed,
                                    size_t *bytes_p)
{
    const struct accel_how how = {.fake = true,
                                  .seed = seed * 64 + me->all.me,
                                  .tables = seed % 4 != 0,
                                  .times = seed % 4 == 3,
                                  .opened = count_calls};
    unsigned char *out;
    int twice, sent = count_sent(p, &twice);

    staging = me->arena.base;
    staging_bytes = me->arena.bytes;
    setenv("MERAK_ACCEL_GRAPHS", seed % 4 == 2 ? "1" : "0", 1);
    setenv("MERAK_ACCEL_FUSE", seed % 4 == 0 ? "0" : "1", 1);
    out = accel_train(me, p, &how, bytes_p);
    /* sums of squares, and updates, unless what these need comes piece by
     * piece */
    CHECK(tables_launched ==
          (how.tables ? (p->host_bytes > 0 ? 1 : 2) * ACCEL_STEPS : 0));
    CHECK((fused > 0) == (seed % 4 != 0));
    CHECK((replayed > 0) == (seed % 4 == 2));
    CHECK(staged <= sent * ACCEL_STEPS);
    CHECK(staged > 0 || sent == 0);
    if (me->all.me >= TIED_FROM && p->plan.stage == NULL) /* a tied weight's
                                                             gradient */
        CHECK(twice > 0);
    return out;
}

static int seeds(void)
{
    const char *text = getenv("MERAK_TEST_SEEDS");

    return text != NULL ? atoi(text) : SEEDS;
}

static void compare_rank(struct rank *me, const void *arg)
{
    const struct accel_row *row = arg;
    const struct accel_how host = {.fake = false};
    const struct merak_backend *cpu;
    struct merak_planned *planned;
    const struct merak_program *p;
    unsigned char *want;
    size_t bytes;

    CHECK_OK(merak_backend_find("cpu", &cpu, ERR));
    CHECK_OK(cpu->open(1, ERR));
    planned = accel_build(row, cpu, false);
    p = planned->program[me->all.me];
    CHECK(p->arena_bytes <= me->arena.bytes);
    want = accel_train(me, p, &host, &bytes);
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
    const struct accel_row *row = *state;
    const struct setup setup = {
        .n = accel_ranks(row), .arena = true, .deadline_s = 60};

    assert_int_equal(run_ranks(&setup, compare_rank, row), 0);
}

int main(void)
{
    struct CMUnitTest tests[N_ACCEL_ROWS];

    for (size_t i = 0; i < N_ACCEL_ROWS; i++) {
        tests[i] = (struct CMUnitTest){
            .name = accel_rows[i].name,
            .test_func = delays_change_no_bit,
            .initial_state = (void *)(uintptr_t)&accel_rows[i],
        };
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("accelerators", tests, NULL, NULL);
}
