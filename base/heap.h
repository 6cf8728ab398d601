/* SPDX-License-Identifier: Apache-2.0 */
/* base/heap.h - what a program's heap does with freed memory */
#ifndef MERAK_BASE_HEAP_H
#define MERAK_BASE_HEAP_H

#include <malloc.h>
#include <stdlib.h>

/* A step's matrix products, and a search's programs, are allocated and freed
 * thousands of times.  If they are at the heap's end, glibc returns their pages
 * each time and faults them in again, and the peak resident size varies from
 * run to run.  So freed memory is kept, unless the user has set glibc's own
 * variables. */
static inline void merak_heap_keep(void)
{
#ifdef M_TRIM_THRESHOLD
    if (getenv("GLIBC_TUNABLES") != NULL ||
        getenv("MALLOC_TRIM_THRESHOLD_") != NULL ||
        getenv("MALLOC_MMAP_THRESHOLD_") != NULL)
        return;
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the largest that glibc accepts */
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

#endif
