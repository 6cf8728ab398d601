/* SPDX-License-Identifier: Apache-2.0 */
/* test_two_devices.c - one thread that uses two accelerators in turn
 *
 * On the fake device, or on what MERAK_TEST_BACKEND says: there with two
 * devices, as far as it has them.
 */
#include "config.h"

#include "unit/near.h"
#include "unit/with_accel.h"

#include "base/error.h"
#include "partitioner/program/program.h"

#define BYTES 4096

/* The backend's device i, or its last one. */
static int number_of(const struct merak_backend *backend, int i)
{
    struct merak_accel_device device[2] = {{.number = 0}};
    struct merak_error err;
    int n = 1;

    if (backend->accel->devices != NULL)
        with_accel_check(backend->accel->devices(device, 2, &n, &err), &err);
    return device[i < n ? i : n - 1].number;
}

static void open_one(struct with_accel *w, const struct merak_backend *b, int i)
{
    struct merak_error err;

    w->backend = b;
    w->bytes = BYTES;
    with_accel_check(
        b->accel->open(number_of(b, i), MERAK_QUEUE_COUNT, 1, &w->a, &err),
        &err);
}

static void fill_one(struct with_accel *w)
{
    struct merak_error err;

    with_accel_check(w->a->ops->event_create(w->a, &w->event, &err), &err);
    with_accel_check(w->a->ops->alloc(w->a, BYTES, &w->memory, &err), &err);
}

static void empty_one(struct with_accel *w)
{
    w->a->ops->event_destroy(w->a, w->event);
    w->a->ops->free(w->a, w->memory);
}

/* A call leaves the thread's current device as later calls expect it. */
static void use(struct with_accel *w, int number)
{
    int got = -1;

    with_accel_put(w, w->memory, &number, sizeof(number));
    with_accel_get(w, &got, w->memory, sizeof(got));
    assert_int_equal(got, number);
}

static void a_thread_uses_two_devices_in_turn(void **state)
{
    struct with_accel w[2];

    open_one(&w[0], *state, 0);
    fill_one(&w[0]);
    use(&w[0], 1);
    open_one(&w[1], *state, 1);
    use(&w[0], 2); /* after open() of the other */
    fill_one(&w[1]);
    use(&w[1], 3);
    empty_one(&w[1]);
    use(&w[0], 4);
    w[1].a->ops->close(w[1].a);
    use(&w[0], 5); /* after close() of the other */
    empty_one(&w[0]);
    w[0].a->ops->close(w[0].a);
}

int main(void)
{
    const struct merak_backend *backend = NULL;
    struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_uses_two_devices_in_turn),
    };
    struct merak_error err;

    with_accel_check(
        merak_backend_find(with_accel_name("fake"), &backend, &err), &err);
    tests[0].initial_state = (void *)(uintptr_t)backend;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("two devices", tests, NULL, NULL);
}
