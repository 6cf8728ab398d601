/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_primitive.h - cache of oneDNN's matmul primitives, and threads' scratch
 */
#ifndef MERAK_KERNELS_CPU_GEMM_PRIMITIVE_H
#define MERAK_KERNELS_CPU_GEMM_PRIMITIVE_H

#include "kernels/cpu/dnnl.h"

#include "merak/status.h"

#include <stdbool.h>
#include <stddef.h>

/* The key of a primitive; compared as bytes, so it has to be zeroed first. */
struct merak_gemm_key {
    size_t m, n, k, lda, ldb, ldc;
    int trans_b, bf16_c, accumulate, bias;
};

struct merak_gemm_primitive;

/* The primitive of a key, made if there is none yet; the last 512 are cached.
 * It is owned by the cache. */
enum merak_status
merak_gemm_primitive_find(const struct merak_gemm_key *key,
                          struct merak_gemm_primitive **primitive_p,
                          struct merak_error *err) MERAK_CHECKED;
/* bias may be NULL. */
dnnl_status_t merak_gemm_primitive_run(const struct merak_gemm_primitive *t,
                                       int thread, const void *a, const void *b,
                                       void *c, const float *bias);

/* Was it opened, for some number of threads? */
bool merak_gemm_is_open(void);
/* Does oneDNN multiply bf16 here without emulation? */
bool merak_gemm_is_native(void);

/* A thread's scratch; the first merak_gemm_dnnl_bytes() are for oneDNN. */
char *merak_gemm_scratch(int thread);
size_t merak_gemm_dnnl_bytes(void);
/* Grow each thread's scratch to at least `bytes`; its contents are lost. */
enum merak_status
merak_gemm_scratch_grow(size_t bytes, struct merak_error *err) MERAK_CHECKED;

/* "oneDNN cannot WHAT: .." */
enum merak_status merak_gemm_fail(struct merak_error *err, const char *what,
                                  dnnl_status_t status);

#endif
