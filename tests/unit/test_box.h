/* SPDX-License-Identifier: Apache-2.0 */
/* test_box.h - elements of boxes, for tests */
#ifndef MERAK_TESTS_BOX_H
#define MERAK_TESTS_BOX_H

#include "partitioner/layout/layout.h"

/* Where element i of a box, in row-major order, is in the box's tensor. */
static inline size_t box_place(const struct merak_box *box, size_t i)
{
    size_t at = 0, stride = 1;

    for (int d = box->ndim - 1; d >= 0; d--) {
        at += (box->lo[d] + i % box->len[d]) * stride;
        i /= box->len[d];
        stride *= box->full[d];
    }
    return at;
}

/* Elements that follow each other in both boxes, from each that is a multiple
 * of so many. */
static inline size_t box_common_row(const struct merak_box *a,
                                    const struct merak_box *b)
{
    size_t x = a->ndim > 0 ? a->len[a->ndim - 1] : 1;
    size_t y = b->ndim > 0 ? b->len[b->ndim - 1] : 1;

    return x == y && x > 0 ? x : 1;
}

#endif
