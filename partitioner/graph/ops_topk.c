/* SPDX-License-Identifier: Apache-2.0 */
/* ops_topk.c - of each row the largest elements, and where they were
 *
 * A row is the last dim.  What is packed of it does not depend on other rows,
 * so neither on micro-batches nor on how samples and positions are cut.  The
 * gradient goes back to the places that were sent: unpacking what was packed is
 * a function, and has the exact gradient of it.
 *
 * Rudakov et al. 2024 (arXiv:2401.07788) train on with independent choices for
 * both ways, which is worse.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

/* i[0] of i[1] elements of a row are kept; a bit of each says which. */
static enum merak_status solve(const char *op, const char *pattern,
                               struct merak_infer *inf, struct merak_error *err)
{
    const int64_t *i = inf->attrs->i;
    struct merak_dims dims;
    enum merak_status rc = merak_dims_parse(&dims, op, pattern, inf, err);

    if (rc != MERAK_OK)
        return rc;
    if (i[0] < 1 || i[0] > i[1])
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: keeps %lld of %lld elements of a row, expected "
                          "1 to all of them",
                          op, (long long)i[0], (long long)i[1]);
    dims.extent['K'] = (size_t)i[0];
    dims.extent['C'] = (size_t)i[1];
    dims.extent['W'] = ((size_t)i[1] + 31) / 32;
    return merak_dims_solve(&dims, inf, err);
}

#define TOPK(op, pattern)                                        \
    static enum merak_status op##_infer(struct merak_infer *inf, \
                                        struct merak_error *err) \
    {                                                            \
        return solve(#op, (pattern), inf, err);                  \
    }                                                            \
    MERAK_DIMS_SIGNATURE(op, pattern)

TOPK(topk_pack, "x=c:*C > v=c:*K at=i:*W")
TOPK(topk_unpack, "v=c:*K at=i:*W > y=c:*C")
TOPK(topk_take, "dy=c:*C at=i:*W > dv=c:*K")

/* A row is read about three times until its smallest element that counts is
 * known. */
static void topk_pack_cost(const struct merak_infer *inf,
                           struct merak_cost *cost)
{
    merak_cost_elementwise(inf, 3, cost);
    cost->bytes += 2 * (double)merak_shape_count(&inf->shape[0]) *
                   (double)merak_dtype_bytes(inf->dtype[0]);
}

MERAK_COST(topk_unpack, 1)
MERAK_COST(topk_take, 1)

static enum merak_status topk_pack_grad(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err)
{
    struct merak_value *in[] = {merak_grad_out(g, node, 0),
                                merak_node_out(node, 1)};

    return merak_grad_unary(g, node, 0, "topk_unpack", merak_node_attrs(node),
                            2, in, err);
}

MERAK_UNARY_GRAD(topk_unpack, "topk_take", merak_grad_out(g, node, 0),
                 merak_node_in(node, 1))

const struct merak_op merak_ops_topk[] = {
    MERAK_OP_WITH(topk_pack, 1, 1, 2, topk_pack_grad,
                  .step_use = MERAK_STEP_NONE, .role = MERAK_ROLE_PACK,
                  .numbers = merak_no_numbers),
    MERAK_OP_WITH(topk_unpack, 2, 2, 1, topk_unpack_grad,
                  .step_use = MERAK_STEP_NONE, .role = MERAK_ROLE_UNPACK,
                  .numbers = merak_no_numbers),
    MERAK_OP_WITH(topk_take, 2, 2, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .numbers = merak_no_numbers),
    {.name = NULL},
};
