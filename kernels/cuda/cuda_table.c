/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_table.c - the table of kernels by op name */
#include "config.h"

#include "kernels/cuda/cuda_cudnn.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_ops.h"

#include "base/error.h"

#define ROW(op)                            \
    {                                      \
        .name = #op, .fn = merak_cuda_##op \
    }
#define ROW_SCRATCH(op)                      \
    {                                        \
        .name = #op, .fn = merak_cuda_##op,  \
        .scratch = merak_cuda_##op##_scratch \
    }

/* cuDNN may run attention, so plans include its scratch, too. */
#define ATTENTION_SCRATCH(op)                                        \
    static size_t op##_scratch(const struct merak_kernel_call *call) \
    {                                                                \
        return merak_cudnn_scratch(#op, call,                        \
                                   merak_cuda_##op##_scratch(call)); \
    }
ATTENTION_SCRATCH(attention)
ATTENTION_SCRATCH(attention_packed)
ATTENTION_SCRATCH(attention_dx)
ATTENTION_SCRATCH(attention_packed_dx)
#define ROW_ATTENTION(op)                                           \
    {                                                               \
        .name = #op, .fn = merak_cuda_##op, .scratch = op##_scratch \
    }

const struct merak_kernel merak_cuda_kernels[] = {
    ROW(embedding),
    ROW_SCRATCH(embedding_dw),
    ROW(add_position),
    ROW(add_position_dw),
    ROW_SCRATCH(linear),
    ROW_SCRATCH(linear_dx),
    ROW_SCRATCH(linear_dw),
    ROW_SCRATCH(linear_db),
    ROW(layernorm),
    ROW(layernorm_dx),
    ROW_SCRATCH(layernorm_dw),
    ROW(rmsnorm),
    ROW(rmsnorm_dx),
    ROW_SCRATCH(rmsnorm_dw),
    ROW(rope),
    ROW_ATTENTION(attention),
    ROW_ATTENTION(attention_packed),
    ROW_ATTENTION(attention_dx),
    ROW_ATTENTION(attention_packed_dx),
    ROW(gelu),
    ROW(gelu_dx),
    ROW(relu2),
    ROW(relu2_dx),
    ROW(widen),
    ROW(narrow),
    ROW(swiglu),
    ROW(swiglu_dx),
    ROW(softcap),
    ROW(softcap_dx),
    ROW(add),
    ROW(scale),
    ROW_SCRATCH(route),
    ROW(route_dx),
    ROW(experts_overflow),
    ROW(route_load),
    ROW(balance),
    ROW(balance_dx),
    ROW(balance_count),
    ROW_SCRATCH(experts),
    ROW_SCRATCH(experts_dx),
    ROW_SCRATCH(experts_dw),
    ROW(dropout),
    ROW(xent_max),
    ROW(xent_sum),
    ROW(xent_loss),
    ROW(pair_loss),
    ROW(mean_loss),
    ROW(xent_dlogits),
    ROW(grad_add),
    ROW_SCRATCH(sumsq),
    ROW(clip),
    ROW(adamw),
    ROW(sign_step),
    {0},
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
