/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/windows.h - windows that move over points of space, and the patches
 * that they gather: rows of products
 *
 * A tensor [B, (z,) (y,) x, C] has C channels at each point.  A window of
 * `size` points, `dilation` apart, moves by `stride`: output o has the points
 * o stride - pad + k dilation, k < size, of which those outside of [0, in) are
 * zeros.  The attributes are those of enum merak_window_number.
 *
 * A convolution is a product of patches, rows with a tap's channels after
 * another's, gathered from the input.  The gradient of its input is one, too,
 * gathered from that of its output: for each of stride classes of points, which
 * meet other taps, rows of their own.  So no product has terms that are zero
 * but for the borders.
 */
#ifndef MERAK_KERNELS_WINDOWS_H
#define MERAK_KERNELS_WINDOWS_H

#include "merak/op.h"

#define MERAK_WINDOW_DIMS 3

struct merak_window_dim {
    size_t size, stride, dilation;
    int64_t pad;    /* zeros before the first point that is here; negative if a
                       part of the output is here that does not read it */
    size_t in, out; /* points of the input and of the output that are here */
};

/* Always of three dims: those that are not there come first, of one point. */
struct merak_windows {
    struct merak_window_dim dim[MERAK_WINDOW_DIMS];
};

/* Row i and tap j have the point first + i row_step + j tap_step of the source;
 * outside of [0, source) it is a zero. */
struct merak_patch_dim {
    size_t rows, taps, source;
    int64_t first, row_step, tap_step;
    /* Row i is of point at + i step of the target, tap j is tap
     * tap_at + j tap_by of the window. */
    size_t at, step, tap_at, tap_by;
};

struct merak_patches {
    struct merak_patch_dim dim[MERAK_WINDOW_DIMS];
    size_t samples;
    size_t rows; /* of a sample */
    size_t taps;
};

/* Of a call with operands x and y, parts of input and output. */
struct merak_windows merak_windows_of(const struct merak_kernel_call *call,
                                      int x, int y);
/* The points of a window. */
size_t merak_windows_taps(const struct merak_windows *w);

/* From the input, a row for each point of the output. */
struct merak_patches merak_patches_forward(const struct merak_windows *w,
                                           size_t samples);
/* From the output's gradient, a row for each point of the input that is in
 * class `c` of merak_windows_classes(). */
size_t merak_windows_classes(const struct merak_windows *w);
struct merak_patches merak_patches_backward(const struct merak_windows *w,
                                            size_t samples, size_t c);
/* The point in the source of a row's dim d and a tap's, or -1. */
MERAK_POSITION_FN int64_t merak_patch_point(const struct merak_patch_dim *d,
                                            size_t row, size_t tap)
{
    int64_t at =
        d->first + (int64_t)row * d->row_step + (int64_t)tap * d->tap_step;

    return at >= 0 && at < (int64_t)d->source ? at : -1;
}

/* The source's point, of all samples, that row and tap have; -1: a zero. */
MERAK_POSITION_FN int64_t merak_patch_from(const struct merak_patches *g,
                                           size_t row, size_t tap)
{
    size_t sample = row / g->rows;
    int64_t at[MERAK_WINDOW_DIMS];

    row %= g->rows;
    for (int d = MERAK_WINDOW_DIMS - 1; d >= 0; d--) {
        const struct merak_patch_dim *dim = &g->dim[d];

        at[d] = merak_patch_point(dim, row % dim->rows, tap % dim->taps);
        if (at[d] < 0)
            return -1;
        row /= dim->rows;
        tap /= dim->taps;
    }
    return (((int64_t)sample * (int64_t)g->dim[0].source + at[0]) *
                (int64_t)g->dim[1].source +
            at[1]) *
               (int64_t)g->dim[2].source +
           at[2];
}

/* The target's point of a row; `points` of each dim that the target has. */
MERAK_POSITION_FN size_t merak_patch_to(const struct merak_patches *g,
                                        const size_t *points, size_t row)
{
    size_t at[MERAK_WINDOW_DIMS], sample = row / g->rows;

    row %= g->rows;
    for (int d = MERAK_WINDOW_DIMS - 1; d >= 0; d--) {
        const struct merak_patch_dim *dim = &g->dim[d];

        at[d] = dim->at + row % dim->rows * dim->step;
        row /= dim->rows;
    }
    return ((sample * points[0] + at[0]) * points[1] + at[1]) * points[2] +
           at[2];
}

/* The window's tap, of all its dims, that a row's tap is. */
MERAK_POSITION_FN size_t merak_patch_tap(const struct merak_patches *g,
                                         const size_t *sizes, size_t tap)
{
    size_t at[MERAK_WINDOW_DIMS];

    for (int d = MERAK_WINDOW_DIMS - 1; d >= 0; d--) {
        const struct merak_patch_dim *dim = &g->dim[d];

        at[d] = dim->tap_at + tap % dim->taps * dim->tap_by;
        tap /= dim->taps;
    }
    return (at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
}

#endif
