/* SPDX-License-Identifier: Apache-2.0 */
/* base/clock.h - the monotonic clock, and the time of day */
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

/* Seconds since such a time. */
static inline double merak_clock_since_s(int64_t start_ns)
{
    return (double)(merak_clock_ns() - start_ns) * 1e-9;
}

/* Seconds since 1970. */
static inline double merak_clock_wall_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

#endif
