/* SPDX-License-Identifier: Apache-2.0 */
/* ops_linear.c - y = x w' + bias over factored dims, and its gradients
 *
 * Three groups of indices: lead (b, t, ..) of x, out (o, p, ..) of w, and
 * the contracted ones (i, j, ..) that end both.  Their names agree between
 * the op and its gradients, so that a strategy carries over.
 *
 * A single out index may be cut unevenly: it may be a vocabulary.  Several are
 * heads and the like, which may not be cut unevenly.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

#define LEAD "btaef"
#define OUT "opqrs"
#define IN "ijklm"

struct groups {
    int lead, out, in;
};

static enum merak_status check_groups(const char *op,
                                      const struct merak_infer *inf,
                                      const struct groups *n,
                                      struct merak_error *err)
{
    char a[MERAK_SHAPE_TEXT], b[MERAK_SHAPE_TEXT] = "";

    if (n->in >= 1 && n->out >= 1 && n->lead >= 0 &&
        n->lead + n->in <= MERAK_MAX_DIMS && n->out + n->in <= MERAK_MAX_DIMS &&
        n->lead + n->out <= MERAK_MAX_DIMS)
        return MERAK_OK;
    if (inf->n_in > 1)
        merak_shape_print(&inf->shape[1], b);
    return merak_fail(err, MERAK_ERR_PARAM,
                      "%s: %s and %s with i[0] = %lld: expected dims [lead.., "
                      "in..] and [out.., in..], at least one of in and out, "
                      "at most %d of each tensor",
                      op, merak_shape_print(&inf->shape[0], a), b,
                      (long long)inf->attrs->i[0], MERAK_MAX_DIMS);
}

/* Attribute i[0] as a number of dims; -1 if it is out of range. */
static int attr_dims(const struct merak_infer *inf)
{
    int64_t n = inf->attrs->i[0];

    return n < 0 || n > MERAK_MAX_DIMS ? -1 : (int)n;
}

/* Append a group's letters.  check_groups rejects an invalid group size later;
 * here it must only not overflow. */
static void add_group(struct merak_dims_operand *o, const char *letters, int n)
{
    size_t at = strlen(o->letter);

    for (int i = 0; i < n && letters[i] != '\0' && at < MERAK_MAX_DIMS; i++)
        o->letter[at++] = letters[i];
    o->letter[at] = '\0';
}

static void set_operand(struct merak_dims *dims, int o, const char *name,
                        char dtype, const char *first, int n_first,
                        const char *second, int n_second)
{
    struct merak_dims_operand *op = &dims->operand[o];

    snprintf(op->name, sizeof(op->name), "%s", name);
    op->dtype = dtype;
    add_group(op, first, n_first);
    add_group(op, second, n_second);
}

/* Splits an op's dims into their groups and names its operands. */
typedef void (*dims_fn)(const struct merak_infer *inf, struct groups *n,
                        struct merak_dims *dims);

static enum merak_status infer_by(dims_fn fn, struct merak_infer *inf,
                                  struct merak_error *err)
{
    struct merak_dims dims = {0};
    struct groups n;
    enum merak_status rc;

    fn(inf, &n, &dims);
    rc = check_groups(dims.op, inf, &n, err);
    return rc != MERAK_OK ? rc : merak_dims_solve(&dims, inf, err);
}

static void signature_by(dims_fn fn, const struct merak_infer *inf,
                         struct merak_signature *sig)
{
    struct merak_dims dims = {0};
    struct groups n;

    fn(inf, &n, &dims);
    merak_dims_indices(&dims, inf, sig);
    for (int i = 0; i < sig->n_index; i++) {
        if (n.out == 1 && sig->index[i].name == OUT[0])
            sig->index[i].uneven = true;
    }
}

/* Defines OP_infer and OP_signature by OP_dims. */
#define BY_DIMS(op)                                              \
    static enum merak_status op##_infer(struct merak_infer *inf, \
                                        struct merak_error *err) \
    {                                                            \
        return infer_by(op##_dims, inf, err);                    \
    }                                                            \
    static void op##_signature(const struct merak_infer *inf,    \
                               struct merak_signature *sig)      \
    {                                                            \
        signature_by(op##_dims, inf, sig);                       \
    }

/* --- linear --------------------------------------------------------------- */

static void linear_dims(const struct merak_infer *inf, struct groups *n,
                        struct merak_dims *dims)
{
    bool bias = inf->n_in == 3;

    n->in = attr_dims(inf);
    n->lead = inf->shape[0].ndim - n->in;
    n->out = inf->shape[1].ndim - n->in;
    dims->op = "linear";
    dims->n_in = inf->n_in;
    dims->n_out = 1;
    set_operand(dims, 0, "x", 'c', LEAD, n->lead, IN, n->in);
    set_operand(dims, 1, "w", 'c', OUT, n->out, IN, n->in);
    if (bias)
        set_operand(dims, 2, "bias", 'f', OUT, n->out, "", 0);
    set_operand(dims, inf->n_in, "y", 'c', LEAD, n->lead, OUT, n->out);
}

BY_DIMS(linear)

/* Two flops for every element of lead x out x in; lead x out is `y`. */
static void gemm_cost(const struct merak_infer *inf, int y, int w, int n_in,
                      struct merak_cost *cost)
{
    double contracted = 1;

    for (int d = inf->shape[w].ndim - n_in; d < inf->shape[w].ndim; d++)
        contracted *= (double)inf->shape[w].dim[d];
    cost->flops = 2 * contracted * (double)merak_shape_count(&inf->shape[y]);
    cost->bytes = merak_cost_bytes(inf);
}

static void linear_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    gemm_cost(inf, inf->n_in, 1, attr_dims(inf), cost);
    if (inf->n_in == 3)
        cost->flops += (double)merak_shape_count(&inf->shape[3]);
}

static enum merak_status linear_grad(struct merak_grad *g,
                                     const struct merak_node *node,
                                     struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0), *bias;
    struct merak_attrs attrs = {0};
    enum merak_status rc;

    rc = merak_grad_product(g, node, "linear_dx", "linear_dw", false, err);
    if (rc != MERAK_OK || merak_node_in_count(node) < 3)
        return rc;
    bias = merak_node_in(node, 2);
    attrs.i[0] = merak_value_shape(bias)->ndim;
    return merak_grad_param(g, node, bias, "linear_db", &attrs, 1, &dy, err);
}

/* --- linear_dx: dy [lead, out], w [out, in] -> dx [lead, in] ----------------
 */

static void linear_dx_dims(const struct merak_infer *inf, struct groups *n,
                           struct merak_dims *dims)
{
    n->in = attr_dims(inf);
    n->out = inf->shape[1].ndim - n->in;
    n->lead = inf->shape[0].ndim - n->out;
    dims->op = "linear_dx";
    dims->n_in = 2;
    dims->n_out = 1;
    set_operand(dims, 0, "dy", 'c', LEAD, n->lead, OUT, n->out);
    set_operand(dims, 1, "w", 'c', OUT, n->out, IN, n->in);
    set_operand(dims, 2, "dx", 'c', LEAD, n->lead, IN, n->in);
}

BY_DIMS(linear_dx)

static void linear_dx_cost(const struct merak_infer *inf,
                           struct merak_cost *cost)
{
    gemm_cost(inf, 0, 1, attr_dims(inf), cost);
}

/* --- linear_dw: x [lead, in], dy [lead, out] -> dw [out, in] ----------------
 */

static void linear_dw_dims(const struct merak_infer *inf, struct groups *n,
                           struct merak_dims *dims)
{
    n->in = attr_dims(inf);
    n->lead = inf->shape[0].ndim - n->in;
    n->out = inf->shape[1].ndim - n->lead;
    dims->op = "linear_dw";
    dims->n_in = 2;
    dims->n_out = 1;
    set_operand(dims, 0, "x", 'c', LEAD, n->lead, IN, n->in);
    set_operand(dims, 1, "dy", 'c', LEAD, n->lead, OUT, n->out);
    set_operand(dims, 2, "dw", 'f', OUT, n->out, IN, n->in);
}

BY_DIMS(linear_dw)

static void linear_dw_cost(const struct merak_infer *inf,
                           struct merak_cost *cost)
{
    gemm_cost(inf, 1, 2, attr_dims(inf), cost);
}

/* --- linear_db: dy [lead, out] -> db [out] -----------------------------------
 */

static void linear_db_dims(const struct merak_infer *inf, struct groups *n,
                           struct merak_dims *dims)
{
    n->in = 1; /* no operand has it; any valid number */
    n->out = attr_dims(inf);
    n->lead = inf->shape[0].ndim - n->out;
    dims->op = "linear_db";
    dims->n_in = 1;
    dims->n_out = 1;
    set_operand(dims, 0, "dy", 'c', LEAD, n->lead, OUT, n->out);
    set_operand(dims, 1, "db", 'f', OUT, n->out, "", 0);
}

BY_DIMS(linear_db)

MERAK_COST(linear_db, 1)

const struct merak_op merak_ops_linear[] = {
    MERAK_OP_WITH(linear, 2, 3, 1, linear_grad, .step_use = MERAK_STEP_NONE,
                  .ld_out = 1, .role = MERAK_ROLE_PRODUCT,
                  .numbers = merak_no_numbers),
    MERAK_OP_WITH(linear_dx, 2, 2, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .ld_in = 1, .role = MERAK_ROLE_PRODUCT),
    MERAK_OP_WITH(linear_dw, 2, 2, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .ld_in = 2, .role = MERAK_ROLE_PRODUCT),
    MERAK_OP(linear_db, 1, 1, 1, NULL),
    {.name = NULL},
};
