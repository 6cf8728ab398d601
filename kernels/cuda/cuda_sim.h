/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_sim.h - CUDA's language for a host C++ compiler
 *
 * Runs the unchanged bodies of kernels: blocks one after the other, the threads
 * of a block as contexts that are switched where they synchronize (barriers,
 * shuffles, matrix instructions), in a random order given by a seed.  So a
 * missing barrier gives wrong numbers, one that not all threads reach stops the
 * program, and AddressSanitizer finds memory errors.  Shared memory is filled
 * with NaNs at the start of every block and guarded at its end.
 *
 * It cannot show speed, races inside a warp without a shuffle between them that
 * no order of threads uncovers, and errors of ptxas.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_SIM_H
#define MERAK_KERNELS_CUDA_CUDA_SIM_H

#include "kernels/cuda/cuda_sim_queue.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct __attribute__((may_alias, aligned(8))) uint2 {
    unsigned x, y;
};
struct __attribute__((may_alias, aligned(16))) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

/* The running thread and its indices. */
struct merak_sim_place {
    dim3 thread, block, block_dim, grid_dim;
};
extern struct merak_sim_place merak_sim_at;
#define threadIdx (merak_sim_at.thread)
#define blockIdx (merak_sim_at.block)
#define blockDim (merak_sim_at.block_dim)
#define gridDim (merak_sim_at.grid_dim)

/* Print the message with block and thread, and abort. */
[[noreturn]] void merak_sim_fatal(const char *what);
/* Select another order of threads. */
void merak_sim_seed(uint64_t seed);
/* What a launch is made of: body(this) runs one thread. */
struct merak_sim_kernel {
    dim3 grid, block;
    size_t shared_bytes;
    void (*body)(void *kernel);
};
/* Run body() for every thread of every block, now or in the stream.  `bytes`:
 * of the struct that has `kernel` first and its arguments behind it. */
int merak_sim_launch(void *stream, struct merak_sim_kernel *kernel,
                     size_t bytes);
/* Clear memory, now or in the stream. */
int merak_sim_clear(void *stream, void *to, size_t bytes);

/* Barriers of all threads of the block, or of all lanes of the warp. */
void merak_sim_block_barrier(void);
void merak_sim_warp_barrier(void);
/* The `bytes` that each lane of the warp passed, valid until the next but one
 * exchange; all lanes take part. */
const void *const *merak_sim_exchange(const void *mine, size_t bytes);
/* Copy up to 16 bytes, or zeros if `from` is NULL, at this thread's next
 * merak_sim_copies_wait(). */
void merak_sim_copy(void *to, const void *from, unsigned bytes);
void merak_sim_copies_wait(void);
/* Shared memory of the block: one piece for each key, or that requested by the
 * launch. */
void *merak_sim_shared(const void *key, size_t bytes);
void *merak_sim_dynamic_shared(void);

#define MERAK_SHARED(type, name, ...)                \
    static const char name##_key = 0;                \
    using name##_type = type __VA_ARGS__;            \
    name##_type &name = *static_cast<name##_type *>( \
        merak_sim_shared(&name##_key, sizeof(name##_type)))

static inline void __syncthreads(void)
{
    merak_sim_block_barrier();
}

static inline void __syncwarp(void)
{
    merak_sim_warp_barrier();
}

static inline void __threadfence_system(void)
{
}

template <typename T> static inline T merak_sim_shuffle(T value, unsigned lane)
{
    T got;

    memcpy(&got, merak_sim_exchange(&value, sizeof(value))[lane % 32],
           sizeof(got));
    return got;
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes)
{
    (void)mask;
    return merak_sim_shuffle(value,
                             (merak_sim_at.thread.x % 32) ^ (unsigned)lanes);
}

static inline unsigned __float_as_uint(float f)
{
    unsigned u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float __uint_as_float(unsigned u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

#endif
