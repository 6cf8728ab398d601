/* SPDX-License-Identifier: Apache-2.0 */
/* shard_cost.c - seconds, for choosing layouts
 *
 * Nodes cost what their kernels take, conversions a message of the words that
 * ring algorithms send, both by a cost model of device/.  Tensors of the same
 * shape and type share a table of conversions.
 */
#include "config.h"

#include "partitioner/layout/shard_impl.h"

#include "partitioner/graph/dims.h"

#include "base/error.h"
#include "base/grow.h"

#include <math.h>
#include <stdlib.h>

/* One shape and type; cost[from * MERAK_CODES + to], NAN: not computed yet. */
struct kind {
    struct merak_shape shape;
    enum merak_dtype dtype;
    double *cost;
};

struct merak_shard_costs {
    const struct merak_graph *graph;
    struct merak_mesh mesh;
    const struct merak_cost_model *cost;
    int tp;
    struct kind *kind;
    int n_kinds, kind_room;
    int *kind_of; /* by value id */
};

static bool is_kind(const struct kind *kind, const struct merak_value *v)
{
    return kind->dtype == v->dtype &&
           merak_shape_equal(&kind->shape, &v->shape);
}

static enum merak_status add_kind(struct merak_shard_costs *costs,
                                  const struct merak_value *v,
                                  struct merak_error *err)
{
    size_t cells = MERAK_CODES * MERAK_CODES;
    double *cost;
    enum merak_status rc =
        merak_grow(&costs->kind, &costs->kind_room, costs->n_kinds,
                   sizeof(*costs->kind), err);

    if (rc != MERAK_OK)
        return rc;
    cost = malloc(cells * sizeof(*cost));
    if (cost == NULL)
        return merak_fail_nomem(err, cells * sizeof(*cost));
    for (size_t i = 0; i < cells; i++)
        cost[i] = NAN;
    costs->kind[costs->n_kinds++] = (struct kind){v->shape, v->dtype, cost};
    return MERAK_OK;
}

static enum merak_status find_kinds(struct merak_shard_costs *costs,
                                    struct merak_error *err)
{
    for (int v = 0; v < costs->graph->n_values; v++) {
        const struct merak_value *value = costs->graph->value[v];
        enum merak_status rc;
        int k = 0;

        while (k < costs->n_kinds && !is_kind(&costs->kind[k], value))
            k++;
        if (k == costs->n_kinds) {
            rc = add_kind(costs, value, err);
            if (rc != MERAK_OK)
                return rc;
        }
        costs->kind_of[v] = k;
    }
    return MERAK_OK;
}

/* By default all machines get the same layouts: only the proportions of these
 * rates matter.  The latency only breaks ties, so that a small model gets the
 * layouts of a large one. */
static const struct merak_cost_model usual = {
    .flops_per_s = 1e12,
    .bytes_per_s = 1e11,
    .links.level[0] = {"link", 0, 1e-8, 1e10, 0},
};

enum merak_status merak_shard_costs_create(
    const struct merak_graph *graph, const struct merak_mesh *mesh,
    const struct merak_shard_options *opt, struct merak_shard_costs **costs_p,
    struct merak_error *err)
{
    struct merak_shard_costs *costs = calloc(1, sizeof(*costs));
    size_t n = (size_t)graph->n_values + 1;
    enum merak_status rc;

    if (costs == NULL)
        return merak_fail_nomem(err, sizeof(*costs));
    costs->graph = graph;
    costs->mesh = *mesh;
    costs->cost = opt->cost != NULL ? opt->cost : &usual;
    costs->tp = opt->tp;
    costs->kind_of = calloc(n, sizeof(*costs->kind_of));
    rc = costs->kind_of == NULL
             ? merak_fail_nomem(err, n * sizeof(*costs->kind_of))
             : find_kinds(costs, err);
    if (rc != MERAK_OK) {
        merak_shard_costs_destroy(costs);
        return rc;
    }
    *costs_p = costs;
    return MERAK_OK;
}

void merak_shard_costs_destroy(struct merak_shard_costs *costs)
{
    if (costs == NULL)
        return;
    for (int k = 0; k < costs->n_kinds; k++)
        free(costs->kind[k].cost);
    free(costs->kind);
    free(costs->kind_of);
    free(costs);
}

static double hop_seconds(const struct merak_shard_costs *costs,
                          const struct kind *kind, const struct merak_hop *hop)
{
    double item = (double)merak_dtype_bytes(kind->dtype);

    if (hop->kind == MERAK_CONVERT_SLICE)
        return merak_cost_copy(
            costs->cost,
            merak_layout_words(&costs->mesh, &hop->to, &kind->shape) * item *
                2);
    return merak_links_message_s(&costs->cost->links, 0, hop->words * item);
}

static double path_seconds(const struct merak_shard_costs *costs,
                           const struct kind *kind, int from, int to)
{
    struct merak_hop hops[MERAK_MAX_HOPS];
    struct merak_layout a, b;
    double seconds = 0;
    int n;

    merak_code_layout(&costs->mesh, from, &a);
    merak_code_layout(&costs->mesh, to, &b);
    n = merak_layout_path(&costs->mesh, &kind->shape, &a, &b, hops, NULL);
    if (n < 0)
        return INFINITY;
    for (int h = 0; h < n; h++)
        seconds += hop_seconds(costs, kind, &hops[h]);
    return seconds;
}

double merak_shard_convert_s(struct merak_shard_costs *costs, int value,
                             int from, int to)
{
    const struct kind *kind = &costs->kind[costs->kind_of[value]];
    double *cost = &kind->cost[from * MERAK_CODES + to];

    if (from == to)
        return 0;
    if (isnan(*cost))
        *cost = path_seconds(costs, kind, from, to);
    return *cost;
}

/* Every rank reads and writes the parts it holds; partial and replicated
 * tensors count in full.  A partial sum that is passed through is kept besides
 * the whole value that a later node needs, so it counts twice. */
static double local_bytes(const struct merak_shard_costs *costs,
                          const struct merak_node *node,
                          const struct merak_signature *sig,
                          const struct merak_strategy *strategy)
{
    double bytes = 0;

    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v = merak_node_operand(node, o);
        struct merak_layout layout;

        merak_strategy_layout(&costs->mesh, sig, node->n_in, strategy, o,
                              &layout);
        bytes += merak_layout_words(&costs->mesh, &layout, &v->shape) *
                 (double)merak_dtype_bytes(v->dtype);
    }
    for (int x = 0; x < costs->mesh.n_axes; x++)
        if (strategy->cut[x] == MERAK_CUT_LINEAR)
            bytes *= 2;
    return bytes;
}

double merak_shard_node_s(const struct merak_shard_costs *costs,
                          const struct merak_node *node,
                          const struct merak_signature *sig,
                          const struct merak_strategy *strategy)
{
    const struct merak_kernel_size size = {
        .flops = merak_node_cost(node).flops /
                 merak_strategy_degree(&costs->mesh, strategy),
        .bytes = local_bytes(costs, node, sig, strategy)};

    return merak_cost_kernel(costs->cost, node->op->name, costs->tp, &size);
}

/* The optimizer streams sixteen bytes per element (weight, gradient, two
 * moments) once per step. */
double merak_shard_param_s(const struct merak_shard_costs *costs, int value,
                           int code)
{
    struct merak_layout layout;

    if (costs->graph->value[value]->frozen)
        return 0;
    merak_code_layout(&costs->mesh, code, &layout);
    return 16 *
           merak_layout_words(&costs->mesh, &layout,
                              &costs->graph->value[value]->shape) /
           costs->cost->bytes_per_s / MERAK_SHARD_MICROBATCHES;
}

/* The loss and what is recycled by the next pass are needed whole. */
static bool is_whole(const struct merak_graph *graph,
                     const struct merak_value *value)
{
    bool whole = value == graph->loss;

    for (int i = 0; i < graph->n_recycling; i++)
        whole = whole || value == graph->recycling[i].out;
    return whole;
}

double merak_shard_whole_s(struct merak_shard_costs *costs,
                           const struct merak_node *node, const int *code)
{
    double cost = 0;

    for (int i = 0; i < node->n_out; i++)
        if (is_whole(costs->graph, node->out[i]))
            cost += merak_shard_convert_s(costs, node->out[i]->id, code[i], 0);
    return cost;
}
