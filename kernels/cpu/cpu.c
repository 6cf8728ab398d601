/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - which instruction set kernels and products use
 *
 * Each set includes those before it.  Merak's kernels are compiled up to
 * AVX-512; the others are used by oneDNN, for products of bf16.  MERAK_CPU_ISA
 * selects a smaller set than the machine's, to try what another machine would
 * do; a run on different machines uses what all of them have
 * (merak_cpu_isa_limit).
 */
#include "config.h"

#include "kernels/cpu/cpu.h"

#include "kernels/cpu/gemm.h"

#ifdef MERAK_CPU_X86
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "MERAK_CPU_ISA"

enum isa {
    ISA_BASE,
    ISA_AVX2,
    ISA_AVX512,
    ISA_AVX512_BF16,
    ISA_AMX,
    ISA_COUNT
};

static const char *const isa_name[ISA_COUNT] = {"base", "avx2", "avx512",
                                                "avx512_bf16", "amx"};

/* The set that all ranks have, if it is less than this machine's. */
static enum isa isa_limit = ISA_COUNT;

#ifdef MERAK_CPU_X86
/* The set that multiplies bf16, on a machine with AVX-512. */
static enum isa bf16_isa(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a & 1u << 5) == 0)
        return ISA_AVX512;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        (d & (1u << 22 | 1u << 24)) != (1u << 22 | 1u << 24))
        return ISA_AVX512_BF16;
    return ISA_AMX;
}
#endif

static enum isa ask_machine(void)
{
#ifdef MERAK_CPU_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd"))
        return bf16_isa();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return ISA_AVX2;
#endif
    return ISA_BASE;
}

/* Every kernel that is looked up asks for it, and a virtual processor has to
 * ask its host: once is enough. */
static enum isa machine_isa(void)
{
    static atomic_int known; /* 1 + the set; 0: not yet */
    int isa = atomic_load(&known);

    if (isa == 0) {
        isa = 1 + (int)ask_machine();
        atomic_store(&known, isa);
    }
    return (enum isa)(isa - 1);
}

/* The requested set; NULL: none. */
static const char *said_isa(void)
{
    const char *word = getenv(VARIABLE);

    return word == NULL || *word == '\0' ? NULL : word;
}

/* The set that a word names; ISA_COUNT: none. */
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
    enum isa least = said < machine ? said : machine;

    return isa_limit < least ? isa_limit : least;
}

static enum isa kernels_isa(void)
{
    enum isa isa = chosen_isa();

    return isa < ISA_AVX512 ? isa : ISA_AVX512;
}

int merak_cpu_isa(void)
{
    return chosen_isa();
}

void merak_cpu_isa_limit(int isa)
{
    isa_limit = (enum isa)isa;
}

const char *merak_cpu_isa_name(int isa)
{
    return isa_name[isa];
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

/* Limit oneDNN, before any other call to it. */
static void narrow(void)
{
    if (said_isa() != NULL || isa_limit != ISA_COUNT)
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
             isa_name[kernels_isa()], library,
             merak_cpu_is_native(dtype)
                 ? ""
                 : ", bf16 as fp32 (this processor does not multiply bf16)");
}

const struct merak_backend *merak_backend_cpu(void)
{
    static const struct merak_backend *const table[] = {
        [ISA_BASE] = &merak_backend_cpu_base,
#ifdef MERAK_CPU_X86
        [ISA_AVX2] = &merak_backend_cpu_avx2,
        [ISA_AVX512] = &merak_backend_cpu_avx512,
#endif
    };

    return table[kernels_isa()];
}
