/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - what the transport benchmarks and Open MPI's share
 *
 * Both sides measure the same sizes, with the same number of repeats and the
 * same clock, and print lines "NAME BYTES MICROSECONDS", the median of
 * BENCH_BATCHES batches.  A repeat includes writing to every cache line of
 * what is sent.
 */
#ifndef MERAK_BENCH_BENCH_H
#define MERAK_BENCH_BENCH_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_MIN ((size_t)1 << 10)
#define BENCH_MAX ((size_t)64 << 20)
#define BENCH_BATCHES 9

/* Repeats in a batch: enough for the clock, few enough for patience. */
static inline int bench_repeats(size_t bytes)
{
    size_t n = ((size_t)24 << 20) / bytes;

    return n > 400 ? 400 : n < 1 ? 1 : (int)n;
}

static inline double bench_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/*
 * Write to every cache line, as whoever produced the data would have: data
 * that never changes would come from the reader's own cache every time.
 */
static inline void bench_touch(void *buf, size_t bytes, int value)
{
    for (size_t i = 0; i < bytes; i += 64)
        *(volatile int *)((char *)buf + i) = value;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Print the median of batch[BENCH_BATCHES]. */
static inline void bench_print(const char *name, size_t bytes, double *batch)
{
    qsort(batch, BENCH_BATCHES, sizeof(*batch), bench_compare);
    printf("%s %zu %.3f\n", name, bytes, batch[BENCH_BATCHES / 2]);
    fflush(stdout);
}

#endif
