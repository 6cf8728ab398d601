/* SPDX-License-Identifier: Apache-2.0 */
/* grow.c - arrays that get longer by one element at a time */
#include "config.h"

#include "base/grow.h"

#include "base/error.h"
#include "base/size.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum merak_status merak_grow(void *array_p, int *room_p, int n, size_t size,
                             struct merak_error *err)
{
    int room = 4;
    size_t bytes;
    void *array;

    if (n < *room_p)
        return MERAK_OK;
    if (*room_p > INT_MAX / 2)
        return merak_fail_nomem(err, SIZE_MAX);
    if (*room_p > 0)
        room = 2 * *room_p;
    if (!merak_size_mul((size_t)room, size, &bytes))
        return merak_fail_nomem(err, SIZE_MAX);
    /* The pointer may be of any type: its bytes are read and written. */
    memcpy(&array, array_p, sizeof(array));
    array = realloc(array, bytes);
    if (array == NULL)
        return merak_fail_nomem(err, bytes);
    memcpy(array_p, &array, sizeof(array));
    *room_p = room;
    return MERAK_OK;
}
