/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_step.cu - after the last micro-batch: norm, clipping, AdamW; the
 * equations stand in ref/ref_step.c
 *
 * Most parameters are small, so many go into one launch: the kernels take
 * them from a table that is their argument.  How many share a launch changes
 * no bit.
 */
#include "config.h"

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_kernels.h"

#define STEP_THREADS 256
#define MAX_TENSORS 48 /* of a launch: its arguments have 4 KiB */

/* Which of n tensors has item `item`, where tensor i's items begin at
 * first[i]. */
static __device__ __forceinline__ int tensor_of(const uint32_t *first, int n,
                                                uint32_t item)
{
    int lo = 0, end = n; /* it is one of lo .. end - 1 */

    while (end - lo > 1) {
        int half = (lo + end) / 2;

        if (first[half] <= item)
            lo = half;
        else
            end = half;
    }
    return lo;
}

/* --- sums of squares -------------------------------------------------------
 */

#define SUMSQ_BLOCK 1024 /* elements of a partial sum */

struct merak_squares {
    int n;
    uint32_t blocks; /* of all tensors */
    uint32_t first[MAX_TENSORS + 1];
    const float *g[MAX_TENSORS];
    double *part[MAX_TENSORS], *out[MAX_TENSORS];
    size_t count[MAX_TENSORS];
};

/* A warp sums a block. */
static __global__ void __launch_bounds__(STEP_THREADS)
    square_blocks(const __grid_constant__ merak_squares s)
{
    unsigned lane = threadIdx.x % WARP;

    for (size_t b = grid_thread() / WARP; b < s.blocks;
         b += grid_threads() / WARP) {
        int t = tensor_of(s.first, s.n, (uint32_t)b);
        size_t block = b - s.first[t], from = block * SUMSQ_BLOCK;
        const float *g = s.g[t] + from;
        size_t n = s.count[t] - from;
        bool whole = (uintptr_t)g % 16 == 0;
        double sum = 0;

#pragma unroll 4
        for (unsigned i = 4 * lane; i < SUMSQ_BLOCK; i += 4 * WARP) {
            float v[4];

            if (i >= n)
                break;
            read(g + i, n - i, whole, v);
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum += (double)v[k] * (double)v[k];
        }
        sum = warp_sum(sum);
        if (lane == 0)
            s.part[t][block] = sum;
    }
}

/* A block of threads adds a tensor's partial sums. */
static __global__ void __launch_bounds__(STEP_THREADS)
    add_squares(const __grid_constant__ merak_squares s)
{
    int t = (int)blockIdx.x;
    uint32_t n = s.first[t + 1] - s.first[t];
    double sum = 0;

    for (uint32_t i = threadIdx.x; i < n; i += STEP_THREADS)
        sum += s.part[t][i];
    sum = row_sum<STEP_THREADS>(sum);
    if (threadIdx.x == 0)
        *s.out[t] = sum;
}

CUDA_SCRATCH(sumsq)
{
    return ceil_div(merak_local_count(&call->operand[0]), SUMSQ_BLOCK) *
           sizeof(double);
}

static enum merak_status too_large(const char *op, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "%s of more than 2^42 elements: the cuda backend counts "
                      "blocks of 1024 in 32 bits",
                      op);
}

static enum merak_status squares(const struct merak_kernel_call *const *call,
                                 int n, struct merak_error *err)
{
    const struct merak_cuda_context *cx = merak_cuda_context_of(call[0]);
    size_t blocks = 0, warps = STEP_THREADS / WARP;
    merak_squares s = {};
    enum merak_status rc;

    s.n = n;
    for (int i = 0; i < n; i++) {
        rc = check_dtype(call[i], 0, true, err);
        if (rc != MERAK_OK)
            return rc;
        s.g[i] = static_cast<const float *>(call[i]->operand[0].data);
        s.out[i] = static_cast<double *>(call[i]->operand[1].data);
        s.part[i] = static_cast<double *>(call[i]->scratch);
        s.count[i] = merak_local_count(&call[i]->operand[0]);
        blocks += ceil_div(s.count[i], SUMSQ_BLOCK);
        if (blocks >= UINT32_MAX)
            return too_large("sumsq", err);
        s.first[i + 1] = (uint32_t)blocks;
    }
    s.blocks = (uint32_t)blocks;
    rc = launch(cx, map_launch("sumsq", ceil_div(blocks, warps) * STEP_THREADS),
                err, square_blocks, s);
    if (rc != MERAK_OK)
        return rc;
    return launch(
        cx, merak_launch{"sumsq", dim3((unsigned)n), dim3(STEP_THREADS), 0},
        err, add_squares, s);
}

/* Calls of at most MAX_TENSORS at once. */
typedef enum merak_status (*merak_group_fn)(
    const struct merak_kernel_call *const *call, int n,
    struct merak_error *err);

static enum merak_status in_groups(merak_group_fn fn,
                                   const struct merak_kernel_call *const *call,
                                   int n, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < n && rc == MERAK_OK; i += MAX_TENSORS)
        rc = fn(call + i, n - i < MAX_TENSORS ? n - i : MAX_TENSORS, err);
    return rc;
}

enum merak_status
merak_cuda_sumsq_many(const struct merak_kernel_call *const *call, int n,
                      struct merak_error *err)
{
    return in_groups(squares, call, n, err);
}

CUDA_KERNEL(sumsq)
{
    return squares(&call, 1, err);
}

/* --- clipping --------------------------------------------------------------
 */

/* A block reads, its first thread adds in order. */
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

/* --- AdamW -----------------------------------------------------------------
 */

#define ADAMW_BLOCK (STEP_THREADS * 4) /* elements that a block takes */

struct merak_tensors {
    int n;
    uint32_t first[MAX_TENSORS + 1];
    const float *g[MAX_TENSORS], *scale[MAX_TENSORS];
    float *w[MAX_TENSORS], *m[MAX_TENSORS], *v[MAX_TENSORS];
    merak_bf16 *param[MAX_TENSORS]; /* may be NULL */
    size_t count[MAX_TENSORS];
    float rate[MAX_TENSORS], decay[MAX_TENSORS];
    bool whole[MAX_TENSORS];
    merak_adamw step; /* rate and decay are the tensor's */
};

static_assert(sizeof(merak_tensors) <= 4000 && sizeof(merak_squares) <= 4000,
              "kernels have 4 KiB of arguments");

static __global__ void __launch_bounds__(STEP_THREADS)
    adamw_blocks(const __grid_constant__ merak_tensors s)
{
    int t = tensor_of(s.first, s.n, blockIdx.x);
    size_t at =
        ((size_t)(blockIdx.x - s.first[t]) * STEP_THREADS + threadIdx.x) * 4;
    size_t left = s.count[t] - at;
    bool whole = s.whole[t];
    merak_adamw step = s.step;
    float g[4], w[4], m[4], v[4], scale;

    if (at >= s.count[t])
        return;
    step.rate = s.rate[t];
    step.decay = s.decay[t];
    scale = s.scale[t][0];
    read(s.g[t] + at, left, whole, g);
    read(s.w[t] + at, left, whole, w);
    read(s.m[t] + at, left, whole, m);
    read(s.v[t] + at, left, whole, v);
#pragma unroll
    for (int i = 0; i < 4; i++)
        adamw_element(step, g[i] * scale, &w[i], &m[i], &v[i]);
    write(s.w[t] + at, left, whole, w);
    write(s.m[t] + at, left, whole, m);
    write(s.v[t] + at, left, whole, v);
    if (s.param[t] == nullptr)
        return;
    if (whole && left >= 4) {
        uint2 two;

        two.x = pack2(w);
        two.y = pack2(w + 2);
        *reinterpret_cast<uint2 *>(s.param[t] + at) = two;
    } else {
        write(s.param[t] + at, left, false, w);
    }
}

static void view_tensor(merak_tensors *s, int i,
                        const struct merak_kernel_call *call)
{
    const struct merak_operand *op = call->operand;
    const struct merak_step *p = call->step;
    double lr = (double)p->lr;

    s->g[i] = static_cast<const float *>(op[0].data);
    s->scale[i] = static_cast<const float *>(op[1].data);
    s->w[i] = static_cast<float *>(op[2].data);
    s->m[i] = static_cast<float *>(op[3].data);
    s->v[i] = static_cast<float *>(op[4].data);
    if (call->n_out > 3 && op[5].dtype == MERAK_BF16)
        s->param[i] = static_cast<merak_bf16 *>(op[5].data);
    s->count[i] = merak_local_count(&op[0]);
    if (call->attrs->f[0] > 0)
        lr *= call->attrs->f[0];
    s->rate[i] =
        (float)(lr / (1 - pow((double)p->beta1, (double)p->step + 1)));
    if (call->attrs->i[0] == 1)
        s->decay[i] = (float)lr * p->weight_decay;
    s->whole[i] = is_aligned(s->g[i]) && is_aligned(s->w[i]) &&
                  is_aligned(s->m[i]) && is_aligned(s->v[i]) &&
                  is_aligned(s->param[i]);
}

static enum merak_status adamw(const struct merak_kernel_call *const *call,
                               int n, struct merak_error *err)
{
    const struct merak_step *p = call[0]->step;
    merak_tensors s = {};
    size_t blocks = 0;

    s.n = n;
    s.step.beta1 = p->beta1;
    s.step.beta2 = p->beta2;
    s.step.eps = p->eps;
    s.step.root =
        (float)(1 / sqrt(1 - pow((double)p->beta2, (double)p->step + 1)));
    for (int i = 0; i < n; i++) {
        enum merak_status rc = check_dtype(call[i], 0, true, err);

        if (rc != MERAK_OK)
            return rc;
        view_tensor(&s, i, call[i]);
        blocks += ceil_div(s.count[i], ADAMW_BLOCK);
        if (blocks >= INT32_MAX) /* of a grid */
            return too_large("adamw", err);
        s.first[i + 1] = (uint32_t)blocks;
    }
    return launch(
        merak_cuda_context_of(call[0]),
        merak_launch{"adamw", dim3((unsigned)blocks), dim3(STEP_THREADS), 0},
        err, adamw_blocks, s);
}

enum merak_status
merak_cuda_adamw_many(const struct merak_kernel_call *const *call, int n,
                      struct merak_error *err)
{
    return in_groups(adamw, call, n, err);
}

CUDA_KERNEL(adamw)
{
    return adamw(&call, 1, err);
}
