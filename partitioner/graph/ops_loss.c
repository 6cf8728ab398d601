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
#include <string.h>

/* Rows of the table, by which a loss finds the ops that it is made of. */
enum {
    ROW_MAX,
    ROW_SUM,
    ROW_LOSS,
    ROW_PAIR,
    ROW_POINT,
    ROW_POINT_DX,
    ROW_DICE_SUMS,
    ROW_DICE,
    ROW_DICE_DX,
    ROW_MEAN,
    ROW_LOSSES,
    ROW_DLOGITS,
    ROWS
};

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
#define POINT_LOSS "x=c:* t=f:* > e=f:*"
#define POINT_LOSS_DX "x=c:* t=f:* > dx=c:*"
MERAK_DIMS_SIGNATURE(point_loss, POINT_LOSS)
MERAK_DIMS_SIGNATURE(point_loss_dx, POINT_LOSS_DX)
/* Of all points of a sample: cut, they give partial sums. */
MERAK_DIMS(dice_sums, "logits=c:b*V targets=i:b* > sums=d:bV3")
MERAK_DIMS(dice_loss, "sums=d:bv3 > e=f:bv")
MERAK_DIMS(dice_dlogits,
           "logits=c:b*V targets=i:b* sums=d:bV3 > dlogits=c:b*V")
MERAK_COST(dice_sums, 6)
MERAK_COST(dice_loss, 2)
MERAK_COST(dice_dlogits, 8)
MERAK_COST(point_loss, 4)
MERAK_COST(point_loss_dx, 4)
MERAK_COST(losses, 0)
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

static enum merak_status check_point(const struct merak_infer *inf,
                                     struct merak_error *err)
{
    int64_t kind = inf->attrs->i[1];

    return kind >= 0 && kind < MERAK_POINT_LOSSES
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_PARAM,
                            "point_loss: no loss has number %lld",
                            (long long)kind);
}

static enum merak_status point_loss_infer(struct merak_infer *inf,
                                          struct merak_error *err)
{
    enum merak_status rc = check_point(inf, err);

    return rc == MERAK_OK ? merak_dims_infer("point_loss", POINT_LOSS, inf, err)
                          : rc;
}

static enum merak_status point_loss_dx_infer(struct merak_infer *inf,
                                             struct merak_error *err)
{
    enum merak_status rc = check_point(inf, err);

    return rc == MERAK_OK
               ? merak_dims_infer("point_loss_dx", POINT_LOSS_DX, inf, err)
               : rc;
}

/* A number from each of its inputs. */
static enum merak_status losses_infer(struct merak_infer *inf,
                                      struct merak_error *err)
{
    char text[MERAK_SHAPE_TEXT];

    for (int i = 0; i < inf->n_in; i++) {
        if (inf->shape[i].ndim != 0 || inf->dtype[i] != MERAK_F64)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "losses: input %d is %s %s, expected one number "
                              "of type f64",
                              i, merak_dtype_name(inf->dtype[i]),
                              merak_shape_print(&inf->shape[i], text));
    }
    inf->shape[inf->n_in] = (struct merak_shape){1, {(size_t)inf->n_in}};
    inf->dtype[inf->n_in] = MERAK_F64;
    return MERAK_OK;
}

static void losses_signature(const struct merak_infer *inf,
                             struct merak_signature *sig)
{
    memset(sig, 0, sizeof(*sig));
    memset(sig->operand_dim, -1, sizeof(sig->operand_dim));
    sig->n_index = 1;
    sig->index[0] = (struct merak_index){
        .kind = MERAK_INDEX_WHOLE, .name = 'n', .extent = (size_t)inf->n_in};
    sig->operand_dim[inf->n_in][0] = 0;
    sig->linear = true;
}

static const struct merak_number losses_numbers[] = {{"loss weights", 'l', 0},
                                                     {NULL, 0, 0}};
static const struct merak_number point_numbers[] = {
    {"loss (0 mse, 1 mae, 2 bce)", 'i', 1}, {NULL, 0, 0}};
static const struct merak_number pair_numbers[] = {
    {"DPO beta (--dpo-beta)", 'f', 0}, {NULL, 0, 0}};

static const struct merak_node *made_by(const struct merak_value *value, int op)
{
    const struct merak_node *node =
        value->producer < 0 ? NULL : value->graph->node[value->producer];

    return node != NULL && node->op == &merak_ops_loss[op] ? node : NULL;
}

/* From 1 on which of several losses a mean is; 0: it is the only one. */
static int64_t loss_number(const struct merak_node *mean)
{
    const struct merak_value *loss = mean->out[0]->graph->loss;
    const struct merak_node *all = made_by(loss, ROW_LOSSES);

    for (int i = 0; all != NULL && i < all->n_in; i++) {
        if (all->in[i] == mean->out[0])
            return i + 1;
    }
    return 0;
}

/* Of a loss of elements: of what is to be like the targets, and of these, if
 * they are computed. */
static enum merak_status point_loss_grad(struct merak_grad *g,
                                         const struct merak_node *node,
                                         struct merak_attrs *attrs,
                                         struct merak_error *err)
{
    struct merak_value *x = merak_node_in(node, 0), *t = merak_node_in(node, 1);
    struct merak_value *in[] = {x, t};

    attrs->i[1] = merak_node_attrs(node)->i[1];
    if (merak_grad_wanted(g, t))
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "point_loss: its targets %s depend on parameters, "
                          "expected an input or a frozen part of the model",
                          t->name);
    return merak_grad_unary(g, node, 0, "point_loss_dx", attrs, 2, in, err);
}

/* Of overlaps of classes: from their mean to the logits at once, cut as the
 * sums are. */
static enum merak_status dice_grad(struct merak_grad *g,
                                   const struct merak_node *dice,
                                   const struct merak_attrs *attrs,
                                   struct merak_error *err)
{
    const struct merak_node *sums =
        made_by(merak_node_in(dice, 0), ROW_DICE_SUMS);

    if (sums == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "dice_loss: its sums do not come from dice_sums, so "
                          "it has no gradient");
    return merak_grad_unary(
        g, sums, 0, "dice_dlogits", attrs, 3,
        (struct merak_value *[]){merak_node_in(sums, 0),
                                 merak_node_in(sums, 1),
                                 merak_node_out(sums, 0)},
        err);
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
    const struct merak_node *point = made_by(merak_node_in(node, 0), ROW_POINT);
    const struct merak_node *dice = made_by(merak_node_in(node, 0), ROW_DICE);
    const struct merak_node *loss =
        made_by(merak_node_in(pair != NULL ? pair : node, 0), ROW_LOSS);
    struct merak_attrs attrs = *merak_node_attrs(node);
    const struct merak_node *sum;

    attrs.i[0] = loss_number(node);
    if (point != NULL)
        return point_loss_grad(g, point, &attrs, err);
    if (dice != NULL)
        return dice_grad(g, dice, &attrs, err);
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
        g, sum, 0, "xent_dlogits", &attrs, pair != NULL ? 5 : 4,
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
    [ROW_POINT] =
        MERAK_OP_WITH(point_loss, 2, 2, 1, NULL, .step_use = MERAK_STEP_NONE,
                      .numbers = point_numbers),
    [ROW_POINT_DX] =
        MERAK_OP_WITH(point_loss_dx, 2, 2, 1, NULL, .step_use = MERAK_STEP_LOSS,
                      .in_place = true),
    [ROW_DICE_SUMS] =
        MERAK_OP_WITH(dice_sums, 2, 2, 1, NULL, .step_use = MERAK_STEP_NONE,
                      .numbers = merak_no_numbers),
    [ROW_DICE] =
        MERAK_OP_WITH(dice_loss, 1, 1, 1, NULL, .step_use = MERAK_STEP_NONE,
                      .numbers = merak_no_numbers),
    [ROW_DICE_DX] =
        MERAK_OP_WITH(dice_dlogits, 3, 3, 1, NULL, .step_use = MERAK_STEP_LOSS,
                      .in_place = true),
    [ROW_LOSSES] = MERAK_OP_WITH(
        losses, 1, MERAK_MAX_LOSSES, 1, NULL, .step_use = MERAK_STEP_NONE,
        .role = MERAK_ROLE_LOSSES, .numbers = losses_numbers),
    [ROW_MEAN] =
        MERAK_OP_WITH(mean_loss, 1, 3, 1, mean_loss_grad,
                      .step_use = MERAK_STEP_NONE, .numbers = merak_no_numbers),
    /* Logits are the largest activation: their gradient may overwrite them. */
    [ROW_DLOGITS] =
        MERAK_OP_WITH(xent_dlogits, 4, 5, 1, NULL, .step_use = MERAK_STEP_LOSS,
                      .in_place = true, .ld_in = 1, .ld_out = 1),
    [ROWS] = {.name = NULL},
};
