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
#include "partitioner/graph/letters.h"

#include "base/error.h"
#include "base/grow.h"

#include <math.h>
#include <stdlib.h>

/* One shape and type. */
struct kind {
    struct merak_shape shape;
    enum merak_dtype dtype;
    int n_layouts;
    int16_t code[MERAK_KIND_LAYOUTS]; /* by number */
    int16_t *number;                  /* by code, -1: none yet */
    double *cost; /* [from][to] by number, NAN: not computed yet */
};

struct merak_shard_costs {
    const struct merak_graph *graph;
    struct merak_mesh mesh;
    const struct merak_cost_model *cost;
    int tp;
    size_t pieces; /* of sequences: of those that are cut */
    struct kind *kind;
    int n_kinds, kind_room;
    int *kind_of; /* by value id */
    int too_many; /* a value with too many layouts, or -1 */
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
    size_t cells = MERAK_KIND_LAYOUTS * MERAK_KIND_LAYOUTS;
    struct kind kind = {.shape = v->shape, .dtype = v->dtype};
    enum merak_status rc =
        merak_grow(&costs->kind, &costs->kind_room, costs->n_kinds,
                   sizeof(*costs->kind), err);

    if (rc != MERAK_OK)
        return rc;
    kind.cost = malloc(cells * sizeof(*kind.cost));
    kind.number = malloc(MERAK_CODES * sizeof(*kind.number));
    costs->kind[costs->n_kinds++] = kind;
    if (kind.cost == NULL || kind.number == NULL)
        return merak_fail_nomem(err, cells * sizeof(*kind.cost));
    for (size_t i = 0; i < cells; i++)
        kind.cost[i] = NAN;
    for (int c = 0; c < MERAK_CODES; c++)
        kind.number[c] = -1;
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
    costs->tp = opt->tp * (opt->cp > 1 ? opt->cp : 1);
    costs->pieces = merak_shard_pieces(graph, opt);
    costs->too_many = -1;
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
    for (int k = 0; k < costs->n_kinds; k++) {
        free(costs->kind[k].cost);
        free(costs->kind[k].number);
    }
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

int merak_shard_layout_number(struct merak_shard_costs *costs, int value,
                              int code)
{
    struct kind *kind = &costs->kind[costs->kind_of[value]];

    if (kind->number[code] >= 0)
        return kind->number[code];
    if (kind->n_layouts == MERAK_KIND_LAYOUTS) {
        costs->too_many = value;
        return 0;
    }
    kind->code[kind->n_layouts] = (int16_t)code;
    kind->number[code] = (int16_t)kind->n_layouts;
    return kind->n_layouts++;
}

int merak_shard_numbered_code(const struct merak_shard_costs *costs, int value,
                              int number)
{
    return costs->kind[costs->kind_of[value]].code[number];
}

int merak_shard_layout_numbers(const struct merak_shard_costs *costs, int value)
{
    return costs->kind[costs->kind_of[value]].n_layouts;
}

enum merak_status merak_shard_costs_check(const struct merak_shard_costs *costs,
                                          struct merak_error *err)
{
    if (costs->too_many < 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                      "%s may have more than %d layouts over %d axes, expected "
                      "fewer; use a tp that divides the kv heads",
                      costs->graph->value[costs->too_many]->name,
                      MERAK_KIND_LAYOUTS, costs->mesh.n_axes);
}

double merak_shard_convert_s(struct merak_shard_costs *costs, int value,
                             int from, int to)
{
    const struct kind *kind = &costs->kind[costs->kind_of[value]];
    double *cost;

    if (from == to)
        return 0;
    cost = &kind->cost[merak_shard_layout_number(costs, value, from) *
                           MERAK_KIND_LAYOUTS +
                       merak_shard_layout_number(costs, value, to)];
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

/* Is it attention, with its queries cut? */
static bool cuts_queries(const struct merak_shard_costs *costs,
                         const struct merak_node *node,
                         const struct merak_signature *sig,
                         const struct merak_strategy *strategy)
{
    for (int x = 0; x < costs->mesh.n_axes; x++) {
        if (strategy->cut[x] >= 0 && node->op->back_in != 0 &&
            sig->index[strategy->cut[x]].name == MERAK_LETTER_POSITIONS)
            return true;
    }
    return false;
}

/* Of the rank with most pairs of queries and keys: all wait for it. */
static double most_queries_flops(const struct merak_shard_costs *costs,
                                 const struct merak_node *node,
                                 const struct merak_signature *sig,
                                 const struct merak_strategy *strategy,
                                 size_t pieces)
{
    struct merak_infer inf;
    struct merak_cost cost = {0};

    merak_node_infer(node, &inf);
    inf.pieces = pieces;
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        for (int x = 0; x < costs->mesh.n_axes; x++) {
            int cut = strategy->cut[x];

            for (int d = 0; d < inf.shape[o].ndim && cut >= 0; d++) {
                if (sig->operand_dim[o][d] == cut)
                    inf.shape[o].dim[d] /= (size_t)costs->mesh.axis[x].size;
            }
        }
    }
    node->op->cost(&inf, &cost);
    return cost.flops;
}

double merak_shard_queries_flops(const struct merak_shard_costs *costs,
                                 const struct merak_node *node,
                                 const struct merak_signature *sig,
                                 const struct merak_strategy *strategy,
                                 size_t pieces)
{
    return cuts_queries(costs, node, sig, strategy)
               ? most_queries_flops(costs, node, sig, strategy, pieces)
               : 0;
}

double merak_shard_node_s(const struct merak_shard_costs *costs,
                          const struct merak_node *node,
                          const struct merak_signature *sig,
                          const struct merak_strategy *strategy)
{
    const struct merak_kernel_size size = {
        .flops =
            cuts_queries(costs, node, sig, strategy)
                ? most_queries_flops(costs, node, sig, strategy, costs->pieces)
                : merak_node_cost(node).flops /
                      merak_strategy_degree(&costs->mesh, strategy),
        .bytes = local_bytes(costs, node, sig, strategy)};

    return merak_cost_kernel(costs->cost, node->op, costs->tp, &size);
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

/* Elements that the busiest rank receives of its neighbours along an axis. */
static double halo_words(const struct merak_mesh *mesh,
                         const struct merak_shape *shape,
                         const struct merak_layout *from,
                         const struct merak_layout *to)
{
    int ranks = 1;
    size_t most = 0;

    for (int x = 0; x < mesh->n_axes; x++)
        ranks *= mesh->axis[x].size;
    for (int r = 0; r < ranks; r++) {
        int coord[MERAK_MAX_AXES] = {0}, rest = r;
        struct merak_box had, has;
        size_t words;

        for (int x = mesh->n_axes - 1; x >= 0; rest /= mesh->axis[x--].size)
            coord[x] = rest % mesh->axis[x].size;
        merak_layout_box(mesh, from, shape, coord, &had);
        merak_layout_box(mesh, to, shape, coord, &has);
        words = merak_box_count(&has) - merak_box_count(&had);
        most = words > most ? words : most;
    }
    return (double)most;
}

double merak_shard_halos_s(const struct merak_shard_costs *costs,
                           const struct merak_sharded *sharded)
{
    double seconds = 0;

    for (int n = 0; n < sharded->graph->n_nodes; n++) {
        const struct merak_hop *hop = &sharded->hop[n];
        const struct merak_value *v = sharded->graph->node[n]->in[0];

        if (hop->kind == MERAK_CONVERT_HALO)
            seconds += merak_links_message_s(
                &costs->cost->links, 0,
                halo_words(&sharded->mesh, &v->shape, &sharded->layout[v->id],
                           &hop->to) *
                    (double)merak_dtype_bytes(v->dtype));
    }
    return seconds;
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
