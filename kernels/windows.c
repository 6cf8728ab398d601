/* SPDX-License-Identifier: Apache-2.0 */
/* windows.c - see kernels/windows.h */
#include "config.h"

#include "kernels/windows.h"

struct merak_windows merak_windows_of(const struct merak_kernel_call *call,
                                      int x, int y)
{
    const struct merak_operand *in = &call->operand[x],
                               *out = &call->operand[y];
    int none = MERAK_WINDOW_DIMS - (int)call->attrs->i[0];
    struct merak_windows w;

    for (int d = 0; d < MERAK_WINDOW_DIMS; d++) {
        const double *at =
            call->attrs->list + MERAK_WINDOW_NUMBERS * (d - none);
        int o = 1 + d - none;

        if (d < none) {
            w.dim[d] = (struct merak_window_dim){1, 1, 1, 0, 1, 1};
            continue;
        }
        w.dim[d] = (struct merak_window_dim){
            .size = (size_t)at[MERAK_WINDOW_SIZE],
            .stride = (size_t)at[MERAK_WINDOW_STRIDE],
            .dilation = (size_t)at[MERAK_WINDOW_DILATION],
            .pad = (int64_t)at[MERAK_WINDOW_PAD] + (int64_t)in->lo[o] -
                   (int64_t)out->lo[o] * (int64_t)at[MERAK_WINDOW_STRIDE],
            .in = in->local.dim[o],
            .out = out->local.dim[o]};
    }
    return w;
}

size_t merak_windows_taps(const struct merak_windows *w)
{
    return w->dim[0].size * w->dim[1].size * w->dim[2].size;
}

static void count(struct merak_patches *g)
{
    g->rows = g->taps = 1;
    for (int d = 0; d < MERAK_WINDOW_DIMS; d++) {
        g->rows *= g->dim[d].rows;
        g->taps *= g->dim[d].taps;
    }
}

struct merak_patches merak_patches_forward(const struct merak_windows *w,
                                           size_t samples)
{
    struct merak_patches g = {.samples = samples};

    for (int d = 0; d < MERAK_WINDOW_DIMS; d++) {
        const struct merak_window_dim *dim = &w->dim[d];

        g.dim[d] = (struct merak_patch_dim){.rows = dim->out,
                                            .taps = dim->size,
                                            .source = dim->in,
                                            .first = -dim->pad,
                                            .row_step = (int64_t)dim->stride,
                                            .tap_step = (int64_t)dim->dilation,
                                            .step = 1,
                                            .tap_by = 1};
    }
    count(&g);
    return g;
}

size_t merak_windows_classes(const struct merak_windows *w)
{
    return w->dim[0].stride * w->dim[1].stride * w->dim[2].stride;
}

/* Tap k has point x of the input in output (x + pad - k dilation) / stride,
 * where that is whole: for points with x + pad = c (mod stride) for the taps
 * with k dilation = c, which are every `by`th one. */
static struct merak_patch_dim backward_dim(const struct merak_window_dim *w,
                                           size_t c)
{
    const int64_t signed_s = (int64_t)w->stride;
    size_t s = w->stride, by = 1, tap = 0;
    size_t x =
        (size_t)((((int64_t)c - w->pad) % signed_s + signed_s) % signed_s);
    struct merak_patch_dim g = {.source = w->out, .row_step = 1};

    while (by * w->dilation % s != 0)
        by++;
    while (tap < by && tap * w->dilation % s != c)
        tap++;
    g.at = x;
    g.step = s;
    g.rows = x < w->in ? (w->in - x + s - 1) / s : 0;
    g.tap_at = tap;
    g.tap_by = by;
    g.taps = tap < by && tap < w->size ? (w->size - tap + by - 1) / by : 0;
    g.first = ((int64_t)x + w->pad - (int64_t)(tap * w->dilation)) / signed_s;
    g.tap_step = -(int64_t)(by * w->dilation / s);
    return g;
}

struct merak_patches merak_patches_backward(const struct merak_windows *w,
                                            size_t samples, size_t c)
{
    struct merak_patches g = {.samples = samples};

    for (int d = MERAK_WINDOW_DIMS - 1; d >= 0; d--) {
        g.dim[d] = backward_dim(&w->dim[d], c % w->dim[d].stride);
        c /= w->dim[d].stride;
    }
    count(&g);
    return g;
}
