/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_lt_tune.c - choose algorithms of cuBLASLt by timing, and use earlier
 * choices
 */
#include "config.h"

#include "kernels/cuda/cuda_lt_shape.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMED 20 /* runs of a candidate */
#define ALGO_BYTES sizeof(((cublasLtMatmulAlgo_t *)NULL)->data)

/* Report a choice as a line: its key and the algorithm's bytes. */
static void tell_choice(const struct merak_cuda_lt *lt,
                        const struct merak_lt_shape *s)
{
    const unsigned char *byte = (const unsigned char *)s->algo.data;
    const struct merak_lt_key *k = &s->key;
    char line[512];
    int n = snprintf(
        line, sizeof(line), "%zu %zu %zu %zu %zu %zu %zu %d %d %d %d %d %d ",
        k->m, k->n, k->k, k->lda, k->ldb, k->ldd, k->work_bytes, k->type_ab,
        k->type_d, k->a_transposed, k->b_transposed, k->bias, k->align);

    for (size_t i = 0; i < ALGO_BYTES; i++)
        n += snprintf(line + n, sizeof(line) - (size_t)n, "%02x", byte[i]);
    lt->tell(lt->tell_arg, line);
}

/* Milliseconds of TIMED runs of a candidate; negative: it does not run. */
static float time_candidate(const struct merak_cuda_lt *lt,
                            const struct merak_lt_shape *s,
                            const struct merak_cuda_product *p, void *stream,
                            const cublasLtMatmulAlgo_t *algo,
                            const cudaEvent_t event[2])
{
    cublasStatus_t status = merak_lt_multiply(lt, s, p, algo, stream);
    float ms = -1;

    (void)cudaEventRecord(event[0], (cudaStream_t)stream);
    for (int i = 0; i < TIMED && status == CUBLAS_STATUS_SUCCESS; i++)
        status = merak_lt_multiply(lt, s, p, algo, stream);
    (void)cudaEventRecord(event[1], (cudaStream_t)stream);
    if (cudaEventSynchronize(event[1]) != cudaSuccess ||
        status != CUBLAS_STATUS_SUCCESS ||
        cudaEventElapsedTime(&ms, event[0], event[1]) != cudaSuccess)
        return -1;
    return ms;
}

/* For calibrations only, never in a run: it waits for the device. */
enum merak_status merak_lt_tune(const struct merak_cuda_lt *lt,
                                struct merak_lt_shape *s,
                                const struct merak_cuda_product *p,
                                void *stream, struct merak_error *err)
{
    cublasLtMatmulHeuristicResult_t result[MERAK_LT_CANDIDATES];
    cudaEvent_t event[2] = {NULL, NULL};
    float best = -1;
    int n = 0;

    memset(result, 0, sizeof(result));
    if (cudaEventCreate(&event[0]) != cudaSuccess ||
        cudaEventCreate(&event[1]) != cudaSuccess ||
        merak_lt_ask(lt, s, result, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    for (int i = 0; i < n; i++) {
        float ms = time_candidate(lt, s, p, stream, &result[i].algo, event);

        if (ms >= 0 && (best < 0 || ms < best)) {
            best = ms;
            s->algo = result[i].algo;
        }
    }
    for (int i = 0; i < 2; i++) {
        if (event[i] != NULL)
            (void)cudaEventDestroy(event[i]);
    }
    if (best < 0) {
        char text[200];

        merak_lt_name_shape(&s->key, text, sizeof(text));
        return merak_lt_fail(lt, text, CUBLAS_STATUS_NOT_SUPPORTED, err);
    }
    tell_choice(lt, s);
    return MERAK_OK;
}

void merak_cuda_lt_tune(struct merak_cuda_lt *lt,
                        void (*tell)(void *arg, const char *line), void *arg)
{
    pthread_mutex_lock(&lt->lock);
    lt->tell = tell;
    lt->tell_arg = arg;
    pthread_mutex_unlock(&lt->lock);
}

static bool read_choice(const char *line, struct merak_lt_choice *c)
{
    struct merak_lt_key *k = &c->key;
    int n = 0;

    memset(c, 0, sizeof(*c));
    if (sscanf(line, "%zu %zu %zu %zu %zu %zu %zu %d %d %d %d %d %d %n", &k->m,
               &k->n, &k->k, &k->lda, &k->ldb, &k->ldd, &k->work_bytes,
               &k->type_ab, &k->type_d, &k->a_transposed, &k->b_transposed,
               &k->bias, &k->align, &n) != 13 ||
        strlen(line + n) != 2 * ALGO_BYTES)
        return false;
    for (size_t i = 0; i < ALGO_BYTES; i++) {
        unsigned byte;

        if (sscanf(line + n + 2 * i, "%2x", &byte) != 1)
            return false;
        ((unsigned char *)c->algo.data)[i] = (unsigned char)byte;
    }
    return true;
}

enum merak_status merak_cuda_lt_use(struct merak_cuda_lt *lt, const char *line,
                                    struct merak_error *err)
{
    struct merak_lt_choice choice, *more;

    if (!read_choice(line, &choice))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "\"%.60s..\" is not a choice of an algorithm: "
                          "calibrate again",
                          line);
    more = realloc(lt->choice, (lt->n_choices + 1) * sizeof(*more));
    if (more == NULL)
        return merak_fail_nomem(err, sizeof(*more));
    lt->choice = more;
    lt->choice[lt->n_choices++] = choice;
    return MERAK_OK;
}
