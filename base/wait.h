/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/wait.h - how a thread waits: it spins, then sleeps in naps or until an
 * event, and gives up at a deadline
 *
 * What a thread waits for is done by another thread or task, which needs a
 * core.  Where that is the waiting one's, spinning is what it waits for.
 */
#ifndef MERAK_BASE_WAIT_H
#define MERAK_BASE_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* What is over sooner than this is over before a sleep would end; longer spins
 * ruin a core that others need. */
#define MERAK_SPIN_NS 20000
/* The same for a thread that has a core for itself, and so has what it waits
 * for: NCCL's. */
#define MERAK_LONG_SPIN_NS 500000
/* Between two looks at what raises no event. */
#define MERAK_NAP_NS 20000
/* And at a transport, which is looked at in naps that double. */
#define MERAK_BACKOFF_NS 50000
#define MERAK_BACKOFF_MAX_NS 1000000

/* How long to spin where `threads` threads, the waiting one among them, share
 * `cores` cores (0: not known): not at all, if they have less than one each. */
static inline int64_t merak_spin_ns(int cores, int threads)
{
    return cores > 0 && cores < threads ? 0 : MERAK_SPIN_NS;
}

/* The nap after one of `ns` that was in vain (0: the first). */
static inline int64_t merak_longer_nap_ns(int64_t ns)
{
    if (ns == 0)
        return MERAK_BACKOFF_NS;
    return ns < MERAK_BACKOFF_MAX_NS ? 2 * ns : ns;
}

/* The nap, `shortest` at first, of who has looked in vain for so long at what
 * raises no event: it notices late by at most a hundredth of what it waited. */
static inline int64_t merak_patient_nap_ns(int64_t shortest, int64_t waited_ns)
{
    int64_t ns = waited_ns / 128;

    if (ns > MERAK_BACKOFF_MAX_NS)
        ns = MERAK_BACKOFF_MAX_NS;
    return ns < shortest ? shortest : ns;
}

/* Sleep; a signal may end it early. */
static inline void merak_nap(int64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000),
                          .tv_nsec = (long)(ns % 1000000000)};

    (void)nanosleep(&ts, NULL);
}

static inline bool merak_is_overdue(int64_t waited_ns, double deadline_s)
{
    return (double)waited_ns * 1e-9 > deadline_s;
}

#endif
