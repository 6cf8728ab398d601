/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_lt_shape.h - internal to the files that make and tune
 * products of cuBLASLt
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_LT_SHAPE_H
#define MERAK_KERNELS_CUDA_CUDA_LT_SHAPE_H

#include "kernels/cuda/cuda_gpu.h"

#include <cublasLt.h>
#include <pthread.h>

#define MERAK_LT_ALIGN_MOST 16 /* kernels gain nothing from more */
#define MERAK_LT_CANDIDATES 16

/* The calls of the library that are used. */
struct merak_lt_calls {
    size_t (*version)(void);
    const char *(*status_name)(cublasStatus_t status);
    cublasStatus_t (*create)(cublasLtHandle_t *handle);
    cublasStatus_t (*destroy)(cublasLtHandle_t handle);
    cublasStatus_t (*desc_create)(cublasLtMatmulDesc_t *desc,
                                  cublasComputeType_t compute,
                                  cudaDataType_t scale);
    cublasStatus_t (*desc_destroy)(cublasLtMatmulDesc_t desc);
    cublasStatus_t (*desc_set)(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t attr,
                               const void *value, size_t bytes);
    cublasStatus_t (*layout_create)(cublasLtMatrixLayout_t *layout,
                                    cudaDataType type, uint64_t rows,
                                    uint64_t cols, int64_t ld);
    cublasStatus_t (*layout_destroy)(cublasLtMatrixLayout_t layout);
    cublasStatus_t (*wish_create)(cublasLtMatmulPreference_t *wish);
    cublasStatus_t (*wish_destroy)(cublasLtMatmulPreference_t wish);
    cublasStatus_t (*wish_set)(cublasLtMatmulPreference_t wish,
                               cublasLtMatmulPreferenceAttributes_t attr,
                               const void *value, size_t bytes);
    cublasStatus_t (*heuristic)(
        cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
        cublasLtMatmulPreference_t wish, int wanted,
        cublasLtMatmulHeuristicResult_t *result, int *got);
    cublasStatus_t (*check)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            const cublasLtMatmulAlgo_t *algo,
                            cublasLtMatmulHeuristicResult_t *result);
    cublasStatus_t (*matmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                             const void *alpha, const void *a,
                             cublasLtMatrixLayout_t a_layout, const void *b,
                             cublasLtMatrixLayout_t b_layout, const void *beta,
                             const void *c, cublasLtMatrixLayout_t c_layout,
                             void *d, cublasLtMatrixLayout_t d_layout,
                             const cublasLtMatmulAlgo_t *algo, void *workspace,
                             size_t workspace_bytes, cudaStream_t stream);
};

/* All that determines an algorithm; compared as bytes, so zero it first. */
struct merak_lt_key {
    size_t m, n, k, lda, ldb, ldd, work_bytes;
    int type_ab, type_d, a_transposed, b_transposed, bias;
    int align; /* of the operands, at most MERAK_LT_ALIGN_MOST */
};

/* A product that is ready to run. */
struct merak_lt_shape {
    struct merak_lt_key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d; /* the library's A, B and D */
    cublasLtMatmulAlgo_t algo;
    bool tuned; /* in this process */
};

/* A choice from an earlier calibration. */
struct merak_lt_choice {
    struct merak_lt_key key;
    cublasLtMatmulAlgo_t algo;
};

struct merak_cuda_lt {
    int device;
    void *library;
    struct merak_lt_calls call;
    cublasLtHandle_t handle;
    char version[32];
    pthread_mutex_t lock;          /* for all below */
    struct merak_lt_shape **shape; /* [room], open addressing; NULL: free */
    size_t n, room;                /* room: a power of two */
    struct merak_lt_choice *choice;
    size_t n_choices;
    void (*tell)(void *arg, const char *line); /* NULL: not tuning */
    void *tell_arg;
};

/* --- cuda_lt.c -------------------------------------------------------------
 */

enum merak_status merak_lt_fail(const struct merak_cuda_lt *lt,
                                const char *what, cublasStatus_t status,
                                struct merak_error *err);
/* The library's answers, the most promising first; at most
 * MERAK_LT_CANDIDATES, at least one. */
cublasStatus_t merak_lt_ask(const struct merak_cuda_lt *lt,
                            const struct merak_lt_shape *s,
                            cublasLtMatmulHeuristicResult_t *result, int *n_p);
void merak_lt_name_shape(const struct merak_lt_key *key, char *text,
                         size_t bytes);
cublasStatus_t merak_lt_multiply(const struct merak_cuda_lt *lt,
                                 const struct merak_lt_shape *s,
                                 const struct merak_cuda_product *p,
                                 const cublasLtMatmulAlgo_t *algo,
                                 void *stream);

/* --- cuda_lt_tune.c --------------------------------------------------------
 */

/* Time the library's answers on this product and keep the fastest. */
enum merak_status merak_lt_tune(const struct merak_cuda_lt *lt,
                                struct merak_lt_shape *s,
                                const struct merak_cuda_product *p,
                                void *stream,
                                struct merak_error *err) MERAK_CHECKED;

#endif
