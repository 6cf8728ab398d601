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

#define CUDA_DECLARE_PLAIN(op) CUDA_KERNEL(op);
#define CUDA_DECLARE_SCRATCH(op) \
    CUDA_KERNEL(op);             \
    CUDA_SCRATCH(op);
#define CUDA_DECLARE_CUDNN CUDA_DECLARE_SCRATCH
#define CUDA_DECLARE_ADDS(op)                      \
    CUDA_DECLARE_SCRATCH(op)                       \
    CUDA_LINKAGE bool merak_cuda_##op##_adds_bf16( \
        const struct merak_kernel_call *call);
#define CUDA_DECLARE(op, cpu, cuda) CUDA_DECLARE_##cuda(op)
MERAK_KERNEL_OPS(CUDA_DECLARE)
#undef CUDA_DECLARE
#undef CUDA_DECLARE_ADDS
#undef CUDA_DECLARE_CUDNN
#undef CUDA_DECLARE_PLAIN
#undef CUDA_DECLARE_SCRATCH

#endif
