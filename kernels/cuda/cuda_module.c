/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_module.c - the symbol that merak_cuda.so exports */
#include "config.h"

#include "kernels/cuda/cuda_cudnn.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/module.h"

const struct merak_backend merak_cuda_backend = {
    .name = "cuda",
    .kernel = merak_cuda_kernels,
    .accel = &merak_cuda_accel,
    .use_choices = merak_cudnn_use,
    .row_bytes = 16,
    .variable = MERAK_CUDNN_VARIABLE,
    .variable_default = MERAK_CUDNN_DEFAULT,
    .dtypes = 1u << MERAK_F32 | 1u << MERAK_BF16,
};

const struct merak_module merak_module = {
    .abi = MERAK_MODULE_ABI,
    .version = PACKAGE_VERSION,
    .call_bytes = sizeof(struct merak_kernel_call),
    .accel_bytes = sizeof(struct merak_accel_ops),
    .backend = &merak_cuda_backend,
};
