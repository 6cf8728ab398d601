/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_tests.h - what the files of test_cudnn.c share */
#ifndef MERAK_TESTS_CUDNN_TESTS_H
#define MERAK_TESTS_CUDNN_TESTS_H

#include "unit/kernels/kcase.h"

#include "kernels/cuda/cuda_cudnn.h"

/* --- test_cudnn.c ----------------------------------------------------------
 */

/* Of this test, over the stand-in. */
extern struct merak_cudnn_attention *cudnn;
/* The last line of the log, and how many there were. */
extern char cudnn_line[512];
extern int cudnn_told;
struct kc_row cudnn_grouped(size_t B, size_t T, size_t G, size_t R, size_t D);
struct kc_row cudnn_packed(size_t B, size_t T, size_t H, size_t D);
/* Run a case; was it cuDNN's? */
bool cudnn_runs(struct kc *c);

/* --- cudnn_real.c: tests about cuDNN itself, where it is -------------------
 */

void cudnn_numbers_are_the_headers(void **state);
void cudnn_takes_the_graphs(void **state);

/* --- cudnn_bench.c: tests of measuring -------------------------------------
 */

void the_faster_kernel_is_chosen(void **state);
void few_samples_are_chosen_unless_more_are_faster(void **state);
void what_is_not_the_own_kernels_is_not_chosen(void **state);
void where_nothing_can_be_chosen_nothing_is(void **state);

#endif
