/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_table.c - the table of kernels by op name */
#include "config.h"

#include "kernels/cuda/cuda_cudnn.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_ops.h"

#include "base/error.h"

/* cuDNN may run attention, so plans include its scratch, too. */
#define DEFINE_PLAIN(op)
#define DEFINE_SCRATCH(op)
#define DEFINE_ADDS(op)
#define DEFINE_CUDNN(op)                                             \
    static size_t op##_scratch(const struct merak_kernel_call *call) \
    {                                                                \
        return merak_cudnn_scratch(#op, call,                        \
                                   merak_cuda_##op##_scratch(call)); \
    }
#define DEFINE(op, cpu, cuda) DEFINE_##cuda(op)
MERAK_KERNEL_OPS(DEFINE)

#define ROW_PLAIN(op) {.name = #op, .fn = merak_cuda_##op},
#define ROW_SCRATCH(op) \
    {.name = #op, .fn = merak_cuda_##op, .scratch = merak_cuda_##op##_scratch},
#define ROW_ADDS(op)                       \
    {.name = #op,                          \
     .fn = merak_cuda_##op,                \
     .scratch = merak_cuda_##op##_scratch, \
     .adds_bf16 = merak_cuda_##op##_adds_bf16},
#define ROW_CUDNN(op) \
    {.name = #op, .fn = merak_cuda_##op, .scratch = op##_scratch},
#define ROW(op, cpu, cuda) ROW_##cuda(op)

const struct merak_kernel merak_cuda_kernels[] = {
    MERAK_KERNEL_OPS(ROW){0},
};

enum merak_status merak_cuda_check_fault(const struct merak_cuda_fault *fault,
                                         struct merak_error *err)
{
    if (fault->raised == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "%s %d is outside the vocabulary of %llu; the data was "
                      "made with another tokenizer",
                      fault->raised == MERAK_CUDA_FAULT_TOKEN ? "token"
                                                              : "target",
                      fault->id, fault->vocabulary);
}
