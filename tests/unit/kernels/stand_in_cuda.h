/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in_cuda.h - streams of what plays CUDA, for what plays its libraries
 *
 * stand_in_cuda.c is built into a merak_cuda.so for tests, beside the module's
 * own files and the kernels' bodies for the host.
 */
#ifndef MERAK_TESTS_STAND_IN_CUDA_H
#define MERAK_TESTS_STAND_IN_CUDA_H

#include "kernels/fake/fake_stream.h"

#include <stddef.h>

/* What a cudaStream_t points to. */
struct stand_in_stream {
    struct merak_fake_stream fake; /* for stand_in_nccl.c */
    /* Run run() of a copy of `work` after all that is in the stream; while it
     * is captured, whenever the graph is launched.  Returns a cudaError_t. */
    int (*queue)(struct stand_in_stream *stream, void (*run)(void *work),
                 const void *work, size_t bytes);
};

#endif
