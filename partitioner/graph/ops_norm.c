/* SPDX-License-Identifier: Apache-2.0 */
/* ops_norm.c - layer norm and RMS norm over the last dim */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

MERAK_DIMS(layernorm, "x=c:*C gamma=f:C beta=f:C > y=c:*C mean=f:* rstd=f:*")
MERAK_DIMS(layernorm_dx, "dy=c:*C x=c:*C gamma=f:C mean=f:* rstd=f:* > dx=c:*C")
MERAK_DIMS(layernorm_dw,
           "dy=c:*C x=c:*C mean=f:* rstd=f:* > dgamma=f:C dbeta=f:C")

/* Patterns for norms over the last one, two or three dims (heads and channels
 * together).  Any other number takes the first, which rejects more dims. */
enum { MOST_NORMED = 3 };

static const char *pattern_of(const struct merak_infer *inf,
                              const char *const pattern[MOST_NORMED])
{
    int64_t n = inf->attrs->i[0];

    return pattern[n >= 1 && n <= MOST_NORMED ? n - 1 : 0];
}

/* Defines OP_infer and OP_signature by the pattern that i[0] selects. */
#define NORM_DIMS(op, one, two, three)                                         \
    static const char *const op##_pattern[] = {one, two, three};               \
    static enum merak_status op##_infer(struct merak_infer *inf,               \
                                        struct merak_error *err)               \
    {                                                                          \
        return merak_dims_infer(#op, pattern_of(inf, op##_pattern), inf, err); \
    }                                                                          \
    static void op##_signature(const struct merak_infer *inf,                  \
                               struct merak_signature *sig)                    \
    {                                                                          \
        merak_dims_signature(#op, pattern_of(inf, op##_pattern), inf, sig);    \
    }
NORM_DIMS(rmsnorm, "x=c:*C gamma=f:C > y=c:*C rstd=f:*",
          "x=c:*GC gamma=f:GC > y=c:*GC rstd=f:*",
          "x=c:*GRC gamma=f:GRC > y=c:*GRC rstd=f:*")
NORM_DIMS(rmsnorm_dx, "dy=c:*C x=c:*C gamma=f:C rstd=f:* > dx=c:*C",
          "dy=c:*GC x=c:*GC gamma=f:GC rstd=f:* > dx=c:*GC",
          "dy=c:*GRC x=c:*GRC gamma=f:GRC rstd=f:* > dx=c:*GRC")
NORM_DIMS(rmsnorm_dw, "dy=c:*C x=c:*C rstd=f:* > dgamma=f:C",
          "dy=c:*GC x=c:*GC rstd=f:* > dgamma=f:GC",
          "dy=c:*GRC x=c:*GRC rstd=f:* > dgamma=f:GRC")

/* Adds and multiplies of the plain loops: mean (1), variance (3), and
 * normalise, scale, shift (4); their derivatives likewise. */
MERAK_COST(layernorm, 8)
MERAK_COST(layernorm_dx, 12)
MERAK_COST(layernorm_dw, 5)
MERAK_COST(rmsnorm, 4)
MERAK_COST(rmsnorm_dx, 8)
MERAK_COST(rmsnorm_dw, 3)

static enum merak_status layernorm_grad(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    struct merak_value *x = merak_node_in(node, 0);
    struct merak_value *gamma = merak_node_in(node, 1);
    struct merak_value *beta = merak_node_in(node, 2);
    struct merak_value *mean = merak_node_out(node, 1);
    struct merak_value *rstd = merak_node_out(node, 2);
    struct merak_value *dx_in[] = {dy, x, gamma, mean, rstd};
    struct merak_value *dw_in[] = {dy, x, mean, rstd};
    struct merak_value *dw[2];
    enum merak_status rc = merak_grad_only_first(g, node, err);

    if (rc == MERAK_OK)
        rc = merak_grad_unary(g, node, 0, "layernorm_dx", NULL, 5, dx_in, err);
    if (rc != MERAK_OK ||
        (!merak_grad_wanted(g, gamma) && !merak_grad_wanted(g, beta)))
        return rc;
    rc = merak_grad_node(g, node, MERAK_PHASE_W, "layernorm_dw", NULL, 4, dw_in,
                         dw, err);
    if (rc == MERAK_OK)
        rc = merak_grad_add(g, gamma, dw[0], err);
    return rc != MERAK_OK ? rc : merak_grad_add(g, beta, dw[1], err);
}

static enum merak_status rmsnorm_grad(struct merak_grad *g,
                                      const struct merak_node *node,
                                      struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    struct merak_value *x = merak_node_in(node, 0);
    struct merak_value *gamma = merak_node_in(node, 1);
    struct merak_value *rstd = merak_node_out(node, 1);
    struct merak_value *dx_in[] = {dy, x, gamma, rstd};
    struct merak_value *dw_in[] = {dy, x, rstd};
    enum merak_status rc = merak_grad_only_first(g, node, err);

    if (rc == MERAK_OK)
        rc = merak_grad_unary(g, node, 0, "rmsnorm_dx", merak_node_attrs(node),
                              4, dx_in, err);
    if (rc == MERAK_OK)
        rc = merak_grad_param(g, node, gamma, "rmsnorm_dw",
                              merak_node_attrs(node), 3, dw_in, err);
    return rc;
}

static const struct merak_number layernorm_numbers[] = {
    {"layernorm eps", 'f', 0}, {NULL, 0, 0}};
static const struct merak_number rmsnorm_numbers[] = {
    {"rmsnorm eps", 'f', 0}, {"rmsnorm added to gamma", 'f', 1}, {NULL, 0, 0}};

const struct merak_op merak_ops_norm[] = {
    MERAK_OP_WITH(layernorm, 3, 3, 3, layernorm_grad,
                  .step_use = MERAK_STEP_NONE, .numbers = layernorm_numbers),
    MERAK_OP(layernorm_dx, 5, 5, 1, NULL),
    MERAK_OP(layernorm_dw, 4, 4, 2, NULL),
    MERAK_OP_WITH(rmsnorm, 2, 2, 2, rmsnorm_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = rmsnorm_numbers),
    MERAK_OP(rmsnorm_dx, 4, 4, 1, NULL),
    MERAK_OP(rmsnorm_dw, 3, 3, 1, NULL),
    {.name = NULL},
};
