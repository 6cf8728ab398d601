/* SPDX-License-Identifier: Apache-2.0 */
/* ops_expert_rows.c - experts whose rows travel: each sequence has places for
 * rows of each expert, which go to where the expert is and back
 *
 * Of each sequence the first rows of an expert, by position, have its R places;
 * which these are depends on nothing but the sequence.  A value has the places
 * of all experts, used or not, so that its extents are fixed; it is cut by
 * samples where tokens are, by experts where these are multiplied, and goes
 * from one to the other by an all-to-all.
 *
 * Rows without a place are multiplied, too, from the tokens of all ranks:
 * nothing is dropped.  That needs tokens, and sums of all ranks, only if there
 * are such rows (`rows_left_in` of struct merak_op).
 *
 * Where experts are told to take no more rows than a number of each sequence,
 * the same places say which: the others are of no expert, in any form.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/expert_load.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

/* --- places ----------------------------------------------------------------
 */

/* Infer from a pattern whose experts, and places of each, the attributes give;
 * with the number of those in use each has one more number. */
static enum merak_status infer_places(const char *op, const char *pattern,
                                      struct merak_infer *inf,
                                      struct merak_error *err)
{
    const int64_t *i = inf->attrs->i;
    struct merak_dims dims;
    enum merak_status rc = merak_dims_parse(&dims, op, pattern, inf, err);

    if (rc != MERAK_OK)
        return rc;
    if (i[0] < 1 || i[1] < 1)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: %lld places for each of %lld experts, expected "
                          "positive numbers",
                          op, (long long)i[0], (long long)i[1]);
    dims.extent['R'] = (size_t)i[0];
    dims.extent['P'] = (size_t)i[0] + 1;
    dims.extent['E'] = (size_t)i[1];
    return merak_dims_solve(&dims, inf, err);
}

/* As MERAK_DIMS(), by these attributes. */
#define PLACES_DIMS(op, pattern)                                 \
    static enum merak_status op##_infer(struct merak_infer *inf, \
                                        struct merak_error *err) \
    {                                                            \
        return infer_places(#op, (pattern), inf, err);           \
    }                                                            \
    MERAK_DIMS_SIGNATURE(op, pattern)

PLACES_DIMS(experts_places, "w=f:bTK ids=i:bTK > place=f:bEP rest=i:bTK")
MERAK_COST(experts_places, 4)
MERAK_DIMS(experts_places_dx, "dplace=f:bEP ids=i:bTK > dw=f:bTK")
MERAK_COST(experts_places_dx, 1)

static enum merak_status experts_places_grad(struct merak_grad *g,
                                             const struct merak_node *node,
                                             struct merak_error *err)
{
    struct merak_value *in[] = {merak_grad_out(g, node, 0),
                                merak_node_in(node, 1)};
    enum merak_status rc = merak_grad_only_first(g, node, err);

    if (rc != MERAK_OK)
        return rc;
    return merak_grad_unary(g, node, 0, "experts_places_dx",
                            merak_node_attrs(node), 2, in, err);
}

MERAK_DIMS(experts_left, "rest=i:BTK > left=d:1")
MERAK_COST(experts_left, 1)

/* Rows that would have a place, where experts take no others. */
PLACES_DIMS(experts_capacity, "ids=i:bTK > kept=i:bTK")
MERAK_COST(experts_capacity, 2)
MERAK_DIMS(experts_dropped, "kept=i:btK > dropped=d:1")
MERAK_COST(experts_dropped, 1)

/* --- rows that travel ------------------------------------------------------
 */

PLACES_DIMS(experts_send, "x=c:bTc ids=i:bTK > rows=c:bERc")
MERAK_COST(experts_send, 1)
#define JOIN                                                      \
    (inf->n_in > 2 ? "rows=c:bERc ids=i:bTK more=c:bTc > y=c:bTc" \
                   : "rows=c:bERc ids=i:bTK > y=c:bTc")
MERAK_DIMS(experts_join, JOIN)
MERAK_COST(experts_join, 1)

/* Each is the other's gradient; what is added passes its own on. */
MERAK_UNARY_GRAD(experts_send, "experts_join", merak_grad_out(g, node, 0),
                 merak_node_in(node, 1))

static enum merak_status experts_join_grad(struct merak_grad *g,
                                           const struct merak_node *node,
                                           struct merak_error *err)
{
    const size_t *rows = merak_value_shape(merak_node_in(node, 0))->dim;
    const struct merak_attrs attrs = {
        .i = {(int64_t)rows[2], (int64_t)rows[1]}};
    struct merak_value *in[] = {merak_grad_out(g, node, 0),
                                merak_node_in(node, 1)};
    enum merak_status rc = MERAK_OK;

    if (merak_node_in_count(node) > 2)
        rc = merak_grad_add(g, merak_node_in(node, 2), in[0], err);
    if (rc != MERAK_OK)
        return rc;
    return merak_grad_unary(g, node, 0, "experts_send", &attrs, 2, in, err);
}

/* --- experts ---------------------------------------------------------------
 */

#define AT(rows) rows "=c:BeRC place=f:BeP "
#define MATRICES "gate=c:efC up=c:efC down=c:eCf "
#define REST(x) x "=c:BTC w=f:BTK rest=i:BTK "
#define BIASED(in, out)                                                  \
    (inf->attrs->i[2] > 0 ? in " left=d:1 bias=f:e2f > " out : in " left=" \
                                                               "d:1 > " out)
#define ROWS                           \
    BIASED(AT("rows") MATRICES REST("x"), \
           "y=c:BeRC more=c:BTC pool=c:BeR2f")
#define ROWS_DX                                                          \
    BIASED(AT("dy") MATRICES "pool=c:BeR2f " REST("dmore") "x=c:BTC",    \
           "dx=c:BeRC dplace=f:BeP dx2=c:BTC dw=f:BTK dpool=c:BeR2f")
#define DW_IN                                                          \
    AT("rows")                                                         \
    "dy=c:BeRC pool=c:BeR2f dpool=c:BeR2f " REST("x") "dmore=c:BTC " \
        MATRICES
#define ROWS_DW BIASED(DW_IN, "dgate=f:efC dup=f:efC ddown=f:eCf")
#define ROWS_DB BIASED(DW_IN, "dbias=f:e2f")

static void mark_experts(struct merak_signature *sig)
{
    for (int i = 0; i < sig->n_index; i++)
        sig->index[i].experts = sig->index[i].name == 'e';
}

#define EXPERTS(op, pattern)                                  \
    MERAK_DIMS_INFER(op, pattern)                             \
    static void op##_signature(const struct merak_infer *inf, \
                               struct merak_signature *sig)   \
    {                                                         \
        merak_dims_signature(#op, (pattern), inf, sig);       \
        mark_experts(sig);                                    \
    }
EXPERTS(experts_rows, ROWS)
EXPERTS(experts_rows_dx, ROWS_DX)
EXPERTS(experts_rows_dw, ROWS_DW)
EXPERTS(experts_rows_db, ROWS_DB)

/* Where a call has which operands: OUT(i) is output i. */
#define OUT(i) (100 + (i))
struct at {
    int place, gate, w, n; /* n: operands that count if no row is left */
    int read[8];
};

static const struct at forward_at = {
    1, 2, 6, 7, {0, 1, 2, 3, 4, OUT(0), OUT(2)}};
static const struct at dx_at = {
    1, 2, 7, 8, {0, 1, 2, 3, 4, 5, OUT(0), OUT(4)}};
static const struct at dw_at = {
    1, 9, 6, 8, {0, 1, 2, 3, 4, OUT(0), OUT(1), OUT(2)}};

/* Three products of each row with an expert's matrices, if rows are even. */
static void cost_at(const struct merak_infer *inf, const struct at *at,
                    struct merak_cost *cost)
{
    const size_t *w = inf->shape[at->gate].dim;
    double rows = (double)merak_shape_count(&inf->shape[at->w]) * (double)w[0] /
                  (double)inf->attrs->i[0];

    cost->flops = 6 * rows * (double)w[1] * (double)w[2];
    cost->bytes = 0;
    for (int i = 0; i < at->n; i++) {
        int o = at->read[i] < OUT(0) ? at->read[i]
                                     : inf->n_in + at->read[i] - OUT(0);

        cost->bytes += (double)merak_shape_count(&inf->shape[o]) *
                       (double)merak_dtype_bytes(inf->dtype[o]);
    }
}

static void experts_rows_cost(const struct merak_infer *inf,
                              struct merak_cost *cost)
{
    cost_at(inf, &forward_at, cost);
}

static void experts_rows_dx_cost(const struct merak_infer *inf,
                                 struct merak_cost *cost)
{
    cost_at(inf, &dx_at, cost);
}

static void experts_rows_dw_cost(const struct merak_infer *inf,
                                 struct merak_cost *cost)
{
    cost_at(inf, &dw_at, cost);
}

/* Of the gradient of the pool alone. */
static void experts_rows_db_cost(const struct merak_infer *inf,
                                 struct merak_cost *cost)
{
    cost->flops = (double)merak_shape_count(&inf->shape[4]);
    cost->bytes = cost->flops * (double)merak_dtype_bytes(inf->dtype[4]);
}

static struct merak_expert_load load_at(const struct merak_infer *local,
                                        const struct at *at, double load)
{
    const size_t *place = local->shape[at->place].dim;

    return merak_expert_load(local, at->gate, at->w,
                             (double)place[0] * (double)(place[2] - 1), load,
                             local->attrs->i[0]);
}

static double experts_rows_loaded(const struct merak_infer *local, double load)
{
    return load_at(local, &forward_at, load).rows;
}

static double experts_rows_dx_loaded(const struct merak_infer *local,
                                     double load)
{
    struct merak_expert_load of = load_at(local, &dx_at, load);

    return of.rows + of.again * 2 / 3;
}

static double experts_rows_dw_loaded(const struct merak_infer *local,
                                     double load)
{
    struct merak_expert_load of = load_at(local, &dw_at, load);

    return of.rows + of.again;
}

/* --- their gradients -------------------------------------------------------
 */

/* Inputs of experts_rows. */
enum {
    IN_ROWS,
    IN_PLACE,
    IN_GATE,
    IN_UP,
    IN_DOWN,
    IN_X,
    IN_W,
    IN_REST,
    IN_LEFT,
    IN_BIAS
};

static bool has_bias(const struct merak_node *node)
{
    return merak_node_attrs(node)->i[2] > 0;
}

static enum merak_status
grad_dw(struct merak_grad *g, const struct merak_node *node,
        struct merak_value *dy, struct merak_value *dmore,
        struct merak_value *dpool, struct merak_error *err)
{
    struct merak_value *in[] = {merak_node_in(node, IN_ROWS),
                                merak_node_in(node, IN_PLACE),
                                dy,
                                merak_node_out(node, 2),
                                dpool,
                                merak_node_in(node, IN_X),
                                merak_node_in(node, IN_W),
                                merak_node_in(node, IN_REST),
                                dmore,
                                merak_node_in(node, IN_GATE),
                                merak_node_in(node, IN_UP),
                                merak_node_in(node, IN_DOWN),
                                merak_node_in(node, IN_LEFT),
                                NULL};
    bool biased = has_bias(node), wanted = false;
    struct merak_value *out[3];
    enum merak_status rc = MERAK_OK;

    if (biased)
        in[13] = merak_node_in(node, IN_BIAS);
    for (int i = IN_GATE; i <= IN_DOWN; i++)
        wanted = wanted || merak_grad_wanted(g, merak_node_in(node, i));
    if (wanted)
        rc = merak_grad_node(g, node, MERAK_PHASE_W, "experts_rows_dw",
                             merak_node_attrs(node), 13 + biased, in, out, err);
    for (int i = 0; i < 3 && rc == MERAK_OK && wanted; i++)
        rc = merak_grad_add(g, merak_node_in(node, IN_GATE + i), out[i], err);
    return rc != MERAK_OK || !biased
               ? rc
               : merak_grad_param(g, node, in[13], "experts_rows_db",
                                  merak_node_attrs(node), 14, in, err);
}

static enum merak_status experts_rows_grad(struct merak_grad *g,
                                           const struct merak_node *node,
                                           struct merak_error *err)
{
    static const int to[] = {IN_ROWS, IN_PLACE, IN_X, IN_W};
    struct merak_value *dy = merak_grad_out(g, node, 0);
    struct merak_value *dmore = merak_grad_out(g, node, 1);
    struct merak_value *in[] = {dy,
                                merak_node_in(node, IN_PLACE),
                                merak_node_in(node, IN_GATE),
                                merak_node_in(node, IN_UP),
                                merak_node_in(node, IN_DOWN),
                                merak_node_out(node, 2),
                                dmore,
                                merak_node_in(node, IN_W),
                                merak_node_in(node, IN_REST),
                                merak_node_in(node, IN_X),
                                merak_node_in(node, IN_LEFT),
                                NULL};
    struct merak_value *out[5];
    enum merak_status rc;

    if (dy == NULL || dmore == NULL || merak_grad_out(g, node, 2) != NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "experts_rows: the loss has to depend on its first "
                          "two outputs, and not on the third");
    if (has_bias(node))
        in[11] = merak_node_in(node, IN_BIAS);
    rc = merak_grad_node(g, node, MERAK_PHASE_B, "experts_rows_dx",
                         merak_node_attrs(node), 11 + has_bias(node), in, out,
                         err);
    for (int i = 0; i < 4 && rc == MERAK_OK; i++)
        rc = merak_grad_add(g, merak_node_in(node, to[i]), out[i], err);
    return rc != MERAK_OK ? rc : grad_dw(g, node, dy, dmore, out[4], err);
}

#define PLAIN .step_use = MERAK_STEP_NONE, .numbers = merak_no_numbers
#define PART PLAIN, .role = MERAK_ROLE_ROWS
#define BIT(i) (1u << (i))
/* What is read, and what is made, only where a row is left. */
#define IF_LEFT(left, ins, outs) \
    .rows_left_in = (left), .rows_left_reads = (ins), .rows_left_makes = (outs)

const struct merak_op merak_ops_expert_rows[] = {
    MERAK_OP_WITH(experts_places, 2, 2, 2, experts_places_grad, PART),
    MERAK_OP_WITH(experts_places_dx, 2, 2, 1, NULL, PLAIN),
    MERAK_OP_WITH(experts_left, 1, 1, 1, NULL, PLAIN),
    MERAK_OP_WITH(experts_capacity, 1, 1, 1, NULL, PLAIN,
                  .role = MERAK_ROLE_DROP),
    MERAK_OP_WITH(experts_dropped, 1, 1, 1, NULL, PLAIN,
                  .role = MERAK_ROLE_DROPPED),
    MERAK_OP_WITH(experts_send, 2, 2, 1, experts_send_grad, PART),
    MERAK_OP_WITH(experts_join, 2, 3, 1, experts_join_grad, PLAIN,
                  .role = MERAK_ROLE_ROWS_END),
    MERAK_OP_WITH(experts_rows, 9, 10, 3, experts_rows_grad,
                  .step_use = MERAK_STEP_NONE, .numbers = merak_expert_numbers,
                  .role = MERAK_ROLE_ROWS,
                  .loaded = experts_rows_loaded,
                  IF_LEFT(8, BIT(5) | BIT(6), BIT(1))),
    MERAK_OP_WITH(experts_rows_dx, 11, 12, 5, NULL, PLAIN,
                  .loaded = experts_rows_dx_loaded,
                  IF_LEFT(10, BIT(6) | BIT(7) | BIT(9), BIT(2) | BIT(3))),
    MERAK_OP_WITH(experts_rows_dw, 13, 14, 3, NULL, PLAIN,
                  .loaded = experts_rows_dw_loaded,
                  IF_LEFT(12, BIT(5) | BIT(6) | BIT(8), 0)),
    MERAK_OP_WITH(experts_rows_db, 14, 14, 1, NULL, PLAIN,
                  IF_LEFT(12, BIT(5) | BIT(6) | BIT(8), 0)),
    {.name = NULL},
};
