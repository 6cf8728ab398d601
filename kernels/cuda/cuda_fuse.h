/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_fuse.h - kernels that compute several calls, for
 * cuda_fuse.c
 *
 * The results have the bits of single calls.  Operands are as cuda_fuse.c has
 * checked them.  `center`: layernorm, else rmsnorm.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_FUSE_H
#define MERAK_KERNELS_CUDA_CUDA_FUSE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "merak/op.h"

/* --- cuda_norm.cu --------------------------------------------------------- */

/* add's output is the norm's input. */
enum merak_status merak_cuda_add_norm(const struct merak_kernel_call *add,
                                      const struct merak_kernel_call *norm_call,
                                      bool center,
                                      struct merak_error *err) MERAK_CHECKED;
/* One of add's inputs is dx's output, which is only stored if `store`. */
enum merak_status merak_cuda_norm_dx_add(const struct merak_kernel_call *dx,
                                         const struct merak_kernel_call *add,
                                         bool store, bool center,
                                         struct merak_error *err) MERAK_CHECKED;

/* --- cuda_columns.cu ------------------------------------------------------ */

/* The gradients of a norm's input and weights; add NULL: without it. */
enum merak_status merak_cuda_norm_back(const struct merak_kernel_call *dx,
                                       const struct merak_kernel_call *add,
                                       const struct merak_kernel_call *dw,
                                       bool store, bool center,
                                       struct merak_error *err) MERAK_CHECKED;
/* Are the sums of so long a row held in registers? */
bool merak_cuda_norm_back_fits(const struct merak_kernel_call *dx);

/* --- cuda_xent.cu --------------------------------------------------------- */

/* The maxima, sums and, unless dlogits is NULL, gradients of rows of logits. */
enum merak_status merak_cuda_xent_rows(const struct merak_kernel_call *max,
                                       const struct merak_kernel_call *sum,
                                       const struct merak_kernel_call *dlogits,
                                       struct merak_error *err) MERAK_CHECKED;
/* Do all rows begin on 16-byte boundaries? */
bool merak_cuda_xent_fits(const struct merak_kernel_call *max,
                          const struct merak_kernel_call *dlogits);

#ifdef __cplusplus
}
#endif

#endif
