/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - the cpu backend's table, once per instruction set */
#include "config.h"

#include "kernels/cpu/cpu.h"

#define ROW(op)                         \
    {                                   \
        .name = #op, .fn = CPU_NAME(op) \
    }
#define ROW_SCRATCH(op)                                                    \
    {                                                                      \
        .name = #op, .fn = CPU_NAME(op), .scratch = CPU_NAME(op##_scratch) \
    }

static const struct merak_kernel table[] = {
    ROW(embedding),
    ROW(embedding_dw),
    ROW(add_position),
    ROW(add_position_dw),
    ROW(linear),
    ROW(linear_dx),
    ROW(linear_dw),
    ROW(linear_db),
    ROW(layernorm),
    ROW(layernorm_dx),
    ROW(layernorm_dw),
    ROW(rmsnorm),
    ROW(rmsnorm_dx),
    ROW(rmsnorm_dw),
    ROW(rope),
    ROW(attention),
    ROW(attention_packed),
    ROW_SCRATCH(attention_dx),
    ROW_SCRATCH(attention_packed_dx),
    ROW(gelu),
    ROW(gelu_dx),
    ROW(swiglu),
    ROW(swiglu_dx),
    ROW(add),
    ROW(dropout),
    ROW(xent_max),
    ROW(xent_sum),
    ROW(xent_loss),
    ROW(mean_loss),
    ROW(xent_dlogits),
    ROW(grad_add),
    ROW_SCRATCH(sumsq),
    ROW(clip),
    ROW(adamw),
    {0},
};

const struct merak_backend CPU_NAME3(merak_backend, _cpu_, MERAK_CPU_ISA) = {
    .name = "cpu",
    .kernel = table,
    .open = merak_cpu_open,
};
