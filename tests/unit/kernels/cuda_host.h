/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_host.h - the CUDA kernels' bodies, compiled for the host */
#ifndef MERAK_TESTS_CUDA_HOST_H
#define MERAK_TESTS_CUDA_HOST_H

#include <stdint.h>

/* Threads of a block run in another order. */
#ifdef __cplusplus
extern "C"
#endif
    void
    cuda_host_seed(uint64_t seed);

#endif
