/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_calls.h - tests of test_kernels_cuda.c: calls beside the table of ops */
#ifndef MERAK_TESTS_CUDA_CALLS_H
#define MERAK_TESTS_CUDA_CALLS_H

void cuda_many_tensors_give_the_bits_of_each(void **state);
void cuda_boxes_are_packed(void **state);
void cuda_pieces_are_combined_in_member_order(void **state);

#endif
