/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_real.h - tests of test_cudnn.c about cuDNN itself, where it is */
#ifndef MERAK_TESTS_CUDNN_REAL_H
#define MERAK_TESTS_CUDNN_REAL_H

void cudnn_numbers_are_the_headers(void **state);
void cudnn_takes_the_graphs(void **state);

#endif
