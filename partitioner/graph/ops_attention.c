/* SPDX-License-Identifier: Apache-2.0 */
/* ops_attention.c - causal attention, memory linear in the sequence
 *
 * Heads and groups may be cut, the sequence may not: a query sees every
 * earlier key.  r is no index of k and v, so that where it is cut (fewer kv
 * heads than ranks) their gradients are partial sums.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

MERAK_DIMS(attention, "q=c:bTgrD k=c:bTgD v=c:bTgD > o=c:bTgrD lse=f:bTgr")
MERAK_DIMS(attention_dx, "do=c:bTgrD q=c:bTgrD k=c:bTgD v=c:bTgD o=c:bTgrD "
                         "lse=f:bTgr > dq=c:bTgrD dk=c:bTgD dv=c:bTgD")
MERAK_DIMS(attention_packed, "qkv=c:bT3hD > o=c:bThD lse=f:bTh")
MERAK_DIMS(attention_packed_dx,
           "do=c:bThD qkv=c:bT3hD o=c:bThD lse=f:bTh > dqkv=c:bT3hD")

/*
 * `gemms` products of [T, D] by [T, D] per head, half of each under the
 * mask: 2 T T D / 2 flops.  Operand o has an element per query's sequence,
 * position, head and channel; k has the keys, of which a slice of queries,
 * the last of them, meets all before it.  Forward has 2 products, backward 5
 * (the scores again, then dP, dV, dQ, dK).
 */
static void causal_cost(const struct merak_infer *inf, int o, int k,
                        double gemms, struct merak_cost *cost)
{
    double queries = (double)inf->shape[o].dim[1];
    double seq = 2 * (double)inf->shape[k].dim[1] - queries;

    cost->flops = gemms * seq * (double)merak_shape_count(&inf->shape[o]);
    cost->bytes = merak_cost_bytes(inf);
}

static void attention_cost(const struct merak_infer *inf,
                           struct merak_cost *cost)
{
    causal_cost(inf, 0, 1, 2, cost);
}

static void attention_dx_cost(const struct merak_infer *inf,
                              struct merak_cost *cost)
{
    causal_cost(inf, 0, 2, 5, cost);
}

static void attention_packed_cost(const struct merak_infer *inf,
                                  struct merak_cost *cost)
{
    causal_cost(inf, 1, 0, 2, cost);
}

static void attention_packed_dx_cost(const struct merak_infer *inf,
                                     struct merak_cost *cost)
{
    causal_cost(inf, 0, 1, 5, cost);
}

static enum merak_status attention_grad(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err)
{
    struct merak_value *q = merak_node_in(node, 0);
    struct merak_value *k = merak_node_in(node, 1);
    struct merak_value *v = merak_node_in(node, 2);
    struct merak_value *in[] = {
        merak_grad_out(g, node, 0), q, k, v, merak_node_out(node, 0),
        merak_node_out(node, 1)};
    struct merak_value *out[3];
    enum merak_status rc = merak_grad_only_first(g, node, err);

    if (rc != MERAK_OK ||
        (!merak_grad_wanted(g, q) && !merak_grad_wanted(g, k) &&
         !merak_grad_wanted(g, v)))
        return rc;
    rc = merak_grad_node(g, node, MERAK_PHASE_B, "attention_dx", NULL, 6, in,
                         out, err);
    for (int i = 0; i < 3 && rc == MERAK_OK; i++)
        rc = merak_grad_add(g, merak_node_in(node, i), out[i], err);
    return rc;
}

static enum merak_status attention_packed_grad(struct merak_grad *g,
                                               const struct merak_node *node,
                                               struct merak_error *err)
{
    struct merak_value *in[] = {merak_grad_out(g, node, 0),
                                merak_node_in(node, 0), merak_node_out(node, 0),
                                merak_node_out(node, 1)};
    enum merak_status rc = merak_grad_only_first(g, node, err);

    if (rc != MERAK_OK)
        return rc;
    return merak_grad_unary(g, node, 0, "attention_packed_dx", NULL, 4, in,
                            err);
}

const struct merak_op merak_ops_attention[] = {
    MERAK_OP(attention, 3, 3, 2, attention_grad),
    MERAK_OP(attention_dx, 6, 6, 3, NULL),
    MERAK_OP(attention_packed, 1, 1, 2, attention_packed_grad),
    MERAK_OP(attention_packed_dx, 4, 4, 1, NULL),
    {.name = NULL},
};
