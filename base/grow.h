/* SPDX-License-Identifier: Apache-2.0 */
/* base/grow.h - arrays that get longer by one element at a time */
#ifndef MERAK_BASE_GROW_H
#define MERAK_BASE_GROW_H

#include <stddef.h>

#include "merak/status.h"

/*
 * Make room for one element after the first n.
 *
 *   array_p  in/out  address of a pointer to the elements, from malloc; NULL
 *                    while room is 0
 *   room_p   in/out  elements that there is room for; at least n
 *   n        in      elements in use
 *   size     in      bytes of an element
 *
 * Room doubles, so that n elements cost no more than 2n copies; new elements
 * are undefined.  If there is no memory, or not enough numbers to count it,
 * MERAK_ERR_NOMEM, and nothing has changed.
 */
enum merak_status merak_grow(void *array_p, int *room_p, int n, size_t size,
                             struct merak_error *err) MERAK_CHECKED;

#endif
