/* SPDX-License-Identifier: Apache-2.0 */
/* loads.c - how evenly a step loaded the experts, over all ranks */
#include "config.h"

#include "runtime/train/loads.h"

#include "base/error.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/layer_names.h"
#include "runtime/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums over all ranks and micro-batches of what the graph reports, in its
 * order. */
struct merak_loads {
    double *sum;
    size_t n;
    int *layer; /* by forward node */
};

enum merak_status merak_loads_open(struct merak_trainer *t,
                                   struct merak_error *err)
{
    const struct merak_graph *graph = t->program->sharded->graph;
    struct merak_loads *l;
    size_t n = 0;

    for (int v = 0; v < graph->n_values; v++)
        n += graph->value[v]->reported
                 ? merak_shape_count(&graph->value[v]->shape)
                 : 0;
    if (n == 0)
        return MERAK_OK;
    l = calloc(1, sizeof(*l));
    if (l == NULL)
        return merak_fail_nomem(err, sizeof(*l));
    t->reports.loads = l;
    l->n = n;
    l->sum = calloc(n, sizeof(*l->sum));
    l->layer = calloc((size_t)graph->n_forward, sizeof(*l->layer));
    if (l->sum == NULL || l->layer == NULL)
        return merak_fail_nomem(err, n * sizeof(*l->sum));
    merak_layers_mark(graph, l->layer);
    /* which allocates, as a step may not */
    return merak_all_reduce_sum(t->tr, &t->world, l->sum, n, err);
}

void merak_loads_close(struct merak_trainer *t)
{
    if (t->reports.loads != NULL) {
        free(t->reports.loads->sum);
        free(t->reports.loads->layer);
    }
    free(t->reports.loads);
    t->reports.loads = NULL;
}

/* This rank's part of a value, at its place among all.  Losses, which are
 * before the counts, are means over the sequences of a replica, which may be
 * more in one stage than in another: their sums over sequences. */
static void add_part(struct merak_trainer *t, const struct merak_report *r,
                     double *sum)
{
    const struct merak_program *p = t->program;
    const double *part = merak_slot_host(t, p, p->reports);
    size_t n = r->n * (size_t)p->plan.microbatches;

    for (size_t i = 0; i < n && r->counts; i++) {
        bool mean = r->n > 1 && i % r->n < MERAK_TALLY_LOSSES;

        sum[i % r->n] += part[r->at + i] * (mean ? (double)p->mesh.batch : 1);
    }
}

/* Of the rows of each expert, the most over the mean, if that is more than in
 * other layers. */
static void take_most(const double *rows, size_t n, int layer,
                      struct merak_step_values *v)
{
    size_t most = 0;
    double all = 0, load;

    for (size_t e = 0; e < n; e++) {
        most = rows[e] > rows[most] ? e : most;
        all += rows[e];
    }
    load = rows[most] * (double)n / all;
    if (!(all > 0) || load <= v->load_max)
        return;
    v->load_max = load;
    v->load_layer = layer;
    v->load_expert = (double)most;
}

static void add_value(const struct merak_loads *l,
                      const struct merak_graph *graph,
                      const struct merak_value *value, const double *sum,
                      struct merak_step_values *v, int *layers)
{
    const struct merak_node *node = graph->node[value->producer];
    size_t n = merak_shape_count(&value->shape);

    if (n == 1) {
        if (node->op->role == MERAK_ROLE_DROPPED)
            v->dropped_rows += round(*sum);
        else
            v->overflow_rows += round(*sum);
        return;
    }
    ++*layers;
    v->aux += sum[0];
    v->router_z += sum[1];
    take_most(sum + MERAK_TALLY_LOSSES, n - MERAK_TALLY_LOSSES,
              l->layer[value->producer], v);
}

enum merak_status merak_loads_step(struct merak_trainer *t,
                                   struct merak_step_values *v,
                                   struct merak_error *err)
{
    const struct merak_graph *graph = t->program->sharded->graph;
    struct merak_loads *l = t->reports.loads;
    enum merak_status rc;
    size_t at = 0;
    int layers = 0;

    v->aux = v->router_z = v->load_max = v->overflow_rows = NAN;
    v->load_layer = v->load_expert = v->dropped_rows = NAN;
    if (l == NULL)
        return MERAK_OK;
    memset(l->sum, 0, l->n * sizeof(*l->sum));
    for (int i = 0, k = 0; i < graph->n_values; i++) {
        if (!graph->value[i]->reported)
            continue;
        if (k < t->program->n_reports && t->program->report[k].value == i)
            add_part(t, &t->program->report[k++], l->sum + at);
        at += merak_shape_count(&graph->value[i]->shape);
    }
    rc = merak_all_reduce_sum(t->tr, &t->world, l->sum, l->n, err);
    if (rc != MERAK_OK)
        return rc;
    v->aux = v->router_z = v->overflow_rows = v->dropped_rows = at = 0;
    for (int i = 0; i < graph->n_values; i++) {
        if (!graph->value[i]->reported)
            continue;
        add_value(l, graph, graph->value[i], l->sum + at, v, &layers);
        at += merak_shape_count(&graph->value[i]->shape);
    }
    v->aux /= (double)t->opt.global_batch * layers;
    v->router_z /= (double)t->opt.global_batch * layers;
    return MERAK_OK;
}
