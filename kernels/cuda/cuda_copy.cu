/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_copy.cu - parts of tensors, and rows brought to another stride */
#include "config.h"

#include "kernels/cuda/cuda_copy.cuh"
#include "kernels/cuda/cuda_device.cuh"

/* --- boxes -----------------------------------------------------------------
 */

/* A box in units of up to 16 bytes, outermost dim first; dims that are taken
 * whole are one with the dim before them. */
struct merak_units {
    int ndim;
    size_t len[MERAK_MAX_DIMS], stride[MERAK_MAX_DIMS];
    size_t count;
};

template <typename U>
static __global__ void __launch_bounds__(MAP_THREADS)
    pack_units(const __grid_constant__ merak_units box, const U *from, U *to)
{
    for (size_t k = grid_thread(); k < box.count; k += grid_threads()) {
        size_t rest = k, at = 0;

        for (int d = box.ndim - 1; d > 0; d--) {
            at += rest % box.len[d] * box.stride[d];
            rest /= box.len[d];
        }
        to[k] = from[at + rest * box.stride[0]];
    }
}

/* In elements; *first_p: where the box begins. */
static merak_units fold(const struct merak_accel_box *box, size_t *first_p)
{
    merak_units u = {};
    size_t stride = 1, first = 0;
    size_t len[MERAK_MAX_DIMS], strides[MERAK_MAX_DIMS];
    int n = 0;

    /* from the last dim: len[n - 1] is the one that grows */
    for (int d = box->ndim - 1; d >= 0; d--) {
        bool joins = n > 0 && stride == len[n - 1] * strides[n - 1];

        first += box->lo[d] * stride;
        if (joins) {
            len[n - 1] *= box->len[d];
        } else {
            len[n] = box->len[d];
            strides[n++] = stride;
        }
        stride *= box->full[d];
    }
    u.ndim = n;
    u.count = 1;
    for (int d = 0; d < n; d++) {
        u.len[d] = len[n - 1 - d];
        u.stride[d] = strides[n - 1 - d];
        u.count *= u.len[d];
    }
    *first_p = first;
    return u;
}

template <typename U>
static enum merak_status pack_as(const struct merak_cuda_context *cx, void *to,
                                 const void *from, merak_units u,
                                 size_t elem_bytes, struct merak_error *err)
{
    size_t bytes = sizeof(U);

    u.len[u.ndim - 1] = u.len[u.ndim - 1] * elem_bytes / bytes;
    for (int d = 0; d < u.ndim - 1; d++)
        u.stride[d] = u.stride[d] * elem_bytes / bytes;
    u.count = u.count * elem_bytes / bytes;
    return launch(cx, map_launch("slice", u.count), err, pack_units<U>, u,
                  static_cast<const U *>(from), static_cast<U *>(to));
}

enum merak_status merak_cuda_pack(const struct merak_cuda_context *context,
                                  void *to, const void *from,
                                  const struct merak_accel_box *box,
                                  struct merak_error *err)
{
    size_t first, elem = box->elem_bytes, fits;
    merak_units u = fold(box, &first);
    const char *begin = static_cast<const char *>(from) + first * elem;

    /* what all addresses are multiples of */
    fits =
        (size_t)((uintptr_t)begin | (uintptr_t)to) | u.len[u.ndim - 1] * elem;
    for (int d = 0; d < u.ndim - 1; d++)
        fits |= u.stride[d] * elem;
    if (fits % 16 == 0)
        return pack_as<uint4>(context, to, begin, u, elem, err);
    if (fits % 4 == 0)
        return pack_as<uint32_t>(context, to, begin, u, elem, err);
    if (fits % 2 == 0)
        return pack_as<uint16_t>(context, to, begin, u, elem, err);
    return pack_as<uint8_t>(context, to, begin, u, elem, err);
}

/* --- rows ------------------------------------------------------------------
 */

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    copy_rows(merak_rows r, const T *from, T *to)
{
    for (size_t row = blockIdx.y; row < r.rows; row += gridDim.y) {
        const T *in = from + row * r.from_ld;
        T *out = to + row * r.to_ld;

        for (size_t c = grid_thread(); c < r.to_columns; c += grid_threads())
            out[c] = c < r.columns ? in[c] : T{};
    }
}

template <typename T>
enum merak_status merak_cuda_copy_rows(const struct merak_cuda_context *cx,
                                       const char *op, const merak_rows &rows,
                                       const T *from, T *to,
                                       struct merak_error *err)
{
    merak_launch how = map_launch(op, rows.to_columns);

    how.grid.y = (unsigned)(rows.rows < 65535 ? rows.rows : 65535);
    return launch(cx, how, err, copy_rows<T>, rows, from, to);
}

template enum merak_status merak_cuda_copy_rows<merak_bf16>(
    const struct merak_cuda_context *, const char *, const merak_rows &,
    const merak_bf16 *, merak_bf16 *, struct merak_error *);
