/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_case.h - a case of kcase.h run by the bodies of the CUDA kernels
 *
 * Products are loops here, and hold what cuda_product.h promises of them.
 */
#ifndef MERAK_TESTS_CUDA_CASE_H
#define MERAK_TESTS_CUDA_CASE_H

#include "unit/kernels/kcheck.h"

#include "kernels/cuda/cuda_ops.h"

extern const struct merak_backend cuda_host;
extern struct merak_cuda_fault cuda_fault;
extern const struct merak_cuda_context cuda_context;
/* Of the last call. */
extern int cuda_products;

/* Fails the test where the kernel raises a fault. */
void cuda_run(struct kc *c);

extern const struct kc_suite cuda_suite;

/* Run a copy of the case, and another by the reference, and compare. */
void cuda_compare_with_ref(const struct kc *c);

#endif
