/* SPDX-License-Identifier: Apache-2.0 */
/* ops_balance.c - how evenly a router loads its experts: losses beside the
 * model's own, and the counts that move its bias
 *
 * A sequence's load is all that its tokens need to know of each other.  Nothing
 * else is summed over tokens before it enters a product, so neither losses nor
 * gradients depend on micro-batches, replicas or how samples are cut.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <math.h>

/* A sequence's load is, of each expert, the number of its rows, then the sum of
 * its shares of tokens, and last the sum of squares of tokens' logarithms. */
static size_t load_size(size_t E)
{
    return 2 * E + 1;
}

static size_t last_dim(const struct merak_shape *shape)
{
    return shape->dim[shape->ndim > 0 ? shape->ndim - 1 : 0];
}

/* Infer from a pattern with an extent that no input has. */
static enum merak_status infer_with(const char *op, const char *pattern,
                                    char letter, size_t extent,
                                    struct merak_infer *inf,
                                    struct merak_error *err)
{
    struct merak_dims dims;
    enum merak_status rc = merak_dims_parse(&dims, op, pattern, inf, err);

    if (rc != MERAK_OK)
        return rc;
    dims.extent[(unsigned char)letter] = extent;
    return merak_dims_solve(&dims, inf, err);
}

#define ROUTE_LOAD                                          \
    (inf->n_in > 2 ? "z=c:btE ids=i:btK bias=f:E > load=f:bL" \
                   : "z=c:btE ids=i:btK > load=f:bL")
MERAK_DIMS_SIGNATURE(route_load, ROUTE_LOAD)

static enum merak_status route_load_infer(struct merak_infer *inf,
                                          struct merak_error *err)
{
    const double *f = inf->attrs->f;

    if (!(f[0] >= 0 && f[1] >= 0) || !isfinite(f[0]) || !isfinite(f[1]))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "route_load: coefficients %g and %g of a router's "
                          "losses, expected numbers not below 0",
                          f[0], f[1]);
    return infer_with("route_load", ROUTE_LOAD, 'L',
                      load_size(last_dim(&inf->shape[0])), inf, err);
}

/* Two exponentials at most. */
MERAK_COST(route_load, 6)

#define BALANCE "load=f:bL > tally=d:R"
MERAK_DIMS_SIGNATURE(balance, BALANCE)

static enum merak_status balance_infer(struct merak_infer *inf,
                                       struct merak_error *err)
{
    return infer_with("balance", BALANCE, 'R',
                      merak_balance_tally((size_t)inf->attrs->i[0]), inf, err);
}

MERAK_COST(balance, 2)
MERAK_DIMS(balance_dx, "z=c:btE load=f:bL > dz=c:btE")
MERAK_COST(balance_dx, 8)

#define BALANCE_COUNT "load=f:bL > dbias=f:E"
MERAK_DIMS_SIGNATURE(balance_count, BALANCE_COUNT)

static enum merak_status balance_count_infer(struct merak_infer *inf,
                                             struct merak_error *err)
{
    return infer_with("balance_count", BALANCE_COUNT, 'E',
                      (size_t)inf->attrs->i[0], inf, err);
}

MERAK_COST(balance_count, 1)

/* Losses are means over layers. */
static int count_layers(const struct merak_graph *graph)
{
    int n = 0;

    for (int i = 0; i < graph->n_forward; i++)
        n += graph->node[i]->op->role == MERAK_ROLE_OTHER_LOSS;
    return n;
}

/* Its load's losses have one closed form of the gradient; the bias gets the
 * rows that its expert has above the mean. */
static enum merak_status route_load_grad(struct merak_grad *g,
                                         const struct merak_node *node,
                                         struct merak_error *err)
{
    const struct merak_attrs *own = merak_node_attrs(node);
    struct merak_value *z = merak_node_in(node, 0);
    struct merak_value *load = merak_node_out(node, 0);
    struct merak_attrs attrs = *own;
    double layers = count_layers(z->graph);
    enum merak_status rc = MERAK_OK;

    attrs.f[0] /= layers;
    attrs.f[1] /= layers;
    if (own->f[0] > 0 || own->f[1] > 0)
        rc = merak_grad_unary(g, node, 0, "balance_dx", &attrs, 2,
                              (struct merak_value *[]){z, load}, err);
    if (rc != MERAK_OK || merak_node_in_count(node) < 3)
        return rc;
    attrs = (struct merak_attrs){
        .i = {(int64_t)last_dim(&z->shape), (int64_t)z->graph->seq,
              (int64_t)last_dim(merak_value_shape(merak_node_in(node, 1)))}};
    return merak_grad_param(g, node, merak_node_in(node, 2), "balance_count",
                            &attrs, 1, &load, err);
}

/* What a user changes on the way does not make another model. */
static const struct merak_number load_numbers[] = {{"balanced score", 'i', 1},
                                                   {NULL, 0, 0}};

const struct merak_op merak_ops_balance[] = {
    MERAK_OP_WITH(route_load, 2, 3, 1, route_load_grad,
                  .step_use = MERAK_STEP_NONE, .role = MERAK_ROLE_OTHER_LOSS,
                  .numbers = load_numbers),
    MERAK_OP_WITH(balance, 1, 1, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .numbers = merak_no_numbers),
    MERAK_OP_WITH(balance_dx, 2, 2, 1, NULL, .step_use = MERAK_STEP_ANY),
    MERAK_OP(balance_count, 1, 1, 1, NULL),
    {.name = NULL},
};
