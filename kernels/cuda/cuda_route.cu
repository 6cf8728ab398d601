/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_route.cu - which experts a token's rows go to, and with what weights: a
 * warp for each token */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

template <typename T> struct merak_routing {
    merak_route r;
    const T *z;
    const float *bias; /* or NULL */
    float *w, *score, *merit;
    int32_t *ids;
    const float *dw;
    T *dz;
};

/* The largest logit of a token, and the sum of the exponentials. */
template <typename T>
static __device__ __forceinline__ void find_softmax(const merak_routing<T> &q,
                                                    const T *z, unsigned lane,
                                                    float *max_p, float *sum_p)
{
    float max = -INFINITY, sum = 0;

    for (size_t e = lane; e < q.r.E; e += WARP)
        max = fmaxf(max, to_f32(z[e]));
    max = warp_max(max);
    for (size_t e = lane; e < q.r.E; e += WARP)
        sum += expf(to_f32(z[e]) - max);
    *max_p = max;
    *sum_p = warp_sum(sum);
}

static __device__ __forceinline__ bool is_taken(const int32_t *id, size_t n,
                                                size_t e)
{
    for (size_t j = 0; j < n; j++)
        if ((size_t)id[j] == e)
            return true;
    return false;
}

/* The sum of a group's two best, or its best. */
static __device__ __forceinline__ float group_merit(const float *merit,
                                                    size_t size, bool by_best)
{
    float first = merit[0], second = by_best || size == 1 ? 0 : -INFINITY;

    for (size_t e = 1; e < size; e++) {
        float x = merit[e];

        if (!by_best)
            second = fmaxf(second, fminf(x, first));
        first = fmaxf(first, x);
    }
    return first + second;
}

/* Does a group count?  It does if fewer than `kept` are better. */
static __device__ __forceinline__ bool is_kept(const merak_route &r,
                                               const float *merit, size_t group)
{
    size_t size = r.E / r.groups, better = 0;
    float own = group_merit(merit + group * size, size, r.by_best);

    for (size_t g = 0; g < r.groups; g++) {
        float other = group_merit(merit + g * size, size, r.by_best);

        better += other > own || (other == own && g < group);
    }
    return better < r.kept;
}

/* The best expert that is not in id[0 .. n), of equal ones the first; every
 * lane gets it. */
static __device__ __forceinline__ size_t best(const merak_route &r,
                                              const float *merit,
                                              const int32_t *id, size_t n,
                                              unsigned lane)
{
    uint32_t found = (uint32_t)r.E;
    float most = -INFINITY;

    for (size_t e = lane; e < r.E; e += WARP) {
        size_t size = r.E / r.groups;

        if (is_taken(id, n, e) ||
            (r.groups > 1 && !is_kept(r, merit, e / size)))
            continue;
        if (found == r.E || merit[e] > most) {
            found = (uint32_t)e;
            most = merit[e];
        }
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, most, d);
        uint32_t at = __shfl_xor_sync(ALL_LANES, found, d);

        if (at < r.E &&
            (found == r.E || other > most || (!(most > other) && at < found))) {
            most = other;
            found = at;
        }
    }
    return found;
}

template <typename T>
static __device__ __forceinline__ void
put_weights(const merak_routing<T> &q, const float *score, const int32_t *id,
            float *w, unsigned lane)
{
    float sum = q.r.sigmoid ? (float)MERAK_ROUTE_TINY : 0;

    for (size_t j = 0; j < q.r.K; j++)
        sum += score[id[j]];
    for (size_t j = lane; j < q.r.K; j += WARP) {
        float x = score[id[j]];

        x = (float)q.r.scale * (q.r.normal ? x / sum : x);
        if (q.r.rounded) {
            T stored;

            from_f32(&stored, x);
            x = to_f32(stored);
        }
        w[j] = x;
    }
}

template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    route_rows(merak_routing<T> q)
{
    unsigned lane = threadIdx.x % WARP;
    size_t row = (blockIdx.x * (size_t)ROW_BLOCK + threadIdx.x) / WARP;
    size_t i = row < q.r.n ? row : q.r.n - 1, E = q.r.E; /* all take part */
    float *score = q.score + row * E, *merit = q.merit + row * E;
    int32_t *id = q.ids + i * q.r.K;
    float max = 0, sum = 1;

    if (!q.r.sigmoid)
        find_softmax(q, q.z + i * E, lane, &max, &sum);
    for (size_t e = lane; e < E; e += WARP) {
        float z = to_f32(q.z[i * E + e]);
        float s = q.r.sigmoid ? sigmoid(z) : expf(z - max) / sum;

        score[e] = s;
        merit[e] = (q.r.sigmoid ? s : z) + (q.bias != nullptr ? q.bias[e] : 0);
    }
    __syncwarp();
    for (size_t j = 0; j < q.r.K; j++) {
        size_t e = best(q.r, merit, id, j, lane);

        if (lane == 0 && row < q.r.n)
            id[j] = (int32_t)e;
        __syncwarp();
    }
    if (row < q.r.n)
        put_weights(q, score, id, q.w + i * q.r.K, lane);
}

/* Of the warps that blocks have, too. */
static size_t rows_of(const struct merak_kernel_call *call)
{
    size_t warps = ROW_BLOCK / WARP;

    return ceil_div(merak_route_view(call).n, warps) * warps;
}

CUDA_SCRATCH(route)
{
    return 2 * rows_of(call) * merak_route_view(call).E * sizeof(float);
}

template <typename T>
static merak_routing<T> view_route(const struct merak_kernel_call *call, int z)
{
    merak_routing<T> q = {};

    q.r = merak_route_view(call);
    q.z = static_cast<const T *>(call->operand[z].data);
    return q;
}

CUDA_KERNEL(route)
{
    return by_dtype(call, 0, err, [&](auto x) {
        using T = decltype(x);
        merak_routing<T> q = view_route<T>(call, 0);

        if (call->n_in > 1)
            q.bias = static_cast<const float *>(call->operand[1].data);
        q.w = static_cast<float *>(merak_call_out(call, 0)->data);
        q.ids = static_cast<int32_t *>(merak_call_out(call, 1)->data);
        q.score = static_cast<float *>(call->scratch);
        q.merit = q.score + rows_of(call) * q.r.E;
        return launch(merak_cuda_context_of(call),
                      row_launch("route", q.r.n, WARP), err, route_rows<T>, q);
    });
}

/* The gradient of the score of a token's row, given the sums over its rows of
 * scores, and of scores times scaled gradients of weights. */
static __device__ __forceinline__ float share(const merak_route &r, float dw,
                                              float sum, float dot)
{
    float d = (float)r.scale * dw;

    return r.normal ? (d - dot / sum) / sum : d;
}

template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    route_rows_back(merak_routing<T> q)
{
    unsigned lane = threadIdx.x % WARP;
    size_t row = (blockIdx.x * (size_t)ROW_BLOCK + threadIdx.x) / WARP;
    size_t i = row < q.r.n ? row : q.r.n - 1, E = q.r.E, K = q.r.K;
    const T *z = q.z + i * E;
    const int32_t *id = q.ids + i * K;
    const float *dw = q.dw + i * K;
    float max = 0, sum = 1, total = 0, dot = 0, all = 0;

    if (!q.r.sigmoid)
        find_softmax(q, z, lane, &max, &sum);
    auto score = [&](size_t e) {
        float x = to_f32(z[e]);

        return q.r.sigmoid ? sigmoid(x) : expf(x - max) / sum;
    };
    if (q.r.sigmoid)
        total = (float)MERAK_ROUTE_TINY;
    for (size_t j = 0; j < K; j++) {
        float s = score((size_t)id[j]);

        total += s;
        dot += (float)q.r.scale * dw[j] * s;
    }
    for (size_t j = 0; j < K && !(q.r.normal && !q.r.sigmoid); j++)
        all += share(q.r, dw[j], total, dot) * score((size_t)id[j]);
    for (size_t e = lane; e < E && row < q.r.n; e += WARP) {
        float s = score(e), d = 0;

        for (size_t j = 0; j < K; j++)
            if ((size_t)id[j] == e)
                d += share(q.r, dw[j], total, dot);
        from_f32(&q.dz[i * E + e],
                 q.r.sigmoid ? d * s * (1 - s) : s * (d - all));
    }
}

CUDA_KERNEL(route_dx)
{
    return by_dtype(call, 1, err, [&](auto x) {
        using T = decltype(x);
        merak_routing<T> q = view_route<T>(call, 1);

        q.dw = static_cast<const float *>(call->operand[0].data);
        q.ids = static_cast<int32_t *>(call->operand[2].data);
        q.dz = static_cast<T *>(merak_call_out(call, 0)->data);
        return launch(merak_cuda_context_of(call),
                      row_launch("route_dx", q.r.n, WARP), err,
                      route_rows_back<T>, q);
    });
}
