/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_step.cu - after the last micro-batch: norm, clipping, AdamW; the
 * equations are in ref/ref_step.c
 *
 * Most parameters are small, so all go into one launch: the kernels read them
 * from a table that is made once and kept in device memory.  A single call is a
 * table of one, in the arguments.  Results do not depend on the number of calls
 * in a launch.
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

#define STEP_THREADS 256

/* The one of n tensors that has item `item`; tensor i's items begin at
 * row[i].first. */
template <typename Row>
static __device__ __forceinline__ int tensor_of(const Row *row, int n,
                                                size_t item)
{
    int lo = 0, end = n; /* it is in lo .. end - 1 */

    while (end - lo > 1) {
        int half = (lo + end) / 2;

        if (row[half].first <= item)
            lo = half;
        else
            end = half;
    }
    return lo;
}

/* What a launch works on. */
template <typename Row> struct merak_rows_of {
    const Row *table; /* [n] in device memory; NULL: only `one` */
    Row one;
    int n;
    size_t items; /* of all tensors */
};

/* --- sums of squares -------------------------------------------------------
 */

#define SUMSQ_BLOCK 1024 /* elements of a partial sum */

struct merak_square {
    const void *g; /* f32, or bf16: */
    bool narrow;
    double *part, *out; /* one partial sum per block, and their sum */
    size_t count;
    size_t first; /* block */
};

typedef merak_rows_of<merak_square> merak_squares;

/* A lane's part of the sum of n elements, of which it takes four in every
 * 4 WARP, in order. */
template <typename T>
static __device__ __forceinline__ double
lane_squares_one_by_one(const T *g, size_t n, bool whole, unsigned lane)
{
    double sum = 0;
    float v[4];

#pragma unroll 1
    for (unsigned i = 4 * lane; i < SUMSQ_BLOCK && i < n; i += 4 * WARP) {
        read(g + i, n - i, whole, v);
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum += (double)v[k] * (double)v[k];
    }
    return sum;
}

static __device__ __forceinline__ double lane_squares(const merak_bf16 *g,
                                                      size_t n, unsigned lane)
{
    return lane_squares_one_by_one(g, n, false, lane);
}

static __device__ __forceinline__ double lane_squares(const float *g, size_t n,
                                                      unsigned lane)
{
    constexpr int PIECES = SUMSQ_BLOCK / (4 * WARP);
    bool whole = (uintptr_t)g % 16 == 0;
    double sum = 0;
    float v[4];

    if (whole && n >= SUMSQ_BLOCK) {
        const float *mine = g + 4 * lane;
        uint4 raw[PIECES]; /* in flight together */

#pragma unroll
        for (int i = 0; i < PIECES; i++)
            raw[i] = load_16(mine + i * 4 * WARP);
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            unpack(raw[i], v);
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum += (double)v[k] * (double)v[k];
        }
        return sum;
    }
    return lane_squares_one_by_one(g, n, whole, lane);
}

/* A warp sums a block. */
static __global__ void __launch_bounds__(STEP_THREADS)
    square_blocks(merak_squares s)
{
    unsigned lane = threadIdx.x % WARP;

    for (size_t b = grid_thread() / WARP; b < s.items;
         b += grid_threads() / WARP) {
        merak_square t =
            s.table != nullptr ? s.table[tensor_of(s.table, s.n, b)] : s.one;
        size_t block = b - t.first, from = block * SUMSQ_BLOCK;
        double sum =
            t.narrow ? lane_squares(static_cast<const merak_bf16 *>(t.g) + from,
                                    t.count - from, lane)
                     : lane_squares(static_cast<const float *>(t.g) + from,
                                    t.count - from, lane);

        sum = warp_sum(sum);
        if (lane == 0)
            t.part[block] = sum;
    }
}

/* A block of threads adds a tensor's partial sums. */
static __global__ void __launch_bounds__(STEP_THREADS)
    add_squares(merak_squares s)
{
    merak_square t = s.table != nullptr ? s.table[blockIdx.x] : s.one;
    size_t n = ceil_div(t.count, SUMSQ_BLOCK);
    double sum = 0;

    for (size_t i = threadIdx.x; i < n; i += STEP_THREADS)
        sum += t.part[i];
    sum = row_sum<STEP_THREADS>(sum);
    if (threadIdx.x == 0)
        *t.out = sum;
}

CUDA_SCRATCH(sumsq)
{
    return ceil_div(merak_local_count(&call->operand[0]), SUMSQ_BLOCK) *
           sizeof(double);
}

static size_t partial_sums(const struct merak_kernel_call *const *call, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += merak_cuda_sumsq_scratch(call[i]);
    return bytes;
}

/* Fill a row for each call; their partial sums follow each other at `part`. */
static enum merak_status
square_rows(const struct merak_kernel_call *const *call, int n, void *rows,
            void *part, size_t *items_p, struct merak_error *err)
{
    merak_square *row = static_cast<merak_square *>(rows);
    size_t blocks = 0;

    for (int i = 0; i < n; i++) {
        const struct merak_operand *op = call[i]->operand;
        enum merak_status rc = check_dtype(call[i], 0, false, err);

        if (rc != MERAK_OK)
            return rc;
        row[i] = merak_square{op[0].data,
                              op[0].dtype == MERAK_BF16,
                              static_cast<double *>(part) + blocks,
                              static_cast<double *>(op[1].data),
                              merak_local_count(&op[0]),
                              blocks};
        blocks += ceil_div(row[i].count, SUMSQ_BLOCK);
    }
    *items_p = blocks;
    return MERAK_OK;
}

static enum merak_status run_squares(const struct merak_cuda_context *cx,
                                     const merak_squares &s,
                                     struct merak_error *err)
{
    enum merak_status rc =
        launch(cx,
               map_launch("sumsq", ceil_div(s.items, STEP_THREADS / WARP) *
                                       STEP_THREADS),
               err, square_blocks, s);

    if (rc != MERAK_OK)
        return rc;
    return launch(
        cx, merak_launch{"sumsq", dim3((unsigned)s.n), dim3(STEP_THREADS), 0},
        err, add_squares, s);
}

static enum merak_status launch_squares(const struct merak_cuda_context *cx,
                                        const void *rows, int n, size_t items,
                                        const struct merak_step *step,
                                        struct merak_error *err)
{
    merak_squares s = {};

    (void)step;
    s.table = static_cast<const merak_square *>(rows);
    s.n = n;
    s.items = items;
    return run_squares(cx, s, err);
}

CUDA_KERNEL(sumsq)
{
    merak_squares s = {};
    enum merak_status rc;

    s.n = 1;
    rc = square_rows(&call, 1, &s.one, call->scratch, &s.items, err);
    return rc == MERAK_OK ? run_squares(merak_cuda_context_of(call), s, err)
                          : rc;
}

/* --- clipping --------------------------------------------------------------
 */

/* A block reads the sums, and its first thread adds them in order. */
static __global__ void __launch_bounds__(STEP_THREADS)
    clip_norm(const double *sumsq, size_t n, float grad_scale, float clip,
              float *out)
{
    MERAK_SHARED(double, part, [STEP_THREADS]);
    double sum = 0, norm, scale = (double)grad_scale;

    for (size_t from = 0; from < n; from += STEP_THREADS) {
        size_t held = n - from < STEP_THREADS ? n - from : STEP_THREADS;

        __syncthreads();
        if (threadIdx.x < held)
            part[threadIdx.x] = sumsq[from + threadIdx.x];
        __syncthreads();
        for (size_t i = 0; threadIdx.x == 0 && i < held; i++)
            sum += part[i];
    }
    if (threadIdx.x != 0)
        return;
    norm = (double)grad_scale * sqrt(sum);
    if (clip > 0 && norm > (double)clip)
        scale *= (double)clip / norm;
    out[0] = (float)scale;
    out[1] = (float)norm;
}

CUDA_KERNEL(clip)
{
    const struct merak_operand *sumsq = &call->operand[0];

    return launch(merak_cuda_context_of(call),
                  merak_launch{"clip", dim3(1), dim3(STEP_THREADS), 0}, err,
                  clip_norm, static_cast<const double *>(sumsq->data),
                  merak_local_count(sumsq), call->step->grad_scale,
                  call->step->clip,
                  static_cast<float *>(merak_call_out(call, 0)->data));
}

/* --- averages ---------------------------------------------------------------
 */

static __global__ void __launch_bounds__(MAP_THREADS)
    step_to_mean(const float *g, float *w, size_t n, double rate, double part)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads()) {
        double was = (double)w[i];

        w[i] = (float)(was + rate * (part * (double)g[i] - was));
    }
}

CUDA_KERNEL(mean_step)
{
    const struct merak_operand *g = &call->operand[0];
    size_t n = merak_local_count(g);
    enum merak_status rc = check_dtype(call, 0, true, err);

    if (rc != MERAK_OK)
        return rc;
    return launch(merak_cuda_context_of(call), map_launch("mean_step", n), err,
                  step_to_mean, static_cast<const float *>(g->data),
                  static_cast<float *>(merak_call_out(call, 0)->data), n,
                  call->attrs->f[0], call->attrs->f[1]);
}

/* --- by the sign ------------------------------------------------------------
 */

static __global__ void __launch_bounds__(MAP_THREADS)
    step_by_sign(const float *g, float *w, size_t n, float rate)
{
    for (size_t i = grid_thread(); i < n; i += grid_threads())
        w[i] -= rate * (float)((g[i] > 0) - (g[i] < 0));
}

CUDA_KERNEL(sign_step)
{
    const struct merak_operand *g = &call->operand[0];
    size_t n = merak_local_count(g);
    enum merak_status rc = check_dtype(call, 0, true, err);

    if (rc != MERAK_OK)
        return rc;
    return launch(merak_cuda_context_of(call), map_launch("sign_step", n), err,
                  step_by_sign, static_cast<const float *>(g->data),
                  static_cast<float *>(merak_call_out(call, 0)->data), n,
                  (float)call->attrs->f[0]);
}

/* --- AdamW -----------------------------------------------------------------
 */

/* Elements that a block takes.  Its first thread finds the tensor by several
 * dependent loads, and those of the elements wait for it. */
#define ADAMW_PIECES 4 /* of a thread, four elements each */
#define ADAMW_BLOCK (STEP_THREADS * 4 * ADAMW_PIECES)

struct merak_tensor {
    const void *g; /* f32, or bf16: */
    bool narrow;
    const float *scale;
    float *w, *m, *v;
    merak_bf16 *param; /* may be NULL */
    size_t count;
    size_t first;    /* block */
    double lr_scale; /* 0: 1 */
    bool decays, whole;
};

struct merak_tensors {
    merak_rows_of<merak_tensor> rows;
    merak_adamw step; /* rate and decay are set for each tensor */
    double lr, correction;
    float weight_decay;
};

/* The tensor of a block and its step, found by one thread. */
static __device__ __forceinline__ void
view_tensor(const merak_tensors &s, merak_tensor *t, merak_adamw *step)
{
    double lr = s.lr;

    *t = s.rows.table != nullptr
             ? s.rows.table[tensor_of(s.rows.table, s.rows.n, blockIdx.x)]
             : s.rows.one;
    if (t->lr_scale > 0)
        lr *= t->lr_scale;
    *step = s.step;
    step->rate = (float)(lr / s.correction);
    step->decay = t->decays ? (float)lr * s.weight_decay : 0.0f;
}

/* Elements at .. at + 3 of a tensor. */
static __device__ __forceinline__ void adamw_piece(const merak_tensor &t,
                                                   const merak_adamw &step,
                                                   float scale, size_t at)
{
    /* of a gradient in bf16 the first of these is read in vain */
    const float *const from[4] = {
        t.narrow ? t.w : static_cast<const float *>(t.g), t.w, t.m, t.v};
    size_t left = t.count - at;
    float x[4][4];

    read_all(from, at, left, t.whole, x);
    if (t.narrow)
        read(static_cast<const merak_bf16 *>(t.g) + at, left, false, x[0]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        adamw_element(step, x[0][i] * scale, &x[1][i], &x[2][i], &x[3][i]);
    write(t.w + at, left, t.whole, x[1]);
    write(t.m + at, left, t.whole, x[2]);
    write(t.v + at, left, t.whole, x[3]);
    if (t.param == nullptr)
        return;
    if (t.whole && left >= 4)
        store_8(t.param + at, pack2(x[1]), pack2(x[1] + 2));
    else
        write(t.param + at, left, false, x[1]);
}

static __global__ void __launch_bounds__(STEP_THREADS)
    adamw_blocks(merak_tensors s)
{
    MERAK_SHARED(merak_tensor, tensor, [1]);
    MERAK_SHARED(merak_adamw, shared_step, [1]);
    merak_tensor t;
    merak_adamw step;
    size_t from;
    float scale;

    if (threadIdx.x == 0)
        view_tensor(s, tensor, shared_step);
    __syncthreads();
    t = tensor[0];
    step = shared_step[0];
    scale = t.scale[0];
    from = (blockIdx.x - t.first) * ADAMW_BLOCK;
#pragma unroll 1
    for (size_t i = 4 * threadIdx.x; i < ADAMW_BLOCK && from + i < t.count;
         i += 4 * STEP_THREADS)
        adamw_piece(t, step, scale, from + i);
}

static merak_tensor tensor_row(const struct merak_kernel_call *call)
{
    const struct merak_operand *op = call->operand;
    merak_tensor t = {};

    t.g = op[0].data;
    t.narrow = op[0].dtype == MERAK_BF16;
    t.scale = static_cast<const float *>(op[1].data);
    t.w = static_cast<float *>(op[2].data);
    t.m = static_cast<float *>(op[3].data);
    t.v = static_cast<float *>(op[4].data);
    if (call->n_out > 3 && op[5].dtype == MERAK_BF16)
        t.param = static_cast<merak_bf16 *>(op[5].data);
    t.count = merak_local_count(&op[0]);
    t.lr_scale = call->attrs->f[0];
    t.decays = call->attrs->i[0] == 1;
    t.whole = is_aligned(t.g) && is_aligned(t.w) && is_aligned(t.m) &&
              is_aligned(t.v) && is_aligned(t.param);
    return t;
}

static enum merak_status
tensor_rows(const struct merak_kernel_call *const *call, int n, void *rows,
            void *beside, size_t *items_p, struct merak_error *err)
{
    merak_tensor *row = static_cast<merak_tensor *>(rows);
    size_t blocks = 0;

    (void)beside;
    for (int i = 0; i < n; i++) {
        enum merak_status rc = check_dtype(call[i], 0, false, err);

        if (rc != MERAK_OK)
            return rc;
        row[i] = tensor_row(call[i]);
        row[i].first = blocks;
        blocks += ceil_div(row[i].count, ADAMW_BLOCK);
    }
    if (blocks >= INT32_MAX) /* the limit of a grid */
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "adamw of more than 2^43 elements: the cuda backend "
                          "has a block of threads for each 4096");
    *items_p = blocks;
    return MERAK_OK;
}

static enum merak_status run_tensors(const struct merak_cuda_context *cx,
                                     merak_tensors *s,
                                     const struct merak_step *p,
                                     struct merak_error *err)
{
    s->step.beta1 = p->beta1;
    s->step.beta2 = p->beta2;
    s->step.eps = p->eps;
    s->step.root =
        (float)(1 / sqrt(1 - pow((double)p->beta2, (double)p->step + 1)));
    s->lr = (double)p->lr;
    s->correction = 1 - pow((double)p->beta1, (double)p->step + 1);
    s->weight_decay = p->weight_decay;
    return launch(cx,
                  merak_launch{"adamw", dim3((unsigned)s->rows.items),
                               dim3(STEP_THREADS), 0},
                  err, adamw_blocks, *s);
}

static enum merak_status launch_tensors(const struct merak_cuda_context *cx,
                                        const void *rows, int n, size_t items,
                                        const struct merak_step *step,
                                        struct merak_error *err)
{
    merak_tensors s = {};

    s.rows.table = static_cast<const merak_tensor *>(rows);
    s.rows.n = n;
    s.rows.items = items;
    return run_tensors(cx, &s, step, err);
}

CUDA_KERNEL(adamw)
{
    merak_tensors s = {};
    enum merak_status rc;

    s.rows.n = 1;
    rc = tensor_rows(&call, 1, &s.rows.one, nullptr, &s.rows.items, err);
    return rc == MERAK_OK
               ? run_tensors(merak_cuda_context_of(call), &s, call->step, err)
               : rc;
}

/* --- many as one -----------------------------------------------------------
 */

static size_t nothing_beside(const struct merak_kernel_call *const *call, int n)
{
    (void)call;
    (void)n;
    return 0;
}

const struct merak_cuda_many merak_cuda_many[] = {
    {"sumsq", sizeof(merak_square), partial_sums, square_rows, launch_squares},
    {"adamw", sizeof(merak_tensor), nothing_beside, tensor_rows,
     launch_tensors},
    {nullptr, 0, nullptr, nullptr, nullptr},
};
