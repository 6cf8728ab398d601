/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cublaslt.c - plays cuBLASLt on the streams of stand_in_cuda.c
 *
 * It keeps the library's rules: sizes of attributes, layouts that go together,
 * types of a bias, pitches, alignments that were promised to the heuristic and
 * hold at the call, algorithms of this shape alone, workspace that is enough.
 * What breaks one is refused as the library would.  A product overwrites all
 * the workspace that its algorithm asked for, so that what else is kept there
 * is found.
 *
 * MERAK_STAND_IN_CUBLASLT, words separated by commas:
 *   nothing     the heuristic has no answer
 *   slow        its first answers are refused when they run
 */
#include "config.h"

#include "unit/kernels/stand_in_cuda.h"

#include "base/half.h"

#include <cublasLt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWERS 3
#define MAGIC 0x5d9a11fe00000000u
#define DEFAULT_ALIGN 256

struct cublasLtContext {
    uint64_t magic;
};

struct layout {
    uint64_t magic;
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
};

struct desc {
    uint64_t magic;
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t a, b, bias_type;
    uint32_t epilogue;
    const void *bias;
};

struct wish {
    uint64_t magic, workspace;
    uint32_t sums, align[4];
};

/* What is in a cublasLtMatmulAlgo_t. */
struct algo {
    uint64_t magic, number, workspace, align, shape;
};
_Static_assert(sizeof(struct algo) <= sizeof(cublasLtMatmulAlgo_t), "");

static bool wrong(const char *what)
{
    const char *text = getenv("MERAK_STAND_IN_CUBLASLT");

    return text != NULL && strstr(text, what) != NULL;
}

static cublasStatus_t refuse(const char *what)
{
    fprintf(stderr, "stand_in_cublaslt: %s\n", what);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* --- descriptors ------------------------------------------------------------
 */

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    }
}

static void *create(size_t bytes)
{
    uint64_t *made = calloc(1, bytes);

    if (made == NULL)
        abort();
    *made = MAGIC;
    return made;
}

static cublasStatus_t destroy(void *made)
{
    if (made == NULL || *(uint64_t *)made != MAGIC)
        return refuse("what is destroyed was not made, or is gone");
    *(uint64_t *)made = 0;
    free(made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = create(sizeof(**handle));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy(handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    struct layout *l = create(sizeof(*l));

    l->type = type;
    l->rows = rows;
    l->cols = cols;
    l->ld = ld;
    *layout = (cublasLtMatrixLayout_t)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout)
{
    return destroy(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct desc *d = create(sizeof(*d));

    d->compute = compute;
    d->scale = scale;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    d->bias_type = -1;
    *desc = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t desc)
{
    return destroy(desc);
}

static cublasStatus_t set(void *to, size_t bytes, const void *value,
                          size_t given)
{
    if (given != bytes)
        return refuse("an attribute of another size");
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t at,
                                              const void *value, size_t bytes)
{
    struct desc *d = (struct desc *)desc;

    if (at == CUBLASLT_MATMUL_DESC_TRANSA)
        return set(&d->a, sizeof(d->a), value, bytes);
    if (at == CUBLASLT_MATMUL_DESC_TRANSB)
        return set(&d->b, sizeof(d->b), value, bytes);
    if (at == CUBLASLT_MATMUL_DESC_EPILOGUE)
        return set(&d->epilogue, sizeof(d->epilogue), value, bytes);
    if (at == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        return set(&d->bias, sizeof(d->bias), value, bytes);
    if (at == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE)
        return set(&d->bias_type, sizeof(d->bias_type), value, bytes);
    return refuse("an attribute that is not used");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *wish)
{
    struct wish *w = create(sizeof(*w));

    for (int i = 0; i < 4; i++)
        w->align[i] = DEFAULT_ALIGN;
    w->sums = ~0u;
    *wish = (cublasLtMatmulPreference_t)w;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t wish)
{
    return destroy(wish);
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                     cublasLtMatmulPreferenceAttributes_t at,
                                     const void *value, size_t bytes)
{
    struct wish *w = (struct wish *)wish;

    if (at == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&w->workspace, sizeof(w->workspace), value, bytes);
    if (at == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return set(&w->sums, sizeof(w->sums), value, bytes);
    if (at >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
        at <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
        return set(&w->align[at - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                   sizeof(w->align[0]), value, bytes);
    return refuse("a wish that is not used");
}

/* --- products ---------------------------------------------------------------
 */

struct product {
    struct desc desc;
    struct layout a, b, d;
    uint64_t m, n, k;
};

static size_t bytes_of(cudaDataType type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

static bool is_short(const struct layout *l)
{
    return l->rows == 0 || l->cols == 0 || l->ld < (int64_t)l->rows;
}

/* Do they go together?  NULL, or what does not. */
static const char *gather(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                          cublasLtMatrixLayout_t d, struct product *p)
{
    uint64_t k;

    p->desc = *(struct desc *)desc;
    p->a = *(struct layout *)a;
    p->b = *(struct layout *)b;
    p->d = *(struct layout *)d;
    if (p->desc.magic != MAGIC || p->a.magic != MAGIC || p->b.magic != MAGIC ||
        p->d.magic != MAGIC)
        return "a descriptor that was not made, or is gone";
    p->m = p->desc.a == CUBLAS_OP_T ? p->a.cols : p->a.rows;
    p->k = p->desc.a == CUBLAS_OP_T ? p->a.rows : p->a.cols;
    k = p->desc.b == CUBLAS_OP_T ? p->b.cols : p->b.rows;
    p->n = p->desc.b == CUBLAS_OP_T ? p->b.rows : p->b.cols;
    if (k != p->k || p->d.rows != p->m || p->d.cols != p->n || c != d)
        return "sizes that do not go together";
    if (is_short(&p->a) || is_short(&p->b) || is_short(&p->d))
        return "a layout with too small a pitch";
    if (p->desc.compute != CUBLAS_COMPUTE_32F || p->desc.scale != CUDA_R_32F ||
        p->a.type != p->b.type ||
        (p->a.type != CUDA_R_32F && p->a.type != CUDA_R_16BF) ||
        (p->d.type != CUDA_R_32F && p->d.type != p->a.type))
        return "types that there is no kernel for";
    if (p->desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return NULL;
    if (p->desc.epilogue != CUBLASLT_EPILOGUE_BIAS || p->desc.bias == NULL ||
        p->desc.bias_type != (int32_t)p->d.type)
        return "an epilogue that there is no kernel for";
    return NULL;
}

static uint64_t shape_of(const struct product *p)
{
    const uint64_t part[] = {p->m,
                             p->n,
                             p->k,
                             (uint64_t)p->a.ld,
                             (uint64_t)p->b.ld,
                             (uint64_t)p->d.ld,
                             p->a.type,
                             p->d.type,
                             (uint64_t)p->desc.a,
                             (uint64_t)p->desc.b,
                             p->desc.epilogue};
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
        h = (h ^ part[i]) * 1099511628211u;
    return h;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t wish, int wanted,
    cublasLtMatmulHeuristicResult_t result[], int *got)
{
    const struct wish *w = (struct wish *)wish;
    struct product p;
    const char *what = gather(desc, a, b, c, d, &p);
    uint64_t align = DEFAULT_ALIGN;

    *got = 0;
    if (handle->magic != MAGIC || w->magic != MAGIC || wanted < 1)
        return refuse("a handle or wish that was not made");
    if (what != NULL)
        return refuse(what);
    if ((w->sums & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0)
        return refuse("sums by atomics are allowed");
    if (wrong("nothing"))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < 4; i++)
        align = w->align[i] < align ? w->align[i] : align;
    for (int i = 0; i < ANSWERS && i < wanted; i++) {
        /* the second takes more than it may, as some of the library's do */
        struct algo algo = {.magic = MAGIC,
                            .number = (uint64_t)i,
                            .workspace = i == 1 ? w->workspace + 1
                                                : w->workspace / (1u << i),
                            .align = align,
                            .shape = shape_of(&p)};

        memset(&result[i], 0, sizeof(result[i]));
        memcpy(&result[i].algo, &algo, sizeof(algo));
        result[i].workspaceSize = algo.workspace;
        result[i].state = CUBLAS_STATUS_SUCCESS;
        *got = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                        const cublasLtMatmulAlgo_t *algo,
                        cublasLtMatmulHeuristicResult_t *result)
{
    struct product p;
    struct algo given;

    (void)handle;
    memcpy(&given, algo, sizeof(given));
    if (gather(desc, a, b, c, d, &p) != NULL || given.magic != MAGIC ||
        given.shape != shape_of(&p))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof(*result));
    result->algo = *algo;
    result->workspaceSize = given.workspace;
    return CUBLAS_STATUS_SUCCESS;
}

struct call {
    struct product p;
    float alpha, beta;
    const void *a, *b;
    void *d, *workspace;
    size_t workspace_bytes;
};

static float get(const void *at, size_t i, cudaDataType type)
{
    return type == CUDA_R_16BF ? merak_bf16_to_f32(((const uint16_t *)at)[i])
                               : ((const float *)at)[i];
}

/* op(X) as rows of k numbers: of A its rows, of B its columns. */
static float *rows_of(const void *x, const struct layout *l, bool by_column,
                      uint64_t rows, uint64_t k)
{
    float *to = malloc(rows * k * sizeof(*to));

    if (to == NULL)
        abort();
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t i = 0; i < k; i++)
            to[r * k + i] = get(x,
                                by_column ? i + r * (uint64_t)l->ld
                                          : r + i * (uint64_t)l->ld,
                                l->type);
    }
    return to;
}

static double dot(const float *x, const float *y, uint64_t n)
{
    double sum[8] = {0};
    uint64_t i = 0;

    for (; i + 8 <= n; i += 8) {
        for (int s = 0; s < 8; s++)
            sum[s] += (double)x[i + (uint64_t)s] * (double)y[i + (uint64_t)s];
    }
    for (; i < n; i++)
        sum[0] += (double)x[i] * (double)y[i];
    for (int s = 1; s < 8; s++)
        sum[0] += sum[s];
    return sum[0];
}

static void multiply(void *work)
{
    const struct call *c = work;
    const struct product *p = &c->p;
    float *a = rows_of(c->a, &p->a, p->desc.a == CUBLAS_OP_T, p->m, p->k);
    float *b = rows_of(c->b, &p->b, p->desc.b != CUBLAS_OP_T, p->n, p->k);

    memset(c->workspace, 0xff, c->workspace_bytes);
    for (uint64_t j = 0; j < p->n; j++) {
        for (uint64_t i = 0; i < p->m; i++) {
            size_t at = i + j * (uint64_t)p->d.ld;
            double x = (double)c->alpha * dot(a + i * p->k, b + j * p->k, p->k);

            if (c->beta != 0.0f)
                x += (double)c->beta * (double)get(c->d, at, p->d.type);
            if (p->desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
                x += (double)get(p->desc.bias, i, p->d.type);
            if (p->d.type == CUDA_R_16BF)
                ((uint16_t *)c->d)[at] = merak_f32_to_bf16((float)x);
            else
                ((float *)c->d)[at] = (float)x;
        }
    }
    free(a);
    free(b);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle,
                              cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    struct stand_in_stream *s = (struct stand_in_stream *)stream;
    struct call call = {.a = a, .b = b, .d = d, .workspace = workspace};
    const char *what =
        gather(desc, a_layout, b_layout, c_layout, d_layout, &call.p);
    uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)d |
                    (uintptr_t)call.p.desc.bias;
    size_t elem = bytes_of(call.p.a.type);
    struct algo chosen;

    memcpy(&chosen, algo, sizeof(chosen));
    if (handle->magic != MAGIC || what != NULL || c != d)
        return refuse(what != NULL ? what : "a handle that was not made");
    if (chosen.magic != MAGIC || chosen.shape != shape_of(&call.p))
        return refuse("an algorithm of another shape");
    if (all % chosen.align != 0 || all % elem != 0)
        return refuse("operands with less alignment than was promised");
    if (chosen.workspace > workspace_bytes || (uintptr_t)workspace % 256 != 0)
        return refuse("too little workspace, or not aligned");
    if (wrong("slow") && chosen.number == 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(&call.alpha, alpha, sizeof(call.alpha));
    memcpy(&call.beta, beta, sizeof(call.beta));
    call.workspace_bytes = chosen.workspace;
    return s->queue(s, multiply, &call, sizeof(call)) == 0
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
