/* SPDX-License-Identifier: Apache-2.0 */
/* graphs.c - a model's graphs by micro-batch size, described once each */
#include "config.h"

#include "partitioner/search/impl.h"

#include "base/error.h"

#include <stdlib.h>

struct merak_graphs {
    const struct merak_search_input *in;
    struct described {
        size_t micro_batch;
        struct merak_model *model;
    } * model;
    int n;
};

enum merak_status merak_graphs_create(const struct merak_search_input *in,
                                      struct merak_graphs **graphs_p,
                                      struct merak_error *err)
{
    struct merak_graphs *graphs = calloc(1, sizeof(*graphs));

    if (graphs == NULL)
        return merak_fail_nomem(err, sizeof(*graphs));
    graphs->in = in;
    *graphs_p = graphs;
    return MERAK_OK;
}

void merak_graphs_destroy(struct merak_graphs *graphs)
{
    if (graphs == NULL)
        return;
    for (int i = 0; i < graphs->n; i++)
        merak_model_destroy(graphs->model[i].model);
    free(graphs->model);
    free(graphs);
}

static enum merak_status describe(struct merak_graphs *graphs,
                                  size_t micro_batch, struct merak_error *err)
{
    const struct merak_model_options mo = {.micro_batch = micro_batch,
                                           .seq = graphs->in->seq,
                                           .dtype = graphs->in->dtype};
    size_t n = (size_t)graphs->n + 1;
    struct described *grown = realloc(graphs->model, n * sizeof(*grown));
    enum merak_status rc;

    if (grown == NULL)
        return merak_fail_nomem(err, n * sizeof(*grown));
    graphs->model = grown;
    grown[graphs->n].micro_batch = micro_batch;
    rc = merak_model_create(&mo, &grown[graphs->n].model, err);
    if (rc != MERAK_OK)
        return rc;
    graphs->in->describe(grown[graphs->n++].model, graphs->in->arg);
    return MERAK_OK;
}

enum merak_status merak_graphs_shard(struct merak_graphs *graphs,
                                     const struct merak_plan *plan,
                                     struct merak_sharded **sharded_p,
                                     struct merak_error *err)
{
    const struct merak_shard_options so = merak_plan_shards(plan);
    struct merak_graph *graph;
    int at = 0;
    enum merak_status rc = MERAK_OK;

    while (at < graphs->n && graphs->model[at].micro_batch != plan->micro_batch)
        at++;
    if (at == graphs->n)
        rc = describe(graphs, plan->micro_batch, err);
    if (rc == MERAK_OK)
        rc = merak_model_graph(graphs->model[at].model, &graph, err);
    if (rc == MERAK_OK)
        rc = merak_shard(graph, &so, sharded_p, err);
    return rc;
}
