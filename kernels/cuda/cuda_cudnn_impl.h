/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_cudnn_impl.h - cuDNN, to the files that call it */
#ifndef MERAK_KERNELS_CUDA_CUDA_CUDNN_IMPL_H
#define MERAK_KERNELS_CUDA_CUDA_CUDNN_IMPL_H

#include "kernels/cuda/cuda_cudnn.h"

struct merak_cudnn {
    void *library;
    struct merak_cudnn_calls call;
    void *handle;     /* NULL: there is no device */
    void *properties; /* of the device that is not there, or NULL */
    int64_t version;
};

/* What cuDNN refused, in its words; MERAK_ERR_UNSUPPORTED if it has no such
 * thing. */
enum merak_status merak_cudnn_fail(const struct merak_cudnn *c,
                                   const char *what, int status,
                                   struct merak_error *err) MERAK_CHECKED;
/* One element of an attribute; false: there is none. */
bool merak_cudnn_get(const struct merak_cudnn *c, const void *desc, int name,
                     int type, void *element);

#endif
