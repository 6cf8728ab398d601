/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_experts.cu - gated MLPs of chosen rows, and their gradients
 *
 * Rows are sorted by expert on the device; the host never learns how many each
 * expert has, so that launches depend on shapes alone and can be recorded.  A
 * grid has as many tiles of rows as any routing needs.  What a shared pool has
 * no place for goes to scratch, and is made again for gradients.
 */
#include "config.h"

#include "kernels/cuda/cuda_experts.cuh"

/* --- products of rows ------------------------------------------------------- */

/* x by `gate`, or with blockIdx.z = 1 by `up`, to the pool. */
template <typename T> struct merak_first {
    enum { TURNED = false };
    const merak_mlp<T> &x;
    const T *matrix;
    const float *bias;
    uint32_t half;

    __device__ merak_first(const merak_mlp<T> &mlp, const merak_tile &t)
        : x(mlp), bias(NULL), half(blockIdx.z)
    {
        matrix = (half ? mlp.up : mlp.gate) + (size_t)t.expert * mlp.F * mlp.C;
        if (mlp.bias != NULL)
            bias = mlp.bias + ((size_t)t.expert * 2 + half) * mlp.F;
    }
    __device__ float a(size_t i, size_t k) const
    {
        return to_f32(x.x[(size_t)(x.s.order[i] / x.s.K) * x.C + k]);
    }
    __device__ float b(size_t n, size_t k) const
    {
        return to_f32(matrix[n * x.C + k]);
    }
    __device__ void put(size_t i, size_t n, float v) const
    {
        if (i >= x.skip)
            from_f32(&layer_at(x, x.pool, x.layer, i)[half * x.F + n],
                     bias != NULL ? v + bias[n] : v);
    }
};

/* What that makes by `down`. */
template <typename T> struct merak_second {
    enum { TURNED = false };
    const merak_mlp<T> &x;
    const T *matrix;

    __device__ merak_second(const merak_mlp<T> &mlp, const merak_tile &t)
        : x(mlp), matrix(mlp.down + (size_t)t.expert * mlp.F * mlp.C)
    {
    }
    __device__ float a(size_t i, size_t k) const
    {
        return inner(x, layer_at(x, x.pool, x.layer, i), k);
    }
    __device__ float b(size_t n, size_t k) const
    {
        return to_f32(matrix[n * x.F + k]);
    }
    __device__ void put(size_t i, size_t n, float v) const
    {
        x.rows[(size_t)x.s.order[i] * x.C + n] = v;
    }
};

/* dy by `down`. */
template <typename T> struct merak_second_back {
    enum { TURNED = true };
    const merak_mlp<T> &x;
    const T *matrix;

    __device__ merak_second_back(const merak_mlp<T> &mlp, const merak_tile &t)
        : x(mlp), matrix(mlp.down + (size_t)t.expert * mlp.F * mlp.C)
    {
    }
    __device__ float a(size_t i, size_t k) const
    {
        return to_f32(x.dy[(size_t)(x.s.order[i] / x.s.K) * x.C + k]);
    }
    __device__ float b(size_t n, size_t k) const
    {
        return to_f32(matrix[k * x.F + n]);
    }
    __device__ void put(size_t i, size_t n, float v) const
    {
        x.rows[(size_t)x.s.order[i] * x.F + n] = v;
    }
};

/* The gradients in the pool by `gate` and `up`, as one product of 2 F. */
template <typename T> struct merak_first_back {
    enum { TURNED = true };
    const merak_mlp<T> &x;
    const T *gate, *up;

    __device__ merak_first_back(const merak_mlp<T> &mlp, const merak_tile &t)
        : x(mlp), gate(mlp.gate + (size_t)t.expert * mlp.F * mlp.C),
          up(mlp.up + (size_t)t.expert * mlp.F * mlp.C)
    {
    }
    __device__ float a(size_t i, size_t k) const
    {
        return to_f32(layer_at(x, x.dpool, x.change, i)[k]);
    }
    __device__ float b(size_t n, size_t k) const
    {
        return to_f32(k < x.F ? gate[k * x.C + n] : up[(k - x.F) * x.C + n]);
    }
    __device__ void put(size_t i, size_t n, float v) const
    {
        x.rows[(size_t)x.s.order[i] * x.C + n] = v;
    }
};

/* Block (n, m): a tile of columns of a tile of rows. */
template <typename T, template <typename> class P>
static __global__ void __launch_bounds__(TILE_THREADS, TILE_BLOCKS)
    multiply_rows(const __grid_constant__ merak_mlp<T> x, uint32_t N,
                  uint32_t depth)
{
    merak_tile t = tile_of(x.s, blockIdx.y);

    if (t.from < t.to && t.to > x.skip)
        multiply_tile(P<T>(x, t), t.from, t.to, (size_t)blockIdx.x * TILE_N, N,
                      0, depth);
}

template <typename T, template <typename> class P>
static enum merak_status run_rows(const struct merak_kernel_call *call,
                                  const char *name, const merak_mlp<T> &x,
                                  uint32_t N, uint32_t depth, unsigned parts,
                                  struct merak_error *err)
{
    size_t tiles = ceil_div((size_t)x.s.n * x.s.K, TILE_M) + x.s.E;

    if (tiles > 65535)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s of %u tokens: the cuda backend takes up to %d "
                          "tiles of rows at once; use smaller micro-batches",
                          name, x.s.n, 65535);
    return launch(merak_cuda_context_of(call),
                  merak_launch{name,
                               dim3((unsigned)ceil_div(N, TILE_N),
                                    (unsigned)tiles, parts),
                               dim3(TILE_THREADS), 0},
                  err, multiply_rows<T, P>, x, N, depth);
}

/* --- rows ----------------------------------------------------------------- */

/* Each token's sum of its rows, by ascending expert; a product with a weight,
 * if there are any, is rounded before it is added. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    add_rows(const __grid_constant__ merak_mlp<T> x, bool weighted)
{
    uint32_t K = x.s.K;

    for (size_t i = grid_thread(); i < (size_t)x.s.n * x.C;
         i += grid_threads()) {
        size_t token = i / x.C, c = i % x.C;
        float sum = 0;

        by_expert(
            x.s.ids + token * K, K,
            [&](size_t k) { return has_row(x.s, token * K + k); },
            [&](size_t k) {
                size_t row = token * K + k;
                float y = x.rows[row * x.C + c];

                sum = add_rn(sum, weighted ? mul_rn(x.w[row], y) : y);
            });
        from_f32(&x.out[i], sum);
    }
}

/* Gradients of a row's weight and of its part of the pool: a warp for each
 * position from x.skip on.  Weights of rows of others' experts get none. */
template <typename T>
static __global__ void __launch_bounds__(ROW_BLOCK)
    part_rows(const __grid_constant__ merak_mlp<T> x)
{
    unsigned lane = threadIdx.x % WARP;
    size_t i = (blockIdx.x * (size_t)ROW_BLOCK + threadIdx.x) / WARP;
    bool exists = i >= x.skip && i < x.s.first[x.s.E];
    size_t row = exists ? x.s.order[i] : 0;
    const T *layer = NULL;
    T *change = NULL;
    float dw = 0;

    if (exists) {
        layer = layer_at(x, x.pool, x.layer, i);
        change = layer_at(x, x.dpool, x.change, i);
    }
    for (size_t f = lane; f < x.F && exists; f += WARP) {
        float g = to_f32(layer[f]), u = to_f32(layer[x.F + f]);
        float d = x.rows[row * x.F + f], dg, du;

        dw += d * inner(x, layer, f);
        d *= x.w[row];
        if (x.gates.plain) {
            dg = d * u * silu_slope(g);
            du = d * g * sigmoid(g);
        } else {
            slopes(x.gates, g, u, d, &dg, &du);
        }
        from_f32(&change[f], dg);
        from_f32(&change[x.F + f], du);
    }
    dw = warp_sum(dw);
    if (exists && lane == 0 && x.dw != NULL)
        x.dw[row] = dw;
    if (i < (size_t)x.s.n * x.s.K && lane == 0 && x.dw != NULL &&
        !has_row(x.s, i))
        x.dw[i] = 0;
}

/* --- gradients of weights ------------------------------------------------- */

/* Of `gate`, or of `up`: blockIdx.z is twice the expert, and which. */
template <typename T> struct merak_first_weights {
    enum { TURNED = true };
    const merak_mlp<T> &x;
    float *to;
    uint32_t half;

    __device__ merak_first_weights(const merak_mlp<T> &mlp, uint32_t e)
        : x(mlp), half(blockIdx.z % 2)
    {
        to = (half ? mlp.dup : mlp.dgate) + (size_t)e * mlp.F * mlp.C;
    }
    static __device__ uint32_t expert()
    {
        return blockIdx.z / 2;
    }
    __device__ float a(size_t m, size_t i) const
    {
        return to_f32(layer_at(x, x.dpool, x.change, i)[half * x.F + m]);
    }
    __device__ float b(size_t n, size_t i) const
    {
        return to_f32(x.x[(size_t)(x.s.order[i] / x.s.K) * x.C + n]);
    }
    __device__ void put(size_t m, size_t n, float v) const
    {
        float *at = to + m * x.C + n;

        *at = x.accumulate ? *at + v : v;
    }
};

template <typename T> struct merak_second_weights {
    enum { TURNED = true };
    const merak_mlp<T> &x;
    float *to;

    __device__ merak_second_weights(const merak_mlp<T> &mlp, uint32_t e)
        : x(mlp), to(mlp.ddown + (size_t)e * mlp.F * mlp.C)
    {
    }
    static __device__ uint32_t expert()
    {
        return blockIdx.z;
    }
    __device__ float a(size_t m, size_t i) const
    {
        size_t row = x.s.order[i];

        return rounded<T>(x.w[row] * to_f32(x.dy[row / x.s.K * x.C + m]));
    }
    __device__ float b(size_t n, size_t i) const
    {
        return inner(x, layer_at(x, x.pool, x.layer, i), n);
    }
    __device__ void put(size_t m, size_t n, float v) const
    {
        float *at = to + m * x.F + n;

        *at = x.accumulate ? *at + v : v;
    }
};

template <typename T, template <typename> class P>
static __global__ void __launch_bounds__(TILE_THREADS, TILE_BLOCKS)
    multiply_experts(const __grid_constant__ merak_mlp<T> x, uint32_t M,
                     uint32_t N)
{
    uint32_t e = P<T>::expert();

    multiply_tile(P<T>(x, e), (size_t)blockIdx.y * TILE_M, M,
                  (size_t)blockIdx.x * TILE_N, N, x.s.first[e],
                  x.s.first[e + 1]);
}

template <typename T, template <typename> class P>
static enum merak_status
run_weights(const struct merak_kernel_call *call, const merak_mlp<T> &x,
            uint32_t M, uint32_t N, unsigned parts, struct merak_error *err)
{
    return launch(merak_cuda_context_of(call),
                  merak_launch{"experts_dw",
                               dim3((unsigned)ceil_div(N, TILE_N),
                                    (unsigned)ceil_div(M, TILE_M), parts),
                               dim3(TILE_THREADS), 0},
                  err, multiply_experts<T, P>, x, M, N);
}

/* --- calls ---------------------------------------------------------------- */

/* Where a call's scratch has what; the whole in bytes. */
struct merak_experts_scratch {
    size_t width; /* of a row, in floats */
    size_t layers, order, bytes; /* layers: and their gradients */
};

/* Rows of outputs or of gradients, layers that the pool has no place for, and
 * what sorts rows. */
static merak_experts_scratch scratch_of(const struct merak_kernel_call *call)
{
    struct merak_experts s = merak_experts_sizes(call);
    size_t rows = s.n * s.K, more = rows > s.kept ? rows - s.kept : 0;
    size_t word = merak_dtype_bytes(call->operand[0].dtype);
    merak_experts_scratch at;

    at.width = s.C > s.F ? s.C : s.F;
    if (s.of_weights)
        at.width = more > 0 ? s.F : 0;
    at.layers = rows * at.width * sizeof(float);
    at.order = at.layers +
               ceil_div((call->n_out == 2 ? 1 : 2) * more * 2 * s.F * word,
                        sizeof(uint32_t)) *
                   sizeof(uint32_t);
    at.bytes = at.order + (rows + s.E + 1) * sizeof(uint32_t);
    return at;
}

CUDA_SCRATCH(experts)
{
    return scratch_of(call).bytes;
}

CUDA_SCRATCH(experts_dx)
{
    return scratch_of(call).bytes;
}

CUDA_SCRATCH(experts_dw)
{
    return scratch_of(call).bytes;
}

CUDA_SCRATCH(experts_db)
{
    return scratch_of(call).bytes;
}

template <typename T>
static enum merak_status start(const struct merak_kernel_call *call,
                               const char *name, merak_mlp<T> *x,
                               struct merak_error *err)
{
    struct merak_experts s = merak_experts_sizes(call);
    merak_experts_scratch at = scratch_of(call);
    char *scratch = static_cast<char *>(call->scratch);

    if (s.n * s.K >= UINT32_MAX / 2 || s.E > 32767)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s of %zu rows and %zu experts: the cuda backend "
                          "takes up to 2^31 and 32767",
                          name, s.n * s.K, s.E);
    x->rows = reinterpret_cast<float *>(scratch);
    x->layer = reinterpret_cast<T *>(scratch + at.layers);
    x->kept = (uint32_t)(s.kept < s.n * s.K ? s.kept : s.n * s.K);
    x->change = x->layer + (s.n * s.K - x->kept) * 2 * s.F;
    x->shared = s.shared;
    x->s.order = reinterpret_cast<uint32_t *>(scratch + at.order);
    x->s.first = x->s.order + s.n * s.K;
    x->s.ids = s.ids;
    x->s.n = (uint32_t)s.n;
    x->s.K = (uint32_t)s.K;
    x->s.E = (uint32_t)s.E;
    x->s.begin = (uint32_t)s.from;
    x->F = (uint32_t)s.F;
    x->C = (uint32_t)s.C;
    x->w = static_cast<const float *>(call->operand[1].data);
    x->gates = {(float)s.gating.limit, (float)s.gating.slope,
                (float)s.gating.shift, s.gating.plain};
    if (s.bias != NULL)
        x->bias = static_cast<const float *>(s.bias->data);
    return launch(merak_cuda_context_of(call),
                  merak_launch{name, dim3(x->s.E), dim3(SORT_BLOCK), 0}, err,
                  sort_rows, x->s);
}

/* Make the layers of rows that have no place. */
template <typename T>
static enum merak_status make_layers(const struct merak_kernel_call *call,
                                     const char *name, merak_mlp<T> x,
                                     struct merak_error *err)
{
    x.skip = x.kept;
    if (x.kept == x.s.n * x.s.K)
        return MERAK_OK;
    return run_rows<T, merak_first>(call, name, x, x.F, x.C, 2, err);
}

/* The gradients of layers of rows from position x.skip on. */
template <typename T>
static enum merak_status make_changes(const struct merak_kernel_call *call,
                                      const char *name, const merak_mlp<T> &x,
                                      struct merak_error *err)
{
    enum merak_status rc =
        run_rows<T, merak_second_back>(call, name, x, x.F, x.C, 1, err);

    if (rc != MERAK_OK)
        return rc;
    return launch(merak_cuda_context_of(call),
                  row_launch(name, (size_t)x.s.n * x.s.K, WARP), err,
                  part_rows<T>, x);
}

/* Operand o is the gate, and the next two are the other matrices. */
template <typename T>
static void take_weights(const struct merak_kernel_call *call, int o,
                         merak_mlp<T> *x)
{
    x->gate = static_cast<const T *>(call->operand[o].data);
    x->up = static_cast<const T *>(call->operand[o + 1].data);
    x->down = static_cast<const T *>(call->operand[o + 2].data);
}

template <typename T>
static enum merak_status combine(const struct merak_kernel_call *call,
                                 const char *name, const merak_mlp<T> &x,
                                 bool weighted, struct merak_error *err)
{
    return launch(merak_cuda_context_of(call),
                  map_launch(name, (size_t)x.s.n * x.C), err, add_rows<T>, x,
                  weighted);
}

template <typename T>
static enum merak_status forward(const struct merak_kernel_call *call,
                                 struct merak_error *err)
{
    merak_mlp<T> x = {};
    enum merak_status rc = start(call, "experts", &x, err);

    take_weights(call, 3, &x);
    x.x = static_cast<const T *>(call->operand[0].data);
    x.out = static_cast<T *>(merak_call_out(call, 0)->data);
    x.pool = static_cast<T *>(merak_call_out(call, 1)->data);
    if (rc == MERAK_OK)
        rc = run_rows<T, merak_first>(call, "experts", x, x.F, x.C, 2, err);
    if (rc == MERAK_OK)
        rc = run_rows<T, merak_second>(call, "experts", x, x.C, x.F, 1, err);
    return rc == MERAK_OK ? combine(call, "experts", x, true, err) : rc;
}

CUDA_KERNEL(experts)
{
    return by_dtype(call, 0, err,
                    [&](auto x) { return forward<decltype(x)>(call, err); });
}

template <typename T>
static enum merak_status backward(const struct merak_kernel_call *call,
                                  struct merak_error *err)
{
    merak_mlp<T> x = {};
    enum merak_status rc = start(call, "experts_dx", &x, err);

    take_weights(call, 3, &x);
    x.dy = static_cast<const T *>(call->operand[0].data);
    x.pool = static_cast<T *>(call->operand[6].data);
    x.x = static_cast<const T *>(call->operand[7].data);
    x.out = static_cast<T *>(merak_call_out(call, 0)->data);
    x.dw = static_cast<float *>(merak_call_out(call, 1)->data);
    x.dpool = static_cast<T *>(merak_call_out(call, 2)->data);
    if (rc == MERAK_OK)
        rc = make_layers(call, "experts_dx", x, err);
    if (rc == MERAK_OK)
        rc = make_changes(call, "experts_dx", x, err);
    if (rc == MERAK_OK)
        rc = run_rows<T, merak_first_back>(call, "experts_dx", x, x.C, 2 * x.F,
                                           1, err);
    return rc == MERAK_OK ? combine(call, "experts_dx", x, false, err) : rc;
}

CUDA_KERNEL(experts_dx)
{
    return by_dtype(call, 0, err,
                    [&](auto x) { return backward<decltype(x)>(call, err); });
}

/* Of gradients of parameters: sort, and make what rows have no place for. */
template <typename T>
static enum merak_status start_weights(const struct merak_kernel_call *call,
                                       const char *name, merak_mlp<T> *x,
                                       struct merak_error *err)
{
    enum merak_status rc = start(call, name, x, err);

    x->x = static_cast<const T *>(call->operand[0].data);
    x->dy = static_cast<const T *>(call->operand[3].data);
    x->pool = static_cast<T *>(call->operand[4].data);
    x->dpool = static_cast<T *>(call->operand[5].data);
    x->accumulate = call->accumulate;
    if (rc != MERAK_OK || x->kept == x->s.n * x->s.K)
        return rc;
    take_weights(call, 6, x);
    rc = make_layers(call, name, *x, err);
    x->skip = x->kept;
    return rc == MERAK_OK ? make_changes(call, name, *x, err) : rc;
}

template <typename T>
static enum merak_status weights(const struct merak_kernel_call *call,
                                 struct merak_error *err)
{
    merak_mlp<T> x = {};
    enum merak_status rc = start_weights(call, "experts_dw", &x, err);

    x.dgate = static_cast<float *>(merak_call_out(call, 0)->data);
    x.dup = static_cast<float *>(merak_call_out(call, 1)->data);
    x.ddown = static_cast<float *>(merak_call_out(call, 2)->data);
    if (rc == MERAK_OK)
        rc = run_weights<T, merak_first_weights>(call, x, x.F, x.C, 2 * x.s.E,
                                                 err);
    if (rc == MERAK_OK)
        rc =
            run_weights<T, merak_second_weights>(call, x, x.C, x.F, x.s.E, err);
    return rc;
}

CUDA_KERNEL(experts_dw)
{
    return by_dtype(call, 0, err,
                    [&](auto x) { return weights<decltype(x)>(call, err); });
}

/* The sum of its rows' gradients for each number of an expert's biases. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    add_changes(const __grid_constant__ merak_mlp<T> x)
{
    uint32_t N = 2 * x.F;

    for (size_t i = grid_thread(); i < (size_t)x.s.E * N; i += grid_threads()) {
        uint32_t e = (uint32_t)(i / N), end = x.s.first[e + 1];
        float sum = 0;

        for (uint32_t at = x.s.first[e]; at < end; at++)
            sum += to_f32(layer_at(x, x.dpool, x.change, at)[i % N]);
        x.dbias[i] = x.accumulate ? x.dbias[i] + sum : sum;
    }
}

CUDA_KERNEL(experts_db)
{
    return by_dtype(call, 0, err, [&](auto t) {
        using T = decltype(t);
        merak_mlp<T> x = {};
        enum merak_status rc = start_weights(call, "experts_db", &x, err);

        x.dbias = static_cast<float *>(merak_call_out(call, 0)->data);
        if (rc != MERAK_OK)
            return rc;
        return launch(merak_cuda_context_of(call),
                      map_launch("experts_db", (size_t)x.s.E * 2 * x.F), err,
                      add_changes<T>, x);
    });
}
