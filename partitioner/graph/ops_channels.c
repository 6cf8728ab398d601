/* SPDX-License-Identifier: Apache-2.0 */
/* ops_channels.c - norms of groups of channels, and channels beside one another
 *
 * A norm is two ops: sums of each channel of each sample, and what is made of
 * them.  Where ranks have parts of the points, the first one's are partial
 * sums, which the layout search has added; nothing else knows of that.
 */
#include "config.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <string.h>

/* --- norms -----------------------------------------------------------------
 */

/* Sums of x, and of products with `by`, or else of squares. */
MERAK_DIMS(channel_sums, inf->n_in > 1 ? "x=c:b*c by=c:b*c > sums=d:bc2"
                                       : "x=c:b*c > sums=d:bc2")

/* A group may have channels of several ranks, or samples: all of them are read,
 * of the others those of the rank. */
#define NORM "x=c:b*c sums=d:bG2 gamma=f:c beta=f:c > y=c:b*c"
#define BATCH                                                            \
    "x=c:b*c sums=d:Nc2 gamma=f:c beta=f:c mean=f:c variance=f:c > y=c:" \
    "b*c"
#define SHARED(of_samples, of_channels) \
    (inf->attrs->i[1] > 1 ? (of_samples) : (of_channels))
#define NORM_DX                                                            \
    SHARED("dy=c:b*c x=c:b*c sums=d:Nc2 dsums=d:Nc2 gamma=f:c > dx=c:b*c", \
           "dy=c:b*c x=c:b*c sums=d:bG2 dsums=d:bG2 gamma=f:G > dx=c:b*c")
#define NORM_DW                                             \
    SHARED("sums=d:Nc2 dsums=d:bc2 > dgamma=f:c dbeta=f:c", \
           "sums=d:bG2 dsums=d:bc2 > dgamma=f:c dbeta=f:c")
#define STATS "sums=d:Nc2 > mean=f:c variance=f:c"
MERAK_DIMS_SIGNATURE(channel_norm, NORM)
MERAK_DIMS_SIGNATURE(batch_norm, BATCH)
MERAK_DIMS_SIGNATURE(channel_norm_dx, NORM_DX)
MERAK_DIMS_SIGNATURE(channel_norm_dw, NORM_DW)
MERAK_DIMS_SIGNATURE(batch_stats, STATS)

/* Are there sums, operand o, of so many samples and channels, and do groups
 * divide these? */
static enum merak_status check_groups(const char *op,
                                      const struct merak_infer *inf, int o,
                                      size_t samples, size_t channels,
                                      bool batch, struct merak_error *err)
{
    int64_t k = inf->attrs->i[0], n = inf->attrs->i[1];
    const struct merak_shape *sums = &inf->shape[o];
    char text[MERAK_SHAPE_TEXT];

    if (sums->dim[0] != samples || sums->dim[1] != channels)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: sums are %s, expected those of %zu samples and "
                          "%zu channels",
                          op, merak_shape_print(sums, text), samples, channels);
    if (n >= 1 && samples % (size_t)n == 0 && k >= 1 &&
        channels % (size_t)k == 0 && (k == 1 || (n == 1 && !batch)))
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_PARAM,
                      "%s: groups of %lld channels of %lld samples, expected a "
                      "number that divides %zu channels of 1 sample, or 1 "
                      "channel of a number that divides %zu samples",
                      op, (long long)k, (long long)n, channels, samples);
}

/* Defines OP_infer; x and sums are numbers of operands: samples and channels
 * are those of x, the latter its dim `c` from the last. */
#define NORM_INFER(op, pattern, x, c, sums, batch)                       \
    static enum merak_status op##_infer(struct merak_infer *inf,         \
                                        struct merak_error *err)         \
    {                                                                    \
        enum merak_status rc = merak_dims_infer(#op, pattern, inf, err); \
        const struct merak_shape *of = &inf->shape[x];                   \
                                                                         \
        return rc != MERAK_OK                                            \
                   ? rc                                                  \
                   : check_groups(#op, inf, sums, of->dim[0],            \
                                  of->dim[of->ndim - (c)], batch, err);  \
    }
NORM_INFER(channel_norm, NORM, 0, 1, 1, false)
NORM_INFER(batch_norm, BATCH, 0, 1, 1, true)
NORM_INFER(channel_norm_dx, NORM_DX, 0, 1, 2, false)
NORM_INFER(channel_norm_dw, NORM_DW, 1, 2, 0, false)
NORM_INFER(batch_stats, STATS, 0, 2, 0, true)

MERAK_COST(channel_sums, 3)
MERAK_COST(channel_norm, 3)
MERAK_COST(batch_norm, 3)
MERAK_COST(batch_stats, 2)
MERAK_COST(channel_norm_dx, 5)
MERAK_COST(channel_norm_dw, 3)

/* What the averages of a batch norm, if it is one, move to. */
static enum merak_status add_stats(struct merak_grad *g,
                                   const struct merak_node *node,
                                   const struct merak_attrs *attrs,
                                   struct merak_error *err)
{
    struct merak_value *sums = merak_node_in(node, 1), *stats[2];
    enum merak_status rc;

    if (merak_node_in_count(node) < 6 ||
        (!merak_grad_wanted(g, merak_node_in(node, 4)) &&
         !merak_grad_wanted(g, merak_node_in(node, 5))))
        return MERAK_OK;
    rc = merak_grad_node(g, node, MERAK_PHASE_W, "batch_stats", attrs, 1, &sums,
                         stats, err);
    for (int i = 0; i < 2 && rc == MERAK_OK; i++)
        rc = merak_grad_add(g, merak_node_in(node, 4 + i), stats[i], err);
    return rc;
}

/* Sums have no gradient of their own: dx is that of the whole norm. */
static enum merak_status channel_norm_grad(struct merak_grad *g,
                                           const struct merak_node *node,
                                           struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    struct merak_value *x = merak_node_in(node, 0);
    struct merak_value *sums = merak_node_in(node, 1);
    struct merak_value *gamma = merak_node_in(node, 2);
    struct merak_value *beta = merak_node_in(node, 3);
    struct merak_attrs attrs = *merak_node_attrs(node);
    const struct merak_shape *shape = merak_value_shape(x);
    struct merak_value *dsums, *dw[2];
    enum merak_status rc;

    rc = merak_grad_node(g, node, MERAK_PHASE_B, "channel_sums", NULL, 2,
                         (struct merak_value *[]){dy, x}, &dsums, err);
    if (rc == MERAK_OK)
        rc = merak_grad_unary(
            g, node, 0, "channel_norm_dx", &attrs, 5,
            (struct merak_value *[]){dy, x, sums, dsums, gamma}, err);
    attrs.i[3] = 1;
    for (int d = 1; d < shape->ndim - 1; d++)
        attrs.i[3] *= (int64_t)shape->dim[d];
    if (rc == MERAK_OK)
        rc = add_stats(g, node, &attrs, err);
    if (rc != MERAK_OK ||
        (!merak_grad_wanted(g, gamma) && !merak_grad_wanted(g, beta)))
        return rc;
    rc = merak_grad_node(g, node, MERAK_PHASE_W, "channel_norm_dw", &attrs, 2,
                         (struct merak_value *[]){sums, dsums}, dw, err);
    if (rc == MERAK_OK)
        rc = merak_grad_add(g, gamma, dw[0], err);
    return rc != MERAK_OK ? rc : merak_grad_add(g, beta, dw[1], err);
}

/* --- beside one another ----------------------------------------------------
 */

#define MOST_PARTS 4

/* Only the last dims differ. */
static const char *concat_pattern(const struct merak_infer *inf)
{
    static const char *const pattern[MOST_PARTS + 1] = {
        [2] = "x=c:*G x2=c:*R > y=c:*O",
        [3] = "x=c:*G x2=c:*R x3=c:*C > y=c:*O",
        [4] = "x=c:*G x2=c:*R x3=c:*C x4=c:*D > y=c:*O"};

    return pattern[inf->n_in];
}

static enum merak_status concat_infer(struct merak_infer *inf,
                                      struct merak_error *err)
{
    struct merak_dims dims;
    enum merak_status rc =
        merak_dims_parse(&dims, "concat", concat_pattern(inf), inf, err);

    for (int o = 0; rc == MERAK_OK && o < inf->n_in; o++) {
        if (inf->shape[o].ndim > 0)
            dims.extent['O'] += inf->shape[o].dim[inf->shape[o].ndim - 1];
    }
    return rc != MERAK_OK ? rc : merak_dims_solve(&dims, inf, err);
}

static void concat_signature(const struct merak_infer *inf,
                             struct merak_signature *sig)
{
    merak_dims_signature("concat", concat_pattern(inf), inf, sig);
}

/* Channels i[0] .. i[0] + i[1] - 1. */
#define CONCAT_DX "dy=c:*O > dx=c:*G"
MERAK_DIMS_SIGNATURE(concat_dx, CONCAT_DX)

static enum merak_status concat_dx_infer(struct merak_infer *inf,
                                         struct merak_error *err)
{
    int64_t from = inf->attrs->i[0], n = inf->attrs->i[1];
    const struct merak_shape *dy = &inf->shape[0];
    char text[MERAK_SHAPE_TEXT];
    struct merak_dims dims;
    enum merak_status rc =
        merak_dims_parse(&dims, "concat_dx", CONCAT_DX, inf, err);

    if (rc != MERAK_OK)
        return rc;
    if (from < 0 || n < 1 || n > (int64_t)dy->dim[dy->ndim - 1] - from)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "concat_dx: %lld channels from %lld on, expected "
                          "some of dy's, which is %s",
                          (long long)n, (long long)from,
                          merak_shape_print(dy, text));
    dims.extent['G'] = (size_t)n;
    return merak_dims_solve(&dims, inf, err);
}

MERAK_COST(concat, 0)
MERAK_COST(concat_dx, 0)

static enum merak_status concat_grad(struct merak_grad *g,
                                     const struct merak_node *node,
                                     struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0);
    struct merak_attrs attrs = {.i = {0}};
    enum merak_status rc = MERAK_OK;

    for (int o = 0; o < merak_node_in_count(node) && rc == MERAK_OK; o++) {
        const struct merak_shape *x = merak_value_shape(merak_node_in(node, o));

        attrs.i[1] = (int64_t)x->dim[x->ndim - 1];
        rc = merak_grad_unary(g, node, o, "concat_dx", &attrs, 1, &dy, err);
        attrs.i[0] += attrs.i[1];
    }
    return rc;
}

#define CONCAT_SHARED "shared=c:btG x=c:bthR > y=c:bthO"
/* Ranks have in it the heads that they have in the forward op, whose index has
 * the same name. */
#define CONCAT_SHARED_DX "dy=c:bthO > dshared=c:btG dx=c:bthR"
MERAK_DIMS_SIGNATURE(concat_shared, CONCAT_SHARED)
MERAK_DIMS_SIGNATURE(concat_shared_dx, CONCAT_SHARED_DX)

static enum merak_status concat_shared_infer(struct merak_infer *inf,
                                             struct merak_error *err)
{
    struct merak_dims dims;
    enum merak_status rc =
        merak_dims_parse(&dims, "concat_shared", CONCAT_SHARED, inf, err);

    if (rc == MERAK_OK && inf->shape[0].ndim == 3 && inf->shape[1].ndim == 4)
        dims.extent['O'] = inf->shape[0].dim[2] + inf->shape[1].dim[3];
    return rc != MERAK_OK ? rc : merak_dims_solve(&dims, inf, err);
}

static enum merak_status concat_shared_dx_infer(struct merak_infer *inf,
                                                struct merak_error *err)
{
    const struct merak_shape *dy = &inf->shape[0];
    int64_t n = inf->attrs->i[0];
    char text[MERAK_SHAPE_TEXT];
    struct merak_dims dims;
    enum merak_status rc =
        merak_dims_parse(&dims, "concat_shared_dx", CONCAT_SHARED_DX, inf, err);

    if (rc != MERAK_OK)
        return rc;
    if (dy->ndim != 4 || n < 1 || n >= (int64_t)dy->dim[3])
        return merak_fail(err, MERAK_ERR_PARAM,
                          "concat_shared_dx: %lld channels that heads share, "
                          "expected fewer than dy has, which is %s",
                          (long long)n, merak_shape_print(dy, text));
    dims.extent['G'] = (size_t)n;
    dims.extent['R'] = dy->dim[3] - (size_t)n;
    return merak_dims_solve(&dims, inf, err);
}

MERAK_COST(concat_shared, 0)
MERAK_COST(concat_shared_dx, 1)

static enum merak_status concat_shared_grad(struct merak_grad *g,
                                            const struct merak_node *node,
                                            struct merak_error *err)
{
    struct merak_value *dy = merak_grad_out(g, node, 0), *out[2];
    struct merak_value *shared = merak_node_in(node, 0);
    struct merak_value *x = merak_node_in(node, 1);
    const struct merak_attrs attrs = {
        .i = {(int64_t)merak_value_shape(shared)->dim[2]}};
    enum merak_status rc;

    if (!merak_grad_wanted(g, shared) && !merak_grad_wanted(g, x))
        return MERAK_OK;
    rc = merak_grad_node(g, node, MERAK_PHASE_B, "concat_shared_dx", &attrs, 1,
                         &dy, out, err);
    if (rc == MERAK_OK)
        rc = merak_grad_add(g, shared, out[0], err);
    return rc != MERAK_OK ? rc : merak_grad_add(g, x, out[1], err);
}

static const struct merak_number norm_numbers[] = {
    {"channel norm eps", 'f', 0},
    {"channel norm channels", 'i', 0},
    {"channel norm samples", 'i', 1},
    {NULL, 0, 0}};

const struct merak_op merak_ops_channels[] = {
    MERAK_OP_WITH(channel_sums, 1, 2, 1, NULL, .step_use = MERAK_STEP_NONE,
                  .numbers = merak_no_numbers),
    MERAK_OP_WITH(channel_norm, 4, 4, 1, channel_norm_grad,
                  .step_use = MERAK_STEP_NONE, .numbers = norm_numbers),
    MERAK_OP_WITH(batch_norm, 6, 6, 1, channel_norm_grad,
                  .step_use = MERAK_STEP_ANY, .numbers = norm_numbers),
    MERAK_OP(batch_stats, 1, 1, 2, NULL),
    MERAK_OP(channel_norm_dx, 5, 5, 1, NULL),
    MERAK_OP(channel_norm_dw, 2, 2, 2, NULL),
    MERAK_OP_WITH(concat, 2, MOST_PARTS, 1, concat_grad,
                  .step_use = MERAK_STEP_NONE, .numbers = merak_no_numbers),
    MERAK_OP(concat_dx, 1, 1, 1, NULL),
    MERAK_OP_WITH(concat_shared, 2, 2, 1, concat_shared_grad,
                  .step_use = MERAK_STEP_NONE, .numbers = merak_no_numbers),
    MERAK_OP(concat_shared_dx, 1, 1, 2, NULL),
    {.name = NULL},
};
