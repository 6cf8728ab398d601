/* SPDX-License-Identifier: Apache-2.0 */
/* test_nccl_alone.c - communicators of one rank
 *
 * On the fake device with the stand-in for NCCL (stand_in_nccl.c), or with
 * MERAK_TEST_BACKEND=cuda on one GPU with NCCL itself: what can be held of the
 * real library where there is no second GPU.
 */
#include "config.h"

#include "unit/near.h"
#include "unit/engine/stand_in_path.h"
#include "unit/with_accel.h"

#include "base/clock.h"
#include "partitioner/program/program.h"
#include "runtime/link/link.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEMORY ((size_t)1 << 20)
#define COUNT 1000 /* elements */
#define DEADLINE_S 60

static struct with_accel device;
static const struct merak_link_ops *ops;
static struct merak_link_library *library;

/* Ask until nothing is under way. */
static void settle(struct merak_link_comm *comm, enum merak_status rc)
{
    const struct timespec pause = {0, 50000};
    int64_t start = merak_clock_ns();
    struct merak_error err = {0};

    while (rc == MERAK_IN_PROGRESS) {
        if (merak_clock_ns() - start > DEADLINE_S * (int64_t)1000000000)
            fail_msg("still under way after %d s", DEADLINE_S);
        nanosleep(&pause, NULL);
        rc = ops->test(comm, &err);
    }
    with_accel_check(rc, &err);
}

static struct merak_link_comm *join(void)
{
    struct merak_link_join how = {.n = 1, .me = 0};
    struct merak_link_comm *comm = NULL;
    struct merak_error err;

    (void)device.a->ops->stream(device.a, MERAK_QUEUE_COLLECTIVE);
    with_accel_check(ops->make_id(library, &how.id, &err), &err);
    with_accel_check(ops->join(library, &how, &comm, &err), &err);
    settle(comm, MERAK_IN_PROGRESS);
    return comm;
}

/* The queue that with_accel.c waits for. */
static void *stream(void)
{
    return device.a->ops->stream(device.a, 0);
}

static float *put(size_t at)
{
    float *to = (float *)device.memory + at, from[COUNT];

    for (int i = 0; i < COUNT; i++)
        from[i] = (float)(i % 97) - 48;
    with_accel_put(&device, to, from, sizeof(from));
    return to;
}

static void check(const float *at)
{
    float got[COUNT];

    with_accel_get(&device, got, at, sizeof(got));
    for (int i = 0; i < COUNT; i++)
        assert_true(got[i] == (float)(i % 97) - 48);
}

static void one_rank_exchanges_with_itself(void **state)
{
    struct merak_link_comm *comm = join();
    float *in = put(0), *out = (float *)device.memory + 2 * COUNT;
    const struct merak_link_message pieces[] = {
        {true, in, COUNT * sizeof(*in), 0},
        {false, out, COUNT * sizeof(*out), 0}};
    struct merak_link_sum sum = {
        .in = in, .out = out, .count = COUNT, .dtype = MERAK_F32};
    const struct merak_link_gather gather = {out, in, COUNT * sizeof(*in)};
    struct merak_error err;

    (void)state;
    with_accel_put(&device, out, (float[COUNT]){0}, COUNT * sizeof(*out));
    settle(comm, ops->move(comm, stream(), pieces, 2, &err));
    check(out);
    with_accel_put(&device, out, (float[COUNT]){0}, COUNT * sizeof(*out));
    settle(comm, ops->gather(comm, stream(), &gather, 1, &err));
    check(out);
    for (int i = 0; i < 4; i++) {
        sum.max = i % 2 == 1;
        sum.scatter = i / 2 == 1;
        with_accel_put(&device, out, (float[COUNT]){0}, COUNT * sizeof(*out));
        settle(comm, ops->sum(comm, stream(), &sum, &err));
        check(out);
    }
    ops->leave(comm);
}

static void several_are_aborted_at_once(void **state)
{
    struct merak_link_comm *comm[2] = {join(), join()};
    float *in = put(0), *out = (float *)device.memory + 2 * COUNT;
    const struct merak_link_gather gather = {out, in, COUNT * sizeof(*in)};
    struct merak_error err;

    (void)state;
    settle(comm[0], ops->gather(comm[0], stream(), &gather, 1, &err));
    check(out);
    ops->abort(comm, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->test(comm[i], &err), MERAK_ERR_FABRIC);
        ops->leave(comm[i]);
    }
    /* the device goes on, and so does the library */
    one_rank_exchanges_with_itself(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_exchanges_with_itself),
        cmocka_unit_test(several_are_aborted_at_once),
    };
    const struct merak_backend *backend = NULL;
    char about[256] = "";
    struct merak_error err;
    int rc;

    if (strcmp(with_accel_name("fake"), "fake") == 0)
        stand_in_use();
    with_accel_check(
        merak_backend_find(with_accel_name("fake"), &backend, &err), &err);
    with_accel_open(&device, backend, MEMORY);
    with_accel_check(merak_link_load("nccl", &ops, &err), &err);
    with_accel_check(ops->open(device.a->ops->streams, &library, about, &err),
                     &err);
    printf("# %s\n", about);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    rc = cmocka_run_group_tests_name("nccl_alone", tests, NULL, NULL);
    ops->close(library);
    with_accel_close(&device);
    return rc;
}
