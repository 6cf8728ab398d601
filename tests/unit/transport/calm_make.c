/* SPDX-License-Identifier: Apache-2.0 */
/* calm_make.c - how much of this machine others leave us; for t/calm.bash
 *
 * One thread a processor counts for a third of a second.  What the slowest of
 * them did, as a share of what it does in its best slice: near 1 on a machine
 * of our own, a half with one other program on that processor, or less where
 * the hypervisor gives it to another guest.
 */
#include "config.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#define SLICES 60
#define SLICE_NS 5000000
#define MAX_THREADS 256

struct counter {
    pthread_t thread;
    double share;
};

/* How many a nanosecond, in one slice. */
static double count_slice(void)
{
    int64_t begin = merak_clock_ns(), now = begin;
    double n = 0;

    for (; now < begin + SLICE_NS; n += 1)
        now = merak_clock_ns();
    return n / (double)(now - begin);
}

static void *count(void *arg)
{
    struct counter *c = arg;
    double best = 0, sum = 0;

    for (int i = 0; i < SLICES; i++) {
        double rate = count_slice();

        sum += rate;
        best = rate > best ? rate : best;
    }
    c->share = sum / SLICES / best;
    return NULL;
}

int main(void)
{
    static struct counter counter[MAX_THREADS];
    double least = 1;
    cpu_set_t set;
    int n;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    n = CPU_COUNT(&set) < MAX_THREADS ? CPU_COUNT(&set) : MAX_THREADS;
    for (int i = 0; i < n; i++) {
        if (pthread_create(&counter[i].thread, NULL, count, &counter[i]) != 0)
            return 1;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(counter[i].thread, NULL);
        least = counter[i].share < least ? counter[i].share : least;
    }
    printf("%.2f\n", least);
    return 0;
}
