/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_queue.h - an open GPU and its streams, for the files that
 * put work into them
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_QUEUE_H
#define MERAK_KERNELS_CUDA_CUDA_QUEUE_H

#include "kernels/cuda/cuda_cudnn.h"
#include "kernels/cuda/cuda_gpu.h"

#include <pthread.h>

struct merak_cuda {
    struct merak_accel base;
    int device;
    int queues;
    int least, greatest;                     /* priorities of streams */
    cudaStream_t stream[MERAK_ACCEL_QUEUES]; /* NULL: not used yet */
    struct merak_cuda_context context[MERAK_ACCEL_QUEUES];
    struct merak_cuda_fault *fault; /* host memory that kernels write */
    struct merak_cuda_lt *lt;
    struct merak_cudnn_attention *attention;
    pthread_mutex_t lock;       /* for failure */
    struct merak_error failure; /* the first one */
};

static inline struct merak_cuda *merak_cuda_of(struct merak_accel *accel)
{
    return (struct merak_cuda *)accel;
}

/* --- cuda_accel.c --------------------------------------------------------- */

/* Before each call: make the device current; fails after an earlier failure. */
enum merak_status merak_cuda_enter(struct merak_cuda *c,
                                   struct merak_error *err) MERAK_CHECKED;
/* Keep the first failure, and return that. */
enum merak_status merak_cuda_keep(struct merak_cuda *c,
                                  const struct merak_error *now,
                                  struct merak_error *err) MERAK_CHECKED;
/* The same for work that ended with status rc and, if it failed, text `now`. */
enum merak_status merak_cuda_launched(struct merak_cuda *c,
                                      enum merak_status rc,
                                      struct merak_error *now,
                                      struct merak_error *err) MERAK_CHECKED;
/* The same for a CUDA call. */
enum merak_status merak_cuda_check(struct merak_cuda *c, const char *what,
                                   cudaError_t code,
                                   struct merak_error *err) MERAK_CHECKED;

/* --- cuda_memory.c: merak_accel_ops of these names -------------------------
 */

enum merak_status merak_cuda_memory(struct merak_accel *accel, size_t *left_p,
                                    size_t *all_p,
                                    struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_cuda_alloc(struct merak_accel *accel, size_t bytes,
                                   void **address_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_cuda_free(struct merak_accel *accel, void *address);
bool merak_cuda_pin(struct merak_accel *accel, void *host, size_t bytes);
void merak_cuda_unpin(struct merak_accel *accel, void *host);

/* --- cuda_cudnn_tune.c: merak_accel_ops.tune for calls of attention ---------
 */

enum merak_status
merak_cuda_tune_attention(struct merak_cuda *c, int queue,
                          const struct merak_kernel *kernel,
                          const struct merak_kernel_call *call,
                          void (*tell)(void *arg, const char *line), void *arg,
                          struct merak_error *err) MERAK_CHECKED;

/* --- cuda_repeat.c: merak_accel_ops of these names -------------------------
 */

enum merak_status
merak_cuda_timer_create(struct merak_accel *accel, struct merak_event **event_p,
                        struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_cuda_elapsed(struct merak_accel *accel,
                                     struct merak_event *from,
                                     struct merak_event *to, int64_t *ns_p,
                                     struct merak_error *err) MERAK_CHECKED;
size_t merak_cuda_table_bytes(const struct merak_kernel *kernel,
                              const struct merak_kernel_call *const *call,
                              int n);
enum merak_status merak_cuda_table_create(
    struct merak_accel *accel, const struct merak_kernel *kernel,
    const struct merak_kernel_call *const *call, int n, void *memory,
    struct merak_table **table_p, struct merak_error *err) MERAK_CHECKED;
void merak_cuda_table_destroy(struct merak_accel *accel,
                              struct merak_table *table);
enum merak_status merak_cuda_table_launch(
    struct merak_accel *accel, int queue, struct merak_table *table,
    const struct merak_step *step, struct merak_error *err) MERAK_CHECKED;
enum merak_status
merak_cuda_capture_begin(struct merak_accel *accel, int queue,
                         struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_cuda_capture_end(struct merak_accel *accel, int queue,
                                         struct merak_replay **replay_p,
                                         struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_cuda_replay(struct merak_accel *accel, int queue,
                                    struct merak_replay *replay,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_cuda_replay_destroy(struct merak_accel *accel,
                               struct merak_replay *replay);

#endif
