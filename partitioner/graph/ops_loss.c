/* SPDX-License-Identifier: Apache-2.0 */
/* ops_loss.c - cross-entropy in steps that stay local if the vocabulary is
 * cut, and the loss of pairs of answers
 *
 * Each step of cross-entropy needs only a maximum or a sum per token from the
 * other shards, so that logits are never gathered.  The loss of pairs is made
 * of its results, a number per token.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <math.h>

/* Rows of the table, by which a loss finds the ops that it is made of. */
enum { ROW_MAX, ROW_SUM, ROW_LOSS, ROW_PAIR, ROW_MEAN, ROW_DLOGITS, ROWS };

#define XENT_MAX "logits=c:*v > max=f:*"
MERAK_DIMS_INFER(xent_max, XENT_MAX)

static void xent_max_signature(const struct merak_infer *inf,
                               struct merak_signature *sig)
{
    merak_dims_signature("xent_max", XENT_MAX, inf, sig);
    for (int i = 0; i < sig->n_index; i++) {
        if (sig->index[i].name == 'v')
            sig->index[i].kind = MERAK_INDEX_MAX;
    }
}

MERAK_DIMS(xent_sum, "logits=c:*v max=f:* targets=i:* > sum=f:* z=f:*")
MERAK_DIMS(xent_loss, "max=f:* sum=f:* z=f:* > nll=f:*")
/* Answers are anywhere in a sequence, so it cannot be cut. */
#define PAIR_LOSS                         \
    "nll=f:bT pairs=i:bT reference=f:bT " \
    "> loss=f:bT weight=f:bT reward=f:bT"
MERAK_DIMS_SIGNATURE(pair_loss, PAIR_LOSS)
#define MEAN_LOSS                                                  \
    (inf->n_in > 1 ? "loss=f:bT reward=f:bT pairs=i:bT > mean=d:4" \
                   : "nll=f:* > loss=d:")
MERAK_DIMS(mean_loss, MEAN_LOSS)
#define XENT_DLOGITS                                            \
    (inf->n_in > 4 ? "logits=c:*v max=f:* sum=f:* targets=i:* " \
                     "weight=f:* > dlogits=c:*v"                \
                   : "logits=c:*v max=f:* sum=f:* targets=i:* " \
                     "> dlogits=c:*v")
MERAK_DIMS(xent_dlogits, XENT_DLOGITS)
MERAK_COST(xent_max, 1)
MERAK_COST(xent_sum, 3)
MERAK_COST(xent_loss, 3)
MERAK_COST(pair_loss, 4)
MERAK_COST(mean_loss, 1)
MERAK_COST(xent_dlogits, 4)

static enum merak_status pair_loss_infer(struct merak_infer *inf,
                                         struct merak_error *err)
{
    double beta = inf->attrs->f[0];

    return beta > 0 && isfinite(beta)
               ? merak_dims_infer("pair_loss", PAIR_LOSS, inf, err)
               : merak_fail(err, MERAK_ERR_PARAM,
                            "pair_loss: beta %g, expected a positive number",
                            beta);
}

static const struct merak_number pair_numbers[] = {
    {"DPO beta (--dpo-beta)", 'f', 0}, {NULL, 0, 0}};

static const struct merak_node *made_by(const struct merak_value *value, int op)
{
    const struct merak_node *node =
        value->producer < 0 ? NULL : value->graph->node[value->producer];

    return node != NULL && node->op == &merak_ops_loss[op] ? node : NULL;
}

/*
 * The gradient from the mean back to the logits has one closed form, softmax
 * minus one-hot, times the weight of the position if there are pairs: the
 * nodes between get no gradients of their own.  Its forward node is xent_sum,
 * which has the same indices.
 */
static enum merak_status mean_loss_grad(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err)
{
    const struct merak_node *pair = made_by(merak_node_in(node, 0), ROW_PAIR);
    const struct merak_node *loss =
        made_by(merak_node_in(pair != NULL ? pair : node, 0), ROW_LOSS);
    const struct merak_node *sum;

    if (loss == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "mean_loss: its input does not come from xent_loss, "
                          "so it has no gradient");
    sum = made_by(merak_node_in(loss, 1), ROW_SUM);
    if (sum == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "xent_loss: its sum does not come from xent_sum, so "
                          "it has no gradient");
    return merak_grad_unary(
        g, sum, 0, "xent_dlogits", merak_node_attrs(node), pair != NULL ? 5 : 4,
        (struct merak_value *[]){merak_node_in(sum, 0), merak_node_in(sum, 1),
                                 merak_node_out(sum, 0), merak_node_in(sum, 2),
                                 pair != NULL ? merak_node_out(pair, 1) : NULL},
        err);
}

const struct merak_op merak_ops_loss[] = {
    [ROW_MAX] = MERAK_OP_WITH(
        xent_max, 1, 1, 1, NULL, .step_use = MERAK_STEP_NONE, .ld_in = 1,
        .role = MERAK_ROLE_LOSS_PART, .numbers = merak_no_numbers),
    [ROW_SUM] = MERAK_OP_WITH(
        xent_sum, 3, 3, 2, NULL, .step_use = MERAK_STEP_NONE, .ld_in = 1,
        .role = MERAK_ROLE_LOSS_PART, .numbers = merak_no_numbers),
    [ROW_LOSS] =
        MERAK_OP_WITH(xent_loss, 3, 3, 1, NULL, .step_use = MERAK_STEP_NONE,
                      .role = MERAK_ROLE_LOSS, .numbers = merak_no_numbers),
    [ROW_PAIR] =
        MERAK_OP_WITH(pair_loss, 3, 3, 3, NULL, .step_use = MERAK_STEP_NONE,
                      .numbers = pair_numbers),
    [ROW_MEAN] =
        MERAK_OP_WITH(mean_loss, 1, 3, 1, mean_loss_grad,
                      .step_use = MERAK_STEP_NONE, .numbers = merak_no_numbers),
    /* Logits are the largest activation: their gradient may overwrite them. */
    [ROW_DLOGITS] =
        MERAK_OP_WITH(xent_dlogits, 4, 5, 1, NULL, .step_use = MERAK_STEP_NONE,
                      .in_place = true, .ld_in = 1, .ld_out = 1),
    [ROWS] = {.name = NULL},
};
