/* SPDX-License-Identifier: Apache-2.0 */
/* grad.c - the backward pass, as nodes of the same graph
 *
 * Forward nodes are visited last to first, and each one's gradient builder
 * emits its nodes.  By the time a node is visited, every use of its outputs
 * has contributed: gradients of activations are summed last use first, which
 * fixes their rounding.
 */
#include "config.h"

#include "partitioner/graph/graph.h"
#include "partitioner/graph/op_tables.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/letters.h"

#include "base/arrays.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct merak_grad {
    struct merak_graph *graph;
    int n_values;                /* of the forward graph */
    struct merak_value **sum;    /* by forward value: its gradient so far */
    bool *wanted;                /* by forward value */
    int *uses;                   /* by forward value: PARAM_GRADs so far */
    const struct merak_node *at; /* forward node the next sum belongs to */
};

struct merak_value *merak_grad_out(struct merak_grad *g,
                                   const struct merak_node *node, int i)
{
    const struct merak_value *v = merak_node_out(node, i);

    return v != NULL && v->id < g->n_values ? g->sum[v->id] : NULL;
}

bool merak_grad_wanted(struct merak_grad *g, const struct merak_value *v)
{
    return v != NULL && v->id < g->n_values && g->wanted[v->id];
}

static enum merak_status check_weight_grads(const struct merak_node *node,
                                            struct merak_error *err)
{
    for (int i = 0; i < node->n_out; i++) {
        enum merak_dtype dtype = node->out[i]->dtype;

        if (dtype != MERAK_F32 && dtype != MERAK_F64)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "%s: output %d is of type %s, but gradients of "
                              "parameters are f32",
                              node->op->name, i, merak_dtype_name(dtype));
    }
    return MERAK_OK;
}

enum merak_status merak_grad_node(struct merak_grad *g,
                                  const struct merak_node *forward,
                                  enum merak_phase phase, const char *op,
                                  const struct merak_attrs *attrs, int n_in,
                                  struct merak_value *const *in,
                                  struct merak_value **out,
                                  struct merak_error *err)
{
    const struct merak_op *found = merak_op_find(op);
    struct merak_node *node;
    enum merak_status rc;

    if (phase != MERAK_PHASE_B && phase != MERAK_PHASE_W)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: a gradient node is of phase B or W",
                          forward->op->name);
    if (found == NULL)
        return merak_fail(err, MERAK_ERR_NOT_FOUND,
                          "%s: its gradient uses op %s, which is not "
                          "registered",
                          forward->op->name, op);
    rc = merak_graph_node(g->graph, found, attrs, phase, forward->id, n_in, in,
                          &node, err);
    if (rc == MERAK_OK && phase == MERAK_PHASE_W)
        rc = check_weight_grads(node, err);
    if (rc != MERAK_OK)
        return rc;
    g->at = forward;
    for (int i = 0; i < node->n_out; i++)
        out[i] = node->out[i];
    return MERAK_OK;
}

/* --- contributions
 * ------------------------------------------------------------ */

static enum merak_status check_contribution(const struct merak_grad *g,
                                            const struct merak_value *v,
                                            const struct merak_value *grad,
                                            struct merak_error *err)
{
    bool param = v->kind == MERAK_VALUE_PARAM;
    char a[MERAK_SHAPE_TEXT], b[MERAK_SHAPE_TEXT];

    if (param && grad->kind != MERAK_VALUE_PARAM_GRAD)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s: input %s is a parameter, but this op's "
                          "gradient for that input is an activation's",
                          g->at->op->name, v->name);
    if (!param && grad->kind != MERAK_VALUE_GRADIENT)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s: input %s is an activation, but this op's "
                          "gradient for that input is a parameter's",
                          g->at->op->name, v->name);
    if (!merak_shape_equal(&v->shape, &grad->shape))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: gradient %s does not have the shape of %s %s",
                          g->at->op->name, merak_shape_print(&grad->shape, a),
                          v->name, merak_shape_print(&v->shape, b));
    if (!param && v->dtype != grad->dtype)
        return merak_fail(
            err, MERAK_ERR_PARAM,
            "%s: gradient of %s is of type %s, expected %s", g->at->op->name,
            v->name, merak_dtype_name(grad->dtype), merak_dtype_name(v->dtype));
    return MERAK_OK;
}

/* Add to the gradient that an activation already has; the later use is the
 * left operand. */
static enum merak_status sum_grads(struct merak_grad *g, struct merak_value *v,
                                   struct merak_value *grad,
                                   struct merak_error *err)
{
    struct merak_value *in[] = {g->sum[v->id], grad}, *sum;
    enum merak_status rc =
        merak_grad_node(g, g->at, MERAK_PHASE_B, "add", NULL, 2, in, &sum, err);

    if (rc != MERAK_OK)
        return rc;
    sum->of = v->id;
    g->sum[v->id] = sum;
    return MERAK_OK;
}

enum merak_status merak_grad_add(struct merak_grad *g, struct merak_value *v,
                                 struct merak_value *grad,
                                 struct merak_error *err)
{
    bool frozen = v->kind == MERAK_VALUE_PARAM && v->frozen;
    enum merak_status rc;

    /* A frozen parameter's gradient that an op computes together with another
     * one is recorded and not used. */
    if (!merak_grad_wanted(g, v) && !frozen)
        return MERAK_OK;
    rc = check_contribution(g, v, grad, err);
    if (rc != MERAK_OK)
        return rc;
    /* A gradient that an op passes on remains that of the op's output. */
    if (grad->of < 0) {
        grad->of = v->id;
        memcpy(grad->letter, v->letter, sizeof(grad->letter));
    }
    if (v->kind == MERAK_VALUE_PARAM) {
        grad->dtype = merak_graph_grad_dtype(v);
        grad->use = g->uses[v->id]++;
        return MERAK_OK;
    }
    if (g->sum[v->id] != NULL)
        return sum_grads(g, v, grad, err);
    g->sum[v->id] = grad;
    return MERAK_OK;
}

/* --- shared by the built-in builders
 * -------------------------------------------- */

enum merak_status merak_grad_only_first(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err)
{
    for (int i = 1; i < node->n_out; i++) {
        if (merak_grad_out(g, node, i) != NULL)
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "%s: the loss depends on its output %d, which "
                              "has no gradient",
                              node->op->name, i);
    }
    return MERAK_OK;
}

/* A node of one output, the gradient of v, if that is wanted. */
static enum merak_status
add_one(struct merak_grad *g, const struct merak_node *node,
        struct merak_value *v, enum merak_phase phase, const char *op,
        const struct merak_attrs *attrs, int n_in,
        struct merak_value *const *in, struct merak_error *err)
{
    struct merak_value *grad;
    enum merak_status rc;

    if (!merak_grad_wanted(g, v))
        return MERAK_OK;
    rc = merak_grad_node(g, node, phase, op, attrs, n_in, in, &grad, err);
    return rc != MERAK_OK ? rc : merak_grad_add(g, v, grad, err);
}

enum merak_status
merak_grad_unary(struct merak_grad *g, const struct merak_node *node, int i,
                 const char *op, const struct merak_attrs *attrs, int n_in,
                 struct merak_value *const *in, struct merak_error *err)
{
    return add_one(g, node, merak_node_in(node, i), MERAK_PHASE_B, op, attrs,
                   n_in, in, err);
}

enum merak_status merak_grad_param(struct merak_grad *g,
                                   const struct merak_node *node,
                                   struct merak_value *param, const char *op,
                                   const struct merak_attrs *attrs, int n_in,
                                   struct merak_value *const *in,
                                   struct merak_error *err)
{
    return add_one(g, node, param, MERAK_PHASE_W, op, attrs, n_in, in, err);
}

enum merak_status merak_grad_product(struct merak_grad *g,
                                     const struct merak_node *node,
                                     const char *dx, const char *dw,
                                     bool exchanged, struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    struct merak_value *x = merak_node_in(node, 0), *w = merak_node_in(node, 1);
    const struct merak_attrs *attrs = merak_node_attrs(node);
    enum merak_status rc;

    rc = merak_grad_unary(g, node, 0, dx, attrs, 2,
                          (struct merak_value *[]){dy, w}, err);
    if (rc != MERAK_OK)
        return rc;
    return merak_grad_param(g, node, w, dw, attrs, 2,
                            exchanged ? (struct merak_value *[]){dy, x}
                                      : (struct merak_value *[]){x, dy},
                            err);
}

/* --- the pass
 * --------------------------------------------------------------------- */

/* Gradients are wanted of trained parameters and of what is computed from
 * them, except for outputs of ops without a gradient.  That includes the ops
 * of the loss: its closed form needs only the gradient of the logits. */
static void mark_wanted(struct merak_grad *g)
{
    for (int i = 0; i < g->n_values; i++)
        g->wanted[i] = g->graph->value[i]->kind == MERAK_VALUE_PARAM &&
                       !g->graph->value[i]->frozen;
    for (int n = 0; n < g->graph->n_forward; n++) {
        const struct merak_node *node = g->graph->node[n];
        bool any = false;

        for (int i = 0; i < node->n_in; i++)
            any = any || g->wanted[node->in[i]->id];
        for (int i = 0; i < node->n_out; i++)
            g->wanted[node->out[i]->id] = any && node->op->grad != NULL;
    }
}

/* Is a value one of several losses? */
static bool is_one_loss(const struct merak_graph *graph,
                        const struct merak_value *value)
{
    const struct merak_node *all = graph->node[graph->loss->producer];

    for (int i = 0; all->op->role == MERAK_ROLE_LOSSES && i < all->n_in; i++) {
        if (all->in[i] == value)
            return true;
    }
    return false;
}

static bool is_reached(struct merak_grad *g, const struct merak_node *node)
{
    if (node->op->role == MERAK_ROLE_OTHER_LOSS)
        return true;
    for (int i = 0; i < node->n_out; i++) {
        if (node->out[i] == g->graph->loss ||
            is_one_loss(g->graph, node->out[i]) ||
            merak_grad_out(g, node, i) != NULL)
            return true;
    }
    return false;
}

static enum merak_status emit(struct merak_grad *g, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int n = g->graph->n_forward - 1; n >= 0 && rc == MERAK_OK; n--) {
        const struct merak_node *node = g->graph->node[n];

        g->at = node;
        if (node->op->grad != NULL && is_reached(g, node))
            rc = node->op->grad(g, node, err);
    }
    return rc;
}

enum merak_status merak_graph_differentiate(struct merak_graph *graph,
                                            struct merak_error *err)
{
    size_t n = (size_t)graph->n_values;
    struct merak_grad g = {.graph = graph, .n_values = graph->n_values};
    const struct merak_array arrays[] = {MERAK_ARRAY(g.sum, n),
                                         MERAK_ARRAY(g.wanted, n),
                                         MERAK_ARRAY(g.uses, n)};
    enum merak_status rc;

    if (graph->loss == NULL)
        return merak_fail(err, MERAK_ERR_PARAM, "the graph has no loss");
    if (graph->n_nodes != graph->n_forward)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "the graph already has its gradients");
    rc = MERAK_ARRAYS(arrays, err);
    if (rc != MERAK_OK)
        return rc;
    merak_graph_letter_recycled(graph);
    mark_wanted(&g);
    rc = emit(&g, err);
    if (rc == MERAK_OK) {
        /* Uses were counted from the last one; number them from the first. */
        for (int i = g.n_values; i < g.graph->n_values; i++) {
            struct merak_value *v = g.graph->value[i];

            if (v->kind == MERAK_VALUE_PARAM_GRAD && v->of >= 0)
                v->use = g.uses[v->of] - 1 - v->use;
        }
    } else { /* as if never called */
        graph->n_nodes = graph->n_forward;
        graph->n_values = g.n_values;
    }
    free(g.sum);
    return rc;
}
