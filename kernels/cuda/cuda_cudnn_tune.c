/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_cudnn_tune.c - a GPU as the bench that compares cuDNN and own kernels */
#include "config.h"

#include "kernels/cuda/cuda_queue.h"

#include "base/error.h"

#include <string.h>

struct bench {
    struct merak_cuda *c;
    int queue;
    const struct merak_kernel *kernel;
    void *scratch; /* the own kernel's */
    size_t scratch_bytes;
    cudaEvent_t begin, end;
};

static enum merak_status bench_own(void *arg,
                                   const struct merak_kernel_call *call,
                                   struct merak_error *err)
{
    struct bench *b = arg;
    struct merak_kernel_call mine = *call;

    mine.device = &b->c->context[b->queue];
    mine.scratch = b->scratch;
    mine.scratch_bytes = b->scratch_bytes;
    return b->kernel->fn(&mine, err);
}

static void *bench_alloc(void *arg, size_t bytes)
{
    void *memory = NULL;

    (void)arg;
    if (cudaMalloc(&memory, bytes) == cudaSuccess)
        return memory;
    (void)cudaGetLastError(); /* the device is still usable */
    return NULL;
}

static void bench_free(void *arg, void *memory)
{
    (void)arg;
    (void)cudaFree(memory);
}

static enum merak_status bench_read(void *arg, void *to, const void *from,
                                    size_t bytes, struct merak_error *err)
{
    struct bench *b = arg;
    cudaStream_t stream = b->c->stream[b->queue];
    cudaError_t code =
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);

    if (code == cudaSuccess)
        code = cudaStreamSynchronize(stream);
    return merak_cuda_check(b->c, "read what attention gave", code, err);
}

static enum merak_status bench_begin(void *arg, struct merak_error *err)
{
    struct bench *b = arg;

    return merak_cuda_check(b->c, "time attention",
                            cudaEventRecord(b->begin, b->c->stream[b->queue]),
                            err);
}

static enum merak_status bench_end(void *arg, float *ms_p,
                                   struct merak_error *err)
{
    struct bench *b = arg;
    cudaError_t code = cudaEventRecord(b->end, b->c->stream[b->queue]);

    if (code == cudaSuccess)
        code = cudaEventSynchronize(b->end);
    if (code == cudaSuccess)
        code = cudaEventElapsedTime(ms_p, b->begin, b->end);
    return merak_cuda_check(b->c, "time attention", code, err);
}

static enum merak_status tune(struct bench *b,
                              const struct merak_kernel_call *call,
                              struct merak_cudnn_choice *choice,
                              bool *is_choice_p, struct merak_error *err)
{
    const struct merak_cudnn_bench bench = {.arg = b,
                                            .stream = b->c->stream[b->queue],
                                            .own = bench_own,
                                            .alloc = bench_alloc,
                                            .free = bench_free,
                                            .read = bench_read,
                                            .begin = bench_begin,
                                            .end = bench_end};
    enum merak_status rc = merak_cuda_check(b->c, "create a timer",
                                            cudaEventCreate(&b->begin), err);

    if (rc == MERAK_OK)
        rc = merak_cuda_check(b->c, "create a timer", cudaEventCreate(&b->end),
                              err);
    if (rc == MERAK_OK)
        rc = merak_cudnn_tune(b->c->attention, &bench, b->kernel->name, call,
                              choice, is_choice_p, err);
    if (b->begin != NULL)
        (void)cudaEventDestroy(b->begin);
    if (b->end != NULL)
        (void)cudaEventDestroy(b->end);
    return rc;
}

enum merak_status
merak_cuda_tune_attention(struct merak_cuda *c, int queue,
                          const struct merak_kernel *kernel,
                          const struct merak_kernel_call *call,
                          void (*tell)(void *arg, const char *line), void *arg,
                          struct merak_error *err)
{
    struct bench b = {.c = c,
                      .queue = queue,
                      .kernel = kernel,
                      .scratch = call->scratch,
                      .scratch_bytes = call->scratch_bytes};
    struct merak_cudnn_choice choice;
    enum merak_status rc = merak_cuda_enter(c, err);
    bool is_choice = false;
    char line[2048];

    if (rc == MERAK_OK)
        rc = tune(&b, call, &choice, &is_choice, err);
    if (rc != MERAK_OK || !is_choice)
        return rc;
    merak_cudnn_write(&choice, line, sizeof(line));
    tell(arg, line);
    return MERAK_OK;
}
