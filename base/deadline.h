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

/* NULL: never. */
static inline bool merak_deadline_is_past(const struct merak_deadline *d)
{
    return d != NULL && ((d->stop != NULL && *d->stop != 0) ||
                         (d->at_ns < INT64_MAX && merak_clock_ns() > d->at_ns));
}

#endif
