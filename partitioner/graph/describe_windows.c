/* SPDX-License-Identifier: Apache-2.0 */
/* describe_windows.c - layers over points of space */
#include "config.h"

#include "merak/model.h"

#include "partitioner/graph/describe.h"
#include "partitioner/graph/dims.h"

#include "base/error.h"

#include <stdint.h>

#define SPACE 3 /* dims, at most */

static const struct merak_window plain = {.stride = 1};

/* The numbers of one dim; false if no window fits. */
static bool fill(double *list, size_t points, size_t size,
                 const struct merak_window *how)
{
    size_t stride = how->stride > 0 ? (size_t)how->stride : 1;
    size_t dilation = how->dilation > 0 ? (size_t)how->dilation : 1;
    size_t span = dilation * (size - 1) + 1, before, both, windows;

    before = how->pad > 0 ? (size_t)how->pad : 0;
    both = 2 * before;
    if (how->pad == MERAK_PAD_SAME) {
        size_t last = (points - 1) / stride * stride;

        both = last + span > points ? last + span - points : 0;
        before = both / 2;
    }
    if (points + both < span)
        return false;
    windows = (points + both - span) / stride + 1;
    list[MERAK_WINDOW_SIZE] = (double)size;
    list[MERAK_WINDOW_STRIDE] = (double)stride;
    list[MERAK_WINDOW_PAD] = (double)before;
    list[MERAK_WINDOW_DILATION] = (double)dilation;
    list[MERAK_WINDOW_IN] = (double)points;
    list[MERAK_WINDOW_OUT] = (double)windows;
    return true;
}

static bool check_how(struct merak_model *m, const char *op,
                      const struct merak_window *how)
{
    if (how->stride >= 0 && how->dilation >= 0 && how->pad >= MERAK_PAD_NONE)
        return true;
    merak_model_fail(m, MERAK_ERR_PARAM,
                     "%s: stride %d, dilation %d, padding %d: expected 0 for "
                     "the default, or more (MERAK_PAD_NONE: no padding)",
                     op, how->stride, how->dilation, how->pad);
    return false;
}

static bool check_dims(struct merak_model *m, const char *op,
                       const struct merak_shape *x, const struct merak_shape *w)
{
    char text[MERAK_SHAPE_TEXT];

    if (x->ndim >= 3 && x->ndim <= SPACE + 2 &&
        (w == NULL || w->ndim == x->ndim))
        return true;
    merak_model_fail(
        m, MERAK_ERR_PARAM,
        "%s: x is %s: expected samples, 1 to %d dims of space, and "
        "channels%s",
        op, merak_shape_print(x, text), SPACE,
        w == NULL ? "" : ", and as many dims of the weight");
    return false;
}

/* An op over windows of w's points, or of `size` along each dim, of x. */
static struct merak_value *apply(struct merak_model *m, const char *op,
                                 const struct merak_window *how, int size,
                                 int64_t kind, int n_in,
                                 struct merak_value *const *in)
{
    const struct merak_shape *x = &in[0]->shape;
    const struct merak_shape *w = n_in > 1 ? &in[1]->shape : NULL;
    double list[SPACE * MERAK_WINDOW_NUMBERS];
    struct merak_attrs attrs = {.i = {x->ndim - 2, kind}, .list = list};
    char text[MERAK_SHAPE_TEXT];

    if (!check_dims(m, op, x, w))
        return NULL;
    attrs.i[2] = attrs.i[0] * MERAK_WINDOW_NUMBERS;
    for (int d = 0; d < attrs.i[0]; d++) {
        size_t points = x->dim[1 + d];
        size_t of = w != NULL ? w->dim[1 + d] : (size_t)size;

        if (!fill(list + d * MERAK_WINDOW_NUMBERS, points, of, how)) {
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "%s: windows of %zu points do not fit dim %d of "
                             "x, %s, with padding %d: expected at most as "
                             "many as it has",
                             op, of, 1 + d, merak_shape_print(x, text),
                             how->pad > 0 ? how->pad : 0);
            return NULL;
        }
    }
    return merak_model_apply(m, op, &attrs, n_in, in);
}

struct merak_value *merak_conv(struct merak_model *m, struct merak_value *x,
                               struct merak_value *w, struct merak_value *bias,
                               const struct merak_window *how)
{
    how = how != NULL ? how : &plain;
    if (merak_model_open_for(m, "conv") == NULL || x == NULL || w == NULL ||
        !check_how(m, "conv", how))
        return NULL;
    merak_model_make_bias(m, bias);
    return apply(m, "conv", how, 0, 0, bias == NULL ? 2 : 3,
                 (struct merak_value *[]){x, w, bias});
}

/* The points that `out` windows of this kind are over, with these paddings. */
static size_t points_under(size_t out, size_t size,
                           const struct merak_window *how)
{
    size_t stride = how->stride > 0 ? (size_t)how->stride : 1;
    size_t dilation = how->dilation > 0 ? (size_t)how->dilation : 1;
    size_t all = stride * (out - 1) + dilation * (size - 1) + 1;
    size_t pad = how->pad > 0 ? 2 * (size_t)how->pad : 0;

    if (how->pad == MERAK_PAD_SAME)
        return stride * out;
    return all > pad ? all - pad : 0;
}

/* Layers from windows to the points that they are over: windows of w's points,
 * or of `size`, of which x has the outputs. */
static struct merak_value *apply_back(struct merak_model *m, const char *name,
                                      const char *op,
                                      const struct merak_window *how, int size,
                                      int64_t kind, int n_in,
                                      struct merak_value *const *in)
{
    const struct merak_shape *x = &in[0]->shape;
    const struct merak_shape *w = n_in > 1 ? &in[1]->shape : NULL;
    double list[SPACE * MERAK_WINDOW_NUMBERS];
    struct merak_attrs attrs = {.i = {x->ndim - 2, kind}, .list = list};
    char text[MERAK_SHAPE_TEXT];

    if (!check_dims(m, name, x, w))
        return NULL;
    attrs.i[2] = attrs.i[0] * MERAK_WINDOW_NUMBERS;
    for (int d = 0; d < attrs.i[0]; d++) {
        double *at = list + d * MERAK_WINDOW_NUMBERS;
        size_t windows = x->dim[1 + d];
        size_t of = w != NULL ? w->dim[1 + d] : (size_t)size;
        size_t points = points_under(windows, of, how);

        if (points == 0 || !fill(at, points, of, how) ||
            at[MERAK_WINDOW_OUT] != (double)windows) {
            merak_model_fail(m, MERAK_ERR_PARAM,
                             "%s: no points are under %zu windows of %zu along "
                             "dim %d of x, %s, with padding %d: expected less "
                             "padding",
                             name, windows, of, 1 + d,
                             merak_shape_print(x, text), how->pad);
            return NULL;
        }
    }
    return merak_model_apply(m, op, &attrs, n_in, in);
}

struct merak_value *merak_conv_transposed(struct merak_model *m,
                                          struct merak_value *x,
                                          struct merak_value *w,
                                          const struct merak_window *how)
{
    how = how != NULL ? how : &plain;
    if (merak_model_open_for(m, "conv_transposed") == NULL || x == NULL ||
        w == NULL || !check_how(m, "conv_transposed", how))
        return NULL;
    return apply_back(m, "conv_transposed", "conv_dx", how, 0, 0, 2,
                      (struct merak_value *[]){x, w});
}

struct merak_value *merak_upsample(struct merak_model *m, struct merak_value *x,
                                   int k)
{
    const struct merak_window how = {.stride = k, .pad = MERAK_PAD_NONE};

    if (merak_model_open_for(m, "upsample") == NULL || x == NULL)
        return NULL;
    if (k < 1 || k > UINT8_MAX) {
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "upsample: each point %d times: expected 1 to %d", k,
                         UINT8_MAX);
        return NULL;
    }
    return apply_back(m, "upsample", "pool_dx", &how, k, MERAK_POOL_SUM, 1, &x);
}

struct merak_value *merak_pool(struct merak_model *m, struct merak_value *x,
                               enum merak_pooling kind, int size,
                               const struct merak_window *how)
{
    how = how != NULL ? how : &plain;
    if (merak_model_open_for(m, "pool") == NULL || x == NULL ||
        !check_how(m, "pool", how))
        return NULL;
    if (size < 1) {
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "pool: windows of %d points: expected 1 or more",
                         size);
        return NULL;
    }
    return apply(m, "pool", how, size, (int64_t)kind, 1, &x);
}
