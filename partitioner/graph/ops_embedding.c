/* SPDX-License-Identifier: Apache-2.0 */
/* ops_embedding.c - token and position tables */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <math.h>

#define EMBEDDING "tokens=i:bt table=c:vc > out=c:btc"
MERAK_DIMS_SIGNATURE(embedding, EMBEDDING)

static enum merak_status embedding_infer(struct merak_infer *inf,
                                         struct merak_error *err)
{
    enum merak_status rc = merak_dims_infer("embedding", EMBEDDING, inf, err);
    int64_t pad = inf->attrs->i[0];

    if (rc == MERAK_OK &&
        !(inf->attrs->f[0] >= 0 && isfinite(inf->attrs->f[0])))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "embedding: scale is %g, expected a positive number, "
                          "or 0 for none",
                          inf->attrs->f[0]);
    if (rc == MERAK_OK && (pad < 0 || (size_t)pad > inf->shape[1].dim[0]))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "embedding: padding is token %lld, expected 0 to %zu",
                          (long long)pad - 1, inf->shape[1].dim[0] - 1);
    return rc;
}

/* Rows are gathered: only those of the tokens are read, not the whole table. */
static void embedding_cost(const struct merak_infer *inf,
                           struct merak_cost *cost)
{
    double rows = (double)merak_shape_count(&inf->shape[2]) *
                  (double)merak_dtype_bytes(inf->dtype[2]);

    cost->flops = 0;
    cost->bytes = 2 * rows + 4 * (double)merak_shape_count(&inf->shape[0]);
}

static enum merak_status embedding_grad(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err)
{
    struct merak_value *table = merak_node_in(node, 1);
    struct merak_value *in[] = {merak_node_in(node, 0),
                                merak_grad_out(g, node, 0)};
    const struct merak_attrs *of = merak_node_attrs(node);
    const struct merak_attrs attrs = {
        .i = {(int64_t)merak_value_shape(table)->dim[0], of->i[0]},
        .f = {of->f[0]}};

    return merak_grad_param(g, node, table, "embedding_dw", &attrs, 2, in, err);
}

#define EMBEDDING_DW "tokens=i:bt dy=c:btc > dtable=f:vc"
MERAK_DIMS_SIGNATURE(embedding_dw, EMBEDDING_DW)

/* A table's gradient has i[0] rows, the extent of `letter` in the pattern. */
static enum merak_status table_infer(const char *op, const char *pattern,
                                     char letter, struct merak_infer *inf,
                                     struct merak_error *err)
{
    struct merak_dims dims;
    enum merak_status rc = merak_dims_parse(&dims, op, pattern, inf, err);

    if (rc != MERAK_OK)
        return rc;
    if (inf->attrs->i[0] < 1)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: i[0] is %lld, expected the table's rows", op,
                          (long long)inf->attrs->i[0]);
    dims.extent[(unsigned char)letter] = (size_t)inf->attrs->i[0];
    return merak_dims_solve(&dims, inf, err);
}

static enum merak_status embedding_dw_infer(struct merak_infer *inf,
                                            struct merak_error *err)
{
    return table_infer("embedding_dw", EMBEDDING_DW, 'v', inf, err);
}

/* Rows that were used are read, added to and written. */
static void embedding_dw_cost(const struct merak_infer *inf,
                              struct merak_cost *cost)
{
    double n = (double)merak_shape_count(&inf->shape[1]);

    cost->flops = n;
    cost->bytes = n * (double)(merak_dtype_bytes(inf->dtype[1]) +
                               2 * merak_dtype_bytes(inf->dtype[2]));
}

/* With a third input, positions count from the start of a token's document. */
#define ADD_POSITION                                              \
    (inf->n_in > 2 ? "x=c:btc table=c:Pc starts=i:bt > out=c:btc" \
                   : "x=c:btc table=c:Pc > out=c:btc")
MERAK_DIMS_SIGNATURE(add_position, ADD_POSITION)

static enum merak_status add_position_infer(struct merak_infer *inf,
                                            struct merak_error *err)
{
    char a[MERAK_SHAPE_TEXT], b[MERAK_SHAPE_TEXT];
    enum merak_status rc =
        merak_dims_infer("add_position", ADD_POSITION, inf, err);

    if (rc != MERAK_OK || inf->shape[0].dim[1] <= inf->shape[1].dim[0])
        return rc;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "add_position: the sequence of x %s is longer than "
                      "table %s has positions; lower the sequence length to "
                      "%zu or use a longer table",
                      merak_shape_print(&inf->shape[0], a),
                      merak_shape_print(&inf->shape[1], b),
                      inf->shape[1].dim[0]);
}

static void add_position_cost(const struct merak_infer *inf,
                              struct merak_cost *cost)
{
    double n = (double)merak_shape_count(&inf->shape[0]);
    size_t rows = inf->shape[0].dim[1] * inf->shape[0].dim[2];

    cost->flops = n;
    cost->bytes =
        (2 * n + (double)rows) * (double)merak_dtype_bytes(inf->dtype[0]);
}

static enum merak_status add_position_grad(struct merak_grad *g,
                                           const struct merak_node *node,
                                           struct merak_error *err)
{
    struct merak_value *table = merak_node_in(node, 1);
    struct merak_value *dy = merak_grad_out(g, node, 0), *in[2] = {dy};
    const struct merak_attrs attrs = {
        .i = {(int64_t)merak_value_shape(table)->dim[0]}};
    int n_in = 1;
    enum merak_status rc = merak_grad_add(g, merak_node_in(node, 0), dy, err);

    if (merak_node_in_count(node) > 2)
        in[n_in++] = merak_node_in(node, 2);
    return rc != MERAK_OK ? rc
                          : merak_grad_param(g, node, table, "add_position_dw",
                                             &attrs, n_in, in, err);
}

#define ADD_POSITION_DW                                   \
    (inf->n_in > 1 ? "dy=c:btc starts=i:bt > dtable=f:Pc" \
                   : "dy=c:btc > dtable=f:Pc")
MERAK_DIMS_SIGNATURE(add_position_dw, ADD_POSITION_DW)

static enum merak_status add_position_dw_infer(struct merak_infer *inf,
                                               struct merak_error *err)
{
    return table_infer("add_position_dw", ADD_POSITION_DW, 'P', inf, err);
}

MERAK_COST(add_position_dw, 1)

static const struct merak_number embedding_numbers[] = {
    {"embedding row without gradient", 'i', 0},
    {"embedding factor", 'f', 0},
    {NULL, 0, 0}};

const struct merak_op merak_ops_embedding[] = {
    MERAK_OP_WITH(embedding, 2, 2, 1, embedding_grad,
                  .step_use = MERAK_STEP_NONE, .numbers = embedding_numbers),
    MERAK_OP(embedding_dw, 2, 2, 1, NULL),
    MERAK_OP_WITH(add_position, 2, 3, 1, add_position_grad,
                  .step_use = MERAK_STEP_NONE, .numbers = merak_no_numbers),
    MERAK_OP(add_position_dw, 1, 2, 1, NULL),
    {.name = NULL},
};
