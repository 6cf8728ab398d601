/* SPDX-License-Identifier: Apache-2.0 */
/* with_accel.h - an accelerator for tests and benchmarks, used one call at a
 * time; what fails ends the program */
#ifndef MERAK_TESTS_WITH_ACCEL_H
#define MERAK_TESTS_WITH_ACCEL_H

#include "kernels/kernels.h"

struct with_accel {
    const struct merak_backend *backend;
    struct merak_accel *a;
    struct merak_event *event;
    void *memory; /* of the device, one block */
    size_t bytes;
};

/* What MERAK_TEST_BACKEND says, or this. */
const char *with_accel_name(const char *otherwise);
/* The first device of the backend, which has one, and a block of its memory. */
void with_accel_open(struct with_accel *w, const struct merak_backend *backend,
                     size_t bytes);
void with_accel_close(struct with_accel *w);
/* Copies, done when they return. */
void with_accel_put(struct with_accel *w, void *to, const void *from,
                    size_t bytes);
void with_accel_get(struct with_accel *w, void *to, const void *from,
                    size_t bytes);
/* Wait for what is in queue 0. */
void with_accel_finish(struct with_accel *w);
/* End the program unless all is well. */
void with_accel_check(enum merak_status rc, const struct merak_error *err);
/* What is being done, for that message; "": nothing to add. */
extern char with_accel_task[160];

#endif
