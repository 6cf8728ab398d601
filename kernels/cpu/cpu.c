/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - which of the compiled instruction sets this machine runs */
#include "config.h"

#include "kernels/cpu/cpu.h"

#include "kernels/cpu/gemm.h"

enum merak_status merak_cpu_open(int threads, struct merak_error *err)
{
    enum merak_status rc = merak_pool_open(threads, err);

    return rc == MERAK_OK ? merak_gemm_open(err) : rc;
}

const struct merak_backend *merak_backend_cpu(void)
{
#ifdef MERAK_CPU_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd"))
        return &merak_backend_cpu_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return &merak_backend_cpu_avx2;
#endif
    return &merak_backend_cpu_base;
}
