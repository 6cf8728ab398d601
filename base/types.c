/* SPDX-License-Identifier: Apache-2.0 */
/* types.c - element types and shapes */
#include "config.h"

#include "merak/types.h"

size_t merak_dtype_bytes(enum merak_dtype dtype)
{
    static const size_t bytes[MERAK_DTYPE_COUNT] = {
        [MERAK_F32] = 4, [MERAK_BF16] = 2, [MERAK_F64] = 8, [MERAK_I32] = 4};

    return (unsigned)dtype < MERAK_DTYPE_COUNT ? bytes[dtype] : 0;
}

const char *merak_dtype_name(enum merak_dtype dtype)
{
    static const char *const name[MERAK_DTYPE_COUNT] = {
        [MERAK_F32] = "f32",
        [MERAK_BF16] = "bf16",
        [MERAK_F64] = "f64",
        [MERAK_I32] = "i32"};

    return (unsigned)dtype < MERAK_DTYPE_COUNT ? name[dtype] : "?";
}

size_t merak_shape_count(const struct merak_shape *shape)
{
    size_t n = 1;

    for (int d = 0; d < shape->ndim; d++)
        n *= shape->dim[d];
    return n;
}
