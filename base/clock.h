/* SPDX-License-Identifier: Apache-2.0 */
/* base/clock.h - the monotonic clock */
#ifndef MERAK_BASE_CLOCK_H
#define MERAK_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
static inline int64_t merak_clock_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#endif
