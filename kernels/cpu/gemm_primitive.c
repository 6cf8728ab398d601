/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_primitive.c - cache of oneDNN's matmul primitives, and threads' scratch
 *
 * A primitive is made once per tile shape, for one thread, and cached with its
 * memory objects for every thread.  Each thread has one scratch, which begins
 * with the most that any primitive needs; the products' own copies follow.
 */
#include "config.h"

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_primitive.h"

#include "base/error.h"
#include "base/size.h"
#include "kernels/cpu/thread_pool.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#define CACHE_MAX 512

/* A thread's memory objects of one primitive. */
struct slot {
    dnnl_memory_t memory[SLOT_COUNT];
};

struct merak_gemm_primitive {
    struct merak_gemm_key key;
    dnnl_primitive_t primitive;
    struct slot *slot; /* [threads] */
};

struct gemm_state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads;
    bool is_native; /* the processor multiplies bf16 */
    size_t count, oldest;
    struct merak_gemm_primitive *primitive[CACHE_MAX];
    char **scratch; /* [threads]: for oneDNN, then copies */
    size_t scratch_bytes;
    size_t dnnl_bytes; /* the most any primitive needs, 64-byte aligned */
};

/* Global like the thread pool: one set of primitives per process. */
static struct gemm_state gemm;

enum merak_status merak_gemm_fail(struct merak_error *err, const char *what,
                                  dnnl_status_t status)
{
    return merak_fail(err,
                      status == dnnl_out_of_memory ? MERAK_ERR_NOMEM
                                                   : MERAK_ERR_UNSUPPORTED,
                      "oneDNN cannot %s: %s", what, dnnl_status2str(status));
}

static void primitive_destroy(struct merak_gemm_primitive *t)
{
    if (t == NULL)
        return;
    for (int i = 0; t->slot != NULL && i < gemm.threads; i++)
        for (int m = 0; m < SLOT_COUNT; m++)
            dnnl_memory_destroy(t->slot[i].memory[m]);
    dnnl_primitive_destroy(t->primitive);
    free(t->slot);
    free(t);
}

static dnnl_status_t describe(struct merak_dnnl_md *md, size_t rows,
                              size_t cols, dnnl_data_type_t type, size_t row,
                              size_t col)
{
    dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
    dnnl_dims_t strides = {(dnnl_dim_t)row, (dnnl_dim_t)col};

    return merak_dnnl_md_init(md, dims, type, strides);
}

static dnnl_status_t describe_all(const struct merak_gemm_key *k,
                                  struct merak_dnnl_md md[SLOT_COUNT])
{
    dnnl_data_type_t c = k->bf16_c ? dnnl_bf16 : dnnl_f32;
    dnnl_status_t rc;

    rc = describe(&md[SLOT_A], k->m, k->k, dnnl_bf16, k->lda, 1);
    if (rc == dnnl_success)
        rc = describe(&md[SLOT_B], k->k, k->n, dnnl_bf16,
                      k->trans_b ? 1 : k->ldb, k->trans_b ? k->ldb : 1);
    if (rc == dnnl_success)
        rc = describe(&md[SLOT_C], k->m, k->n, c, k->ldc, 1);
    if (rc == dnnl_success)
        rc = describe(&md[SLOT_BIAS], 1, k->n, dnnl_f32, k->n, 1);
    return rc;
}

static dnnl_status_t make_attr(const struct merak_gemm_key *k,
                               dnnl_primitive_attr_t *attr_p)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t rc;

    rc = dnnl_primitive_attr_create(attr_p);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_scratchpad_mode(*attr_p,
                                                     dnnl_scratchpad_mode_user);
    if (rc != dnnl_success || !k->accumulate)
        return rc;
    rc = dnnl_post_ops_create(&ops);
    if (rc == dnnl_success)
        rc = merak_dnnl_append_sum(ops);
    if (rc == dnnl_success)
        rc = dnnl_primitive_attr_set_post_ops(*attr_p, ops);
    dnnl_post_ops_destroy(ops);
    return rc;
}

/* Make the primitive of a key, for one thread, and describe its scratchpad. */
static dnnl_status_t make_primitive(const struct merak_gemm_key *k,
                                    dnnl_primitive_t *primitive_p,
                                    struct merak_dnnl_md md[SLOT_COUNT])
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int threads = omp_get_max_threads();
    dnnl_status_t rc;

    omp_set_num_threads(1);
    rc = describe_all(k, md);
    if (rc == dnnl_success)
        rc = make_attr(k, &attr);
    if (rc == dnnl_success)
        rc = merak_dnnl_matmul(&pd, gemm.engine, md, k->bias, attr);
    if (rc == dnnl_success)
        rc = dnnl_primitive_create(primitive_p, pd);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    omp_set_num_threads(threads);
    return rc;
}

enum merak_status merak_gemm_scratch_grow(size_t bytes, struct merak_error *err)
{
    if (bytes <= gemm.scratch_bytes)
        return MERAK_OK;
    bytes = (bytes + 4095) & ~(size_t)4095;
    for (int i = 0; i < gemm.threads; i++) {
        char *more = aligned_alloc(4096, bytes);

        if (more == NULL)
            return merak_fail_nomem(err, bytes);
        free(gemm.scratch[i]);
        gemm.scratch[i] = more;
    }
    gemm.scratch_bytes = bytes;
    return MERAK_OK;
}

static dnnl_status_t make_slots(struct merak_gemm_primitive *t,
                                const struct merak_dnnl_md md[SLOT_COUNT])
{
    for (int i = 0; i < gemm.threads; i++) {
        for (int m = 0; m < SLOT_COUNT; m++) {
            dnnl_status_t rc =
                merak_dnnl_memory(&t->slot[i].memory[m], &md[m], gemm.engine);

            if (rc != dnnl_success)
                return rc;
        }
    }
    return dnnl_success;
}

static enum merak_status
primitive_create(const struct merak_gemm_key *key,
                 struct merak_gemm_primitive **primitive_p,
                 struct merak_error *err)
{
    struct merak_dnnl_md md[SLOT_COUNT] = {0};
    struct merak_gemm_primitive *t = calloc(1, sizeof(*t));
    enum merak_status rc = MERAK_OK;
    dnnl_status_t status;
    size_t bytes;

    if (t != NULL)
        t->slot = calloc((size_t)gemm.threads, sizeof(*t->slot));
    if (t == NULL || t->slot == NULL) {
        rc = merak_fail_nomem(err, sizeof(*t));
        goto out;
    }
    t->key = *key;
    status = make_primitive(key, &t->primitive, md);
    if (status == dnnl_success)
        status = make_slots(t, md);
    if (status != dnnl_success) {
        rc = merak_gemm_fail(err, "multiply bf16 matrices on this machine",
                             status);
        goto out;
    }
    bytes = merak_size_align(merak_dnnl_md_bytes(&md[SLOT_SCRATCH]), 64);
    if (bytes > gemm.dnnl_bytes)
        gemm.dnnl_bytes = bytes;
    *primitive_p = t;
    t = NULL;
out:
    for (int m = 0; m < SLOT_COUNT; m++)
        merak_dnnl_md_fini(&md[m]);
    primitive_destroy(t);
    return rc;
}

enum merak_status
merak_gemm_primitive_find(const struct merak_gemm_key *key,
                          struct merak_gemm_primitive **primitive_p,
                          struct merak_error *err)
{
    enum merak_status rc;
    struct merak_gemm_primitive *t = NULL;

    for (size_t i = 0; i < gemm.count; i++) {
        if (memcmp(&gemm.primitive[i]->key, key, sizeof(*key)) == 0) {
            *primitive_p = gemm.primitive[i];
            return MERAK_OK;
        }
    }
    rc = primitive_create(key, &t, err);
    if (rc != MERAK_OK)
        return rc;
    if (gemm.count < CACHE_MAX) {
        gemm.primitive[gemm.count++] = t;
    } else {
        primitive_destroy(gemm.primitive[gemm.oldest]);
        gemm.primitive[gemm.oldest] = t;
        gemm.oldest = (gemm.oldest + 1) % CACHE_MAX;
    }
    *primitive_p = t;
    return MERAK_OK;
}

/* Drop what was cached for another thread count. */
static void forget(void)
{
    for (size_t i = 0; i < gemm.count; i++)
        primitive_destroy(gemm.primitive[i]);
    for (int i = 0; gemm.scratch != NULL && i < gemm.threads; i++)
        free(gemm.scratch[i]);
    free(gemm.scratch);
    gemm.count = gemm.oldest = gemm.scratch_bytes = gemm.dnnl_bytes = 0;
    gemm.scratch = NULL;
    gemm.threads = 0;
}

void merak_gemm_narrow(const char *isa)
{
    static const struct {
        const char *name;
        dnnl_cpu_isa_t isa;
    } known[] = {{"base", dnnl_cpu_isa_sse41},
                 {"avx2", dnnl_cpu_isa_avx2},
                 {"avx512", dnnl_cpu_isa_avx512_core},
                 {"avx512_bf16", dnnl_cpu_isa_avx512_core_bf16}};

    for (size_t i = 0; isa != NULL && i < sizeof(known) / sizeof(*known); i++)
        if (strcmp(isa, known[i].name) == 0)
            dnnl_set_max_cpu_isa(known[i].isa);
}

bool merak_gemm_has_bf16(void)
{
    /* every set has the bits of those that it includes */
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
}

void merak_gemm_library(char *text, size_t bytes)
{
    const dnnl_version_t *v = dnnl_version();
    const char *isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());

    if (strncmp(isa, "cpu_isa_", 8) == 0)
        isa += 8;
    snprintf(text, bytes, "oneDNN %d.%d.%d (%s)", v->major, v->minor, v->patch,
             isa);
}

enum merak_status merak_gemm_open(struct merak_error *err)
{
    dnnl_status_t rc = dnnl_success;

    if (gemm.threads == merak_pool_threads())
        return MERAK_OK;
    forget();
    if (gemm.engine == NULL)
        rc = dnnl_engine_create(&gemm.engine, dnnl_cpu, 0);
    if (rc == dnnl_success && gemm.stream == NULL)
        rc = dnnl_stream_create(&gemm.stream, gemm.engine,
                                dnnl_stream_default_flags);
    if (rc != dnnl_success)
        return merak_gemm_fail(err, "open a CPU engine", rc);
    gemm.scratch = calloc((size_t)merak_pool_threads(), sizeof(*gemm.scratch));
    if (gemm.scratch == NULL)
        return merak_fail_nomem(err, sizeof(*gemm.scratch));
    gemm.is_native = merak_gemm_has_bf16();
    gemm.threads = merak_pool_threads();
    return MERAK_OK;
}

bool merak_gemm_is_open(void)
{
    return gemm.threads > 0;
}

bool merak_gemm_is_native(void)
{
    return gemm.is_native;
}

char *merak_gemm_scratch(int thread)
{
    return gemm.scratch[thread];
}

size_t merak_gemm_dnnl_bytes(void)
{
    return gemm.dnnl_bytes;
}

dnnl_status_t merak_gemm_primitive_run(const struct merak_gemm_primitive *t,
                                       int thread, const void *a, const void *b,
                                       void *c, const float *bias)
{
    static const int id[SLOT_COUNT] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS,
                                       DNNL_ARG_DST, DNNL_ARG_BIAS,
                                       DNNL_ARG_SCRATCHPAD};
    const void *data[SLOT_COUNT] = {a, b, c, bias, gemm.scratch[thread]};
    dnnl_exec_arg_t arg[SLOT_COUNT];
    int n = 0;

    for (int m = 0; m < SLOT_COUNT; m++) {
        dnnl_status_t rc;

        if (data[m] == NULL)
            continue;
        rc = dnnl_memory_set_data_handle(t->slot[thread].memory[m],
                                         (void *)(uintptr_t)data[m]);
        if (rc != dnnl_success)
            return rc;
        arg[n++] = (dnnl_exec_arg_t){id[m], t->slot[thread].memory[m]};
    }
    return dnnl_primitive_execute(t->primitive, gemm.stream, n, arg);
}
