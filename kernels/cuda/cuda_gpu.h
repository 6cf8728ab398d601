/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_gpu.h - internal to the CUDA module
 *
 * cuda_errors.c translates CUDA's codes and messages, cuda_lt.c cuBLASLt's.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_GPU_H
#define MERAK_KERNELS_CUDA_CUDA_GPU_H

#include <cuda_runtime_api.h>

#include "kernels/accel.h"
#include "kernels/cuda/cuda_facts.h"
#include "kernels/cuda/cuda_ops.h"

/* cuda_module.c */
extern const struct merak_backend merak_cuda_backend;

/* --- cuda_errors.c -------------------------------------------------------- */

/* The status and text of a call that failed on a device (-1: on none):
 * "cannot WHAT on GPU 0: CUDA's message", and the fix if it is known. */
enum merak_status merak_cuda_fail(struct merak_error *err, int device,
                                  const char *what, cudaError_t code);

/* --- cuda_devices.c ------------------------------------------------------- */

/* merak_accel_ops.devices. */
enum merak_status merak_cuda_devices(struct merak_accel_device *device, int max,
                                     int *n_p,
                                     struct merak_error *err) MERAK_CHECKED;
/* Gather what CUDA and the driver know about a device. */
enum merak_status merak_cuda_gather(int device, struct merak_cuda_facts *facts,
                                    struct merak_error *err) MERAK_CHECKED;
/* May this device be used?  As merak_cuda_check_facts(). */
enum merak_status
merak_cuda_check_device(int device, struct merak_error *err) MERAK_CHECKED;
/* merak_accel_ops.facts */
void merak_cuda_facts_text(int device, char *text, size_t bytes, char *warning,
                           size_t warning_bytes);

/* --- cuda_lt.c: products by cuBLASLt ---------------------------------------
 */

struct merak_cuda_lt;

/* Load the library at run time.  It takes no device memory: products bring
 * their workspace. */
enum merak_status merak_cuda_lt_open(int device, struct merak_cuda_lt **lt_p,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_cuda_lt_close(struct merak_cuda_lt *lt);
/* "cuBLASLt 13.1.0", or "" */
const char *merak_cuda_lt_version(const struct merak_cuda_lt *lt);
/* Until tell is NULL again, products time the library's answers and report the
 * fastest as a line, which _use() accepts for shapes made after it. */
void merak_cuda_lt_tune(struct merak_cuda_lt *lt,
                        void (*tell)(void *arg, const char *line), void *arg);
enum merak_status merak_cuda_lt_use(struct merak_cuda_lt *lt, const char *line,
                                    struct merak_error *err) MERAK_CHECKED;
/* A merak_cuda_product_fn; arg is a struct merak_cuda_lt. */
enum merak_status
merak_cuda_lt_product(void *arg, const struct merak_cuda_context *context,
                      const struct merak_cuda_product *product,
                      struct merak_error *err) MERAK_CHECKED;

/* --- cuda_accel.c --------------------------------------------------------- */

extern const struct merak_accel_ops merak_cuda_accel;

#endif
