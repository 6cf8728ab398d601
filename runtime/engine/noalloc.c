/* SPDX-License-Identifier: Apache-2.0 */
/* noalloc.c - debug builds assert that a step allocates nothing
 *
 * libmerak is then linked with ld's --wrap=malloc etc., which redirects only
 * the calls of our own objects to here.
 */
#include "config.h"

#include "runtime/engine/noalloc.h"

#ifdef MERAK_DEBUG

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* Names defined by ld. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

static _Thread_local int in_step;

void merak_noalloc_begin(void)
{
    in_step++;
}

void merak_noalloc_end(void)
{
    in_step--;
}

static void check(const char *what, size_t bytes)
{
    if (in_step == 0)
        return;
    in_step = 0;
    fprintf(stderr, "merak: %s of %zu bytes in a step\n", what, bytes);
    abort();
}

void *__wrap_malloc(size_t size)
{
    check("malloc", size);
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    check("calloc", n * size);
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    check("realloc", size);
    return __real_realloc(old, size);
}
#endif
