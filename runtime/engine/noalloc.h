/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/engine/noalloc.h - a step allocates nothing
 *
 * In debug builds, malloc() and its relatives abort the process if libmerak
 * calls them on a thread between these two calls.  Other libraries may
 * allocate: oneDNN takes a buffer for a product, UCX grows its pools.
 */
#ifndef MERAK_RUNTIME_ENGINE_NOALLOC_H
#define MERAK_RUNTIME_ENGINE_NOALLOC_H

#include "config.h"

#ifdef MERAK_DEBUG
void merak_noalloc_begin(void);
void merak_noalloc_end(void);
#else
static inline void merak_noalloc_begin(void)
{
}

static inline void merak_noalloc_end(void)
{
}
#endif

#endif
