/* SPDX-License-Identifier: Apache-2.0 */
/* base/arrays.h - arrays that begin and end together */
#ifndef MERAK_BASE_ARRAYS_H
#define MERAK_BASE_ARRAYS_H

#include <stddef.h>

#include "merak/status.h"

struct merak_array {
    void *pointer_p; /* address of a pointer to its elements */
    size_t n, size;  /* elements, and bytes of one */
};

#define MERAK_ARRAY(pointer, n)             \
    {                                       \
        &(pointer), (n), sizeof(*(pointer)) \
    }

/*
 * Allocate arrays in one piece, which free() of the first one's pointer gives
 * back with all others.
 *
 *   array  in  [n] their pointers are set; each is zeroed and aligned as by
 *              calloc()
 *
 * MERAK_ERR_NOMEM if there is no memory for all: then all pointers are NULL.
 * With an address sanitizer, what lies between two arrays is poisoned.
 */
enum merak_status merak_arrays_create(const struct merak_array *array, size_t n,
                                      struct merak_error *err) MERAK_CHECKED;

/* The same of a list, an array of struct merak_array. */
#define MERAK_ARRAYS(list, err) \
    merak_arrays_create((list), sizeof(list) / sizeof(*(list)), (err))

#endif
