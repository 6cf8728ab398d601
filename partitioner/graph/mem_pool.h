/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/graph/mem_pool.h - memory of a graph or a program, freed all at
 * once */
#ifndef MERAK_PARTITIONER_GRAPH_POOL_H
#define MERAK_PARTITIONER_GRAPH_POOL_H

#include <stdarg.h>
#include <stddef.h>

struct merak_pool;

struct merak_pool *merak_pool_create(void);
void merak_pool_destroy(struct merak_pool *pool);
/* Zeroed, 16-byte aligned; NULL when out of memory. */
void *merak_pool_alloc(struct merak_pool *pool, size_t bytes);
/* A copy; NULL when out of memory. */
char *merak_pool_text(struct merak_pool *pool, const char *text);
char *merak_pool_vprintf(struct merak_pool *pool, const char *fmt,
                         va_list ap);

#endif
