/* SPDX-License-Identifier: Apache-2.0 */
/* arrays.c - arrays that begin and end together */
#include "config.h"

#include "base/arrays.h"

#include "base/error.h"
#include "base/size.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define GAP ((size_t)32) /* bytes behind an array */
#else
#define GAP ((size_t)0)
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

/* The pointers may be of any type: their bytes are written. */
static void set(const struct merak_array *array, void *elements)
{
    memcpy(array->pointer_p, &elements, sizeof(elements));
}

/* Where the array behind one that begins at byte `at` does; false: not in
 * memory. */
static bool end_of(const struct merak_array *array, size_t at, size_t *end_p)
{
    size_t bytes;

    if (!merak_size_mul(array->n, array->size, &bytes) ||
        !merak_size_add(at, bytes, &bytes) ||
        !merak_size_add(bytes, GAP + alignof(max_align_t), &bytes))
        return false;
    *end_p =
        merak_size_align(bytes - alignof(max_align_t), alignof(max_align_t));
    return true;
}

enum merak_status merak_arrays_create(const struct merak_array *array, size_t n,
                                      struct merak_error *err)
{
    size_t all = 0, at = 0;
    char *piece = NULL;
    bool fits = true;

    for (size_t i = 0; i < n && fits; i++)
        fits = end_of(&array[i], all, &all);
    if (fits)
        piece = calloc(all > 0 ? all : 1, 1);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = array[i].n * array[i].size;

        set(&array[i], piece == NULL ? NULL : piece + at);
        if (piece == NULL)
            continue;
        ASAN_POISON_MEMORY_REGION(piece + at + bytes, GAP);
        (void)end_of(&array[i], at, &at);
    }
    return piece == NULL ? merak_fail_nomem(err, fits ? all : SIZE_MAX)
                         : MERAK_OK;
}
