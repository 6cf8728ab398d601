/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_repeat.c - what is prepared once for many steps: tables of calls,
 * CUDA graphs of launches, and timers
 */
#include "config.h"

#include "kernels/cuda/cuda_queue.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 256

/* --- times ------------------------------------------------------------------
 */

enum merak_status merak_cuda_timer_create(struct merak_accel *accel,
                                          struct merak_event **event_p,
                                          struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = merak_cuda_enter(c, err);
    cudaEvent_t event = NULL;

    if (rc == MERAK_OK)
        rc =
            merak_cuda_check(c, "create a timer", cudaEventCreate(&event), err);
    if (rc == MERAK_OK)
        *event_p = (struct merak_event *)event;
    return rc;
}

/* CUDA returns float milliseconds, with a resolution of 30 ns after half a
 * second: callers measure from a recent event. */
enum merak_status merak_cuda_elapsed(struct merak_accel *accel,
                                     struct merak_event *from,
                                     struct merak_event *to, int64_t *ns_p,
                                     struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = merak_cuda_enter(c, err);
    float ms = 0;

    if (rc == MERAK_OK)
        rc = merak_cuda_check(
            c, "read a timer",
            cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to), err);
    if (rc == MERAK_OK)
        *ns_p = (int64_t)llround((double)ms * 1e6);
    return rc;
}

/* --- tables of calls --------------------------------------------------------
 */

struct merak_table {
    const struct merak_cuda_many *many;
    const void *rows; /* on the device */
    int n;
    size_t items;
};

static const struct merak_cuda_many *
find_many(const struct merak_kernel *kernel)
{
    for (const struct merak_cuda_many *m = merak_cuda_many; m->op != NULL;
         m++) {
        if (strcmp(m->op, kernel->name) == 0)
            return m;
    }
    return NULL;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t merak_cuda_table_bytes(const struct merak_kernel *kernel,
                              const struct merak_kernel_call *const *call,
                              int n)
{
    const struct merak_cuda_many *many = find_many(kernel);

    return many == NULL ? 0
                        : aligned((size_t)n * many->row_bytes) +
                              aligned(many->beside_bytes(call, n));
}

/* The only copy that is waited for; nothing else is in flight yet. */
static enum merak_status upload(struct merak_cuda *c, void *to,
                                const void *from, size_t bytes,
                                struct merak_error *err)
{
    enum merak_status rc = merak_cuda_check(
        c, "copy a table to the GPU",
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream[0]),
        err);

    return rc == MERAK_OK
               ? merak_cuda_check(c, "copy a table to the GPU",
                                  cudaStreamSynchronize(c->stream[0]), err)
               : rc;
}

enum merak_status merak_cuda_table_create(
    struct merak_accel *accel, const struct merak_kernel *kernel,
    const struct merak_kernel_call *const *call, int n, void *memory,
    struct merak_table **table_p, struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    const struct merak_cuda_many *many = find_many(kernel);
    size_t bytes = (size_t)n * many->row_bytes;
    void *rows = calloc(1, bytes);
    struct merak_table *t = calloc(1, sizeof(*t));
    enum merak_status rc = merak_cuda_enter(c, err);

    if (rc == MERAK_OK && (rows == NULL || t == NULL))
        rc = merak_fail_nomem(err, bytes);
    if (rc == MERAK_OK)
        rc = many->fill(call, n, rows, (char *)memory + aligned(bytes),
                        &t->items, err);
    if (rc == MERAK_OK)
        rc = upload(c, memory, rows, bytes, err);
    free(rows);
    if (rc != MERAK_OK) {
        free(t);
        return rc;
    }
    t->many = many;
    t->rows = memory;
    t->n = n;
    *table_p = t;
    return MERAK_OK;
}

void merak_cuda_table_destroy(struct merak_accel *accel,
                              struct merak_table *table)
{
    (void)accel;
    free(table);
}

enum merak_status merak_cuda_table_launch(struct merak_accel *accel, int queue,
                                          struct merak_table *table,
                                          const struct merak_step *step,
                                          struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    struct merak_error now = {.status = MERAK_OK};
    enum merak_status rc = merak_cuda_enter(c, &now);

    if (rc == MERAK_OK)
        rc = table->many->launch(&c->context[queue], table->rows, table->n,
                                 table->items, step, &now);
    return merak_cuda_launched(c, rc, &now, err);
}

/* --- graphs -----------------------------------------------------------------
 */

/* Other threads may call CUDA during the capture. */
enum merak_status merak_cuda_capture_begin(struct merak_accel *accel, int queue,
                                           struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = merak_cuda_enter(c, err);

    return rc == MERAK_OK
               ? merak_cuda_check(
                     c, "begin a graph",
                     cudaStreamBeginCapture(c->stream[queue],
                                            cudaStreamCaptureModeThreadLocal),
                     err)
               : rc;
}

enum merak_status merak_cuda_capture_end(struct merak_accel *accel, int queue,
                                         struct merak_replay **replay_p,
                                         struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    /* also after a failure, to end the stream's capture mode */
    cudaError_t code = cudaStreamEndCapture(c->stream[queue], &graph);
    enum merak_status rc = merak_cuda_enter(c, err);

    if (rc == MERAK_OK)
        rc = merak_cuda_check(c, "end a graph", code, err);
    if (rc == MERAK_OK)
        rc = merak_cuda_check(c, "make a graph",
                              cudaGraphInstantiate(&exec, graph, 0), err);
    if (rc == MERAK_OK)
        rc = merak_cuda_check(c, "upload a graph",
                              cudaGraphUpload(exec, c->stream[queue]), err);
    if (graph != NULL)
        (void)cudaGraphDestroy(graph);
    if (rc == MERAK_OK)
        *replay_p = (struct merak_replay *)exec;
    else if (exec != NULL)
        (void)cudaGraphExecDestroy(exec);
    return rc;
}

enum merak_status merak_cuda_replay(struct merak_accel *accel, int queue,
                                    struct merak_replay *replay,
                                    struct merak_error *err)
{
    struct merak_cuda *c = merak_cuda_of(accel);
    enum merak_status rc = merak_cuda_enter(c, err);

    return rc == MERAK_OK
               ? merak_cuda_check(
                     c, "launch a graph",
                     cudaGraphLaunch((cudaGraphExec_t)replay, c->stream[queue]),
                     err)
               : rc;
}

void merak_cuda_replay_destroy(struct merak_accel *accel,
                               struct merak_replay *replay)
{
    if (replay != NULL &&
        merak_cuda_enter(merak_cuda_of(accel), NULL) == MERAK_OK)
        (void)cudaGraphExecDestroy((cudaGraphExec_t)replay);
}
