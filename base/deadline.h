/* SPDX-License-Identifier: Apache-2.0 */
/* base/deadline.h - when work has to end that can be left undone */
#ifndef MERAK_BASE_DEADLINE_H
#define MERAK_BASE_DEADLINE_H

#include "base/clock.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct merak_deadline {
    int64_t at_ns; /* of merak_clock_ns(); INT64_MAX: none */
    const volatile sig_atomic_t *stop; /* past once it is set; or NULL */
};

/* Has a signal asked to stop?  NULL: none can. */
static inline bool merak_stop_is_set(const volatile sig_atomic_t *stop)
{
    return stop != NULL && *stop != 0;
}

/* NULL: never. */
static inline bool merak_deadline_is_past(const struct merak_deadline *d)
{
    return d != NULL && (merak_stop_is_set(d->stop) ||
                         (d->at_ns < INT64_MAX && merak_clock_ns() > d->at_ns));
}

#endif
