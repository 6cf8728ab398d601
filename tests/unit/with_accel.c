/* SPDX-License-Identifier: Apache-2.0 */
/* with_accel.c - an accelerator for tests and benchmarks */
#include "config.h"

#include "unit/with_accel.h"

#include "base/clock.h"
#include "base/error.h"
#include "partitioner/program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEADLINE_S 60

char with_accel_task[160];

const char *with_accel_name(const char *otherwise)
{
    const char *name = getenv("MERAK_TEST_BACKEND");

    return name != NULL && *name != '\0' ? name : otherwise;
}

void with_accel_check(enum merak_status rc, const struct merak_error *err)
{
    if (rc == MERAK_OK)
        return;
    printf("Bail out! %s%s%s\n", with_accel_task,
           *with_accel_task == '\0' ? "" : ": ", err->text);
    fflush(stdout);
    exit(1);
}

void with_accel_open(struct with_accel *w, const struct merak_backend *backend,
                     size_t bytes)
{
    struct merak_accel_device device = {.number = 0};
    struct merak_error err;
    int n = 1;

    w->backend = backend;
    w->bytes = bytes;
    if (backend->accel->devices != NULL)
        with_accel_check(backend->accel->devices(&device, 1, &n, &err), &err);
    with_accel_check(
        backend->accel->open(device.number, MERAK_QUEUE_COUNT, 2, &w->a, &err),
        &err);
    with_accel_check(w->a->ops->event_create(w->a, &w->event, &err), &err);
    with_accel_check(w->a->ops->alloc(w->a, bytes, &w->memory, &err), &err);
}

void with_accel_close(struct with_accel *w)
{
    w->a->ops->event_destroy(w->a, w->event);
    w->a->ops->free(w->a, w->memory);
    w->a->ops->close(w->a);
}

void with_accel_finish(struct with_accel *w)
{
    const struct timespec pause = {0, 5000};
    struct merak_error err;
    enum merak_status rc = w->a->ops->record(w->a, 0, w->event, &err);
    int64_t start = merak_clock_ns();

    while (rc == MERAK_OK) {
        rc = w->a->ops->query(w->a, w->event, &err);
        if (rc == MERAK_OK)
            return;
        if (rc == MERAK_IN_PROGRESS) {
            nanosleep(&pause, NULL);
            rc = merak_clock_ns() - start < DEADLINE_S * (int64_t)1000000000
                     ? MERAK_OK
                     : merak_fail(&err, MERAK_ERR_TIMEOUT,
                                  "the device did not finish within %d s",
                                  DEADLINE_S);
        }
    }
    with_accel_check(rc, &err);
}

void with_accel_put(struct with_accel *w, void *to, const void *from,
                    size_t bytes)
{
    struct merak_error err;

    with_accel_check(w->a->ops->write(w->a, 0, to, from, bytes, &err), &err);
    with_accel_finish(w);
}

void with_accel_get(struct with_accel *w, void *to, const void *from,
                    size_t bytes)
{
    struct merak_error err;

    with_accel_check(w->a->ops->read(w->a, 0, to, from, bytes, &err), &err);
    with_accel_finish(w);
}
