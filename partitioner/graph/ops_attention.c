/* SPDX-License-Identifier: Apache-2.0 */
/* ops_attention.c - attention, memory linear in the sequence
 *
 * Heads and groups may be cut.  Queries (t) may be, but not the keys (S): a
 * query sees every earlier one, or all.  k and v have neither index t nor r, so
 * where one is cut (r: fewer kv heads than ranks) their gradients are partial
 * sums.  Values, and so outputs, may have other widths (E) than keys (D).  What
 * is packed is one tensor, and only its heads may be cut.
 *
 * Optional inputs follow, those of i[4]: the positions at which documents
 * start, by query; the number of keys, by sample; how many keys all queries
 * see, by sample.  Each has a part of the pattern of its own.
 *
 * With a bias a table with a number for each bucket of distances and each head
 * is added to scores (kernels/relative.h).  Its gradient is summed by sample
 * here, and over samples by attention_biased_dw.
 *
 * Sinks, a number of each head, count in sums of exponentials alone.  As o and
 * lse have them, the gradients of q, k and v do not need them: theirs is a node
 * of its own, attention_sinks_dw.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>

#define MOST_PATTERN 192

struct pattern {
    char text[MOST_PATTERN];
};

/* The pattern `in > out` with the optional inputs that there are; starts have a
 * number for each index of `positions`. */
static struct pattern pattern_of(const struct merak_infer *inf, const char *in,
                                 const char *positions, const char *out)
{
    int64_t has = inf->attrs->i[4];
    struct pattern p;

    snprintf(p.text, sizeof(p.text), "%s%s%s%s%s%s%s > %s", in,
             has & MERAK_ATTENTION_STARTS ? " starts=i:b" : "",
             has & MERAK_ATTENTION_STARTS ? positions : "",
             has & MERAK_ATTENTION_LENGTHS ? " lengths=i:b" : "",
             has & MERAK_ATTENTION_PREFIX ? " prefix=i:b" : "",
             has & MERAK_ATTENTION_BIAS ? " table=c:Ngr" : "",
             has & MERAK_ATTENTION_SINKS ? " sinks=f:gr" : "", out);
    return p;
}

#define ATTENTION                                       \
    pattern_of(inf, "q=c:btgrD k=c:bSgD v=c:bSgE", "t", \
               "o=c:btgrE lse=f:btgr")                  \
        .text
#define ATTENTION_PACKED \
    pattern_of(inf, "qkv=c:bT3hD", "T", "o=c:bThD lse=f:bTh").text
#define ATTENTION_DX                                               \
    pattern_of(inf,                                                \
               "do=c:btgrE q=c:btgrD k=c:bSgD v=c:bSgE o=c:btgrE " \
               "lse=f:btgr",                                       \
               "t", "dq=c:btgrD dk=c:bSgD dv=c:bSgE")              \
        .text
#define ATTENTION_PACKED_DX                                          \
    pattern_of(inf, "do=c:bThD qkv=c:bT3hD o=c:bThD lse=f:bTh", "T", \
               "dqkv=c:bT3hD")                                       \
        .text

#define ATTENTION_BIASED_DX                                        \
    pattern_of(inf,                                                \
               "do=c:btgrD q=c:btgrD k=c:bSgD v=c:bSgD o=c:btgrD " \
               "lse=f:btgr",                                       \
               "t", "dq=c:btgrD dk=c:bSgD dv=c:bSgD sums=f:bNgr")  \
        .text

MERAK_DIMS(attention_dx, ATTENTION_DX)
MERAK_DIMS(attention_biased_dx, ATTENTION_BIASED_DX)
MERAK_DIMS(attention_biased_dw, "sums=f:bNgr > dtable=f:Ngr")
MERAK_DIMS_SIGNATURE(attention_biased, ATTENTION)
MERAK_COST(attention_biased_dw, 1)
MERAK_DIMS(attention_sinks_dw,
           "do=c:btgrE o=c:btgrE lse=f:btgr sinks=f:gr > dsinks=f:gr")
MERAK_COST(attention_sinks_dw, 2)
MERAK_DIMS(attention_packed_dx, ATTENTION_PACKED_DX)
MERAK_DIMS_SIGNATURE(attention, ATTENTION)
MERAK_DIMS_SIGNATURE(attention_packed, ATTENTION_PACKED)

static bool is_positive_or_0(double x)
{
    return x >= 0 && isfinite(x);
}

/* All queries see all keys that there are. */
static bool sees_all(const struct merak_attrs *attrs)
{
    return attrs->i[2] < 0 && attrs->i[1] == 0;
}

/* Documents have no end for a query to see up to, nor a prefix of their own. */
static enum merak_status check_mask(const char *op,
                                    const struct merak_attrs *attrs,
                                    struct merak_error *err)
{
    bool prefix = attrs->i[4] & MERAK_ATTENTION_PREFIX;

    if (prefix && (attrs->i[1] != 0 || attrs->i[2] != 0))
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: a prefix and a window, expected either", op);
    if ((attrs->i[4] & MERAK_ATTENTION_STARTS) && (prefix || attrs->i[2] != 0))
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s: in a model with several documents per sequence "
                          "(merak_documents) attention is causal: leave out "
                          "documents, or the mask",
                          op);
    return MERAK_OK;
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
    return check_mask(op, attrs, err);
}

/* Each query has its own key, unless all see all. */
static enum merak_status check_positions(const struct merak_infer *inf,
                                         struct merak_error *err)
{
    size_t queries = inf->shape[0].dim[1], keys = inf->shape[1].dim[1];

    if (queries == keys || sees_all(inf->attrs))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "attention: q has %zu positions, k has %zu, expected as "
                      "many, or a full mask without a window",
                      queries, keys);
}

/* As many inputs as i[4] says, beside the `few` that there always are. */
static enum merak_status check_inputs(const char *op, int few,
                                      const struct merak_infer *inf,
                                      struct merak_error *err)
{
    int n = few;

    for (int64_t has = inf->attrs->i[4]; has > 0; has /= 2)
        n += (int)(has % 2);
    if (inf->n_in == n)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "%s: %d inputs, expected %d with those of i[4] = %lld",
                      op, inf->n_in, n, (long long)inf->attrs->i[4]);
}

static enum merak_status attention_infer(struct merak_infer *inf,
                                         struct merak_error *err)
{
    enum merak_status rc = check_attrs("attention", inf->attrs, err);

    if (rc == MERAK_OK)
        rc = check_inputs("attention", 3, inf, err);
    if (rc == MERAK_OK)
        rc = merak_dims_infer("attention", ATTENTION, inf, err);
    return rc != MERAK_OK ? rc : check_positions(inf, err);
}

/* Buckets are whole on each side, and the farthest is not the first of those
 * whose width grows. */
static enum merak_status check_table(const struct merak_infer *inf,
                                     struct merak_error *err)
{
    const double *f = inf->attrs->f;
    size_t n = inf->shape[inf->n_in - 1].dim[0], sides = f[4] > 0 ? 2 : 1;

    if (f[2] > 0)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "attention_biased: a bias and a soft cap, expected "
                          "either");
    if (n % (2 * sides) != 0 || n > MERAK_MAX_BUCKETS)
        return merak_fail(
            err, MERAK_ERR_PARAM,
            "attention_biased: a bias of %zu buckets %s, expected "
            "a multiple of %zu of at most %d",
            n, sides == 2 ? "both ways" : "one way", 2 * sides,
            MERAK_MAX_BUCKETS);
    if (!(f[3] > (double)n / (double)sides / 2) || f[3] > INT32_MAX)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "attention_biased: the last of %zu buckets begins at "
                          "distance %g, expected more than %zu, below which "
                          "each distance has its own",
                          n, f[3], n / sides / 2);
    return MERAK_OK;
}

static enum merak_status attention_biased_infer(struct merak_infer *inf,
                                                struct merak_error *err)
{
    enum merak_status rc = check_attrs("attention_biased", inf->attrs, err);

    if (rc == MERAK_OK)
        rc = check_inputs("attention_biased", 3, inf, err);
    if (rc == MERAK_OK)
        rc = merak_dims_infer("attention_biased", ATTENTION, inf, err);
    if (rc == MERAK_OK)
        rc = check_table(inf, err);
    return rc != MERAK_OK ? rc : check_positions(inf, err);
}

static enum merak_status attention_packed_infer(struct merak_infer *inf,
                                                struct merak_error *err)
{
    enum merak_status rc = check_attrs("attention_packed", inf->attrs, err);

    if (rc == MERAK_OK)
        rc = check_inputs("attention_packed", 1, inf, err);
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
static double most_causal(double queries, double keys, double window,
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

/* The sum of min(i, most) for i from 1 to n. */
static double ramp(double n, double most)
{
    return n <= most ? n * (n + 1) / 2
                     : most * (most + 1) / 2 + (n - most) * most;
}

/* The pairs of queries first .. first + n - 1 with the most `window` keys up to
 * their own and the most `after` behind it. */
static double pairs_around(double first, double n, double keys, double window,
                           double after)
{
    double behind = keys - first - 1; /* keys after the first query's */

    return ramp(first + n, window) - ramp(first, window) + ramp(behind, after) -
           ramp(behind - n, after);
}

/* Where queries see keys after their own, those in the middle see most, or
 * those at an end if the window is open there. */
static double most_around(double queries, double keys, double window,
                          double after)
{
    double most = 0;

    for (int place = 0; place <= 2; place++) {
        double pairs = pairs_around((keys - queries) * place / 2, queries, keys,
                                    window, after);

        most = pairs > most ? pairs : most;
    }
    return most;
}

/* Numbers of keys and prefixes of samples are not known here: all count as if
 * they were the whole sequence. */
static double most_pairs(const struct merak_attrs *attrs, double queries,
                         double keys, bool pieces)
{
    double window = attrs->i[1] > 0 ? (double)attrs->i[1] : keys;
    double after = attrs->i[2] >= 0 && (double)attrs->i[2] < keys
                       ? (double)attrs->i[2]
                       : keys;

    if (sees_all(attrs) || attrs->i[4] & MERAK_ATTENTION_PREFIX)
        return queries * keys;
    return after > 0 ? most_around(queries, keys, window, after)
                     : most_causal(queries, keys, window, pieces);
}

/*
 * Products of [T, D] by [T, D] per head, 2 D flops per pair of a query and a
 * key that it sees; masked pairs are free.  Operand o has an element for each
 * sequence, position, head and channel of the values; operand k has the keys. A
 * slice's queries are at the last positions and see the keys before them; a
 * rank's may be in two pieces.  Forward has a product of keys and one of values
 * (E in place of D), backward 3 of keys (the scores again, dQ, dK) and 2 of
 * values (dP, dV).
 *
 * Dropout draws one number per pair, in ten rounds of a generator.  That, and
 * the tanh of a soft cap, take as long as this many flops of a product
 * (instructions of the AVX2 kernels, D = 64).
 */
#define DRAW_FLOPS 72
#define CAP_FLOPS 20
static void pairs_cost(const struct merak_infer *inf, int o, int k,
                       double of_keys, double of_values,
                       struct merak_cost *cost)
{
    const struct merak_shape *out = &inf->shape[o];
    const struct merak_attrs *attrs = inf->attrs;
    double queries = (double)out->dim[1], keys = (double)inf->shape[k].dim[1];
    double D = (double)inf->shape[k].dim[inf->shape[k].ndim - 1];
    double E = (double)out->dim[out->ndim - 1];
    double heads = (double)merak_shape_count(out) / queries / E;
    double pairs = most_pairs(attrs, queries, keys, inf->pieces > 0);

    cost->flops = 2 * pairs * heads * (of_keys * D + of_values * E);
    if (attrs->f[0] > 0)
        cost->flops += DRAW_FLOPS * pairs * heads;
    if (attrs->f[2] > 0)
        cost->flops += CAP_FLOPS * pairs * heads;
    cost->bytes = merak_cost_bytes(inf);
}

static void attention_cost(const struct merak_infer *inf,
                           struct merak_cost *cost)
{
    pairs_cost(inf, inf->n_in, 1, 1, 1, cost);
}

static void attention_dx_cost(const struct merak_infer *inf,
                              struct merak_cost *cost)
{
    pairs_cost(inf, 0, 2, 3, 2, cost);
}

static void attention_biased_cost(const struct merak_infer *inf,
                                  struct merak_cost *cost)
{
    attention_cost(inf, cost);
}

static void attention_biased_dx_cost(const struct merak_infer *inf,
                                     struct merak_cost *cost)
{
    attention_dx_cost(inf, cost);
}

static void attention_packed_cost(const struct merak_infer *inf,
                                  struct merak_cost *cost)
{
    pairs_cost(inf, inf->n_in, 0, 1, 1, cost);
}

static void attention_packed_dx_cost(const struct merak_infer *inf,
                                     struct merak_cost *cost)
{
    pairs_cost(inf, 0, 1, 3, 2, cost);
}

static bool has_sinks(const struct merak_node *node)
{
    return merak_node_attrs(node)->i[4] & MERAK_ATTENTION_SINKS;
}

/* Append the optional inputs of a node with `few` others to in[n], but for
 * sinks, which are the last.  Returns how many inputs there are then. */
static int take_optional(const struct merak_node *node, int few,
                         struct merak_value **in, int n)
{
    int end = merak_node_in_count(node) - has_sinks(node);

    for (int i = few; i < end; i++)
        in[n++] = merak_node_in(node, i);
    return n;
}

/* The gradients of q, k and v by `op`, if any or `others` are wanted; out
 * receives its outputs. */
static enum merak_status grouped_grad(struct merak_grad *g,
                                      const struct merak_node *node,
                                      const char *op, bool others,
                                      struct merak_value **out,
                                      struct merak_error *err)
{
    struct merak_value *q = merak_node_in(node, 0);
    struct merak_value *k = merak_node_in(node, 1);
    struct merak_value *v = merak_node_in(node, 2);
    struct merak_value *in[10] = {
        merak_grad_out(g, node, 0), q, k, v, merak_node_out(node, 0),
        merak_node_out(node, 1)};
    struct merak_attrs attrs = *merak_node_attrs(node);
    int n_in = take_optional(node, 3, in, 6);
    enum merak_status rc = merak_grad_only_first(g, node, err);

    attrs.i[4] &= ~(int64_t)MERAK_ATTENTION_SINKS;
    if (rc != MERAK_OK ||
        (!merak_grad_wanted(g, q) && !merak_grad_wanted(g, k) &&
         !merak_grad_wanted(g, v) && !others))
        return rc;
    rc = merak_grad_node(g, node, MERAK_PHASE_B, op, &attrs, n_in, in, out,
                         err);
    for (int i = 0; i < 3 && rc == MERAK_OK; i++)
        rc = merak_grad_add(g, merak_node_in(node, i), out[i], err);
    return rc;
}

static enum merak_status attention_grad(struct merak_grad *g,
                                        const struct merak_node *node,
                                        struct merak_error *err)
{
    struct merak_value *out[3], *sinks;
    struct merak_value *in[] = {merak_grad_out(g, node, 0),
                                merak_node_out(node, 0),
                                merak_node_out(node, 1), NULL};
    enum merak_status rc =
        grouped_grad(g, node, "attention_dx", false, out, err);

    if (rc != MERAK_OK || !has_sinks(node))
        return rc;
    in[3] = sinks = merak_node_in(node, merak_node_in_count(node) - 1);
    return merak_grad_param(g, node, sinks, "attention_sinks_dw", NULL, 4, in,
                            err);
}

/* The table is the last input. */
static enum merak_status attention_biased_grad(struct merak_grad *g,
                                               const struct merak_node *node,
                                               struct merak_error *err)
{
    struct merak_value *table =
        merak_node_in(node, merak_node_in_count(node) - 1);
    struct merak_value *out[4] = {NULL};
    enum merak_status rc = grouped_grad(g, node, "attention_biased_dx",
                                        merak_grad_wanted(g, table), out, err);

    if (rc != MERAK_OK || out[3] == NULL || !merak_grad_wanted(g, table))
        return rc;
    return merak_grad_param(g, node, table, "attention_biased_dw",
                            merak_node_attrs(node), 1, &out[3], err);
}

static enum merak_status attention_packed_grad(struct merak_grad *g,
                                               const struct merak_node *node,
                                               struct merak_error *err)
{
    struct merak_value *in[7] = {
        merak_grad_out(g, node, 0), merak_node_in(node, 0),
        merak_node_out(node, 0), merak_node_out(node, 1)};
    int n_in = take_optional(node, 1, in, 4);
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

/* Any key may count that a slice of the queries does not have. */
static bool attention_looks_ahead(const struct merak_attrs *attrs)
{
    return attrs->i[2] != 0 ||
           attrs->i[4] & (MERAK_ATTENTION_LENGTHS | MERAK_ATTENTION_PREFIX);
}

/* A slice would add to sums that others have, too. */
static bool biased_looks_ahead(const struct merak_attrs *attrs)
{
    (void)attrs;
    return true;
}

#define ATTENTION_ROW(op, least, most, outs, gradient, ...) \
    MERAK_OP_WITH(op, least, most, outs, gradient,          \
                  .step_use = MERAK_STEP_DROPOUT,           \
                  .role = MERAK_ROLE_ATTENTION, __VA_ARGS__)

static const struct merak_number attention_numbers[] = {
    {"attention dropout", 'f', 0},
    {"attention window", 'i', 3},
    {"attention keys after", 'i', 2},
    {"attention scale", 'f', 1},
    {"attention softcap", 'f', 2},
    {NULL, 0, 0}};

static const struct merak_number biased_numbers[] = {
    {"attention dropout", 'f', 0},
    {"attention window", 'i', 3},
    {"attention keys after", 'i', 2},
    {"attention scale", 'f', 1},
    {"attention bias's farthest distance", 'f', 3},
    {"attention bias both ways", 'f', 4},
    {NULL, 0, 0}};

/* k, v and their gradients are read back, or what they are packed with. */
const struct merak_op merak_ops_attention[] = {
    ATTENTION_ROW(attention, 3, 7, 2, attention_grad,
                  .looks_ahead = attention_looks_ahead,
                  .back_in = 1 << 1 | 1 << 2, .heads = attention_heads,
                  .numbers = attention_numbers),
    ATTENTION_ROW(attention_dx, 6, 9, 3, NULL,
                  .looks_ahead = attention_looks_ahead,
                  .back_in = 1 << 2 | 1 << 3, .back_out = 1 << 1 | 1 << 2),
    ATTENTION_ROW(attention_packed, 1, 4, 2, attention_packed_grad,
                  .looks_ahead = attention_looks_ahead, .back_in = 1 << 0,
                  .heads = attention_packed_heads,
                  .numbers = attention_numbers),
    ATTENTION_ROW(attention_packed_dx, 4, 7, 1, NULL,
                  .looks_ahead = attention_looks_ahead, .back_in = 1 << 1,
                  .back_out = 1 << 0),
    ATTENTION_ROW(attention_biased, 4, 7, 2, attention_biased_grad,
                  .looks_ahead = biased_looks_ahead, .back_in = 1 << 1 | 1 << 2,
                  .heads = attention_heads, .numbers = biased_numbers),
    ATTENTION_ROW(attention_biased_dx, 7, 10, 4, NULL,
                  .looks_ahead = biased_looks_ahead, .back_in = 1 << 2 | 1 << 3,
                  .back_out = 1 << 1 | 1 << 2),
    MERAK_OP(attention_biased_dw, 1, 1, 1, NULL),
    MERAK_OP_WITH(attention_sinks_dw, 4, 4, 1, NULL,
                  .step_use = MERAK_STEP_NONE),
    {.name = NULL},
};
