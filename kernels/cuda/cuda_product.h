/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_product.h - interface of the CUDA kernels to matrix
 * products
 *
 *   D[m, n] = alpha A[m, k] B[k, n] + beta D + bias[n]
 *
 * Everything else is implemented in kernels/cuda/; products are computed by a
 * library (cuBLASLt), or by plain loops if the kernels run on a host.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_PRODUCT_H
#define MERAK_KERNELS_CUDA_CUDA_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"
#include "merak/types.h"

/* A row-major matrix in device memory. */
struct merak_cuda_matrix {
    void *data;
    enum merak_dtype dtype; /* f32 or bf16 */
    size_t ld;              /* elements from one row to the next */
};

/*
 * A and B have the same dtype, and D has it, too, or is f32.  Sums are f32 and
 * are rounded once; f32 operands are multiplied as f32 (no TF32).
 *
 * Rows of bf16 matrices are multiples of 16 bytes apart; callers stage those
 * that are not (logits of a vocabulary of 50257).
 */
struct merak_cuda_product {
    size_t m, n, k; /* none is 0 */
    struct merak_cuda_matrix a, b, d;
    bool a_transposed; /* a is stored [k, m], not [m, k] */
    bool b_transposed; /* b is stored [n, k], not [k, n] */
    float alpha;
    float beta;       /* 0: d is not read */
    const void *bias; /* [n] of d's dtype, beta is 0; or NULL */
    /* Memory for the library, aligned to MERAK_CUDA_WORK_ALIGN; bytes are
     * merak_cuda_work_bytes(), so that equal shapes have equal ones. */
    void *work;
    size_t work_bytes;
};

/* Workspace of a product of this size: room for some partial sums of all of D,
 * as far as Hopper's kernels use it. */
#define MERAK_CUDA_WORK_ALIGN 256
static inline size_t merak_cuda_work_bytes(size_t m, size_t n)
{
    const size_t least = (size_t)1 << 20, most = (size_t)32 << 20;
    const size_t sums = 16 * sizeof(float);

    if (m > 0 && n > most / sums / m)
        return most;
    return m * n * sums > least ? m * n * sums : least;
}

struct merak_cuda_context;

/*
 * Put a product into the context's stream.  Equal calls give equal bits.
 *
 *   arg  the context's product_arg
 */
typedef enum merak_status (*merak_cuda_product_fn)(
    void *arg, const struct merak_cuda_context *context,
    const struct merak_cuda_product *product, struct merak_error *err);

#endif
