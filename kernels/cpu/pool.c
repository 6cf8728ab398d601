/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - the largest of the points of windows, their means and sums */
#include "config.h"

#include "kernels/cpu/cpu.h"
#include "kernels/windows.h"

#include <string.h>

#define ITEM ((size_t)64 << 10) /* bytes that a thread takes at once */

struct pools {
    struct merak_patches g; /* windows, a row each */
    const void *x, *dy;     /* x: NULL for gradients of means */
    void *out;
    float *sums; /* of dx; out, unless that is bf16 */
    int64_t kind;
    size_t C, each;
    bool bf16;
    int split;            /* the first dim of several points */
    size_t behind, under; /* points of the dims after it: input, output */
};

/* What a thread works with: a window's points inside the input, then numbers
 * for CHANNELS channels. */
#define CHANNELS ((size_t)16384)
#define MAX_TAPS ((MERAK_POOL_WORKSPACE - 8 * CHANNELS) / sizeof(size_t))

struct window {
    size_t n;      /* points inside */
    size_t *point; /* in ascending order of taps */
    float *number; /* by channel */
    int32_t *first;
};

static struct window window_of(const struct pools *p, size_t row, int thread)
{
    struct window w = {.number = merak_pool_workspace(thread)};

    w.first = (int32_t *)(w.number + CHANNELS);
    w.point = (size_t *)(w.first + CHANNELS);
    for (size_t k = 0; k < p->g.taps; k++) {
        int64_t from = merak_patch_from(&p->g, row, k);

        if (from >= 0)
            w.point[w.n++] = (size_t)from;
    }
    return w;
}

static float load(const void *at, size_t i, bool bf16)
{
    return bf16 ? merak_bf16_to_f32(((const uint16_t *)at)[i])
                : ((const float *)at)[i];
}

static void store(void *at, size_t i, bool bf16, float value)
{
    if (bf16)
        ((uint16_t *)at)[i] = merak_f32_to_bf16(value);
    else
        ((float *)at)[i] = value;
}

/* The largest of channels [c, c + n), and which of the points has it first. */
static void find_largest(const struct pools *p, const struct window *w,
                         size_t c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        w->number[i] = load(p->x, w->point[0] * p->C + c + i, p->bf16);
        w->first[i] = 0;
    }
    for (size_t k = 1; k < w->n; k++) {
        for (size_t i = 0; i < n; i++) {
            float x = load(p->x, w->point[k] * p->C + c + i, p->bf16);

            if (x > w->number[i]) {
                w->number[i] = x;
                w->first[i] = (int32_t)k;
            }
        }
    }
}

static void find_mean(const struct pools *p, const struct window *w, size_t c,
                      size_t n, float points)
{
    memset(w->number, 0, n * sizeof(*w->number));
    for (size_t k = 0; k < w->n; k++) {
        for (size_t i = 0; i < n; i++)
            w->number[i] += load(p->x, w->point[k] * p->C + c + i, p->bf16);
    }
    for (size_t i = 0; i < n; i++)
        w->number[i] /= points;
}

/* What a window's sum is divided by. */
static float points_of(const struct pools *p, const struct window *w)
{
    if (p->kind == MERAK_POOL_SUM)
        return 1;
    return (float)(p->kind == MERAK_POOL_MEAN ? p->g.taps : w->n);
}

static void pool_item(void *arg, size_t item, int thread)
{
    const struct pools *p = arg;
    size_t rows = p->g.samples * p->g.rows;
    size_t end = cpu_range_end(item, p->each, rows);

    for (size_t row = item * p->each; row < end; row++) {
        struct window w = window_of(p, row, thread);

        for (size_t c = 0; c < p->C; c += CHANNELS) {
            size_t n = p->C - c < CHANNELS ? p->C - c : CHANNELS;

            if (w.n == 0)
                memset(w.number, 0, n * sizeof(*w.number));
            else if (p->kind == MERAK_POOL_MAX)
                find_largest(p, &w, c, n);
            else
                find_mean(p, &w, c, n, points_of(p, &w));
            for (size_t i = 0; i < n; i++)
                store(p->out, row * p->C + c + i, p->bf16, w.number[i]);
        }
    }
}

/* Add what a window gives to those of its points that have number `at` of dim
 * p->split. */
static void give(const struct pools *p, const struct window *w, size_t row,
                 size_t at)
{
    size_t in = p->g.dim[p->split].source;

    for (size_t c = 0; c < p->C; c += CHANNELS) {
        size_t n = p->C - c < CHANNELS ? p->C - c : CHANNELS;

        if (p->kind == MERAK_POOL_MAX)
            find_largest(p, w, c, n);
        for (size_t k = 0; k < w->n; k++) {
            float *to = p->sums + w->point[k] * p->C + c;

            if (w->point[k] / p->behind % in != at)
                continue;
            for (size_t i = 0; i < n; i++) {
                float dy = load(p->dy, row * p->C + c + i, p->bf16);

                if (p->kind != MERAK_POOL_MAX)
                    to[i] += dy / points_of(p, w);
                else if (w->first[i] == (int32_t)k)
                    to[i] += dy;
            }
        }
    }
}

/* The points of one number of dim p->split, of one sample: all windows that
 * have any of them, in ascending order. */
static void pool_dx_item(void *arg, size_t item, int thread)
{
    const struct pools *p = arg;
    const struct merak_patch_dim *d = &p->g.dim[p->split];
    size_t sample = item / d->source, at = item % d->source;
    size_t n = p->behind * p->C;

    memset(p->sums + item * n, 0, n * sizeof(*p->sums));
    for (size_t i = 0; i < d->rows; i++) {
        bool has = false;

        for (size_t k = 0; k < d->taps; k++)
            has = has || merak_patch_point(d, i, k) == (int64_t)at;
        for (size_t r = 0; r < p->under && has; r++) {
            size_t row = (sample * d->rows + i) * p->under + r;
            struct window w = window_of(p, row, thread);

            give(p, &w, row, at);
        }
    }
    for (size_t i = item * n; i < (item + 1) * n && p->bf16; i++)
        store(p->out, i, true, p->sums[i]);
}

static enum merak_status pools_of(const struct merak_kernel_call *call, int x,
                                  int y, struct pools *p,
                                  struct merak_error *err)
{
    const struct merak_operand *out = merak_call_out(call, 0);
    struct merak_windows windows = merak_windows_of(call, x, y);

    *p = (struct pools){.g = merak_patches_forward(&windows, out->local.dim[0]),
                        .out = out->data,
                        .kind = call->attrs->i[1],
                        .C = merak_local_last(out),
                        .bf16 = out->dtype == MERAK_BF16,
                        .behind = 1,
                        .under = 1};
    while (p->split < MERAK_WINDOW_DIMS - 1 && windows.dim[p->split].in == 1)
        p->split++;
    for (int d = p->split + 1; d < MERAK_WINDOW_DIMS; d++) {
        p->behind *= windows.dim[d].in;
        p->under *= windows.dim[d].out;
    }
    if (p->g.taps > MAX_TAPS)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "pooling of %zu points at once: the cpu backend has "
                          "room for %zu",
                          p->g.taps, MAX_TAPS);
    return cpu_check_dtype(call, 0, false, err);
}

CPU_KERNEL(pool)
{
    struct pools p;
    enum merak_status rc = pools_of(call, 0, 1, &p, err);

    if (rc != MERAK_OK)
        return rc;
    p.x = call->operand[0].data;
    p.each = p.C * sizeof(float) < ITEM ? ITEM / (p.C * sizeof(float)) : 1;
    merak_pool_run(pool_item, &p,
                   cpu_range_count(p.g.samples * p.g.rows, p.each));
    return MERAK_OK;
}

CPU_SCRATCH(pool_dx)
{
    const struct merak_operand *dx = merak_call_out(call, 0);

    return dx->dtype == MERAK_BF16 ? merak_local_count(dx) * sizeof(float) : 0;
}

CPU_KERNEL(pool_dx)
{
    struct pools p;
    enum merak_status rc = pools_of(call, call->n_in, 0, &p, err);

    if (rc != MERAK_OK)
        return rc;
    p.dy = call->operand[0].data;
    p.x = call->n_in > 1 ? call->operand[1].data : NULL;
    p.sums = p.bf16 ? call->scratch : p.out;
    merak_pool_run(pool_dx_item, &p, p.g.samples * p.g.dim[p.split].source);
    return MERAK_OK;
}
