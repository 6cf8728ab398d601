/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_ops.c - the cpu backend's table, once per instruction set */
#include "config.h"

#include "kernels/cpu/cpu.h"

#define ROW_PLAIN(op) {.name = #op, .fn = CPU_NAME(op)},
#define ROW_SCRATCH(op) \
    {.name = #op, .fn = CPU_NAME(op), .scratch = CPU_NAME(op##_scratch)},
#define ROW(op, cpu, cuda) ROW_##cpu(op)

static const struct merak_kernel table[] = {
    MERAK_KERNEL_OPS(ROW){0},
};

const struct merak_backend CPU_NAME3(merak_backend, _cpu_, MERAK_CPU_ISA) = {
    .name = "cpu",
    .kernel = table,
    .dtypes = 1u << MERAK_F32 | 1u << MERAK_BF16,
    .open = merak_cpu_open,
    .is_native = merak_cpu_is_native,
    .describe = merak_cpu_describe,
};
