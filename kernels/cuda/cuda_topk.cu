/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_topk.cu - of each row the largest elements, and where they were: a warp
 * for each row, of which a lane has every 32nd element
 *
 * As cpu/topk.c finds the smallest magnitude that counts: from its highest bit
 * down, with a pass that counts the elements above for each.  A word of places
 * is what the lanes say of 32 neighbours. */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

#define NAN_BITS 0x7f800001u /* of magnitudes; all NaNs are alike */

template <typename T> struct merak_topk {
    const T *from;
    T *to;
    uint32_t *at;
    size_t rows, K, C;
};

/* A magnitude as an integer: larger for larger ones, of floats in bf16 with 16
 * low bits of 0. */
template <typename T>
static __device__ __forceinline__ unsigned key_of(const T *x, size_t i,
                                                  size_t C)
{
    unsigned bits = i < C ? __float_as_uint(to_f32(x[i])) & 0x7fffffffu : 0;

    return bits < NAN_BITS ? bits : NAN_BITS;
}

template <typename T>
static __device__ __forceinline__ unsigned
count_from(const T *x, size_t C, unsigned least, unsigned lane)
{
    unsigned n = 0;

    for (size_t i = lane; i < C; i += WARP)
        n += key_of(x, i, C) >= least;
    return warp_sum(n);
}

/* The least magnitude that counts; *equal_p: how many of those that have just
 * this one do.  Every lane gets both. */
template <typename T>
static __device__ __forceinline__ unsigned
least_of(const T *x, size_t C, size_t K, unsigned lane, size_t *equal_p)
{
    constexpr int LOW = sizeof(T) == 2 ? 16 : 0;
    unsigned least = 0;

    *equal_p = C;
    for (int bit = 30; bit >= LOW; bit--) {
        unsigned higher = least | 1u << bit;
        unsigned n = count_from(x, C, higher, lane);

        if (n >= K)
            least = higher;
        if (n == K)
            return least;
    }
    *equal_p = K - count_from(x, C, least + 1, lane);
    return least;
}

/* Bits of lanes before this one. */
static __device__ __forceinline__ int before(unsigned word, unsigned lane)
{
    return count_bits(word & ((1u << lane) - 1));
}

template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK) pack_rows(merak_topk<T> t)
{
    unsigned lane = threadIdx.x % WARP;
    size_t row = (blockIdx.x * (size_t)ROW_BLOCK + threadIdx.x) / WARP;
    size_t r = row < t.rows ? row : t.rows - 1; /* all take part */
    const T *x = t.from + r * t.C;
    size_t equal, k = r * t.K;
    unsigned least = least_of(x, t.C, t.K, lane, &equal);

    for (size_t i = 0; i < t.C; i += WARP) {
        unsigned key = key_of(x, i + lane, t.C);
        bool exists = i + lane < t.C;
        unsigned same = warp_ballot(exists && key == least);
        bool is_one =
            exists && key == least && (size_t)before(same, lane) < equal;
        unsigned word = warp_ballot(is_one || (exists && key > least));

        if (row < t.rows && (word >> lane & 1))
            t.to[k + (size_t)before(word, lane)] = x[i + lane];
        if (row < t.rows && lane == 0)
            t.at[r * ceil_div(t.C, WARP) + i / WARP] = word;
        k += (size_t)count_bits(word);
        equal -= (size_t)count_bits(word & same);
    }
}

/* Of what was packed the whole (UNPACK), or of a whole what was packed. */
template <typename T, bool UNPACK>
static __global__ void __launch_bounds__(ROW_BLOCK) move_rows(merak_topk<T> t)
{
    unsigned lane = threadIdx.x % WARP;
    size_t row = (blockIdx.x * (size_t)ROW_BLOCK + threadIdx.x) / WARP;
    size_t W = ceil_div(t.C, WARP), k = row * t.K;

    for (size_t w = 0; row < t.rows && w < W; w++) {
        unsigned word = t.at[row * W + w];
        size_t i = row * t.C + w * WARP + lane;
        size_t at = k + (size_t)before(word, lane);

        if (word >> lane & 1)
            t.to[UNPACK ? i : at] = t.from[UNPACK ? at : i];
        else if (UNPACK && w * WARP + lane < t.C)
            from_f32(&t.to[i], 0.0f);
        k += (size_t)count_bits(word);
    }
}

template <typename T>
static merak_topk<T> view(const struct merak_kernel_call *call, int at, int to)
{
    merak_topk<T> t = {};

    t.from = static_cast<const T *>(call->operand[0].data);
    t.at = static_cast<uint32_t *>(call->operand[at].data);
    t.to = static_cast<T *>(call->operand[to].data);
    t.rows =
        merak_local_span(&call->operand[0], 0, call->operand[0].local.ndim - 1);
    t.K = (size_t)call->attrs->i[0];
    t.C = (size_t)call->attrs->i[1];
    return t;
}

CUDA_KERNEL(topk_pack)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        merak_topk<T> t = view<T>(call, 2, 1);

        return launch(merak_cuda_context_of(call),
                      row_launch("topk_pack", t.rows, WARP), err, pack_rows<T>,
                      t);
    });
}

CUDA_KERNEL(topk_unpack)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        merak_topk<T> t = view<T>(call, 1, 2);

        return launch(merak_cuda_context_of(call),
                      row_launch("topk_unpack", t.rows, WARP), err,
                      move_rows<T, true>, t);
    });
}

CUDA_KERNEL(topk_take)
{
    return by_dtype(call, 0, err, [&](auto type) {
        using T = decltype(type);
        merak_topk<T> t = view<T>(call, 1, 2);

        return launch(merak_cuda_context_of(call),
                      row_launch("topk_take", t.rows, WARP), err,
                      move_rows<T, false>, t);
    });
}
