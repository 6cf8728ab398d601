/* SPDX-License-Identifier: Apache-2.0 */
/* base/cores.h - number of cores a thread may use */
#ifndef MERAK_BASE_CORES_H
#define MERAK_BASE_CORES_H

#include <sched.h>

/* Number of cores that the calling thread is bound to; 0: not known. */
static inline int merak_cores_allowed(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

#endif
