/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cpu/cpu.h - the fast host kernels: f32 and bf16, f32 arithmetic
 *
 * The files that do arithmetic are compiled once per instruction set
 * (Makefile.am) with MERAK_CPU_ISA set; it is part of names, and cpu.c picks
 * the table for the machine.  Results differ between instruction sets by
 * rounding, but not between thread counts or addresses.
 */
#ifndef MERAK_KERNELS_CPU_CPU_H
#define MERAK_KERNELS_CPU_CPU_H

#include "base/error.h"
#include "kernels/backends.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/geometry.h"
#include "kernels/kernels.h"

/* Open the backend with `threads`; shared by all instruction sets. */
enum merak_status merak_cpu_open(int threads,
                                 struct merak_error *err) MERAK_CHECKED;
bool merak_cpu_is_native(enum merak_dtype dtype);
void merak_cpu_describe(enum merak_dtype dtype, char *text, size_t bytes);

extern const struct merak_backend merak_backend_cpu_base;
extern const struct merak_backend merak_backend_cpu_avx2;
extern const struct merak_backend merak_backend_cpu_avx512;

#ifdef MERAK_CPU_ISA
#define CPU_JOIN(a, b, c) a##b##c
#define CPU_NAME3(a, b, c) CPU_JOIN(a, b, c)
#define CPU_NAME(op) CPU_NAME3(merak_##op, _cpu_, MERAK_CPU_ISA)

#define CPU_KERNEL(op)                                                   \
    enum merak_status CPU_NAME(op)(const struct merak_kernel_call *call, \
                                   struct merak_error *err)
#define CPU_SCRATCH(op) \
    size_t CPU_NAME(op##_scratch)(const struct merak_kernel_call *call)

CPU_KERNEL(embedding);
CPU_KERNEL(embedding_dw);
CPU_KERNEL(add_position);
CPU_KERNEL(add_position_dw);
CPU_KERNEL(linear);
CPU_KERNEL(linear_dx);
CPU_KERNEL(linear_dw);
CPU_KERNEL(linear_db);
CPU_KERNEL(layernorm);
CPU_KERNEL(layernorm_dx);
CPU_KERNEL(layernorm_dw);
CPU_KERNEL(rmsnorm);
CPU_KERNEL(rmsnorm_dx);
CPU_KERNEL(rmsnorm_dw);
CPU_KERNEL(rope);
CPU_KERNEL(attention);
CPU_KERNEL(attention_packed);
CPU_KERNEL(attention_dx);
CPU_KERNEL(attention_packed_dx);
CPU_KERNEL(gelu);
CPU_KERNEL(gelu_dx);
CPU_KERNEL(swiglu);
CPU_KERNEL(swiglu_dx);
CPU_KERNEL(softcap);
CPU_KERNEL(softcap_dx);
CPU_KERNEL(add);
CPU_KERNEL(dropout);
CPU_KERNEL(xent_max);
CPU_KERNEL(xent_sum);
CPU_KERNEL(xent_loss);
CPU_KERNEL(mean_loss);
CPU_KERNEL(xent_dlogits);
CPU_KERNEL(grad_add);
CPU_KERNEL(sumsq);
CPU_KERNEL(clip);
CPU_KERNEL(adamw);
CPU_SCRATCH(attention_dx);
CPU_SCRATCH(attention_packed_dx);
CPU_SCRATCH(sumsq);

/* MERAK_ERR_UNSUPPORTED unless operand o is f32 or bf16 (only f32 if
 * `wide`). */
static inline enum merak_status
cpu_check_dtype(const struct merak_kernel_call *call, int o, bool wide,
                struct merak_error *err)
{
    enum merak_dtype dtype = call->operand[o].dtype;

    if (dtype == MERAK_F32 || (dtype == MERAK_BF16 && !wide))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "the cpu backend computes in f32%s, not %s; backend "
                      "\"ref\" does",
                      wide ? "" : " and bf16", merak_dtype_name(dtype));
}

/* End of an item's range when [0, n) is divided into ranges of `grain`. */
static inline size_t cpu_range_end(size_t item, size_t grain, size_t n)
{
    return (item + 1) * grain < n ? (item + 1) * grain : n;
}

static inline size_t cpu_range_count(size_t n, size_t grain)
{
    return (n + grain - 1) / grain;
}
#endif

#endif
