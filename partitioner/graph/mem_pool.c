/* SPDX-License-Identifier: Apache-2.0 */
/* mem_pool.c - memory of a graph or a program, freed all at once */
#include "config.h"

#include "partitioner/graph/mem_pool.h"

#include "base/size.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)64 * 1024)
#define ALIGN ((size_t)16)

struct chunk {
    struct chunk *next;
    size_t used, size; /* of what follows this struct */
};

/* What follows a header is aligned as the chunk is. */
#define HEADER ((sizeof(struct chunk) + ALIGN - 1) / ALIGN * ALIGN)

struct merak_pool {
    struct chunk *head; /* the one being filled; full ones follow */
};

struct merak_pool *merak_pool_create(void)
{
    return calloc(1, sizeof(struct merak_pool));
}

void merak_pool_destroy(struct merak_pool *pool)
{
    struct chunk *next;

    if (pool == NULL)
        return;
    for (struct chunk *c = pool->head; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
    free(pool);
}

static struct chunk *chunk_create(size_t size)
{
    struct chunk *c;
    size_t bytes;

    if (!merak_size_add(size, HEADER, &bytes))
        return NULL;
    c = calloc(1, bytes);
    if (c != NULL)
        c->size = size;
    return c;
}

void *merak_pool_alloc(struct merak_pool *pool, size_t bytes)
{
    struct chunk *c = pool->head;
    void *p;

    if (bytes > SIZE_MAX - ALIGN)
        return NULL;
    bytes = merak_size_align(bytes, ALIGN);
    if (c == NULL || c->size - c->used < bytes) {
        c = chunk_create(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
        if (c == NULL)
            return NULL;
        c->next = pool->head;
        pool->head = c;
    }
    p = (char *)c + HEADER + c->used;
    c->used += bytes;
    return p;
}

char *merak_pool_vprintf(struct merak_pool *pool, const char *fmt, va_list ap)
{
    va_list again;
    char *text;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        return NULL;
    text = merak_pool_alloc(pool, (size_t)n + 1);
    if (text != NULL)
        vsnprintf(text, (size_t)n + 1, fmt, ap);
    return text;
}

char *merak_pool_text(struct merak_pool *pool, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = merak_pool_alloc(pool, n);

    if (copy != NULL)
        memcpy(copy, text, n);
    return copy;
}
