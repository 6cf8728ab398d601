/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - which of the compiled instruction sets this machine runs
 *
 * MERAK_CPU_ISA names a smaller one, for both our kernels and oneDNN's
 * products, so that what another machine would do can be tried here.
 */
#include "config.h"

#include "kernels/cpu/cpu.h"

#include "kernels/cpu/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "MERAK_CPU_ISA"

enum isa { ISA_BASE, ISA_AVX2, ISA_AVX512, ISA_COUNT };

static const char *const isa_name[ISA_COUNT] = {"base", "avx2", "avx512"};

static enum isa machine_isa(void)
{
#ifdef MERAK_CPU_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd"))
        return ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return ISA_AVX2;
#endif
    return ISA_BASE;
}

/* NULL: not said. */
static const char *said_isa(void)
{
    const char *word = getenv(VARIABLE);

    return word == NULL || *word == '\0' ? NULL : word;
}

/* Of a word: ISA_COUNT if there is none. */
static enum isa isa_of(const char *word)
{
    int i = 0;

    while (i < ISA_COUNT && strcmp(isa_name[i], word) != 0)
        i++;
    return (enum isa)i;
}

static enum isa chosen_isa(void)
{
    const char *word = said_isa();
    enum isa machine = machine_isa();
    enum isa said = word == NULL ? machine : isa_of(word);

    return said < machine ? said : machine;
}

/* "base, avx2" */
static void list_isas(char *text, size_t bytes)
{
    text[0] = '\0';
    for (int i = 0; i <= (int)machine_isa(); i++) {
        strncat(text, i > 0 ? ", " : "", bytes - strlen(text) - 1);
        strncat(text, isa_name[i], bytes - strlen(text) - 1);
    }
}

static enum merak_status check_isa(struct merak_error *err)
{
    const char *word = said_isa();
    char known[64];

    if (word == NULL || isa_of(word) <= machine_isa())
        return MERAK_OK;
    list_isas(known, sizeof(known));
    return merak_fail(err, MERAK_ERR_CONFIG,
                      VARIABLE " is \"%.32s\": this machine has %s", word,
                      known);
}

/* oneDNN hears it before it is asked for anything else. */
static void narrow(void)
{
    if (said_isa() != NULL)
        merak_gemm_narrow(isa_name[chosen_isa()]);
}

enum merak_status merak_cpu_open(int threads, struct merak_error *err)
{
    enum merak_status rc = check_isa(err);

    if (rc == MERAK_OK)
        rc = merak_pool_open(threads, err);
    if (rc != MERAK_OK)
        return rc;
    narrow();
    return merak_gemm_open(err);
}

bool merak_cpu_is_native(enum merak_dtype dtype)
{
    narrow();
    return dtype != MERAK_BF16 || merak_gemm_has_bf16();
}

void merak_cpu_describe(enum merak_dtype dtype, char *text, size_t bytes)
{
    char library[64];

    narrow();
    merak_gemm_library(library, sizeof(library));
    snprintf(text, bytes, "%s kernels, products by %s%s",
             isa_name[chosen_isa()], library,
             merak_cpu_is_native(dtype)
                 ? ""
                 : ", bf16 as fp32 (this processor does not multiply bf16)");
}

const struct merak_backend *merak_backend_cpu(void)
{
    static const struct merak_backend *const table[ISA_COUNT] = {
        [ISA_BASE] = &merak_backend_cpu_base,
#ifdef MERAK_CPU_X86
        [ISA_AVX2] = &merak_backend_cpu_avx2,
        [ISA_AVX512] = &merak_backend_cpu_avx512,
#endif
    };

    return table[chosen_isa()];
}
