/* SPDX-License-Identifier: Apache-2.0 */
/* merak/types.h - element types and shapes */
#ifndef MERAK_TYPES_H
#define MERAK_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define MERAK_MAX_DIMS 6

enum merak_dtype {
    MERAK_F32,
    MERAK_BF16,
    MERAK_F64,
    MERAK_I32,
    MERAK_DTYPE_COUNT
};

/* A target that is not to be predicted: its loss and its contribution to the
 * gradient are 0. */
#define MERAK_NO_TARGET (-1)

struct merak_shape {
    int ndim; /* 0..MERAK_MAX_DIMS; 0 is a scalar of one element */
    size_t dim[MERAK_MAX_DIMS]; /* row-major, outermost first */
};

/* Bytes of one element: 4, 2, 8, 4. */
size_t merak_dtype_bytes(enum merak_dtype dtype);
/* "f32", "bf16", "f64", "i32". */
const char *merak_dtype_name(enum merak_dtype dtype);
/* Number of elements; 1 for a scalar.  Shapes are checked against overflow
 * when they are created, so this cannot wrap. */
size_t merak_shape_count(const struct merak_shape *shape);

#endif
