/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_copy.cuh - copy rows to another stride */
#ifndef MERAK_KERNELS_CUDA_CUDA_COPY_CUH
#define MERAK_KERNELS_CUDA_CUDA_COPY_CUH

#include "kernels/cuda/cuda_device.cuh"

/* `columns` elements of each row are copied; zeros follow up to to_columns. */
struct merak_rows {
    size_t rows, columns, to_columns, from_ld, to_ld;
};

template <typename T>
enum merak_status merak_cuda_copy_rows(const struct merak_cuda_context *cx,
                                       const char *op, const merak_rows &rows,
                                       const T *from, T *to,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
