/* SPDX-License-Identifier: Apache-2.0 */
/* ops_elementwise.c - activations, sums, dropout, rotary positions */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"
#include "merak/model.h"

#include <math.h>

#define RELU "x=c:* > y=c:*"

MERAK_DIMS(gelu, "x=c:* > y=c:*")
MERAK_DIMS(gelu_dx, "dy=c:* x=c:* > dx=c:*")
MERAK_DIMS(relu2, "x=c:* > y=c:*")
MERAK_DIMS(relu2_dx, "dy=c:* x=c:* > dx=c:*")
MERAK_DIMS_SIGNATURE(relu, RELU)
MERAK_DIMS(relu_dx, "dy=c:* x=c:* > dx=c:*")
MERAK_DIMS(log1p, "x=c:* > y=c:*")
MERAK_DIMS(log1p_dx, "dy=c:* x=c:* > dx=c:*")
MERAK_DIMS(tanh, "x=c:* > y=c:*")
MERAK_DIMS(tanh_dx, "dy=c:* y=c:* > dx=c:*")
MERAK_DIMS(widen, "x=c:* > y=f:*")
MERAK_DIMS(narrow, "dy=f:* x=c:* > dx=c:*")
MERAK_DIMS(swiglu, "gate=c:* up=c:* > y=c:*")
MERAK_DIMS(swiglu_dx, "dy=c:* gate=c:* up=c:* > dgate=c:* dup=c:*")
MERAK_DIMS(softcap_dx, "dy=c:btv y=c:btv > dx=c:btv")

/* A tanh or an exponential counts as one. */
MERAK_COST(gelu, 9)
MERAK_COST(gelu_dx, 15)
MERAK_COST(relu2, 2)
MERAK_COST(relu2_dx, 3)
MERAK_COST(relu, 1)
MERAK_COST(relu_dx, 1)
MERAK_COST(log1p, 1)
MERAK_COST(log1p_dx, 2)
MERAK_COST(tanh, 1)
MERAK_COST(tanh_dx, 3)
MERAK_COST(widen, 0)
MERAK_COST(narrow, 0)
MERAK_COST(swiglu, 5)
MERAK_COST(swiglu_dx, 10)
MERAK_COST(softcap, 3)
MERAK_COST(softcap_dx, 4)
MERAK_COST(add, 1)
MERAK_COST(scale, 1)
MERAK_COST(convert, 0)
MERAK_COST(dropout, 2)
MERAK_COST(rope, 3)

/* Defines OP_signature of an op that is jointly linear in its inputs. */
#define LINEAR_SIGNATURE(op, pattern)                         \
    static void op##_signature(const struct merak_infer *inf, \
                               struct merak_signature *sig)   \
    {                                                         \
        merak_dims_signature(#op, (pattern), inf, sig);       \
        sig->linear = true;                                   \
    }

#define SOFTCAP "x=c:btv > y=c:btv" /* a vocabulary may be cut unevenly */
#define ADD "a=c:* b=c:* > y=c:*"
/* With a number of rows left it is made only where that is not 0; else zeros.
 */
#define CONVERT (inf->n_in > 1 ? "x=a:* rows=d:1 > y=a:*" : "x=a:* > y=a:*")
#define SCALE "x=c:* > y=c:*"
#define DROPOUT "x=c:* > y=c:*"
#define ROPE "x=c:bt*D > y=c:bt*D"

LINEAR_SIGNATURE(add, ADD)
LINEAR_SIGNATURE(convert, CONVERT)
LINEAR_SIGNATURE(scale, SCALE)
LINEAR_SIGNATURE(dropout, DROPOUT)
LINEAR_SIGNATURE(rope, ROPE)
MERAK_DIMS_SIGNATURE(softcap, SOFTCAP)
MERAK_DIMS_INFER(add, ADD)
MERAK_DIMS_INFER(convert, CONVERT)

static enum merak_status softcap_infer(struct merak_infer *inf,
                                       struct merak_error *err)
{
    double cap = inf->attrs->f[0];

    if (!(cap > 0) || !isfinite(cap))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "softcap: cap is %g, expected a positive number",
                          cap);
    return merak_dims_infer("softcap", SOFTCAP, inf, err);
}

static enum merak_status relu_infer(struct merak_infer *inf,
                                    struct merak_error *err)
{
    double slope = inf->attrs->f[0];

    if (!(slope >= 0) || !isfinite(slope))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "relu: slope below 0 is %g, expected 0 or a positive "
                          "number",
                          slope);
    return merak_dims_infer("relu", RELU, inf, err);
}

static enum merak_status scale_infer(struct merak_infer *inf,
                                     struct merak_error *err)
{
    double factor = inf->attrs->f[0];

    if (factor == 0 || !isfinite(factor))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "scale: factor is %g, expected a finite number other "
                          "than 0",
                          factor);
    return merak_dims_infer("scale", SCALE, inf, err);
}

static enum merak_status dropout_infer(struct merak_infer *inf,
                                       struct merak_error *err)
{
    double p = inf->attrs->f[0];

    if (!(p >= 0 && p < 1))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "dropout: p is %g, expected 0 <= p < 1", p);
    return merak_dims_infer("dropout", DROPOUT, inf, err);
}

/* There must be a factor for each pair. */
static enum merak_status check_pairs(const struct merak_attrs *attrs,
                                     size_t pairs, struct merak_error *err)
{
    size_t n = attrs->list == NULL ? 0 : (size_t)attrs->i[2];

    if (n != pairs)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "rope: %zu factors of pairs, expected %zu", n, pairs);
    for (size_t i = 0; i < n; i++) {
        if (!(attrs->list[i] > 0) || !isfinite(attrs->list[i]))
            return merak_fail(err, MERAK_ERR_PARAM,
                              "rope: factor of pair %zu is %g, expected a "
                              "positive number",
                              i, attrs->list[i]);
    }
    return MERAK_OK;
}

static enum merak_status check_scaling(const struct merak_attrs *attrs,
                                       size_t pairs, struct merak_error *err)
{
    const double *f = attrs->f;

    if (attrs->i[1] < MERAK_ROPE_PLAIN || attrs->i[1] > MERAK_ROPE_PAIRS)
        return merak_fail(err, MERAK_ERR_PARAM, "rope: no kind %lld of scaling",
                          (long long)attrs->i[1]);
    if (!(f[4] >= 0) || !isfinite(f[4]))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "rope: amplitude is %g, expected a positive number",
                          f[4]);
    if (attrs->i[1] == MERAK_ROPE_PAIRS)
        return check_pairs(attrs, pairs, err);
    if (attrs->i[1] != MERAK_ROPE_PLAIN && (!(f[1] > 0) || !isfinite(f[1])))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "rope: factor is %g, expected a positive number",
                          f[1]);
    if (attrs->i[1] > MERAK_ROPE_LINEAR &&
        (!(f[3] > f[2]) || !isfinite(f[3] - f[2])))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "rope: scaling from %g to %g, expected a rise", f[2],
                          f[3]);
    return MERAK_OK;
}

static enum merak_status rope_infer(struct merak_infer *inf,
                                    struct merak_error *err)
{
    const struct merak_shape *x = &inf->shape[0];
    enum merak_status rc = merak_dims_infer("rope", ROPE, inf, err);
    char text[MERAK_SHAPE_TEXT];
    int64_t turned;
    size_t D;

    if (rc != MERAK_OK)
        return rc;
    D = x->dim[x->ndim - 1];
    if (D % 2 != 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "rope: x is %s, expected an even last dim",
                          merak_shape_print(x, text));
    if (!(inf->attrs->f[0] > 0) || !isfinite(inf->attrs->f[0]))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "rope: theta is %g, expected a positive number",
                          inf->attrs->f[0]);
    turned = inf->attrs->i[3] == 0 ? (int64_t)D : inf->attrs->i[3];
    if (turned <= 0 || turned > (int64_t)D || turned % 2 != 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "rope: %lld of %zu channels turn, expected an even "
                          "number of them",
                          (long long)turned, D);
    return check_scaling(inf->attrs, (size_t)turned / 2, err);
}

#define DY merak_grad_out(g, node, 0)
#define X merak_node_in(node, 0)
#define Y merak_node_out(node, 0)

MERAK_UNARY_GRAD(gelu, "gelu_dx", DY, X)
MERAK_UNARY_GRAD(relu2, "relu2_dx", DY, X)
MERAK_UNARY_GRAD(relu, "relu_dx", DY, X)
MERAK_UNARY_GRAD(log1p, "log1p_dx", DY, X)
MERAK_UNARY_GRAD(tanh, "tanh_dx", DY, Y)
MERAK_UNARY_GRAD(widen, "narrow", DY, X)
MERAK_UNARY_GRAD(softcap, "softcap_dx", DY, Y) /* the loss keeps the output */
MERAK_UNARY_GRAD(scale, "scale", DY)
/* The mask is a function of the stream, so the same call on dy applies it. */
MERAK_UNARY_GRAD(dropout, "dropout", DY)

static enum merak_status swiglu_grad(struct merak_grad *g,
                                     const struct merak_node *node,
                                     struct merak_error *err)
{
    struct merak_value *gate = merak_node_in(node, 0);
    struct merak_value *up = merak_node_in(node, 1);
    struct merak_value *in[] = {merak_grad_out(g, node, 0), gate, up};
    struct merak_value *out[2];
    enum merak_status rc;

    if (!merak_grad_wanted(g, gate) && !merak_grad_wanted(g, up))
        return MERAK_OK;
    rc = merak_grad_node(g, node, MERAK_PHASE_B, "swiglu_dx",
                         merak_node_attrs(node), 3, in, out, err);
    if (rc == MERAK_OK)
        rc = merak_grad_add(g, gate, out[0], err);
    return rc != MERAK_OK ? rc : merak_grad_add(g, up, out[1], err);
}

/* Both inputs get the output's gradient; there is nothing to compute. */
static enum merak_status add_grad(struct merak_grad *g,
                                  const struct merak_node *node,
                                  struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    enum merak_status rc = merak_grad_add(g, merak_node_in(node, 1), dy, err);

    return rc != MERAK_OK ? rc
                          : merak_grad_add(g, merak_node_in(node, 0), dy, err);
}

/* A rotation's transpose is its inverse. */
static enum merak_status rope_grad(struct merak_grad *g,
                                   const struct merak_node *node,
                                   struct merak_error *err)
{
    struct merak_attrs attrs = *merak_node_attrs(node);
    struct merak_value *dy = merak_grad_out(g, node, 0);

    attrs.i[0] = !attrs.i[0];
    return merak_grad_unary(g, node, 0, "rope", &attrs, 1, &dy, err);
}

static const struct merak_number gelu_numbers[] = {{"gelu tanh form", 'i', 0},
                                                   {NULL, 0, 0}};
static const struct merak_number swiglu_numbers[] = {
    {"swiglu with gelu", 'i', 0}, {NULL, 0, 0}};
static const struct merak_number softcap_numbers[] = {{"softcap", 'f', 0},
                                                      {NULL, 0, 0}};
static const struct merak_number scale_numbers[] = {{"scale factor", 'f', 0},
                                                    {NULL, 0, 0}};
static const struct merak_number relu_numbers[] = {{"relu slope", 'f', 0},
                                                   {NULL, 0, 0}};
static const struct merak_number dropout_numbers[] = {{"dropout", 'f', 0},
                                                      {NULL, 0, 0}};
static const struct merak_number rope_numbers[] = {
    {"rope theta", 'f', 0},
    {"rope scaling", 'i', 1},
    {"rope scaling factor", 'f', 1},
    {"rope scaling low", 'f', 2},
    {"rope scaling high", 'f', 3},
    {"rope amplitude", 'f', 4},
    {"rope rotated channels", 'i', 3},
    {"rope scaling list", 's', 0},
    {NULL, 0, 0}};

const struct merak_op merak_ops_elementwise[] = {
    MERAK_OP_WITH(gelu, 1, 1, 1, gelu_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = gelu_numbers),
    MERAK_OP(gelu_dx, 2, 2, 1, NULL),
    MERAK_OP_WITH(relu2, 1, 1, 1, relu2_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = merak_no_numbers),
    MERAK_OP(relu2_dx, 2, 2, 1, NULL),
    MERAK_OP_WITH(relu, 1, 1, 1, relu_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = relu_numbers),
    MERAK_OP(relu_dx, 2, 2, 1, NULL),
    MERAK_OP_WITH(log1p, 1, 1, 1, log1p_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = merak_no_numbers),
    MERAK_OP(log1p_dx, 2, 2, 1, NULL),
    MERAK_OP_WITH(tanh, 1, 1, 1, tanh_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = merak_no_numbers),
    MERAK_OP(tanh_dx, 2, 2, 1, NULL),
    MERAK_OP_WITH(widen, 1, 1, 1, widen_grad, .step_use = MERAK_STEP_NONE,
                  .role = MERAK_ROLE_WIDEN, .numbers = merak_no_numbers),
    MERAK_OP(narrow, 2, 2, 1, NULL),
    MERAK_OP_WITH(swiglu, 2, 2, 1, swiglu_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = swiglu_numbers),
    MERAK_OP(swiglu_dx, 3, 3, 2, NULL),
    MERAK_OP_WITH(softcap, 1, 1, 1, softcap_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = softcap_numbers),
    MERAK_OP(softcap_dx, 2, 2, 1, NULL),
    MERAK_OP_WITH(add, 2, 2, 1, add_grad, .step_use = MERAK_STEP_NONE,
                  .role = MERAK_ROLE_SUM, .numbers = merak_no_numbers),
    MERAK_OP_WITH(scale, 1, 1, 1, scale_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = scale_numbers),
    MERAK_OP_WITH(dropout, 1, 1, 1, dropout_grad,
                  .step_use = MERAK_STEP_DROPOUT, .numbers = dropout_numbers),
    MERAK_OP_WITH(rope, 1, 1, 1, rope_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = rope_numbers),
    MERAK_OP_WITH(convert, 1, 2, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .role = MERAK_ROLE_CONVERT),
    {.name = NULL},
};
