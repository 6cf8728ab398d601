/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/graph/op_tables.h - the built-in ops, a table per file */
#ifndef MERAK_PARTITIONER_GRAPH_OPS_H
#define MERAK_PARTITIONER_GRAPH_OPS_H

#include "merak/op.h"

/* Ended by an op without a name. */
extern const struct merak_op merak_ops_embedding[];
extern const struct merak_op merak_ops_linear[];
extern const struct merak_op merak_ops_norm[];
extern const struct merak_op merak_ops_attention[];
extern const struct merak_op merak_ops_elementwise[];
extern const struct merak_op merak_ops_loss[];
extern const struct merak_op merak_ops_mean[];
extern const struct merak_op merak_ops_channels[];
extern const struct merak_op merak_ops_experts[];
extern const struct merak_op merak_ops_expert_rows[];
extern const struct merak_op merak_ops_balance[];
extern const struct merak_op merak_ops_topk[];
extern const struct merak_op merak_ops_window[];
extern const struct merak_op merak_ops_step[];

/* Of ops whose attributes follow from shapes, batch or dropout. */
extern const struct merak_number merak_no_numbers[];

/* Of experts in any form. */
extern const struct merak_number merak_expert_numbers[];

/* Op i of all built-in and registered ones; NULL after the last. */
const struct merak_op *merak_op_at(size_t i);

/* For ops whose outputs after the first (statistics) have no gradient:
 * MERAK_ERR_UNSUPPORTED if the loss depends on such an output. */
enum merak_status merak_grad_only_first(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err) MERAK_CHECKED;
/* The most common gradient: one node of phase B, one output, for input i. */
enum merak_status merak_grad_unary(struct merak_grad *g,
                                   const struct merak_node *node, int i,
                                   const char *op,
                                   const struct merak_attrs *attrs, int n_in,
                                   struct merak_value *const *in,
                                   struct merak_error *err) MERAK_CHECKED;
/* Define OP_grad: the gradient of input 0 is `dx` of these values, with the
 * op's attributes; `g` and `node` are the function's. */
#define MERAK_UNARY_GRAD(op, dx, ...)                                      \
    static enum merak_status op##_grad(struct merak_grad *g,               \
                                       const struct merak_node *node,      \
                                       struct merak_error *err)            \
    {                                                                      \
        struct merak_value *in[] = {__VA_ARGS__};                          \
                                                                           \
        return merak_grad_unary(g, node, 0, dx, merak_node_attrs(node),    \
                                (int)(sizeof(in) / sizeof(*in)), in, err); \
    }
/* The most common gradient of a parameter: one node of phase W, one output. */
enum merak_status merak_grad_param(struct merak_grad *g,
                                   const struct merak_node *node,
                                   struct merak_value *param, const char *op,
                                   const struct merak_attrs *attrs, int n_in,
                                   struct merak_value *const *in,
                                   struct merak_error *err) MERAK_CHECKED;
/* Gradients of an op that is linear in its inputs 0 and 1, a weight: `dx` of
 * the incoming gradient and the weight; `dw` of input 0 and the incoming
 * gradient, or, if `exchanged`, of these the other way around. */
enum merak_status merak_grad_product(struct merak_grad *g,
                                     const struct merak_node *node,
                                     const char *dx, const char *dw,
                                     bool exchanged,
                                     struct merak_error *err) MERAK_CHECKED;

#endif
