/* SPDX-License-Identifier: Apache-2.0 */
/* raw_call.h - operands of kernels over arrays of a test's own */
#ifndef MERAK_TESTS_RAW_CALL_H
#define MERAK_TESTS_RAW_CALL_H

#include "merak/op.h"

#include <string.h>

static inline struct merak_operand raw_operand(void *data,
                                               enum merak_dtype dtype, int ndim,
                                               const size_t *dim)
{
    struct merak_operand op = {.data = data, .dtype = dtype};

    op.local.ndim = ndim;
    memcpy(op.local.dim, dim, (size_t)ndim * sizeof(*dim));
    op.full = op.local;
    return op;
}

#define RAW(type, data, ...)                                             \
    raw_operand((data), (type),                                          \
                (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), \
                (size_t[]){__VA_ARGS__})
#define F64(data, ...) RAW(MERAK_F64, data, __VA_ARGS__)
#define F32(data, ...) RAW(MERAK_F32, data, __VA_ARGS__)
#define I32(data, ...) RAW(MERAK_I32, data, __VA_ARGS__)

#endif
