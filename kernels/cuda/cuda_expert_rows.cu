/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_expert_rows.cu - rows that travel to their experts
 *
 * Places are found on the device: a block counts the rows of an expert of a
 * sequence, and those past the last place have none.
 */
#include "config.h"

#include "kernels/cuda/cuda_by_expert.cuh"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_rounding.cuh"

extern "C" {
#include "kernels/expert_places.h"
}

#define FIND_BLOCK 256

/* --- places --------------------------------------------------------------- */

struct merak_placing {
    merak_places p;
    merak_place_map map;
};

/* Block (e, b): thread t counts the rows of its part of the sequence, and after
 * the counts of the threads before it gives them places. */
static __global__ void __launch_bounds__(FIND_BLOCK) find_places(merak_placing q)
{
    MERAK_SHARED(uint32_t, count, [FIND_BLOCK]);
    size_t b = blockIdx.y, e = blockIdx.x, rows = q.p.T * q.p.K, R = q.p.R;
    size_t part = ceil_div(rows, FIND_BLOCK), from = threadIdx.x * part;
    size_t to = from + part < rows ? from + part : rows, at = 0, all = 0;
    const int32_t *ids = q.p.ids + b * rows;
    uint32_t *of_row = q.map.of_row + b * rows;
    uint32_t *row_at = q.map.row_at + (b * q.p.E + e) * R;

    count[threadIdx.x] = 0;
    for (size_t i = from; i < to; i++) {
        count[threadIdx.x] += ids[i] == (int32_t)e;
        if (e == 0 && ids[i] == MERAK_NO_EXPERT)
            of_row[i] = MERAK_NO_PLACE;
    }
    __syncthreads();
    for (unsigned t = 0; t < FIND_BLOCK; t++) {
        at += t < threadIdx.x ? count[t] : 0;
        all += count[t];
    }
    for (size_t i = from; i < to; i++) {
        if (ids[i] != (int32_t)e)
            continue;
        of_row[i] = at < R ? (uint32_t)(e * R + at) : MERAK_NO_PLACE;
        if (at < R)
            row_at[at] = (uint32_t)i;
        at++;
    }
    for (size_t r = all + threadIdx.x; r < R; r += FIND_BLOCK)
        row_at[r] = MERAK_NO_PLACE;
    if (threadIdx.x == 0)
        q.map.used[b * q.p.E + e] = (uint32_t)(all < R ? all : R);
}

static enum merak_status find(const struct merak_kernel_call *call,
                              const char *name, merak_placing *q,
                              struct merak_error *err)
{
    q->p = merak_places_view(call);
    (void)merak_places_map(&q->p, static_cast<uint32_t *>(call->scratch),
                          &q->map);
    if (q->p.T * q->p.K >= UINT32_MAX || q->p.E * q->p.R >= UINT32_MAX ||
        q->p.B > 65535)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s of %zu sequences of %zu rows: the cuda backend "
                          "takes up to 65535 of 2^32",
                          name, q->p.B, q->p.T * q->p.K);
    return launch(merak_cuda_context_of(call),
                  merak_launch{name, dim3((unsigned)q->p.E, (unsigned)q->p.B),
                               dim3(FIND_BLOCK), 0},
                  err, find_places, *q);
}

#define PLACES_SCRATCH(op)                                              \
    CUDA_SCRATCH(op)                                                    \
    {                                                                   \
        struct merak_places p = merak_places_view(call);                \
                                                                        \
        return merak_places_map(&p, NULL, NULL) * sizeof(uint32_t);      \
    }
PLACES_SCRATCH(experts_places)
PLACES_SCRATCH(experts_places_dx)
PLACES_SCRATCH(experts_send)
PLACES_SCRATCH(experts_join)
PLACES_SCRATCH(experts_capacity)

static __global__ void __launch_bounds__(MAP_THREADS)
    put_weights(merak_placing q, const float *w, float *place)
{
    size_t R = q.p.R, n = q.p.B * q.p.E * (R + 1);

    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        size_t e = i / (R + 1), r = i % (R + 1);
        uint32_t row = r > 0 ? q.map.row_at[e * R + r - 1] : 0;

        if (r == 0)
            place[i] = (float)q.map.used[e];
        else
            place[i] = row == MERAK_NO_PLACE
                           ? 0
                           : w[e / q.p.E * q.p.T * q.p.K + row];
    }
}

static __global__ void __launch_bounds__(MAP_THREADS)
    put_rest(merak_placing q, int32_t *rest)
{
    for (size_t i = grid_thread(); i < q.p.B * q.p.T * q.p.K;
         i += grid_threads())
        rest[i] = q.map.of_row[i] == MERAK_NO_PLACE ? q.p.ids[i]
                                                    : MERAK_NO_EXPERT;
}

CUDA_KERNEL(experts_places)
{
    merak_placing q;
    enum merak_status rc = check_dtype(call, 0, true, err);

    if (rc == MERAK_OK)
        rc = find(call, "experts_places", &q, err);
    if (rc == MERAK_OK)
        rc = launch(merak_cuda_context_of(call),
                    map_launch("experts_places", q.p.B * q.p.E * (q.p.R + 1)),
                    err, put_weights, q,
                    static_cast<const float *>(call->operand[0].data),
                    static_cast<float *>(merak_call_out(call, 0)->data));
    if (rc == MERAK_OK)
        rc = launch(merak_cuda_context_of(call),
                    map_launch("experts_places", q.p.B * q.p.T * q.p.K), err,
                    put_rest, q,
                    static_cast<int32_t *>(merak_call_out(call, 1)->data));
    return rc;
}

static __global__ void __launch_bounds__(MAP_THREADS)
    get_weights(merak_placing q, const float *dplace, float *dw)
{
    size_t rows = q.p.T * q.p.K, places = q.p.E * q.p.R;

    for (size_t i = grid_thread(); i < q.p.B * rows; i += grid_threads()) {
        uint32_t at = q.map.of_row[i];

        dw[i] = at == MERAK_NO_PLACE
                    ? 0
                    : dplace[merak_weight_at(i / rows * places + at, q.p.R)];
    }
}

CUDA_KERNEL(experts_places_dx)
{
    merak_placing q;
    enum merak_status rc = check_dtype(call, 0, true, err);

    if (rc == MERAK_OK)
        rc = find(call, "experts_places_dx", &q, err);
    if (rc == MERAK_OK)
        rc = launch(merak_cuda_context_of(call),
                    map_launch("experts_places_dx", q.p.B * q.p.T * q.p.K), err,
                    get_weights, q,
                    static_cast<const float *>(call->operand[0].data),
                    static_cast<float *>(merak_call_out(call, 0)->data));
    return rc;
}

/* Of n rows those that are, or are not, of an expert. */
static __global__ void __launch_bounds__(FIND_BLOCK)
    count_alike(const int32_t *ids, size_t n, bool of_expert, double *count)
{
    MERAK_SHARED(uint32_t, part, [FIND_BLOCK]);
    uint32_t rows = 0;

    for (size_t i = threadIdx.x; i < n; i += FIND_BLOCK)
        rows += (ids[i] != MERAK_NO_EXPERT) == of_expert;
    part[threadIdx.x] = rows;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int i = 1; i < FIND_BLOCK; i++)
        rows += part[i];
    *count = (double)rows;
}

static enum merak_status count(const struct merak_kernel_call *call,
                               const char *name, bool of_expert,
                               struct merak_error *err)
{
    return launch(merak_cuda_context_of(call),
                  merak_launch{name, dim3(1), dim3(FIND_BLOCK), 0}, err,
                  count_alike,
                  static_cast<const int32_t *>(call->operand[0].data),
                  merak_local_count(&call->operand[0]), of_expert,
                  static_cast<double *>(merak_call_out(call, 0)->data));
}

CUDA_KERNEL(experts_left)
{
    return count(call, "experts_left", true, err);
}

CUDA_KERNEL(experts_dropped)
{
    return count(call, "experts_dropped", false, err);
}

static __global__ void __launch_bounds__(MAP_THREADS)
    keep_rows(merak_placing q, int32_t *kept)
{
    for (size_t i = grid_thread(); i < q.p.B * q.p.T * q.p.K;
         i += grid_threads())
        kept[i] = q.map.of_row[i] == MERAK_NO_PLACE ? MERAK_NO_EXPERT
                                                    : q.p.ids[i];
}

CUDA_KERNEL(experts_capacity)
{
    merak_placing q;
    enum merak_status rc = find(call, "experts_capacity", &q, err);

    if (rc == MERAK_OK)
        rc = launch(merak_cuda_context_of(call),
                    map_launch("experts_capacity", q.p.B * q.p.T * q.p.K), err,
                    keep_rows, q,
                    static_cast<int32_t *>(merak_call_out(call, 0)->data));
    return rc;
}

template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    send_rows(merak_placing q, const T *x, T *rows)
{
    size_t places = q.p.E * q.p.R, C = q.p.C;

    for (size_t i = grid_thread(); i < q.p.B * places * C;
         i += grid_threads()) {
        size_t at = i / C;
        uint32_t row = q.map.row_at[at];

        if (row == MERAK_NO_PLACE)
            from_f32(&rows[i], 0.0f);
        else
            rows[i] = x[(at / places * q.p.T + row / q.p.K) * C + i % C];
    }
}

CUDA_KERNEL(experts_send)
{
    return by_dtype(call, 0, err, [&](auto x) {
        using T = decltype(x);
        merak_placing q;
        enum merak_status rc = find(call, "experts_send", &q, err);

        if (rc != MERAK_OK)
            return rc;
        return launch(
            merak_cuda_context_of(call),
            map_launch("experts_send", q.p.B * q.p.E * q.p.R * q.p.C), err,
            send_rows<T>, q, static_cast<const T *>(call->operand[0].data),
            static_cast<T *>(merak_call_out(call, 0)->data));
    });
}

/* Each token's sum of its rows, by ascending expert. */
template <typename T>
static __global__ void __launch_bounds__(MAP_THREADS)
    join_rows(merak_placing q, const T *rows, const T *more, T *y)
{
    size_t places = q.p.E * q.p.R, C = q.p.C, K = q.p.K;

    for (size_t i = grid_thread(); i < q.p.B * q.p.T * C; i += grid_threads()) {
        size_t token = i / C;
        const uint32_t *at = q.map.of_row + token * K;
        const T *row = rows + token / q.p.T * places * C + i % C;
        float sum = 0;

        by_expert(
            q.p.ids + token * K, K,
            [&](size_t k) { return at[k] != MERAK_NO_PLACE; },
            [&](size_t k) { sum += to_f32(row[at[k] * C]); });
        from_f32(&y[i], more != NULL ? sum + to_f32(more[i]) : sum);
    }
}

CUDA_KERNEL(experts_join)
{
    return by_dtype(call, 0, err, [&](auto x) {
        using T = decltype(x);
        merak_placing q;
        enum merak_status rc = find(call, "experts_join", &q, err);

        if (rc != MERAK_OK)
            return rc;
        return launch(merak_cuda_context_of(call),
                      map_launch("experts_join", q.p.B * q.p.T * q.p.C), err,
                      join_rows<T>, q,
                      static_cast<const T *>(call->operand[0].data),
                      call->n_in > 2
                          ? static_cast<const T *>(call->operand[2].data)
                          : nullptr,
                      static_cast<T *>(merak_call_out(call, 0)->data));
    });
}

/* --- experts -------------------------------------------------------------- */

/* What rows at their places are to be, as tokens. */
struct merak_unpacked {
    size_t rows, E, R, from;
    const float *place;
    float *w, *dw;
    int32_t *ids;
    float *dplace;
};

static __global__ void __launch_bounds__(MAP_THREADS)
    unpack_places(merak_unpacked u)
{
    for (size_t i = grid_thread(); i < u.rows; i += grid_threads()) {
        u.w[i] = u.place[merak_weight_at(i, u.R)];
        u.ids[i] = merak_expert_at(i, u.E, u.R, u.from,
                                   (double)u.place[merak_used_at(i, u.R)]);
    }
}

static __global__ void __launch_bounds__(MAP_THREADS)
    pack_places(merak_unpacked u)
{
    for (size_t i = grid_thread(); i < u.rows; i += grid_threads()) {
        u.dplace[merak_weight_at(i, u.R)] = u.dw[i];
        if (i % u.R == 0)
            u.dplace[merak_used_at(i, u.R)] = 0;
    }
}

/* Floats of each part, 64 bytes aligned. */
static size_t part_of(const merak_expert_calls &calls)
{
    return ceil_div(calls.rows, 16) * 16;
}

typedef size_t (*scratch_fn)(const struct merak_kernel_call *call);
typedef enum merak_status (*call_fn)(const struct merak_kernel_call *call,
                                     struct merak_error *err);

static size_t scratch_of(const struct merak_kernel_call *call, scratch_fn fn)
{
    merak_expert_calls calls;
    size_t placed, rest;

    merak_expert_split(call, &calls);
    placed = fn(&calls.placed);
    rest = fn(&calls.rest);
    return 3 * part_of(calls) * sizeof(float) +
           (placed > rest ? placed : rest);
}

static enum merak_status run_calls(const struct merak_kernel_call *call,
                                   const char *name, call_fn fn,
                                   struct merak_error *err)
{
    enum merak_status rc = check_dtype(call, 0, false, err);
    merak_expert_calls calls;
    merak_unpacked u = {};
    float *scratch = static_cast<float *>(call->scratch);

    if (rc != MERAK_OK)
        return rc;
    merak_expert_split(call, &calls);
    u.rows = calls.rows;
    u.E = calls.E;
    u.R = calls.R;
    u.from = calls.from;
    u.place = static_cast<const float *>(calls.place->data);
    u.w = scratch;
    u.dw = scratch + part_of(calls);
    u.ids = reinterpret_cast<int32_t *>(scratch + 2 * part_of(calls));
    calls.placed.operand[1].data = u.w;
    calls.placed.operand[2].data = u.ids;
    calls.placed.scratch = calls.rest.scratch = scratch + 3 * part_of(calls);
    rc = launch(merak_cuda_context_of(call), map_launch(name, u.rows), err,
                unpack_places, u);
    if (rc == MERAK_OK && calls.dplace != NULL) {
        calls.placed.operand[calls.dw].data = u.dw;
        u.dplace = static_cast<float *>(calls.dplace->data);
    }
    if (rc == MERAK_OK)
        rc = fn(&calls.placed, err);
    if (rc == MERAK_OK && calls.dplace != NULL)
        rc = launch(merak_cuda_context_of(call), map_launch(name, u.rows), err,
                    pack_places, u);
    return rc == MERAK_OK ? fn(&calls.rest, err) : rc;
}

#define ROWS(op, of)                                             \
    CUDA_SCRATCH(op)                                             \
    {                                                            \
        return scratch_of(call, merak_cuda_##of##_scratch);      \
    }                                                            \
    CUDA_KERNEL(op)                                              \
    {                                                            \
        return run_calls(call, #op, merak_cuda_##of, err);       \
    }
ROWS(experts_rows, experts)
ROWS(experts_rows_dx, experts_dx)
ROWS(experts_rows_dw, experts_dw)
ROWS(experts_rows_db, experts_db)
