/* SPDX-License-Identifier: Apache-2.0 */
/* ops_attention.c - causal attention, memory linear in the sequence
 *
 * Heads and groups may be cut.  Queries (t) may be, but not the keys (S): a
 * query sees every earlier one.  k and v have neither index t nor r, so where
 * one is cut (r: fewer kv heads than ranks) their gradients are partial sums.
 * What is packed is one tensor, and only its heads may be cut.
 *
 * An optional last input holds the positions at which documents start.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <math.h>

/* With that input or without, by the number of inputs of `inf`. */
#define PATTERN(few, positions, in, out) \
    (inf->n_in > (few) ? in " starts=i:b" positions " > " out : in " > " out)

#define ATTENTION \
    PATTERN(3, "t", "q=c:btgrD k=c:bSgD v=c:bSgD", "o=c:btgrD lse=f:btgr")
#define ATTENTION_PACKED PATTERN(1, "T", "qkv=c:bT3hD", "o=c:bThD lse=f:bTh")
#define ATTENTION_DX                                            \
    PATTERN(6, "t",                                             \
            "do=c:btgrD q=c:btgrD k=c:bSgD v=c:bSgD o=c:btgrD " \
            "lse=f:btgr",                                       \
            "dq=c:btgrD dk=c:bSgD dv=c:bSgD")
#define ATTENTION_PACKED_DX \
    PATTERN(4, "T", "do=c:bThD qkv=c:bT3hD o=c:bThD lse=f:bTh", "dqkv=c:bT3hD")

MERAK_DIMS(attention_dx, ATTENTION_DX)
MERAK_DIMS(attention_packed_dx, ATTENTION_PACKED_DX)
MERAK_DIMS_SIGNATURE(attention, ATTENTION)
MERAK_DIMS_SIGNATURE(attention_packed, ATTENTION_PACKED)

static bool is_positive_or_0(double x)
{
    return x >= 0 && isfinite(x);
}

static enum merak_status check_attrs(const char *op,
                                     const struct merak_attrs *attrs,
                                     struct merak_error *err)
{
    const double *f = attrs->f;

    if (!(f[0] >= 0 && f[0] < 1))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: dropout is %g, expected 0 <= p < 1", op, f[0]);
    if (!is_positive_or_0(f[1]) || !is_positive_or_0(f[2]))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: scale %g, soft cap %g, expected positive "
                          "numbers, or 0 for 1/sqrt(D) and for none",
                          op, f[1], f[2]);
    if (attrs->i[1] < 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: a window of %lld keys, expected at least 1, or "
                          "0 for all",
                          op, (long long)attrs->i[1]);
    return MERAK_OK;
}

/* Each query has its own key. */
static enum merak_status check_positions(const struct merak_infer *inf,
                                         struct merak_error *err)
{
    size_t queries = inf->shape[0].dim[1], keys = inf->shape[1].dim[1];

    if (queries == keys)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "attention: q has %zu positions, k has %zu, expected as "
                      "many",
                      queries, keys);
}

static enum merak_status attention_infer(struct merak_infer *inf,
                                         struct merak_error *err)
{
    enum merak_status rc = check_attrs("attention", inf->attrs, err);

    if (rc == MERAK_OK)
        rc = merak_dims_infer("attention", ATTENTION, inf, err);
    return rc != MERAK_OK ? rc : check_positions(inf, err);
}

static enum merak_status attention_packed_infer(struct merak_infer *inf,
                                                struct merak_error *err)
{
    enum merak_status rc = check_attrs("attention_packed", inf->attrs, err);

    return rc != MERAK_OK ? rc
                          : merak_dims_infer("attention_packed",
                                             ATTENTION_PACKED, inf, err);
}

/* Pairs of a query and a key that it sees, for queries 0 .. n - 1; those on
 * the diagonal count half. */
static double pairs_before(double n, double window)
{
    if (n <= window)
        return n * n / 2;
    return window * window / 2 + (n - window) * window;
}

/* The same for queries first .. first + n - 1. */
static double pairs_from(double first, double n, double window)
{
    return pairs_before(first + n, window) - pairs_before(first, window);
}

/* The pairs of the rank with most of them: that with the last queries or, in
 * pieces, with the r-th half of its queries from the head and from the tail. */
static double most_pairs(double queries, double keys, double window,
                         bool pieces)
{
    double n = queries / 2, most = 0;

    if (!pieces || queries == keys)
        return pairs_from(keys - queries, queries, window);
    for (double head = 0; head < keys / 2; head += n) {
        double pairs = pairs_from(head, n, window) +
                       pairs_from(keys - head - n, n, window);

        most = pairs > most ? pairs : most;
    }
    return most;
}

/*
 * `gemms` products of [T, D] by [T, D] per head, 2 D flops per pair of a query
 * and a key that it sees; masked pairs are free.  Operand o has an element for
 * each sequence, position, head and channel of the queries; operand k has the
 * keys.  A slice's queries are at the last positions and see the keys before
 * them; a rank's may be in two pieces.  Forward has 2 products, backward 5 (the
 * scores again, then dP, dV, dQ, dK).
 *
 * Dropout draws one number per pair, in ten rounds of a generator.  That, and
 * the tanh of a soft cap, take as long as this many flops of a product
 * (instructions of the AVX2 kernels, D = 64).
 */
#define DRAW_FLOPS 72
#define CAP_FLOPS 20
static void causal_cost(const struct merak_infer *inf, int o, int k,
                        double gemms, struct merak_cost *cost)
{
    const struct merak_shape *out = &inf->shape[o];
    const struct merak_attrs *attrs = inf->attrs;
    double queries = (double)out->dim[1], keys = (double)inf->shape[k].dim[1];
    double window = attrs->i[1] > 0 ? (double)attrs->i[1] : keys;
    double D = (double)out->dim[out->ndim - 1];
    double heads = (double)merak_shape_count(out) / queries / D;
    double pairs = most_pairs(queries, keys, window, inf->pieces > 0);

    cost->flops = gemms * 2 * pairs * heads * D;
    if (attrs->f[0] > 0)
        cost->flops += DRAW_FLOPS * pairs * heads;
    if (attrs->f[2] > 0)
        cost->flops += CAP_FLOPS * pairs * heads;
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
    causal_cost(inf, inf->n_in, 0, 2, cost);
}

static void attention_packed_dx_cost(const struct merak_infer *inf,
                                     struct merak_cost *cost)
{
    causal_cost(inf, 0, 1, 5, cost);
}

/* Set *starts_p to input i, where documents start, if there is one.  Returns
 * the number of inputs taken. */
static int take_starts(const struct merak_node *node, int i,
                       struct merak_value **starts_p)
{
    if (merak_node_in_count(node) <= i)
        return 0;
    *starts_p = merak_node_in(node, i);
    return 1;
}

static enum merak_status attention_grad(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err)
{
    struct merak_value *q = merak_node_in(node, 0);
    struct merak_value *k = merak_node_in(node, 1);
    struct merak_value *v = merak_node_in(node, 2);
    struct merak_value *in[7] = {
        merak_grad_out(g, node, 0), q, k, v, merak_node_out(node, 0),
        merak_node_out(node, 1)};
    int n_in = 6 + take_starts(node, 3, &in[6]);
    struct merak_value *out[3];
    enum merak_status rc = merak_grad_only_first(g, node, err);

    if (rc != MERAK_OK ||
        (!merak_grad_wanted(g, q) && !merak_grad_wanted(g, k) &&
         !merak_grad_wanted(g, v)))
        return rc;
    rc = merak_grad_node(g, node, MERAK_PHASE_B, "attention_dx",
                         merak_node_attrs(node), n_in, in, out, err);
    for (int i = 0; i < 3 && rc == MERAK_OK; i++)
        rc = merak_grad_add(g, merak_node_in(node, i), out[i], err);
    return rc;
}

static enum merak_status attention_packed_grad(struct merak_grad *g,
                                               const struct merak_node *node,
                                               struct merak_error *err)
{
    struct merak_value *in[5] = {
        merak_grad_out(g, node, 0), merak_node_in(node, 0),
        merak_node_out(node, 0), merak_node_out(node, 1)};
    int n_in = 4 + take_starts(node, 1, &in[4]);
    enum merak_status rc = merak_grad_only_first(g, node, err);

    if (rc != MERAK_OK)
        return rc;
    return merak_grad_unary(g, node, 0, "attention_packed_dx",
                            merak_node_attrs(node), n_in, in, err);
}

static void attention_heads(const struct merak_infer *inf, size_t *kv_p,
                            size_t *query_p)
{
    const size_t *q = inf->shape[0].dim;

    *kv_p = q[2];
    *query_p = q[2] * q[3];
}

static void attention_packed_heads(const struct merak_infer *inf, size_t *kv_p,
                                   size_t *query_p)
{
    *kv_p = *query_p = inf->shape[0].dim[3];
}

#define ATTENTION_ROW(op, least, most, outs, gradient, ...) \
    MERAK_OP_WITH(op, least, most, outs, gradient,          \
                  .step_use = MERAK_STEP_DROPOUT,           \
                  .role = MERAK_ROLE_ATTENTION, __VA_ARGS__)

static const struct merak_number attention_numbers[] = {
    {"attention dropout", 'f', 0},
    {"attention window", 'i', 3},
    {"attention scale", 'f', 1},
    {"attention softcap", 'f', 2},
    {NULL, 0, 0}};

/* k, v and their gradients are read back, or what they are packed with. */
const struct merak_op merak_ops_attention[] = {
    ATTENTION_ROW(attention, 3, 4, 2, attention_grad,
                  .back_in = 1 << 1 | 1 << 2, .heads = attention_heads,
                  .numbers = attention_numbers),
    ATTENTION_ROW(attention_dx, 6, 7, 3, NULL, .back_in = 1 << 2 | 1 << 3,
                  .back_out = 1 << 1 | 1 << 2),
    ATTENTION_ROW(attention_packed, 1, 2, 2, attention_packed_grad,
                  .back_in = 1 << 0, .heads = attention_packed_heads,
                  .numbers = attention_numbers),
    ATTENTION_ROW(attention_packed_dx, 4, 5, 1, NULL, .back_in = 1 << 1,
                  .back_out = 1 << 0),
    {.name = NULL},
};
