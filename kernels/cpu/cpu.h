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
#include "kernels/ops.h"

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

#define CPU_DECLARE_PLAIN(op) CPU_KERNEL(op);
#define CPU_DECLARE_SCRATCH(op) \
    CPU_KERNEL(op);             \
    CPU_SCRATCH(op);
#define CPU_DECLARE(op, cpu, cuda) CPU_DECLARE_##cpu(op)
MERAK_KERNEL_OPS(CPU_DECLARE)
#undef CPU_DECLARE
#undef CPU_DECLARE_PLAIN
#undef CPU_DECLARE_SCRATCH

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
