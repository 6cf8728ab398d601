/* SPDX-License-Identifier: Apache-2.0 */
/* ops_experts.c - mixtures of experts: routing, and gated MLPs of chosen rows
 *
 * Every token has k rows, each of one expert, whatever the router chooses: the
 * sizes of all operands are fixed, nothing is dropped.  The pool keeps what a
 * row's gradient needs.  It has one of two forms:
 *
 *   own places   every row's, at the row's own place.  An expert's inner width
 *                may be cut, and so may samples and positions.
 *   shared       i[0] rows for each of i[1] experts, which those of a rank
 *                share: rows by ascending expert, then position.  Rows that
 *                find no place are computed again for their gradients, from x.
 *                Experts may be cut, too; then a rank has all samples, computes
 *                the rows of its experts, and the others' are zeros.  Where
 *                positions are cut, so are the rows kept for each expert.
 *
 * With i[2] = 1 the gate and what it is multiplied by have biases, the last
 * input of each call, whose gradient, experts_db, reads what that of matrices
 * does.  What is added to an expert's output is added to those of tokens, by
 * experts_bias: there it is no part of a sum.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/expert_load.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>

/* --- route -----------------------------------------------------------------
 */

#define ROUTE                                               \
    (inf->n_in > 1 ? "z=c:btE bias=f:E > w=f:btK ids=i:btK" \
                   : "z=c:btE > w=f:btK ids=i:btK")

static enum merak_status check_groups(const struct merak_attrs *a, size_t E,
                                      struct merak_error *err)
{
    int64_t groups = a->i[3], kept = (int64_t)a->f[1];

    if (groups <= 1)
        return MERAK_OK;
    if ((int64_t)E % groups != 0 || kept < 1 || kept > groups ||
        kept * ((int64_t)E / groups) < a->i[0])
        return merak_fail(err, MERAK_ERR_PARAM,
                          "route: %lld of %lld groups of %zu experts are kept "
                          "for %lld experts of each token; expected groups of "
                          "equal size, and enough of them",
                          (long long)kept, (long long)groups, E,
                          (long long)a->i[0]);
    return MERAK_OK;
}

static enum merak_status route_infer(struct merak_infer *inf,
                                     struct merak_error *err)
{
    const struct merak_attrs *a = inf->attrs;
    struct merak_dims dims;
    enum merak_status rc = merak_dims_parse(&dims, "route", ROUTE, inf, err);
    size_t E;

    if (rc != MERAK_OK)
        return rc;
    E = inf->shape[0].dim[inf->shape[0].ndim > 0 ? inf->shape[0].ndim - 1 : 0];
    if (a->i[0] < 1 || (size_t)a->i[0] > E)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "route: %lld of %zu experts for each token; expected "
                          "1 to %zu",
                          (long long)a->i[0], E, E);
    if (!(a->f[0] >= 0) || !isfinite(a->f[0]))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "route: weights are multiplied by %g, expected a "
                          "positive number, or 0 for 1",
                          a->f[0]);
    rc = check_groups(a, E, err);
    dims.extent['K'] = (size_t)a->i[0];
    return rc != MERAK_OK ? rc : merak_dims_solve(&dims, inf, err);
}

MERAK_DIMS_SIGNATURE(route, ROUTE)

/* An exponential, and a comparison for each expert that is chosen. */
static void route_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    merak_cost_elementwise(inf, 4 + (double)inf->attrs->i[0], cost);
}

MERAK_DIMS(route_dx, "dw=f:btK z=c:btE ids=i:btK > dz=c:btE")
MERAK_COST(route_dx, 4)

static enum merak_status route_grad(struct merak_grad *g,
                                    const struct merak_node *node,
                                    struct merak_error *err)
{
    struct merak_value *in[] = {merak_grad_out(g, node, 0),
                                merak_node_in(node, 0),
                                merak_node_out(node, 1)};
    enum merak_status rc = merak_grad_only_first(g, node, err);

    if (rc != MERAK_OK)
        return rc;
    return merak_grad_unary(g, node, 0, "route_dx", merak_node_attrs(node), 3,
                            in, err);
}

/* --- experts ---------------------------------------------------------------
 */

#define ROWS(x) x "=c:btC w=f:btK ids=i:btK "
#define ALL(x) x "=c:BtC w=f:BtK ids=i:BtK " /* rows, in the shared form */
#define WEIGHTS "gate=c:efC up=c:efC down=c:eCf "
#define MATRICES "gate=c:EfC up=c:EfC down=c:ECf "

/* Is the pool shared by experts? */
static bool shares(const struct merak_infer *inf, int at)
{
    return inf->attrs->i[at] > 0;
}

/* Of a form the inputs, and the outputs. */
struct form {
    const char *in, *out;
};
struct pattern {
    char text[160];
};

static struct pattern pattern_of(const struct merak_infer *inf, bool shared,
                                 const struct form *form)
{
    const char *bias = shared ? "bias=f:e2f " : "bias=f:E2f ";
    struct pattern p;

    snprintf(p.text, sizeof(p.text), "%s%s> %s", form[shared].in,
             inf->attrs->i[2] > 0 ? bias : "", form[shared].out);
    return p;
}

/* Of rows at their own places, and of those that share a pool. */
static const struct form forward_forms[] = {
    {ROWS("x") MATRICES, "y=c:btC pool=c:btK2f"},
    {ALL("x") WEIGHTS, "y=c:BtC pool=c:eQ2f"}};
static const struct form dx_forms[] = {
    {ROWS("dy") MATRICES "pool=c:btK2f ", "dx=c:btC dw=f:btK dpool=c:btK2f"},
    {ALL("dy") WEIGHTS "pool=c:eQ2f x=c:BtC ",
     "dx=c:BtC dw=f:BtK dpool=c:eQ2f"}};
#define OWN_DW ROWS("x") "dy=c:btC pool=c:btK2f dpool=c:btK2f "
#define SHARED_DW ALL("x") "dy=c:BtC pool=c:eQ2f dpool=c:eQ2f " WEIGHTS
static const struct form dw_forms[] = {
    {OWN_DW, "dgate=f:EfC dup=f:EfC ddown=f:ECf"},
    {SHARED_DW, "dgate=f:efC dup=f:efC ddown=f:eCf"}};
static const struct form db_forms[] = {{OWN_DW, "dbias=f:E2f"},
                                       {SHARED_DW, "dbias=f:e2f"}};

#define EXPERTS(inf) \
    pattern_of((inf), shares((inf), 0), forward_forms).text
#define EXPERTS_DX(inf) pattern_of((inf), shares((inf), 0), dx_forms).text
#define EXPERTS_DW(inf) pattern_of((inf), shares((inf), 1), dw_forms).text
#define EXPERTS_DB(inf) pattern_of((inf), shares((inf), 1), db_forms).text

static int index_of(const struct merak_signature *sig, char name)
{
    int i = 0;

    while (i < sig->n_index && sig->index[i].name != name)
        i++;
    return i < sig->n_index ? i : -1;
}

/* Rows kept for each expert are cut as positions are, in as many parts: both
 * have to be divided. */
static void cut_rows(struct merak_signature *sig, int rows, int positions)
{
    for (int o = 0; o < MERAK_MAX_OPERANDS; o++) {
        for (int d = 0; d < MERAK_MAX_DIMS; d++) {
            if (sig->operand_dim[o][d] == rows)
                sig->operand_dim[o][d] = (int8_t)positions;
        }
    }
    sig->index[positions].extent =
        merak_size_gcd(sig->index[positions].extent, sig->index[rows].extent);
}

static void mark_experts(struct merak_signature *sig)
{
    int rows = index_of(sig, 'q');

    for (int i = 0; i < sig->n_index; i++)
        sig->index[i].experts = sig->index[i].name == 'e';
    if (rows >= 0)
        cut_rows(sig, rows, index_of(sig, 't'));
}

static void experts_signature(const struct merak_infer *inf,
                              struct merak_signature *sig)
{
    merak_dims_signature("experts", EXPERTS(inf), inf, sig);
    mark_experts(sig);
}

static void experts_dx_signature(const struct merak_infer *inf,
                                 struct merak_signature *sig)
{
    merak_dims_signature("experts_dx", EXPERTS_DX(inf), inf, sig);
    mark_experts(sig);
}

static void experts_dw_signature(const struct merak_infer *inf,
                                 struct merak_signature *sig)
{
    merak_dims_signature("experts_dw", EXPERTS_DW(inf), inf, sig);
    mark_experts(sig);
}

static void experts_db_signature(const struct merak_infer *inf,
                                 struct merak_signature *sig)
{
    merak_dims_signature("experts_db", EXPERTS_DB(inf), inf, sig);
    mark_experts(sig);
}

/* Of a shared pool: how many rows of its experts find no place. */
#define OVERFLOW "ids=i:BtK pool=c:eQ2f > over=d:1"
MERAK_DIMS_INFER(experts_overflow, OVERFLOW)

static void experts_overflow_signature(const struct merak_infer *inf,
                                       struct merak_signature *sig)
{
    merak_dims_signature("experts_overflow", OVERFLOW, inf, sig);
    mark_experts(sig);
}

/* It reads nothing of the pool but how large it is. */
static void experts_overflow_cost(const struct merak_infer *inf,
                                  struct merak_cost *cost)
{
    cost->flops = 0;
    cost->bytes = (double)merak_shape_count(&inf->shape[0]) *
                  (double)merak_dtype_bytes(inf->dtype[0]);
}

static enum merak_status experts_infer(struct merak_infer *inf,
                                       struct merak_error *err)
{
    struct merak_dims dims;
    enum merak_status rc =
        merak_dims_parse(&dims, "experts", EXPERTS(inf), inf, err);

    if (rc != MERAK_OK)
        return rc;
    if (inf->attrs->i[0] < 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "experts: %lld rows are kept for each, expected a "
                          "positive number, or 0 for all at their own places",
                          (long long)inf->attrs->i[0]);
    dims.extent['Q'] = (size_t)inf->attrs->i[0];
    return merak_dims_solve(&dims, inf, err);
}

static enum merak_status experts_dx_infer(struct merak_infer *inf,
                                          struct merak_error *err)
{
    return merak_dims_infer("experts_dx", EXPERTS_DX(inf), inf, err);
}

/* Of a gradient of parameters. */
static enum merak_status infer_weights(const char *op, const char *pattern,
                                       struct merak_infer *inf,
                                       struct merak_error *err)
{
    struct merak_dims dims;
    enum merak_status rc = merak_dims_parse(&dims, op, pattern, inf, err);

    if (rc != MERAK_OK)
        return rc;
    if (!shares(inf, 1)) /* else matrices say it */
        dims.extent['E'] = inf->attrs->i[0] > 0 ? (size_t)inf->attrs->i[0] : 0;
    return merak_dims_solve(&dims, inf, err);
}

static enum merak_status experts_dw_infer(struct merak_infer *inf,
                                          struct merak_error *err)
{
    return infer_weights("experts_dw", EXPERTS_DW(inf), inf, err);
}

static enum merak_status experts_db_infer(struct merak_infer *inf,
                                          struct merak_error *err)
{
    return infer_weights("experts_db", EXPERTS_DB(inf), inf, err);
}

/* Three products of each row with an expert's matrices, one of which is `gate`.
 * A row reads only its own expert's.  Of `all` experts (0: these) all have as
 * many rows. */
static void experts_cost_by(const struct merak_infer *inf, int gate,
                            int64_t all, struct merak_cost *cost)
{
    const size_t *w = inf->shape[gate].dim;
    double rows = (double)merak_shape_count(&inf->shape[2]) *
                  (all > 0 ? (double)w[0] / (double)all : 1);
    double idle = (double)w[0] > rows ? (double)w[0] - rows : 0;
    double matrix = (double)w[1] * (double)w[2];

    cost->flops = 6 * rows * matrix;
    cost->bytes =
        merak_cost_bytes(inf) -
        3 * idle * matrix * (double)merak_dtype_bytes(inf->dtype[gate]);
}

static void experts_cost(const struct merak_infer *inf, struct merak_cost *cost)
{
    experts_cost_by(inf, 3, shares(inf, 0) ? inf->attrs->i[1] : 0, cost);
}

static void experts_dx_cost(const struct merak_infer *inf,
                            struct merak_cost *cost)
{
    experts_cost_by(inf, 3, shares(inf, 0) ? inf->attrs->i[1] : 0, cost);
}

/* Gradients of experts without rows are read, or zeroed, too. */
static void experts_dw_cost(const struct merak_infer *inf,
                            struct merak_cost *cost)
{
    experts_cost_by(inf, 6, shares(inf, 1) ? inf->attrs->i[0] : 0, cost);
    cost->bytes = merak_cost_bytes(inf);
}

/* Where all rows have places, nothing is read but the gradient of the pool. */
static void experts_db_cost(const struct merak_infer *inf,
                            struct merak_cost *cost)
{
    cost->flops = (double)merak_shape_count(&inf->shape[5]);
    cost->bytes = cost->flops * (double)merak_dtype_bytes(inf->dtype[5]);
}

struct merak_expert_load merak_expert_load(const struct merak_infer *local,
                                           int gate, int w, double kept,
                                           double load, int64_t all)
{
    double own = (double)local->shape[gate].dim[0];
    double rows = (double)merak_shape_count(&local->shape[w]);
    double k = (double)local->shape[w].dim[local->shape[w].ndim - 1];
    double most = fmin(k, own) / k * (double)all / own;
    double room = kept * (double)all / rows;

    load = fmin(load, most);
    return (struct merak_expert_load){load, fmax(load - room, 0)};
}

static struct merak_expert_load load_of(const struct merak_infer *local,
                                        int gate, int pool, double load,
                                        int64_t all)
{
    return merak_expert_load(local, gate, 2, (double)local->shape[pool].dim[1],
                             load, all);
}

static double experts_loaded(const struct merak_infer *local, double load)
{
    const int64_t *i = local->attrs->i;

    return i[0] > 0 ? load_of(local, 3, 7, load, i[1]).rows : 1;
}

/* A row that was not kept has two more of its three products. */
static double experts_dx_loaded(const struct merak_infer *local, double load)
{
    const int64_t *i = local->attrs->i;
    struct merak_expert_load of;

    if (i[0] == 0)
        return 1;
    of = load_of(local, 3, 6, load, i[1]);
    return of.rows + of.again * 2 / 3;
}

/* Here all three: what the gradient of activations had, and that gradient. */
static double experts_dw_loaded(const struct merak_infer *local, double load)
{
    const int64_t *i = local->attrs->i;
    struct merak_expert_load of;

    if (i[1] == 0)
        return 1;
    of = load_of(local, 6, 4, load, i[0]);
    return of.rows + of.again;
}

/* Gradients of parameters. */
static enum merak_status experts_grad_dw(struct merak_grad *g,
                                         const struct merak_node *node,
                                         struct merak_value *dy,
                                         struct merak_value *dpool,
                                         struct merak_error *err)
{
    struct merak_value *in[] = {
        merak_node_in(node, 0), merak_node_in(node, 1), merak_node_in(node, 2),
        dy, merak_node_out(node, 1), dpool, merak_node_in(node, 3),
        merak_node_in(node, 4), merak_node_in(node, 5), NULL};
    struct merak_attrs attrs = *merak_node_attrs(node);
    bool biased = attrs.i[2] > 0, wanted = false;
    struct merak_value *out[3], *bias = NULL;
    int n = attrs.i[0] > 0 ? 9 : 6;
    enum merak_status rc = MERAK_OK;

    if (biased)
        in[n] = bias = merak_node_in(node, 6);
    attrs.i[1] = attrs.i[0];
    attrs.i[0] = (int64_t)merak_value_shape(merak_node_in(node, 3))->dim[0];
    for (int i = 3; i < 6; i++)
        wanted = wanted || merak_grad_wanted(g, merak_node_in(node, i));
    if (wanted)
        rc = merak_grad_node(g, node, MERAK_PHASE_W, "experts_dw", &attrs,
                             n + biased, in, out, err);
    for (int i = 0; i < 3 && rc == MERAK_OK && wanted; i++)
        rc = merak_grad_add(g, merak_node_in(node, 3 + i), out[i], err);
    return rc != MERAK_OK || !biased
               ? rc
               : merak_grad_param(g, node, bias, "experts_db", &attrs,
                                  n + biased, in, err);
}

static enum merak_status experts_grad(struct merak_grad *g,
                                      const struct merak_node *node,
                                      struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    const struct merak_attrs *attrs = merak_node_attrs(node);
    struct merak_value *in[9] = {dy}, *out[3];
    enum merak_status rc = merak_grad_only_first(g, node, err);
    int n = 7;

    for (int i = 1; i < 6; i++)
        in[i] = merak_node_in(node, i);
    in[6] = merak_node_out(node, 1);
    if (attrs->i[0] > 0)
        in[n++] = merak_node_in(node, 0);
    if (attrs->i[2] > 0)
        in[n++] = merak_node_in(node, 6);
    if (rc == MERAK_OK)
        rc = merak_grad_node(g, node, MERAK_PHASE_B, "experts_dx", attrs, n, in,
                             out, err);
    for (int i = 0; i < 2 && rc == MERAK_OK; i++)
        rc = merak_grad_add(g, merak_node_in(node, i), out[i], err);
    return rc != MERAK_OK ? rc : experts_grad_dw(g, node, dy, out[2], err);
}

/* --- what is added to outputs ----------------------------------------------
 */

MERAK_DIMS(experts_bias, "x=c:btC w=f:btK ids=i:btK bias=f:EC > y=c:btC")
MERAK_COST(experts_bias, 2)
MERAK_DIMS(experts_bias_dx, "dy=c:btC bias=f:EC ids=i:btK > dw=f:btK")
MERAK_COST(experts_bias_dx, 2)
#define BIAS_DB "dy=c:btC w=f:btK ids=i:btK > dbias=f:EC"
MERAK_DIMS_SIGNATURE(experts_bias_db, BIAS_DB)
MERAK_COST(experts_bias_db, 2)

static enum merak_status experts_bias_db_infer(struct merak_infer *inf,
                                               struct merak_error *err)
{
    return infer_weights("experts_bias_db", BIAS_DB, inf, err);
}

static enum merak_status experts_bias_grad(struct merak_grad *g,
                                           const struct merak_node *node,
                                           struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    struct merak_value *w = merak_node_in(node, 1), *ids;
    struct merak_value *bias = merak_node_in(node, 3);
    const struct merak_attrs attrs = {
        .i = {(int64_t)merak_value_shape(bias)->dim[0]}};
    enum merak_status rc = merak_grad_add(g, merak_node_in(node, 0), dy, err);

    ids = merak_node_in(node, 2);
    if (rc == MERAK_OK)
        rc = merak_grad_unary(g, node, 1, "experts_bias_dx", NULL, 3,
                              (struct merak_value *[]){dy, bias, ids}, err);
    if (rc != MERAK_OK)
        return rc;
    return merak_grad_param(g, node, bias, "experts_bias_db", &attrs, 3,
                            (struct merak_value *[]){dy, w, ids}, err);
}

static const struct merak_number route_numbers[] = {
    {"experts of a token", 'i', 0},
    {"router score", 'i', 1},
    {"router weights normalised", 'i', 2},
    {"router groups", 'i', 3},
    {"router scale", 'f', 0},
    {"router groups kept", 'f', 1},
    {"router groups by their best", 'i', 4},
    {NULL, 0, 0}};

const struct merak_number merak_expert_numbers[] = {{"experts limit", 'f', 1},
                                                    {"experts slope", 'f', 2},
                                                    {"experts shift", 'f', 3},
                                                    {NULL, 0, 0}};

const struct merak_op merak_ops_experts[] = {
    MERAK_OP_WITH(route, 1, 2, 2, route_grad, .step_use = MERAK_STEP_NONE,
                  .numbers = route_numbers),
    MERAK_OP(route_dx, 3, 3, 1, NULL),
    MERAK_OP_WITH(experts, 6, 7, 2, experts_grad, .step_use = MERAK_STEP_NONE,
                  .loaded = experts_loaded, .numbers = merak_expert_numbers),
    MERAK_OP_WITH(experts_overflow, 2, 2, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .numbers = merak_no_numbers),
    MERAK_OP_WITH(experts_dx, 7, 9, 3, NULL, .step_use = MERAK_STEP_NONE,
                  .loaded = experts_dx_loaded),
    MERAK_OP_WITH(experts_dw, 6, 10, 3, NULL, .step_use = MERAK_STEP_NONE,
                  .loaded = experts_dw_loaded),
    MERAK_OP_WITH(experts_db, 7, 10, 1, NULL, .step_use = MERAK_STEP_NONE),
    MERAK_OP_WITH(experts_bias, 4, 4, 1, experts_bias_grad,
                  .in_place = true, .step_use = MERAK_STEP_NONE,
                  .numbers = merak_no_numbers),
    MERAK_OP_WITH(experts_bias_dx, 3, 3, 1, NULL, .step_use = MERAK_STEP_NONE),
    MERAK_OP_WITH(experts_bias_db, 3, 3, 1, NULL, .step_use = MERAK_STEP_NONE),
    {.name = NULL},
};
