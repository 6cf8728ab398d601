/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_expert_bias.cu - what is added to outputs of experts, and its gradients
 */
#include "config.h"

#include "kernels/cuda/cuda_experts.cuh"

template <typename T> struct merak_expert_bias {
    const float *w;     /* [n, K] */
    const int32_t *ids; /* the same */
    const float *bias;  /* [E, C] */
    const T *x;         /* [n, C], or dy */
    T *y;               /* the same */
    float *dw;          /* [n, K] */
    size_t rows, K, C;  /* rows: n K */
};

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    weigh_biases(const __grid_constant__ merak_expert_bias<T> x)
{
    for (size_t i = grid_thread(); i < x.rows / x.K * x.C;
         i += grid_threads()) {
        size_t row = i / x.C * x.K, c = i % x.C;
        float sum = to_f32(x.x[i]);

        for (size_t k = 0; k < x.K; k++) {
            int32_t e = x.ids[row + k];

            if (e >= 0)
                sum += x.w[row + k] * x.bias[(size_t)e * x.C + c];
        }
        from_f32(&x.y[i], sum);
    }
}

CUDA_KERNEL(experts_bias)
{
    const struct merak_operand *op = call->operand;

    return by_dtype(call, 0, err, [&](auto t) {
        using T = decltype(t);
        merak_expert_bias<T> x = {};

        x.x = static_cast<const T *>(op[0].data);
        x.w = static_cast<const float *>(op[1].data);
        x.ids = static_cast<const int32_t *>(op[2].data);
        x.bias = static_cast<const float *>(op[3].data);
        x.y = static_cast<T *>(merak_call_out(call, 0)->data);
        x.rows = merak_local_count(&op[2]);
        x.K = merak_local_last(&op[2]);
        x.C = merak_local_last(&op[0]);
        return launch(merak_cuda_context_of(call),
                      map_launch("experts_bias", x.rows / x.K * x.C), err,
                      weigh_biases<T>, x);
    });
}

/* A warp for each row. */
template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    weigh_rows(const __grid_constant__ merak_expert_bias<T> x)
{
    unsigned lane = threadIdx.x % WARP;
    size_t i = (blockIdx.x * (size_t)ROW_BLOCK + threadIdx.x) / WARP;
    int32_t e = i < x.rows ? x.ids[i] : -1;
    float sum = 0;

    for (size_t c = lane; c < x.C && e >= 0; c += WARP)
        sum += to_f32(x.x[i / x.K * x.C + c]) * x.bias[(size_t)e * x.C + c];
    sum = warp_sum(sum);
    if (i < x.rows && lane == 0)
        x.dw[i] = sum;
}

CUDA_KERNEL(experts_bias_dx)
{
    const struct merak_operand *op = call->operand;

    return by_dtype(call, 0, err, [&](auto t) {
        using T = decltype(t);
        merak_expert_bias<T> x = {};

        x.x = static_cast<const T *>(op[0].data);
        x.bias = static_cast<const float *>(op[1].data);
        x.ids = static_cast<const int32_t *>(op[2].data);
        x.dw = static_cast<float *>(merak_call_out(call, 0)->data);
        x.rows = merak_local_count(&op[2]);
        x.K = merak_local_last(&op[2]);
        x.C = merak_local_last(&op[0]);
        return launch(merak_cuda_context_of(call),
                      row_launch("experts_bias_dx", x.rows, WARP), err,
                      weigh_rows<T>, x);
    });
}

/* Rows sorted by expert, as in products of rows. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    add_by_expert(const __grid_constant__ merak_mlp<T> x)
{
    for (size_t i = grid_thread(); i < (size_t)x.s.E * x.C;
         i += grid_threads()) {
        size_t e = i / x.C, c = i % x.C;
        float sum = 0;

        for (uint32_t at = x.s.first[e]; at < x.s.first[e + 1]; at++) {
            uint32_t row = x.s.order[at];

            sum += x.w[row] * to_f32(x.dy[(size_t)(row / x.s.K) * x.C + c]);
        }
        x.dbias[i] = x.accumulate ? x.dbias[i] + sum : sum;
    }
}

CUDA_SCRATCH(experts_bias_db)
{
    return (merak_local_count(&call->operand[2]) +
            merak_call_out(call, 0)->local.dim[0] + 1) *
           sizeof(uint32_t);
}

CUDA_KERNEL(experts_bias_db)
{
    const struct merak_operand *op = call->operand;
    const struct merak_operand *db = merak_call_out(call, 0);

    return by_dtype(call, 0, err, [&](auto t) {
        using T = decltype(t);
        const struct merak_cuda_context *cx = merak_cuda_context_of(call);
        size_t rows = merak_local_count(&op[2]), K = merak_local_last(&op[2]);
        merak_mlp<T> x = {};
        enum merak_status rc;

        if (rows >= UINT32_MAX / 2 || db->local.dim[0] > 32767)
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "experts_bias_db of %zu rows and %zu experts: "
                              "the cuda backend takes up to 2^31 and 32767",
                              rows, db->local.dim[0]);
        x.s.ids = static_cast<const int32_t *>(op[2].data);
        x.s.n = (uint32_t)(rows / K);
        x.s.K = (uint32_t)K;
        x.s.E = (uint32_t)db->local.dim[0];
        x.s.order = static_cast<uint32_t *>(call->scratch);
        x.s.first = x.s.order + rows;
        x.C = (uint32_t)merak_local_last(db);
        x.dy = static_cast<const T *>(op[0].data);
        x.w = static_cast<const float *>(op[1].data);
        x.dbias = static_cast<float *>(db->data);
        x.accumulate = call->accumulate;
        rc = launch(cx,
                    merak_launch{"experts_bias_db", dim3(x.s.E),
                                 dim3(SORT_BLOCK), 0},
                    err, sort_rows, x.s);
        if (rc != MERAK_OK)
            return rc;
        return launch(cx, map_launch("experts_bias_db", (size_t)x.s.E * x.C),
                      err, add_by_expert<T>, x);
    });
}
