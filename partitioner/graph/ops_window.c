/* SPDX-License-Identifier: Apache-2.0 */
/* ops_window.c - windows over points of space: convolution, pooling, and their
 * gradients
 *
 * The attributes are those of enum merak_window_number.  Samples and channels
 * may be cut, and points where each window's are in one part and its reach.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <stdio.h>
#include <stdint.h>
#include <string.h>

/* Points of the input, of the output, and of a window. */
#define IN "ZYX"
#define OUT "PQR"
#define TAP "KLM"
#define DIMS 3

static int space_dims(const struct merak_infer *inf)
{
    int64_t n = inf->attrs->i[0];

    return n < 1 || n > DIMS ? 0 : (int)n;
}

/* Number `k` of dim d: MERAK_WINDOW_SIZE and its neighbours. */
static size_t number(const struct merak_infer *inf, int d, int k)
{
    return (size_t)inf->attrs->list[d * MERAK_WINDOW_NUMBERS + k];
}

static enum merak_status check_numbers(const char *op,
                                       const struct merak_infer *inf,
                                       struct merak_error *err)
{
    int n = space_dims(inf);

    if (n == 0 || inf->attrs->list == NULL ||
        inf->attrs->i[2] != n * MERAK_WINDOW_NUMBERS)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: i[0] = %lld dims of space, and %lld numbers: "
                          "expected 1 to %d, and %d for each",
                          op, (long long)inf->attrs->i[0],
                          (long long)inf->attrs->i[2], DIMS,
                          MERAK_WINDOW_NUMBERS);
    for (int d = 0; d < n; d++) {
        size_t span = number(inf, d, MERAK_WINDOW_DILATION) *
                          (number(inf, d, MERAK_WINDOW_SIZE) - 1) +
                      1;

        for (int k = 0; k < MERAK_WINDOW_NUMBERS; k++) {
            if (!(inf->attrs->list[d * MERAK_WINDOW_NUMBERS + k] >=
                  (k == MERAK_WINDOW_PAD ? 0 : 1)))
                return merak_fail(
                    err, MERAK_ERR_PARAM,
                    "%s: number %d of dim %d of space is %g, "
                    "expected %d or more",
                    op, k, d, inf->attrs->list[d * MERAK_WINDOW_NUMBERS + k],
                    k == MERAK_WINDOW_PAD ? 0 : 1);
        }
        if (number(inf, d, MERAK_WINDOW_PAD) >= span)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "%s: padding %zu of a window of %zu points: "
                              "expected less, or it is all padding",
                              op, number(inf, d, MERAK_WINDOW_PAD), span);
    }
    return MERAK_OK;
}

/* "ZYX" of n dims: the last ones. */
static void set_operand(struct merak_dims *dims, int o, const char *name,
                        char dtype, const char *before, const char *space,
                        int n, const char *after)
{
    struct merak_dims_operand *op = &dims->operand[o];

    snprintf(op->name, sizeof(op->name), "%s", name);
    op->dtype = dtype;
    snprintf(op->letter, sizeof(op->letter), "%s%s%s", before, space + DIMS - n,
             after);
}

/* Names an op's operands; `out`: letters of the points of its output. */
typedef void (*dims_fn)(const struct merak_infer *inf, const char *out,
                        struct merak_dims *dims);

static enum merak_status infer_by(dims_fn fn, struct merak_infer *inf,
                                  struct merak_error *err)
{
    struct merak_dims dims = {0};
    enum merak_status rc;
    int n = space_dims(inf);

    fn(inf, OUT, &dims);
    rc = check_numbers(dims.op, inf, err);
    if (rc != MERAK_OK)
        return rc;
    for (int d = 0; d < n; d++) {
        dims.extent[(unsigned char)IN[DIMS - n + d]] =
            number(inf, d, MERAK_WINDOW_IN);
        dims.extent[(unsigned char)OUT[DIMS - n + d]] =
            number(inf, d, MERAK_WINDOW_OUT);
        dims.extent[(unsigned char)TAP[DIMS - n + d]] =
            number(inf, d, MERAK_WINDOW_SIZE);
    }
    return merak_dims_solve(&dims, inf, err);
}

/* May dim d of space be cut?  Parts of the input are then those of the output,
 * times the stride.  Windows of pooling must not have points of two parts. */
static bool is_window(const struct merak_infer *inf, int d, bool pools)
{
    size_t size = number(inf, d, MERAK_WINDOW_SIZE);
    size_t stride = number(inf, d, MERAK_WINDOW_STRIDE);
    size_t pad = number(inf, d, MERAK_WINDOW_PAD);
    size_t span = number(inf, d, MERAK_WINDOW_DILATION) * (size - 1) + 1;

    return number(inf, d, MERAK_WINDOW_IN) ==
               stride * number(inf, d, MERAK_WINDOW_OUT) &&
           span <= UINT8_MAX && (!pools || (span <= stride && pad == 0));
}

/* What a part needs of an operand beside its own points: of an input those that
 * its windows have, of an output's gradient the windows of its points. */
static struct merak_reach reach_of(const struct merak_infer *inf, int d,
                                   bool out)
{
    int stride = (int)number(inf, d, MERAK_WINDOW_STRIDE);
    int pad = (int)number(inf, d, MERAK_WINDOW_PAD);
    int last = (int)number(inf, d, MERAK_WINDOW_DILATION) *
               ((int)number(inf, d, MERAK_WINDOW_SIZE) - 1);
    int before = pad, after = last + 1 - stride - pad;

    if (out) {
        before = last > pad ? (last - pad) / stride : 0;
        after = pad > 0 ? (pad - 1) / stride + 1 : 0;
    }
    return (struct merak_reach){(uint8_t)before,
                                (uint8_t)(after > 0 ? after : 0)};
}

/* The output's points are the input's index: what is counted along it stays
 * so, with fewer of them.  in, out: the input operand of which each is the
 * points, or -1. */
static void signature_by(dims_fn fn, const struct merak_infer *inf, int in,
                         int out, bool pools, struct merak_signature *sig)
{
    struct merak_dims dims = {0};

    fn(inf, IN, &dims);
    merak_dims_indices(&dims, inf, sig);
    for (int d = 0; d < space_dims(inf); d++) {
        struct merak_index *index;

        if (!is_window(inf, d, pools))
            continue;
        index = &sig->index[sig->operand_dim[0][1 + d]];
        index->kind = MERAK_INDEX_WINDOW;
        index->extent = number(inf, d, MERAK_WINDOW_OUT);
        if (in >= 0)
            sig->reach[in][1 + d] = reach_of(inf, d, false);
        if (out >= 0)
            sig->reach[out][1 + d] = reach_of(inf, d, true);
    }
}

#define BY_DIMS(op, in, out, pools)                              \
    static enum merak_status op##_infer(struct merak_infer *inf, \
                                        struct merak_error *err) \
    {                                                            \
        return infer_by(op##_dims, inf, err);                    \
    }                                                            \
    static void op##_signature(const struct merak_infer *inf,    \
                               struct merak_signature *sig)      \
    {                                                            \
        signature_by(op##_dims, inf, in, out, pools, sig);       \
    }

/* Two flops for each tap of each channel of each element of the output, of
 * which points are operand y's and taps and channels operand w's. */
static void taps_cost(const struct merak_infer *inf, int y, int w,
                      struct merak_cost *cost)
{
    const struct merak_shape *of = &inf->shape[y];
    double points = 1;

    for (int d = 0; d < of->ndim - 1; d++)
        points *= (double)of->dim[d];
    cost->flops = 2 * points * (double)merak_shape_count(&inf->shape[w]);
    cost->bytes = merak_cost_bytes(inf);
}

/* --- conv: x [b, in.., i], w [o, taps.., i], bias [o] -> y [b, out.., o] ----
 */

static void conv_dims(const struct merak_infer *inf, const char *out,
                      struct merak_dims *dims)
{
    int n = space_dims(inf);

    dims->op = "conv";
    dims->n_in = inf->n_in;
    dims->n_out = 1;
    set_operand(dims, 0, "x", 'c', "b", IN, n, "i");
    set_operand(dims, 1, "w", 'c', "o", TAP, n, "i");
    if (inf->n_in == 3)
        set_operand(dims, 2, "bias", 'f', "o", "", DIMS, "");
    set_operand(dims, inf->n_in, "y", 'c', "b", out, n, "o");
}

BY_DIMS(conv, 0, -1, false)

static void conv_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    taps_cost(inf, inf->n_in, 1, cost);
    if (inf->n_in == 3)
        cost->flops += (double)merak_shape_count(&inf->shape[3]);
}

static enum merak_status conv_grad(struct merak_grad *g,
                                   const struct merak_node *node,
                                   struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    enum merak_status rc =
        merak_grad_product(g, node, "conv_dx", "conv_dw", false, err);

    if (rc != MERAK_OK || merak_node_in_count(node) < 3)
        return rc;
    return merak_grad_param(g, node, merak_node_in(node, 2), "linear_db",
                            &(struct merak_attrs){.i[0] = 1}, 1, &dy, err);
}

/* --- conv_dx: dy, w -> dx --------------------------------------------------
 */

static void conv_dx_dims(const struct merak_infer *inf, const char *out,
                         struct merak_dims *dims)
{
    int n = space_dims(inf);

    dims->op = "conv_dx";
    dims->n_in = 2;
    dims->n_out = 1;
    set_operand(dims, 0, "dy", 'c', "b", out, n, "o");
    set_operand(dims, 1, "w", 'c', "o", TAP, n, "i");
    set_operand(dims, 2, "dx", 'c', "b", IN, n, "i");
}

BY_DIMS(conv_dx, -1, 0, false)

static void conv_dx_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    taps_cost(inf, 0, 1, cost);
}

/* As a layer of its own, a convolution whose sides are exchanged: so are they in
 * its gradients. */
static enum merak_status conv_dx_grad(struct merak_grad *g,
                                      const struct merak_node *node,
                                      struct merak_error *err)
{
    return merak_grad_product(g, node, "conv", "conv_dw", true, err);
}

/* --- conv_dw: x, dy -> dw --------------------------------------------------
 */

static void conv_dw_dims(const struct merak_infer *inf, const char *out,
                         struct merak_dims *dims)
{
    int n = space_dims(inf);

    dims->op = "conv_dw";
    dims->n_in = 2;
    dims->n_out = 1;
    set_operand(dims, 0, "x", 'c', "b", IN, n, "i");
    set_operand(dims, 1, "dy", 'c', "b", out, n, "o");
    set_operand(dims, 2, "dw", 'f', "o", TAP, n, "i");
}

BY_DIMS(conv_dw, 0, -1, false)

static void conv_dw_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    taps_cost(inf, 1, 2, cost);
}

/* --- pool: x [b, in.., c] -> y [b, out.., c] -------------------------------
 */

static void pool_dims(const struct merak_infer *inf, const char *out,
                      struct merak_dims *dims)
{
    int n = space_dims(inf);

    dims->op = "pool";
    dims->n_in = dims->n_out = 1;
    set_operand(dims, 0, "x", 'c', "b", IN, n, "c");
    set_operand(dims, 1, "y", 'c', "b", out, n, "c");
}

BY_DIMS(pool, -1, -1, true)

/* A flop for each point of each window. */
static void windows_cost(const struct merak_infer *inf, int y,
                         struct merak_cost *cost)
{
    double taps = 1;

    for (int d = 0; d < space_dims(inf); d++)
        taps *= (double)number(inf, d, MERAK_WINDOW_SIZE);
    cost->flops = taps * (double)merak_shape_count(&inf->shape[y]);
    cost->bytes = merak_cost_bytes(inf);
}

static void pool_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    windows_cost(inf, 1, cost);
}

static enum merak_status pool_grad(struct merak_grad *g,
                                   const struct merak_node *node,
                                   struct merak_error *err)
{
    const struct merak_attrs *attrs = merak_node_attrs(node);
    int n_in = attrs->i[1] == MERAK_POOL_MAX ? 2 : 1;

    return merak_grad_unary(g, node, 0, "pool_dx", attrs, n_in,
                            (struct merak_value *[]){merak_grad_out(g, node, 0),
                                                     merak_node_in(node, 0)},
                            err);
}

/* --- pool_dx: dy, and x where the largest is asked for -> dx ---------------
 */

static void pool_dx_dims(const struct merak_infer *inf, const char *out,
                         struct merak_dims *dims)
{
    int n = space_dims(inf);

    dims->op = "pool_dx";
    dims->n_in = inf->n_in;
    dims->n_out = 1;
    set_operand(dims, 0, "dy", 'c', "b", out, n, "c");
    if (inf->n_in == 2)
        set_operand(dims, 1, "x", 'c', "b", IN, n, "c");
    set_operand(dims, inf->n_in, "dx", 'c', "b", IN, n, "c");
}

BY_DIMS(pool_dx, -1, -1, true)

/* As a layer of its own, of sums: each point many times. */
static enum merak_status pool_dx_grad(struct merak_grad *g,
                                      const struct merak_node *node,
                                      struct merak_error *err)
{
    return merak_grad_unary(
        g, node, 0, "pool", merak_node_attrs(node), 1,
        (struct merak_value *[]){merak_grad_out(g, node, 0)}, err);
}

static void pool_dx_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    windows_cost(inf, 0, cost);
}

const struct merak_op merak_ops_window[] = {
    MERAK_OP_WITH(conv, 2, 3, 1, conv_grad, .step_use = MERAK_STEP_NONE),
    MERAK_OP_WITH(conv_dx, 2, 2, 1, conv_dx_grad, .step_use = MERAK_STEP_NONE),
    MERAK_OP_WITH(conv_dw, 2, 2, 1, NULL, .step_use = MERAK_STEP_NONE),
    MERAK_OP_WITH(pool, 1, 1, 1, pool_grad, .step_use = MERAK_STEP_NONE),
    MERAK_OP_WITH(pool_dx, 1, 2, 1, pool_dx_grad, .step_use = MERAK_STEP_NONE),
    {.name = NULL},
};
