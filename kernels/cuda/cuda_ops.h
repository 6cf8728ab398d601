/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_ops.h - the CUDA kernels that the device module launches
 *
 * A kernel's fn queues work in the stream of the context that call->device
 * points at, and returns; operands and scratch are device memory, aligned to
 * at least 16 bytes.  Two runs agree bit for bit: sums are split by the shapes
 * alone, never by the device, and floats are not added by atomics.
 *
 * Compiled by nvcc for devices, and by a host C++ compiler with cuda_sim.h for
 * tests, where a stream is NULL and a call is done when it returns.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_OPS_H
#define MERAK_KERNELS_CUDA_CUDA_OPS_H

#include "kernels/accel.h"
#include "kernels/cuda/cuda_product.h"
#include "kernels/kernels.h"
#include "merak/op.h"

/* An id outside the vocabulary, as found by a kernel. */
struct merak_cuda_fault {
    int raised; /* MERAK_CUDA_FAULT_*; 0: none */
    int id;
    unsigned long long vocabulary;
};
#define MERAK_CUDA_FAULT_TOKEN 1
#define MERAK_CUDA_FAULT_TARGET 2

/* What a queue's kernels are launched with. */
struct merak_cuda_context {
    void *stream; /* a cudaStream_t */
    merak_cuda_product_fn product;
    void *product_arg;
    /* Cleared by the owner and written by kernels, so in host memory that the
     * device can write.  NULL: ids are not reported; one outside the vocabulary
     * reads as zeros and gets no gradient. */
    struct merak_cuda_fault *fault;
};

static inline const struct merak_cuda_context *
merak_cuda_context_of(const struct merak_kernel_call *call)
{
    return (const struct merak_cuda_context *)call->device;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Ends with a NULL name; a row for every op of kernels/ops.h. */
extern const struct merak_kernel merak_cuda_kernels[];

/*
 * Calls of one op in one launch, in any order, from a table that is made once
 * and copied to the device.  Results are bit for bit those of single calls.
 */
struct merak_cuda_many {
    const char *op;   /* NULL after the last */
    size_t row_bytes; /* of the table, per call */
    /* Device memory that the launch needs in addition to the table. */
    size_t (*beside_bytes)(const struct merak_kernel_call *const *call, int n);
    /* Fill the table, in host memory; beside and operands are device addresses,
     * 256-byte aligned.  items_p  out  for the launch. */
    enum merak_status (*fill)(const struct merak_kernel_call *const *call,
                              int n, void *rows, void *beside, size_t *items_p,
                              struct merak_error *err);
    /* rows: the table in device memory. */
    enum merak_status (*launch)(const struct merak_cuda_context *context,
                                const void *rows, int n, size_t items,
                                const struct merak_step *step,
                                struct merak_error *err);
};
extern const struct merak_cuda_many merak_cuda_many[];

/* merak_accel_ops.fusable, and such calls run as one (cuda_fuse.c). */
int merak_cuda_fusable(const struct merak_kernel *const *kernel,
                       const struct merak_kernel_call *const *call, int n);
enum merak_status
merak_cuda_run_fused(const struct merak_kernel *const *kernel,
                     const struct merak_kernel_call *const *call,
                     const unsigned *unread, int n,
                     struct merak_error *err) MERAK_CHECKED;

/* merak_pack_box() in device memory. */
enum merak_status merak_cuda_pack(const struct merak_cuda_context *context,
                                  void *to, const void *from,
                                  const struct merak_accel_box *box,
                                  struct merak_error *err) MERAK_CHECKED;

/* merak_unpack_box() in device memory. */
enum merak_status merak_cuda_unpack(const struct merak_cuda_context *context,
                                    void *to, const struct merak_accel_box *box,
                                    const void *from,
                                    struct merak_error *err) MERAK_CHECKED;

/* Load the kernels of pack(), unpack() and combine().  Otherwise CUDA loads
 * them at their first launch and may wait there for running work, such as a
 * collective that waits for another rank. */
enum merak_status merak_cuda_load_copies(struct merak_error *err) MERAK_CHECKED;

/* merak_combine_terms() in device memory. */
enum merak_status merak_cuda_combine(const struct merak_cuda_context *context,
                                     void *to,
                                     const struct merak_accel_terms *pieces,
                                     struct merak_error *err) MERAK_CHECKED;

/* MERAK_ERR_PARAM with the text of merak_check_ids() if a fault was raised. */
enum merak_status merak_cuda_check_fault(const struct merak_cuda_fault *fault,
                                         struct merak_error *err) MERAK_CHECKED;

#ifdef __cplusplus
}
#endif

#endif
