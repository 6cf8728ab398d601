/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_kernels.h - the kernels' functions, for their table */
#ifndef MERAK_KERNELS_CUDA_CUDA_KERNELS_H
#define MERAK_KERNELS_CUDA_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/ops.h"
#include "merak/op.h"
#ifdef __cplusplus
}
#define CUDA_LINKAGE extern "C"
#else
#define CUDA_LINKAGE
#endif

#define CUDA_KERNEL(op)                             \
    CUDA_LINKAGE enum merak_status merak_cuda_##op( \
        const struct merak_kernel_call *call, struct merak_error *err)
#define CUDA_SCRATCH(op)                           \
    CUDA_LINKAGE size_t merak_cuda_##op##_scratch( \
        const struct merak_kernel_call *call)

#define CUDA_DECLARE(op) CUDA_KERNEL(op);
MERAK_KERNEL_OPS(CUDA_DECLARE, CUDA_DECLARE)
#undef CUDA_DECLARE

CUDA_SCRATCH(embedding_dw);
CUDA_SCRATCH(linear);
CUDA_SCRATCH(linear_dx);
CUDA_SCRATCH(linear_dw);
CUDA_SCRATCH(linear_db);
CUDA_SCRATCH(layernorm_dw);
CUDA_SCRATCH(rmsnorm_dw);
CUDA_SCRATCH(attention);
CUDA_SCRATCH(attention_packed);
CUDA_SCRATCH(attention_dx);
CUDA_SCRATCH(attention_packed_dx);
CUDA_SCRATCH(route);
CUDA_SCRATCH(experts);
CUDA_SCRATCH(experts_dx);
CUDA_SCRATCH(experts_dw);
CUDA_SCRATCH(sumsq);

#endif
