/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_lt.c - matrix products by cuBLASLt
 *
 * The library is opened at run time.  It is column-major: a row-major [m, n]
 * matrix is a column-major one of n rows and m columns to it.  So
 *
 *   D[m, n] = A[m, k] B[k, n]   is computed as   D' = B' A'
 *
 * with b as the library's A, a as its B, and n as its number of rows.
 *
 * A shape gets the library's first algorithm among those that are
 * deterministic: split sums are added in a second pass in f32, never by
 * atomics.  The library is asked once per shape, in the warm-up, with what all
 * ranks know (shape, types, pitches), not addresses; so equal GPUs choose the
 * same, and nothing is timed.  If `merak calibrate` timed the algorithms for a
 * model's shapes before, its choice is used.
 */
#include "config.h"

#include "kernels/cuda/cuda_lt_shape.h"

#include "base/error.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum merak_status merak_lt_fail(const struct merak_cuda_lt *lt,
                                const char *what, cublasStatus_t status,
                                struct merak_error *err)
{
    enum merak_status rc =
        status == CUBLAS_STATUS_ALLOC_FAILED    ? MERAK_ERR_NOMEM
        : status == CUBLAS_STATUS_NOT_SUPPORTED ? MERAK_ERR_UNSUPPORTED
                                                : MERAK_ERR_SYSTEM;

    return merak_fail(err, rc, "%s cannot %s on GPU %d: %s", lt->version, what,
                      lt->device, lt->call.status_name(status));
}

/* --- the library ------------------------------------------------------------
 */

static enum merak_status load(struct merak_cuda_lt *lt, struct merak_error *err)
{
    const int major = CUDART_VERSION / 1000;
    char soname[32];
    struct merak_lt_calls *c = &lt->call;
    const struct {
        const char *name;
        void *place;
    } want[] = {
        {"cublasLtGetVersion", &c->version},
        {"cublasLtGetStatusName", &c->status_name},
        {"cublasLtCreate", &c->create},
        {"cublasLtDestroy", &c->destroy},
        {"cublasLtMatmulDescCreate", &c->desc_create},
        {"cublasLtMatmulDescDestroy", &c->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &c->desc_set},
        {"cublasLtMatrixLayoutCreate", &c->layout_create},
        {"cublasLtMatrixLayoutDestroy", &c->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &c->wish_create},
        {"cublasLtMatmulPreferenceDestroy", &c->wish_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &c->wish_set},
        {"cublasLtMatmulAlgoGetHeuristic", &c->heuristic},
        {"cublasLtMatmulAlgoCheck", &c->check},
        {"cublasLtMatmul", &c->matmul},
    };

    /* f32 is computed in f32, never in TF32. */
    setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
    snprintf(soname, sizeof(soname), "libcublasLt.so.%d", major);
    lt->library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (lt->library == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "cuBLASLt cannot be opened (%s): install CUDA %d's "
                          "libraries, or add their directory to "
                          "LD_LIBRARY_PATH",
                          dlerror(), major);
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        void *symbol = dlsym(lt->library, want[i].name);

        if (symbol == NULL)
            return merak_fail(err, MERAK_ERR_UNSUPPORTED, "%s has no %s",
                              soname, want[i].name);
        memcpy(want[i].place, &symbol, sizeof(symbol));
    }
    return MERAK_OK;
}

static void set_version(struct merak_cuda_lt *lt)
{
    size_t v = lt->call.version();

    snprintf(lt->version, sizeof(lt->version), "cuBLASLt %zu.%zu.%zu",
             v / 10000, v / 100 % 100, v % 100);
}

enum merak_status merak_cuda_lt_open(int device, struct merak_cuda_lt **lt_p,
                                     struct merak_error *err)
{
    struct merak_cuda_lt *lt = calloc(1, sizeof(*lt));
    enum merak_status rc;
    cublasStatus_t status;

    if (lt == NULL)
        return merak_fail_nomem(err, sizeof(*lt));
    lt->device = device;
    pthread_mutex_init(&lt->lock, NULL);
    rc = load(lt, err);
    if (rc == MERAK_OK) {
        set_version(lt);
        status = lt->call.create(&lt->handle);
        if (status != CUBLAS_STATUS_SUCCESS)
            rc = merak_lt_fail(lt, "be opened", status, err);
    }
    if (rc != MERAK_OK) {
        merak_cuda_lt_close(lt);
        return rc;
    }
    *lt_p = lt;
    return MERAK_OK;
}

static void shape_destroy(const struct merak_cuda_lt *lt,
                          struct merak_lt_shape *s)
{
    if (s == NULL)
        return;
    if (s->a != NULL)
        (void)lt->call.layout_destroy(s->a);
    if (s->b != NULL)
        (void)lt->call.layout_destroy(s->b);
    if (s->d != NULL)
        (void)lt->call.layout_destroy(s->d);
    if (s->desc != NULL)
        (void)lt->call.desc_destroy(s->desc);
    free(s);
}

void merak_cuda_lt_close(struct merak_cuda_lt *lt)
{
    if (lt == NULL)
        return;
    for (size_t i = 0; i < lt->room; i++)
        shape_destroy(lt, lt->shape[i]);
    free(lt->shape);
    free(lt->choice);
    if (lt->handle != NULL)
        (void)lt->call.destroy(lt->handle);
    /* The library stays open: it may have threads and kernels in use. */
    pthread_mutex_destroy(&lt->lock);
    free(lt);
}

const char *merak_cuda_lt_version(const struct merak_cuda_lt *lt)
{
    return lt->version;
}

/* --- shapes -----------------------------------------------------------------
 */

static cudaDataType type_of(enum merak_dtype dtype)
{
    return dtype == MERAK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static int alignment(const struct merak_cuda_product *p)
{
    uintptr_t bits = (uintptr_t)p->a.data | (uintptr_t)p->b.data |
                     (uintptr_t)p->d.data | (uintptr_t)p->bias |
                     MERAK_LT_ALIGN_MOST;

    return (int)(bits & -bits);
}

static void make_key(const struct merak_cuda_product *p,
                     struct merak_lt_key *key)
{
    memset(key, 0, sizeof(*key));
    key->m = p->m;
    key->n = p->n;
    key->k = p->k;
    key->lda = p->a.ld;
    key->ldb = p->b.ld;
    key->ldd = p->d.ld;
    key->work_bytes = p->work_bytes;
    key->type_ab = (int)type_of(p->a.dtype);
    key->type_d = (int)type_of(p->d.dtype);
    key->a_transposed = p->a_transposed;
    key->b_transposed = p->b_transposed;
    key->bias = p->bias != NULL;
    key->align = alignment(p);
}

static cublasStatus_t make_desc(const struct merak_cuda_lt *lt,
                                struct merak_lt_shape *s, const void *bias)
{
    const struct merak_lt_calls *c = &lt->call;
    cublasOperation_t a = s->key.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = s->key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    int32_t bias_type = s->key.type_d;
    cublasStatus_t rc =
        c->desc_create(&s->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = c->desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof(a));
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = c->desc_set(s->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof(b));
    if (rc != CUBLAS_STATUS_SUCCESS || !s->key.bias)
        return rc;
    rc = c->desc_set(s->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                     sizeof(epilogue));
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = c->desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                         &bias_type, sizeof(bias_type));
    /* the heuristic depends on its alignment */
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = c->desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                         sizeof(bias));
    return rc;
}

/* Layouts as stored, before transposition. */
static cublasStatus_t make_layouts(const struct merak_cuda_lt *lt,
                                   struct merak_lt_shape *s)
{
    const struct merak_lt_calls *c = &lt->call;
    const struct merak_lt_key *key = &s->key;
    cudaDataType ab = (cudaDataType)key->type_ab, d = (cudaDataType)key->type_d;
    cublasStatus_t rc = c->layout_create(
        &s->a, ab, key->b_transposed ? key->k : key->n,
        key->b_transposed ? key->n : key->k, (int64_t)key->ldb);

    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = c->layout_create(&s->b, ab, key->a_transposed ? key->m : key->k,
                              key->a_transposed ? key->k : key->m,
                              (int64_t)key->lda);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = c->layout_create(&s->d, d, key->n, key->m, (int64_t)key->ldd);
    return rc;
}

static cublasStatus_t make_wish(const struct merak_cuda_lt *lt,
                                const struct merak_lt_key *key,
                                cublasLtMatmulPreference_t wish)
{
    static const cublasLtMatmulPreferenceAttributes_t operand[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t bytes = key->work_bytes;
    uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t align = (uint32_t)key->align;
    cublasStatus_t rc = lt->call.wish_set(
        wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));

    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = lt->call.wish_set(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                               &sums, sizeof(sums));
    for (int i = 0; i < 4 && rc == CUBLAS_STATUS_SUCCESS; i++)
        rc = lt->call.wish_set(wish, operand[i], &align, sizeof(align));
    return rc;
}

/* The library's answers, the most promising first. */
cublasStatus_t merak_lt_ask(const struct merak_cuda_lt *lt,
                            const struct merak_lt_shape *s,
                            cublasLtMatmulHeuristicResult_t *result, int *n_p)
{
    cublasLtMatmulPreference_t wish = NULL;
    cublasStatus_t rc = lt->call.wish_create(&wish);
    int n = 0, fit = 0;

    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = make_wish(lt, &s->key, wish);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = lt->call.heuristic(lt->handle, s->desc, s->a, s->b, s->d, s->d,
                                wish, MERAK_LT_CANDIDATES, result, &n);
    if (wish != NULL)
        (void)lt->call.wish_destroy(wish);
    for (int i = 0; i < n && rc == CUBLAS_STATUS_SUCCESS; i++) {
        if (result[i].state == CUBLAS_STATUS_SUCCESS &&
            result[i].workspaceSize <= s->key.work_bytes)
            result[fit++] = result[i];
    }
    *n_p = fit;
    if (rc == CUBLAS_STATUS_SUCCESS && fit == 0)
        rc = CUBLAS_STATUS_NOT_SUPPORTED;
    return rc;
}

/* Use an earlier choice if the library still accepts it, or else its first
 * answer. */
static cublasStatus_t choose(const struct merak_cuda_lt *lt,
                             struct merak_lt_shape *s)
{
    cublasLtMatmulHeuristicResult_t result[MERAK_LT_CANDIDATES];
    cublasStatus_t rc;
    int n = 0;

    memset(result, 0, sizeof(result));
    for (size_t i = 0; i < lt->n_choices; i++) {
        if (memcmp(&lt->choice[i].key, &s->key, sizeof(s->key)) != 0)
            continue;
        s->algo = lt->choice[i].algo;
        rc = lt->call.check(lt->handle, s->desc, s->a, s->b, s->d, s->d,
                            &s->algo, &result[0]);
        if (rc == CUBLAS_STATUS_SUCCESS &&
            result[0].workspaceSize <= s->key.work_bytes)
            return rc;
        memset(result, 0, sizeof(result));
        break;
    }
    rc = merak_lt_ask(lt, s, result, &n);
    if (rc == CUBLAS_STATUS_SUCCESS)
        s->algo = result[0].algo;
    return rc;
}

void merak_lt_name_shape(const struct merak_lt_key *key, char *text,
                         size_t bytes)
{
    snprintf(text, bytes,
             "multiply [%zu, %zu] by [%zu, %zu] (%s to %s, rows of %zu, %zu "
             "and %zu elements%s%s, aligned to %d bytes)",
             key->m, key->k, key->k, key->n,
             key->type_ab == CUDA_R_16BF ? "bf16" : "fp32",
             key->type_d == CUDA_R_16BF ? "bf16" : "fp32", key->lda, key->ldb,
             key->ldd, key->a_transposed ? ", the first transposed" : "",
             key->b_transposed ? ", the second transposed" : "", key->align);
}

static enum merak_status shape_create(const struct merak_cuda_lt *lt,
                                      const struct merak_lt_key *key,
                                      const void *bias,
                                      struct merak_lt_shape **shape_p,
                                      struct merak_error *err)
{
    struct merak_lt_shape *s = calloc(1, sizeof(*s));
    cublasStatus_t status;
    char text[200];

    if (s == NULL)
        return merak_fail_nomem(err, sizeof(*s));
    s->key = *key;
    status = make_desc(lt, s, bias);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = make_layouts(lt, s);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = choose(lt, s);
    if (status == CUBLAS_STATUS_SUCCESS) {
        *shape_p = s;
        return MERAK_OK;
    }
    shape_destroy(lt, s);
    merak_lt_name_shape(key, text, sizeof(text));
    return merak_lt_fail(lt, text, status, err);
}

static size_t hash(const struct merak_lt_key *key)
{
    const unsigned char *byte = (const unsigned char *)key;
    uint64_t h = 1469598103934665603u; /* FNV-1a */

    for (size_t i = 0; i < sizeof(*key); i++)
        h = (h ^ byte[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

/* The slot that has the key, or would get it; the table is never full. */
static struct merak_lt_shape **place(struct merak_lt_shape **shape, size_t room,
                                     const struct merak_lt_key *key)
{
    size_t i = hash(key) & (room - 1);

    while (shape[i] != NULL && memcmp(&shape[i]->key, key, sizeof(*key)) != 0)
        i = (i + 1) & (room - 1);
    return &shape[i];
}

static enum merak_status make_room(struct merak_cuda_lt *lt,
                                   struct merak_error *err)
{
    size_t room = lt->room == 0 ? 64 : lt->room * 2;
    struct merak_lt_shape **more;

    if (2 * (lt->n + 1) <= lt->room)
        return MERAK_OK;
    more = calloc(room, sizeof(struct merak_lt_shape *));
    if (more == NULL)
        return merak_fail_nomem(err, room * sizeof(struct merak_lt_shape *));
    for (size_t i = 0; i < lt->room; i++) {
        if (lt->shape[i] != NULL)
            *place(more, room, &lt->shape[i]->key) = lt->shape[i];
    }
    free(lt->shape);
    lt->shape = more;
    lt->room = room;
    return MERAK_OK;
}

static enum merak_status find(struct merak_cuda_lt *lt,
                              const struct merak_lt_key *key, const void *bias,
                              struct merak_lt_shape **shape_p,
                              struct merak_error *err)
{
    enum merak_status rc = make_room(lt, err);
    struct merak_lt_shape **at;

    if (rc != MERAK_OK)
        return rc;
    at = place(lt->shape, lt->room, key);
    if (*at == NULL) {
        rc = shape_create(lt, key, bias, at, err);
        lt->n += rc == MERAK_OK;
    }
    *shape_p = *at;
    return rc;
}

cublasStatus_t merak_lt_multiply(const struct merak_cuda_lt *lt,
                                 const struct merak_lt_shape *s,
                                 const struct merak_cuda_product *p,
                                 const cublasLtMatmulAlgo_t *algo, void *stream)
{
    return lt->call.matmul(lt->handle, s->desc, &p->alpha, p->b.data, s->a,
                           p->a.data, s->b, &p->beta, p->d.data, s->d,
                           p->d.data, s->d, algo, p->work, p->work_bytes,
                           (cudaStream_t)stream);
}

/* --- products ---------------------------------------------------------------
 */

enum merak_status
merak_cuda_lt_product(void *arg, const struct merak_cuda_context *context,
                      const struct merak_cuda_product *p,
                      struct merak_error *err)
{
    struct merak_cuda_lt *lt = arg;
    struct merak_lt_shape *s = NULL;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    enum merak_status rc;
    struct merak_lt_key key;

    make_key(p, &key);
    pthread_mutex_lock(&lt->lock);
    rc = find(lt, &key, p->bias, &s, err);
    if (rc == MERAK_OK && p->bias != NULL)
        status = lt->call.desc_set(s->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                   &p->bias, sizeof(p->bias));
    /* if rows are staged, one key has many calls */
    if (rc == MERAK_OK && lt->tell != NULL && !s->tuned) {
        rc = merak_lt_tune(lt, s, p, context->stream, err);
        s->tuned = rc == MERAK_OK;
    }
    if (rc == MERAK_OK && status == CUBLAS_STATUS_SUCCESS)
        status = lt->call.matmul(lt->handle, s->desc, &p->alpha, p->b.data,
                                 s->a, p->a.data, s->b, &p->beta, p->d.data,
                                 s->d, p->d.data, s->d, &s->algo, p->work,
                                 p->work_bytes, (cudaStream_t)context->stream);
    pthread_mutex_unlock(&lt->lock);
    if (rc == MERAK_OK && status != CUBLAS_STATUS_SUCCESS) {
        char text[200];

        merak_lt_name_shape(&key, text, sizeof(text));
        rc = merak_lt_fail(lt, text, status, err);
    }
    return rc;
}
