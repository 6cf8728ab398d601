/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_cudnn_impl.h - internal to the files that call cuDNN */
#ifndef MERAK_KERNELS_CUDA_CUDA_CUDNN_IMPL_H
#define MERAK_KERNELS_CUDA_CUDA_CUDNN_IMPL_H

#include "kernels/cuda/cuda_cudnn.h"

struct merak_cudnn {
    void *library;
    struct merak_cudnn_calls call;
    void *handle;     /* NULL: there is no device */
    void *properties; /* of a device that is not present, or NULL */
    int64_t version;
};

/* Fail with what cuDNN refused and its message; MERAK_ERR_UNSUPPORTED if it
 * does not support that. */
enum merak_status merak_cudnn_fail(const struct merak_cudnn *c,
                                   const char *what, int status,
                                   struct merak_error *err) MERAK_CHECKED;
/* Get an attribute's only element; false: there is none. */
bool merak_cudnn_get(const struct merak_cudnn *c, const void *desc, int name,
                     int type, void *element);

#endif
