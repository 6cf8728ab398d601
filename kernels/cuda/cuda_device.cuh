/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_device.cuh - common code of kernels: launches, memory in
 * 16-byte pieces, sums over warps and blocks
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_DEVICE_CUH
#define MERAK_KERNELS_CUDA_CUDA_DEVICE_CUH

#ifndef __CUDACC__
#include "kernels/cuda/cuda_sim.h"
#endif

#include "kernels/cuda/cuda_math.h"

extern "C" {
#include "base/error.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/geometry.h"
}

#define WARP 32
#define ALL_LANES 0xffffffffu

/* --- launches --------------------------------------------------------------
 */

#ifdef __CUDACC__
#define MERAK_SHARED(type, name, ...) __shared__ type name __VA_ARGS__

/* The shared memory that the launch requested. */
static __device__ __forceinline__ void *dynamic_shared()
{
    extern __shared__ uint4 merak_dynamic_shared[];

    return merak_dynamic_shared;
}
#else
static inline void *dynamic_shared()
{
    return merak_sim_dynamic_shared();
}
#endif

template <typename T> struct merak_same {
    typedef T type;
};

/* How a kernel is launched. */
struct merak_launch {
    const char *name; /* the op's, for errors */
    dim3 grid, block;
    size_t shared_bytes;
};

#ifdef __CUDACC__
#define MERAK_STATIC_SHARED ((size_t)48 << 10) /* more needs an attribute */

template <typename... P>
static enum merak_status launch(const struct merak_cuda_context *cx,
                                const merak_launch &how,
                                struct merak_error *err, void (*kernel)(P...),
                                typename merak_same<P>::type... args)
{
    /* + 1: a kernel without arguments needs an array, too */
    void *list[sizeof...(P) + 1] = {
        const_cast<void *>(static_cast<const void *>(&args))..., nullptr};
    const void *entry = reinterpret_cast<const void *>(kernel);
    cudaError_t rc = cudaSuccess;

    if (how.grid.x == 0 || how.grid.y == 0 || how.grid.z == 0)
        return MERAK_OK;
    if (how.shared_bytes > MERAK_STATIC_SHARED)
        rc = cudaFuncSetAttribute(entry,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  (int)how.shared_bytes);
    if (rc == cudaErrorInvalidValue)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "the CUDA kernel of op \"%s\" needs %zu bytes of "
                          "shared memory, more than this GPU gives a block",
                          how.name, how.shared_bytes);
    if (rc == cudaSuccess)
        rc = cudaLaunchKernel(entry, how.grid, how.block, list,
                              how.shared_bytes, (cudaStream_t)cx->stream);
    if (rc == cudaSuccess)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_SYSTEM,
                      "cannot launch the CUDA kernel of op \"%s\": %s",
                      how.name, cudaGetErrorString(rc));
}

static inline enum merak_status clear(const struct merak_cuda_context *cx,
                                      void *to, size_t bytes,
                                      struct merak_error *err)
{
    cudaError_t rc = cudaMemsetAsync(to, 0, bytes, (cudaStream_t)cx->stream);

    if (rc == cudaSuccess)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_SYSTEM,
                      "cannot clear %zu bytes of the CUDA device: %s", bytes,
                      cudaGetErrorString(rc));
}
#else
template <typename... P>
static enum merak_status launch(const struct merak_cuda_context *cx,
                                const merak_launch &how,
                                struct merak_error *err, void (*kernel)(P...),
                                typename merak_same<P>::type... args)
{
    auto body = [=]() { kernel(args...); };
    struct bound {
        struct merak_sim_kernel kernel;
        decltype(body) run;
    } work = {{how.grid, how.block, how.shared_bytes,
               [](void *self) { static_cast<bound *>(self)->run(); }},
              body};

    static_assert(__is_trivially_copyable(decltype(body)),
                  "arguments of kernels are copied as bytes");
    if (merak_sim_launch(cx->stream, &work.kernel, sizeof(work)) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_SYSTEM,
                      "cannot launch the CUDA kernel of op \"%s\"", how.name);
}

static inline enum merak_status clear(const struct merak_cuda_context *cx,
                                      void *to, size_t bytes,
                                      struct merak_error *err)
{
    if (merak_sim_clear(cx->stream, to, bytes) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_SYSTEM,
                      "cannot clear %zu bytes of the CUDA device", bytes);
}
#endif

/* 2^x, wrong in about the last two bits, 0 for a denormal result: for results
 * in bf16. */
static __device__ __forceinline__ float rough_exp2(float x)
{
#ifdef __CUDACC__
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

MERAK_BOTH size_t ceil_div(size_t n, size_t by)
{
    return (n + by - 1) / by;
}

/* The index of this thread in a one-dimensional grid, and their number. */
static __device__ __forceinline__ size_t grid_thread()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ size_t grid_threads()
{
    return (size_t)gridDim.x * blockDim.x;
}

/* For grid-stride loops over items. */
#define MAP_THREADS 256
#define MAP_BLOCKS 4096

static inline merak_launch map_launch(const char *name, size_t items)
{
    size_t blocks = ceil_div(items, MAP_THREADS);

    return merak_launch{
        name, dim3((unsigned)(blocks < MAP_BLOCKS ? blocks : MAP_BLOCKS)),
        dim3(MAP_THREADS), 0};
}

/* MERAK_ERR_UNSUPPORTED unless operand o is f32 or bf16 (only f32 if
 * `wide`). */
static inline enum merak_status
check_dtype(const struct merak_kernel_call *call, int o, bool wide,
            struct merak_error *err)
{
    enum merak_dtype d = call->operand[o].dtype;

    if (d == MERAK_F32 || (d == MERAK_BF16 && !wide))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "the cuda backend computes in f32 and bf16, not in %s",
                      merak_dtype_name(d));
}

/* f(T()), with T the type of operand o's elements, as kernels are instances
 * for; or check_dtype()'s error. */
template <typename F>
static inline enum merak_status by_dtype(const struct merak_kernel_call *call,
                                         int o, struct merak_error *err,
                                         const F &f)
{
    enum merak_status rc = check_dtype(call, o, false, err);

    if (rc != MERAK_OK)
        return rc;
    return call->operand[o].dtype == MERAK_BF16 ? f(merak_bf16()) : f(float());
}

/* 32 bits of memory of other types. */
typedef unsigned merak_word __attribute__((may_alias));

/* --- memory in pieces ------------------------------------------------------
 */

/* Elements of a 16-byte piece. */
template <typename T> struct merak_piece {
    enum { N = 16 / sizeof(T) };
};

static inline bool is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static __device__ __forceinline__ void unpack(const uint4 &raw, float (&x)[4])
{
    x[0] = __uint_as_float(raw.x);
    x[1] = __uint_as_float(raw.y);
    x[2] = __uint_as_float(raw.z);
    x[3] = __uint_as_float(raw.w);
}

static __device__ __forceinline__ void unpack2(unsigned two, float *x)
{
    x[0] = __uint_as_float(two << 16);
    x[1] = __uint_as_float(two & 0xffff0000u);
}

static __device__ __forceinline__ void unpack(const uint4 &raw, float (&x)[8])
{
    unpack2(raw.x, x);
    unpack2(raw.y, x + 2);
    unpack2(raw.z, x + 4);
    unpack2(raw.w, x + 6);
}

/* One instruction rounds two. */
static __device__ __forceinline__ unsigned pack2(const float *x)
{
#ifdef __CUDA_ARCH__
    __nv_bfloat162_raw two = __floats2bfloat162_rn(x[0], x[1]);

    return (unsigned)two.x | (unsigned)two.y << 16;
#else
    return (unsigned)to_bf16_bits(x[0]) | (unsigned)to_bf16_bits(x[1]) << 16;
#endif
}

static __device__ __forceinline__ uint4 pack(const float (&x)[4])
{
    uint4 raw;

    raw.x = __float_as_uint(x[0]);
    raw.y = __float_as_uint(x[1]);
    raw.z = __float_as_uint(x[2]);
    raw.w = __float_as_uint(x[3]);
    return raw;
}

static __device__ __forceinline__ uint4 pack(const float (&x)[8])
{
    uint4 raw;

    raw.x = pack2(x);
    raw.y = pack2(x + 2);
    raw.z = pack2(x + 4);
    raw.w = pack2(x + 6);
    return raw;
}

/* 16 bytes of device memory, on a 16-byte boundary, in one instruction: nvcc
 * may divide an access to a uint4 into four.  Loads are issued in the order of
 * the text, so those of several pieces before the first is unpacked are in
 * flight together. */
static __device__ __forceinline__ uint4 load_16(const void *p)
{
#ifdef __CUDACC__
    uint4 raw;

    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
                 : "l"(__cvta_generic_to_global(p))
                 : "memory");
    return raw;
#else
    return *static_cast<const uint4 *>(p);
#endif
}

/* The same, or zeros unless `exists`: without a branch. */
static __device__ __forceinline__ uint4 load_16_if(bool exists, const void *p)
{
    uint4 raw = {0, 0, 0, 0};

#ifdef __CUDACC__
    asm volatile("{\n"
                 ".reg .pred exists;\n"
                 "setp.ne.u32 exists, %5, 0;\n"
                 "@exists ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 "}"
                 : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w)
                 : "l"(__cvta_generic_to_global(p)), "r"((unsigned)exists)
                 : "memory");
#else
    if (exists)
        raw = load_16(p);
#endif
    return raw;
}

static __device__ __forceinline__ void store_16(void *p, const uint4 &raw)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "r"(raw.x), "r"(raw.y),
                   "r"(raw.z), "r"(raw.w)
                 : "memory");
#else
    *static_cast<uint4 *>(p) = raw;
#endif
}

static __device__ __forceinline__ void store_8(void *p, unsigned x, unsigned y)
{
#ifdef __CUDACC__
    asm volatile("st.global.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "r"(x), "r"(y)
                 : "memory");
#else
    *static_cast<uint2 *>(p) = uint2{x, y};
#endif
}

/* Read elements at .. at + N - 1 of K arrays in device memory, of which `left`
 * exist; the others are zero.  `whole`: p[k] + at are on 16-byte boundaries if
 * left >= N.  The loads of all arrays are in flight together. */
template <typename T, int N, int K>
static __device__ __forceinline__ void read_all(const T *const (&p)[K],
                                                size_t at, size_t left,
                                                bool whole, float (&x)[K][N])
{
    constexpr int PIECE = merak_piece<T>::N;

    if constexpr (N % PIECE == 0) {
        if (whole && left >= N) {
            uint4 raw[K][N / PIECE];

#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int i = 0; i < N / PIECE; i++)
                    raw[k][i] = load_16(p[k] + at + i * PIECE);
#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int i = 0; i < N / PIECE; i++)
                    unpack(raw[k][i], *reinterpret_cast<float(*)[PIECE]>(
                                          &x[k][i * PIECE]));
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < N; i++)
            x[k][i] = (size_t)i < left ? to_f32(p[k][at + i]) : 0.0f;
}

/* The same of one array: elements p[0 .. N). */
template <typename T, int N>
static __device__ __forceinline__ void read(const T *p, size_t left, bool whole,
                                            float (&x)[N])
{
    const T *const one[1] = {p};

    read_all(one, 0, left, whole, *reinterpret_cast<float(*)[1][N]>(&x));
}

template <typename T, int N>
static __device__ __forceinline__ void write(T *p, size_t left, bool whole,
                                             const float (&x)[N])
{
    constexpr int PIECE = merak_piece<T>::N;

    if constexpr (N % PIECE == 0) {
        if (whole && left >= N) {
#pragma unroll
            for (int i = 0; i < N; i += PIECE)
                store_16(p + i,
                         pack(*reinterpret_cast<const float(*)[PIECE]>(&x[i])));
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if ((size_t)i < left)
            from_f32(&p[i], x[i]);
}

/* Pieces of rows that a thread takes at once: their loads are in flight
 * together. */
#define ROW_PIECES 4

/* A piece of a row. */
struct merak_place {
    size_t row, piece;
};

/* Piece k, where rows have so many: the first of a thread, or what advance()
 * adds to get the next, so that it divides twice in all. */
static __device__ __forceinline__ merak_place place_of(size_t k, size_t pieces)
{
    return merak_place{k / pieces, k % pieces};
}

static __device__ __forceinline__ void
advance(merak_place *p, const merak_place &by, size_t pieces)
{
    p->row += by.row;
    p->piece += by.piece;
    if (p->piece >= pieces) {
        p->piece -= pieces;
        p->row++;
    }
}

/* --- sums in a fixed order -------------------------------------------------
 */

/* Every lane gets the same bits: a pair's sum is the same from both sides. */
template <typename T> static __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, d);
    return x;
}

/* Which lanes say so, a bit each. */
static __device__ __forceinline__ unsigned warp_ballot(bool x)
{
#ifdef __CUDACC__
    return __ballot_sync(ALL_LANES, x);
#else
    unsigned lanes = (unsigned)x << (threadIdx.x % WARP);

    for (int d = WARP / 2; d > 0; d /= 2)
        lanes |= __shfl_xor_sync(ALL_LANES, lanes, d);
    return lanes;
#endif
}

MERAK_BOTH int count_bits(unsigned x)
{
#ifdef __CUDA_ARCH__
    return __popc(x);
#else
    return __builtin_popcount(x);
#endif
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, d));
    return x;
}

/* Sum of the THREADS threads (a warp, or the whole block) that share a row;
 * all of the block's threads take part. */
template <int THREADS, typename T>
static __device__ __forceinline__ T row_sum(T x)
{
    x = warp_sum(x);
    if constexpr (THREADS > WARP) {
        MERAK_SHARED(T, part, [THREADS / WARP]);

        __syncthreads(); /* the previous sum has been read */
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = x;
        __syncthreads();
        x = part[0];
#pragma unroll
        for (int w = 1; w < THREADS / WARP; w++)
            x += part[w];
    }
    return x;
}

template <int THREADS> static __device__ __forceinline__ float row_max(float x)
{
    x = warp_max(x);
    if constexpr (THREADS > WARP) {
        MERAK_SHARED(float, part, [THREADS / WARP]);

        __syncthreads();
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = x;
        __syncthreads();
        x = part[0];
#pragma unroll
        for (int w = 1; w < THREADS / WARP; w++)
            x = fmaxf(x, part[w]);
    }
    return x;
}

/* f(k, at) for each of a thread's pieces of a row of C elements that THREADS
 * threads share, THREADS pieces apart: the k-th, from element `at` on.  PIECES:
 * the most there are, to keep them in registers; 0: any number, k is 0. */
template <typename T, int THREADS, int PIECES, typename F>
static __device__ __forceinline__ void each_piece(unsigned C, F f)
{
    constexpr unsigned N = merak_piece<T>::N;
    unsigned first = threadIdx.x % THREADS * N;

    if constexpr (PIECES > 0) {
#pragma unroll
        for (int k = 0; k < PIECES; k++)
            if (first + (unsigned)k * THREADS * N < C)
                f(k, first + (unsigned)k * THREADS * N);
    } else {
        for (unsigned at = first; at < C; at += THREADS * N)
            f(0, at);
    }
}

/* Rows that a warp (short ones) or a block (long ones) works on. */
#define ROW_BLOCK 256
#define LONG_ROW 2048 /* elements; a warp takes shorter ones */

static inline merak_launch row_launch(const char *name, size_t rows,
                                      int threads)
{
    return merak_launch{
        name, dim3((unsigned)ceil_div(rows * (size_t)threads, ROW_BLOCK)),
        dim3(ROW_BLOCK), 0};
}

#endif
