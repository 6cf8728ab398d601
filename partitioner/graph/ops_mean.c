/* SPDX-License-Identifier: Apache-2.0 */
/* ops_mean.c - the mean along one dim, which is gone then */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <string.h>

/* Dim i[0] of x, after that of samples. */
static enum merak_status check_dim(const struct merak_infer *inf, int ndim,
                                   struct merak_error *err)
{
    int64_t d = inf->attrs->i[0];
    char text[MERAK_SHAPE_TEXT];

    if (d >= 1 && d < ndim && ndim <= MERAK_MAX_DIMS &&
        inf->dtype[0] != MERAK_I32)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "mean: along dim %lld of %s %s, expected floats, and a "
                      "dim behind the first",
                      (long long)d, merak_dtype_name(inf->dtype[0]),
                      merak_shape_print(&inf->shape[0], text));
}

static enum merak_status mean_infer(struct merak_infer *inf,
                                    struct merak_error *err)
{
    const struct merak_shape *x = &inf->shape[0];
    struct merak_shape *y = &inf->shape[1];
    enum merak_status rc = check_dim(inf, x->ndim, err);

    if (rc != MERAK_OK)
        return rc;
    y->ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (d != inf->attrs->i[0])
            y->dim[y->ndim++] = x->dim[d];
    }
    inf->dtype[1] = inf->dtype[0];
    return MERAK_OK;
}

static enum merak_status mean_dx_infer(struct merak_infer *inf,
                                       struct merak_error *err)
{
    const struct merak_shape *dy = &inf->shape[0];
    struct merak_shape *dx = &inf->shape[1];
    enum merak_status rc = check_dim(inf, dy->ndim + 1, err);

    if (rc != MERAK_OK)
        return rc;
    dx->ndim = dy->ndim + 1;
    for (int d = 0, from = 0; d < dx->ndim; d++)
        dx->dim[d] =
            d == inf->attrs->i[0] ? (size_t)inf->attrs->i[1] : dy->dim[from++];
    inf->dtype[1] = inf->dtype[0];
    return MERAK_OK;
}

/* Operand `whole` has all dims, the other one not dim i[0]. */
static void signature(const struct merak_infer *inf, int whole,
                      struct merak_signature *sig)
{
    const struct merak_shape *x = &inf->shape[whole];
    int at = 0;

    memset(sig, 0, sizeof(*sig));
    memset(sig->operand_dim, -1, sizeof(sig->operand_dim));
    sig->n_index = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        sig->index[d] = (struct merak_index){
            .kind = MERAK_INDEX_SUM, .name = "btefhl"[d], .extent = x->dim[d]};
        sig->operand_dim[whole][d] = (int8_t)d;
        if (d != inf->attrs->i[0])
            sig->operand_dim[1 - whole][at++] = (int8_t)d;
    }
}

/* The mean is of a whole sequence, row or column: it is not cut there, and no
 * slice of one has it. */
static void mean_signature(const struct merak_infer *inf,
                           struct merak_signature *sig)
{
    signature(inf, 0, sig);
    sig->index[inf->attrs->i[0]].kind = MERAK_INDEX_WHOLE;
}

static void mean_dx_signature(const struct merak_infer *inf,
                              struct merak_signature *sig)
{
    signature(inf, 1, sig);
}

MERAK_COST(mean, 1)
MERAK_COST(mean_dx, 1)

static enum merak_status mean_grad(struct merak_grad *g,
                                   const struct merak_node *node,
                                   struct merak_error *err)
{
    struct merak_attrs attrs = *merak_node_attrs(node);
    struct merak_value *dy = merak_grad_out(g, node, 0);

    attrs.i[1] =
        (int64_t)merak_value_shape(merak_node_in(node, 0))->dim[attrs.i[0]];
    return merak_grad_unary(g, node, 0, "mean_dx", &attrs, 1, &dy, err);
}

static const struct merak_number mean_numbers[] = {{"mean along dim", 'i', 0},
                                                   {NULL, 0, 0}};

const struct merak_op merak_ops_mean[] = {
    MERAK_OP_WITH(mean, 1, 1, 1, mean_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = mean_numbers),
    MERAK_OP(mean_dx, 1, 1, 1, NULL),
    {.name = NULL},
};
