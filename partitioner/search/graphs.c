/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.c - a model's graphs by micro-batch size, described once each, and a
 * cache of the latest sharded ones
 *
 * A plan's other cuts, schedules and degrees of the same tp are tried one after
 * the other; sharding the model and finding its blocks each time would take
 * longer than building their programs.
 */
#include "config.h"

#include "partitioner/search/graphs.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEPT 16
/* Most nodes of all sharded graphs that are kept; one graph may have more. */
#define MOST_NODES 5000

struct merak_graphs {
    struct merak_models models;
    struct kept {
        struct merak_plan plan; /* that it was sharded for */
        struct merak_sharded *sharded;
    } kept[MAX_KEPT + 1]; /* the latest first */
    int n_kept;
    int users;        /* searches for the same model */
    bool knows_state; /* state and experts are set */
    struct merak_state state;
    size_t experts;
    long n_sharded, n_records; /* so far; records: see struct merak_sharded */
};

enum merak_status merak_graphs_create(const struct merak_search_input *in,
                                      struct merak_graphs **graphs_p,
                                      struct merak_error *err)
{
    struct merak_graphs *graphs = calloc(1, sizeof(*graphs));

    if (graphs == NULL)
        return merak_fail_nomem(err, sizeof(*graphs));
    graphs->models = (struct merak_models){.seq = in->seq,
                                           .dtype = in->dtype,
                                           .grad_dtype = in->pin.grad_dtype,
                                           .describe = in->describe,
                                           .arg = in->arg};
    graphs->users = 1;
    *graphs_p = graphs;
    return MERAK_OK;
}

struct merak_graphs *merak_graphs_share(struct merak_graphs *graphs)
{
    graphs->users++;
    return graphs;
}

void merak_graphs_destroy(struct merak_graphs *graphs)
{
    if (graphs == NULL || --graphs->users > 0)
        return;
    for (int i = 0; i < graphs->n_kept; i++)
        merak_sharded_destroy(graphs->kept[i].sharded);
    merak_models_fini(&graphs->models);
    free(graphs);
}

/* --- sharded graphs ------------------------------------------------------- */

/* Move the cached graph of such a plan to the front; false if none. */
static bool take_kept(struct merak_graphs *graphs,
                      const struct merak_plan *plan)
{
    struct kept *kept = graphs->kept, found;
    int at = 0;

    while (at < graphs->n_kept &&
           !merak_plan_shards_alike(&kept[at].plan, plan))
        at++;
    if (at == graphs->n_kept)
        return false;
    found = kept[at];
    memmove(&kept[1], &kept[0], (size_t)at * sizeof(*kept));
    kept[0] = found;
    return true;
}

static void keep(struct merak_graphs *graphs, const struct kept *new)
{
    struct kept *kept = graphs->kept;
    int nodes = 0, n = 0;

    memmove(&kept[1], &kept[0], (size_t)graphs->n_kept * sizeof(*kept));
    kept[0] = *new;
    graphs->n_kept++;
    while (n < graphs->n_kept && n < MAX_KEPT &&
           (n == 0 || nodes + kept[n].sharded->graph->n_nodes <= MOST_NODES))
        nodes += kept[n++].sharded->graph->n_nodes;
    while (graphs->n_kept > n)
        merak_sharded_destroy(kept[--graphs->n_kept].sharded);
}

static enum merak_status find_graph(struct merak_graphs *graphs,
                                    size_t micro_batch,
                                    const struct merak_expert_form *form,
                                    struct merak_graph **graph_p,
                                    struct merak_error *err)
{
    return merak_models_find(&graphs->models, micro_batch, form, NULL, graph_p,
                             err);
}

enum merak_status merak_graphs_describe(struct merak_graphs *graphs,
                                        const struct merak_plan *plan,
                                        struct merak_graph **graph_p,
                                        struct merak_error *err)
{
    const struct merak_expert_form form = merak_plan_experts(plan);

    return find_graph(graphs, plan->micro_batch, &form, graph_p, err);
}

/* Experts of one rank. */
static const struct merak_expert_form undivided;

/* --- state ---------------------------------------------------------------- */

/* As in program/params.c; an unused parameter has no state. */
static void add_value(const struct merak_value *value, bool used,
                      struct merak_state *state)
{
    double n = (double)merak_shape_count(&value->shape);
    double bytes = (double)merak_dtype_bytes(value->dtype);

    if (value->kind == MERAK_VALUE_PARAM_GRAD) {
        state->whole += bytes * n;
    } else if (value->kind == MERAK_VALUE_PARAM && used) {
        state->whole += bytes * n;
        if (value->frozen)
            return;
        state->parted += (value->dtype == MERAK_F32 ? 8 : 12) * n;
    }
}

static enum merak_status count_state(const struct merak_graph *graph,
                                     struct merak_state *state,
                                     struct merak_error *err)
{
    size_t n = (size_t)graph->n_values + 1;
    bool *used = calloc(n, sizeof(*used));

    if (used == NULL)
        return merak_fail_nomem(err, n * sizeof(*used));
    for (int i = 0; i < graph->n_nodes; i++) {
        for (int k = 0; k < graph->node[i]->n_in; k++)
            used[graph->node[i]->in[k]->id] = true;
    }
    for (int v = 0; v < graph->n_values; v++)
        add_value(graph->value[v], used[v], state);
    free(used);
    return MERAK_OK;
}

enum merak_status merak_graphs_state(struct merak_graphs *graphs,
                                     struct merak_state *state,
                                     struct merak_error *err)
{
    struct merak_graph *graph;
    enum merak_status rc = MERAK_OK;

    if (!graphs->knows_state) {
        rc = find_graph(graphs, 1, &undivided, &graph, err);
        if (rc == MERAK_OK) {
            graphs->experts = merak_shard_experts(graph);
            rc = count_state(graph, &graphs->state, err);
        }
        graphs->knows_state = rc == MERAK_OK;
    }
    *state = graphs->state;
    return rc;
}

size_t merak_graphs_experts(struct merak_graphs *graphs)
{
    struct merak_state state;

    return merak_graphs_state(graphs, &state, NULL) == MERAK_OK
               ? graphs->experts
               : 0;
}

static double param_bytes(struct merak_value *const *value, int n)
{
    double bytes = 0;

    for (int i = 0; i < n; i++) {
        if (value[i]->kind == MERAK_VALUE_PARAM ||
            value[i]->kind == MERAK_VALUE_PARAM_GRAD)
            bytes += (double)merak_value_bytes(value[i]);
    }
    return bytes;
}

static double least_s(const struct merak_cost_model *cost,
                      const struct merak_node *node)
{
    struct merak_cost of = merak_node_cost(node);
    double bytes = of.bytes - param_bytes(node->in, node->n_in) -
                   param_bytes(node->out, node->n_out);

    return merak_cost_roofline(cost, node->op,
                               &(struct merak_kernel_size){
                                   .flops = of.flops, .bytes = fmax(bytes, 0)});
}

enum merak_status merak_graphs_least_s(struct merak_graphs *graphs,
                                       const struct merak_cost_model *cost,
                                       double *seconds_p,
                                       struct merak_error *err)
{
    struct merak_graph *graph;
    enum merak_status rc = find_graph(graphs, 1, &undivided, &graph, err);

    *seconds_p = 0;
    for (int i = 0; rc == MERAK_OK && i < graph->n_nodes; i++)
        *seconds_p += least_s(cost, graph->node[i]);
    return rc;
}

/* --- sharding ------------------------------------------------------------- */

enum merak_status merak_graphs_shard(struct merak_graphs *graphs,
                                     const struct merak_plan *plan,
                                     const struct merak_deadline *deadline,
                                     const struct merak_sharded **sharded_p,
                                     struct merak_error *err)
{
    struct kept new = {.plan = *plan};
    struct merak_assembly assembly = {.plan = *plan, .deadline = deadline};
    struct merak_graph *graph;
    enum merak_status rc = MERAK_OK;

    if (!take_kept(graphs, plan)) {
        rc = merak_graphs_describe(graphs, plan, &graph, err);
        if (rc == MERAK_OK)
            rc = merak_assemble(&assembly, graph, NULL, MERAK_ASSEMBLY_SHARDED,
                                err);
        if (rc != MERAK_OK)
            return rc;
        new.sharded = assembly.own;
        graphs->n_sharded++;
        graphs->n_records += new.sharded->records;
        keep(graphs, &new);
    }
    *sharded_p = graphs->kept[0].sharded;
    return MERAK_OK;
}

void merak_graphs_count(const struct merak_graphs *graphs,
                        struct merak_search_tally *tally)
{
    tally->sharded += graphs->n_sharded;
    tally->records += graphs->n_records;
}
