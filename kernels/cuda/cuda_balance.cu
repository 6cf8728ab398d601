/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_balance.cu - how evenly experts are loaded, and what that costs; the
 * equations are in ref/ref_balance.c
 *
 * A block has a sequence, a warp every so many of its tokens: each sums in
 * memory of its own, and the warps' sums are added in their order.
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

#define LOAD_WARPS 16
#define LOAD_BYTES ((size_t)48 << 10) /* of shared memory, if that is enough */

template <typename T> struct merak_balancing {
    merak_balance b;
    const T *z;
    const int32_t *ids;
    const float *load;
    T *dz;
    float *out;
};

/* What the scores of a token are made of. */
struct merak_scores {
    float max, sum, log_sum, sigmoids;
};

template <typename T>
static __device__ __forceinline__ merak_scores
find_scores(const merak_balance &b, const T *z, unsigned lane)
{
    merak_scores s = {-INFINITY, 0, 0, 0};

    for (size_t e = lane; e < b.E; e += WARP)
        s.max = fmaxf(s.max, to_f32(z[e]));
    s.max = warp_max(s.max);
    for (size_t e = lane; e < b.E; e += WARP) {
        s.sum += expf(to_f32(z[e]) - s.max);
        s.sigmoids += sigmoid(to_f32(z[e]));
    }
    s.sum = warp_sum(s.sum);
    s.sigmoids = warp_sum(s.sigmoids);
    s.log_sum = s.max + logf(s.sum);
    return s;
}

static __device__ __forceinline__ float share_of(const merak_balance &b,
                                                 const merak_scores &s, float z)
{
    return b.sigmoid ? sigmoid(z) / s.sigmoids : expf(z - s.max) / s.sum;
}

/* Of each warp a load of its tokens. */
template <typename T>
static __global__ void __launch_bounds__(LOAD_WARPS *WARP)
    load_tokens(merak_balancing<T> q)
{
    const merak_balance &b = q.b;
    size_t n = b.L, warps = blockDim.x / WARP;
    size_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float *all = static_cast<float *>(dynamic_shared()), *own = all + warp * n;
    float squares = 0;

    for (size_t e = lane; e < 2 * b.E; e += WARP)
        own[e] = 0;
    for (size_t t = warp; t < b.T; t += warps) {
        size_t token = blockIdx.x * b.T + t;
        const T *z = q.z + token * b.E;
        merak_scores s = find_scores(b, z, (unsigned)lane);

        for (size_t e = lane; e < b.E; e += WARP)
            own[b.E + e] += share_of(b, s, to_f32(z[e]));
        for (size_t j = 0; j < b.K; j++) { /* a lane has its own experts */
            size_t e = (size_t)q.ids[token * b.K + j];

            if (e % WARP == lane && e < b.E)
                own[e]++;
        }
        squares += s.log_sum * s.log_sum;
    }
    if (lane == 0)
        own[2 * b.E] = squares;
    __syncthreads();
    for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
        float sum = all[i];

        for (size_t w = 1; w < warps; w++)
            sum += all[w * n + i];
        q.out[blockIdx.x * n + i] = sum;
    }
}

CUDA_KERNEL(route_load)
{
    return by_dtype(call, 0, err, [&](auto x) {
        using T = decltype(x);
        merak_balancing<T> q = {};
        size_t bytes, warps;

        q.b = merak_load_view(call);
        q.z = static_cast<const T *>(q.b.z->data);
        q.ids = static_cast<const int32_t *>(q.b.ids->data);
        q.out = static_cast<float *>(q.b.load->data);
        bytes = q.b.L * sizeof(float);
        warps = LOAD_BYTES / bytes;
        warps = warps > LOAD_WARPS ? LOAD_WARPS : warps > 0 ? warps : 1;
        return launch(merak_cuda_context_of(call),
                      merak_launch{"route_load", dim3((unsigned)q.b.B),
                                   dim3((unsigned)(warps * WARP)),
                                   warps * bytes},
                      err, load_tokens<T>, q);
    });
}

/* One warp. */
static __global__ void __launch_bounds__(WARP)
    tally_loads(merak_balance b, const float *load, double *tally)
{
    size_t n = b.L;
    double aux = 0, squares = 0;

    for (size_t e = threadIdx.x; e < b.E; e += WARP) {
        double rows = 0;

        for (size_t s = 0; s < b.B; s++) {
            double here = (double)load[s * n + e];

            aux += here * (double)load[s * n + b.E + e];
            rows += here;
        }
        tally[2 + e] = rows;
    }
    for (size_t s = threadIdx.x; s < b.B; s += WARP)
        squares += (double)load[s * n + 2 * b.E];
    aux = warp_sum(aux);
    squares = warp_sum(squares);
    if (threadIdx.x != 0)
        return;
    tally[0] = aux * (double)b.E / (b.all_t * b.all_t * b.all_b);
    tally[1] = squares / (b.all_t * b.all_b);
}

CUDA_KERNEL(balance)
{
    merak_balance b = merak_balance_view(call);
    enum merak_status rc = check_dtype(call, 0, true, err);

    if (rc != MERAK_OK)
        return rc;
    return launch(merak_cuda_context_of(call),
                  merak_launch{"balance", dim3(1), dim3(WARP), 0}, err,
                  tally_loads, b, static_cast<const float *>(b.load->data),
                  static_cast<double *>(merak_call_out(call, 0)->data));
}

/* A warp for each token. */
template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    balance_rows(merak_balancing<T> q)
{
    const merak_balance &b = q.b;
    unsigned lane = threadIdx.x % WARP;
    size_t row = (blockIdx.x * (size_t)ROW_BLOCK + threadIdx.x) / WARP;
    size_t last = b.B * b.T - 1, i = row < last ? row : last;
    const T *z = q.z + i * b.E;
    const float *rows = q.load + i / b.T * b.L;
    merak_scores s = find_scores(b, z, lane);
    float mean = 0, square = (float)b.square * s.log_sum;

    for (size_t e = lane; e < b.E; e += WARP)
        mean += rows[e] * share_of(b, s, to_f32(z[e]));
    mean = warp_sum(mean);
    for (size_t e = lane; e < b.E && row <= last; e += WARP) {
        float x = to_f32(z[e]), p = share_of(b, s, x);
        float d = (rows[e] - mean) * p * (float)b.aux;

        if (b.sigmoid)
            d *= 1 - sigmoid(x);
        from_f32(&q.dz[i * b.E + e], d + square * (expf(x - s.max) / s.sum));
    }
}

CUDA_KERNEL(balance_dx)
{
    return by_dtype(call, 0, err, [&](auto x) {
        using T = decltype(x);
        merak_balancing<T> q = {};

        q.b = merak_balance_dx_view(call);
        q.z = static_cast<const T *>(q.b.z->data);
        q.load = static_cast<const float *>(q.b.load->data);
        q.dz = static_cast<T *>(merak_call_out(call, 0)->data);
        return launch(merak_cuda_context_of(call),
                      row_launch("balance_dx", q.b.B * q.b.T, WARP), err,
                      balance_rows<T>, q);
    });
}

static __global__ void __launch_bounds__(ROW_BLOCK)
    count_overflow(merak_overflow o, double *out)
{
    MERAK_SHARED(uint32_t, part, [ROW_BLOCK]);
    uint32_t rows = 0;

    for (size_t i = threadIdx.x; i < o.n; i += ROW_BLOCK)
        rows += (size_t)o.ids[i] - o.from < o.E;
    part[threadIdx.x] = rows;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int i = 1; i < ROW_BLOCK; i++)
        rows += part[i];
    *out = rows > o.kept ? (double)(rows - o.kept) * o.part : 0;
}

CUDA_KERNEL(experts_overflow)
{
    enum merak_status rc = check_dtype(call, 1, false, err);

    if (rc != MERAK_OK)
        return rc;
    return launch(merak_cuda_context_of(call),
                  merak_launch{"experts_overflow", dim3(1), dim3(ROW_BLOCK), 0},
                  err, count_overflow, merak_overflow_view(call),
                  static_cast<double *>(merak_call_out(call, 0)->data));
}

static __global__ void __launch_bounds__(MAP_THREADS)
    count_rows(merak_balance b, double by_rows, double less, const float *load,
               float *out, bool accumulate)
{
    for (size_t e = grid_thread(); e < b.E; e += grid_threads()) {
        double rows = 0;

        for (size_t s = 0; s < b.B; s++)
            rows += (double)load[s * b.L + e];
        out[e] = (accumulate ? out[e] : 0) + (float)(by_rows * rows - less);
    }
}

CUDA_KERNEL(balance_count)
{
    merak_balance b = merak_balance_view(call);
    enum merak_status rc = check_dtype(call, 0, true, err);
    double by_rows, by_tokens;

    if (rc != MERAK_OK)
        return rc;
    merak_balance_whole(&b, &by_rows, &by_tokens);
    return launch(merak_cuda_context_of(call), map_launch("balance_count", b.E),
                  err, count_rows, b, by_rows, by_tokens * (double)b.B,
                  static_cast<const float *>(b.load->data),
                  static_cast<float *>(merak_call_out(call, 0)->data),
                  call->accumulate);
}
