/* SPDX-License-Identifier: Apache-2.0 */
/* stage_parts.c - stages of a graph that was written for parts chosen before
 *
 * The parts are those of the graph without tensor ranks.  Unlike stages have
 * graphs of their own, in all of which the same nodes are in the same part.
 */
#include "config.h"

#include "partitioner/program/program.h"

#include "base/error.h"

#include <stdlib.h>

bool merak_node_is_of_loss(const struct merak_node *node)
{
    return node->phase == MERAK_PHASE_F &&
           (node->op->role == MERAK_ROLE_LOSS_PART ||
            node->op->role == MERAK_ROLE_LOSS);
}

bool merak_parts_cut_loss(const struct merak_graph *graph,
                          const struct merak_parts *parts)
{
    for (int n = 0; n < parts->n_nodes; n++) {
        if (merak_node_is_of_loss(graph->node[n]) &&
            parts->of_node[n] != parts->n - 1)
            return true;
    }
    return false;
}

/* The cut points where parts begin, numbered as merak_stages_at() takes them.
 */
static enum merak_status find_places(const struct merak_sharded *sharded,
                                     const struct merak_stages *stages,
                                     struct merak_parts *parts,
                                     struct merak_error *err)
{
    struct merak_cut_point *place = NULL;
    int n;
    enum merak_status rc = merak_stages_list(sharded, &place, &n, err);

    parts->place[0] = -1;
    for (int i = 1; rc == MERAK_OK && i <= n; i++) {
        int part = stages->of_node[place[i].node];

        /* what is just before it may be its own conversion */
        if (part != stages->of_node[place[i - 1].node])
            parts->place[part] = i - 1;
    }
    free(place);
    return rc;
}

enum merak_status merak_stages_parts(const struct merak_sharded *sharded,
                                     const struct merak_stages *stages,
                                     struct merak_parts **parts_p,
                                     struct merak_error *err)
{
    const struct merak_graph *g = sharded->graph;
    struct merak_parts *parts;
    enum merak_status rc =
        merak_parts_create(g->n_forward, stages->n, &parts, err);
    int k = 0;

    if (rc != MERAK_OK)
        return rc;
    for (int n = 0; n < g->n_nodes && k < parts->n_nodes; n++) {
        if (g->node[n]->phase != MERAK_PHASE_F ||
            merak_node_is_convert(g->node[n]))
            continue;
        parts->of_node[k] = stages->of_node[n];
        parts->block[k++] = stages->block[n];
    }
    parts->n_nodes = k;
    for (int p = 0; p < parts->n; p++)
        parts->n_blocks[p] = stages->n_blocks[p];
    rc = find_places(sharded, stages, parts, err);
    if (rc == MERAK_OK)
        *parts_p = parts;
    else
        merak_parts_destroy(parts);
    return rc;
}

/* Which part and block each node is in: forward nodes are in the order of the
 * model's graph, a conversion belongs to the node that needs it, and what
 * differentiates a node to that node. */
static void assign_parts(const struct merak_sharded *sharded,
                         struct merak_stages *stages)
{
    const struct merak_parts *parts = sharded->parts;
    const struct merak_graph *g = sharded->graph;
    int k = 0;

    for (int n = 0; n < g->n_nodes; n++) {
        if (g->node[n]->phase != MERAK_PHASE_F ||
            merak_node_is_convert(g->node[n]))
            continue;
        stages->of_node[n] = parts->of_node[k];
        stages->block[n] = parts->block[k++];
    }
    for (int n = 0; n < g->n_nodes; n++) {
        int owner = g->node[n]->forward;

        if (owner == n && !merak_node_is_convert(g->node[n]))
            continue;
        if (owner == n) /* for whoever reads it: where its value is made */
            owner = g->node[n]->in[0]->producer;
        stages->of_node[n] = stages->of_node[owner];
        if (g->node[n]->phase == MERAK_PHASE_F)
            stages->block[n] = stages->block[owner];
    }
    for (int p = 0; p < parts->n; p++)
        stages->n_blocks[p] = parts->n_blocks[p];
}

static enum merak_status of_parts(const struct merak_sharded *sharded,
                                  struct merak_stages **stages_p,
                                  struct merak_error *err)
{
    return merak_stages_assigned(sharded, sharded->parts->n, assign_parts,
                                 stages_p, err);
}

enum merak_status merak_stages_of_parts(const struct merak_sharded *sharded,
                                        struct merak_stages **stages_p,
                                        struct merak_error *err)
{
    struct merak_stages *first = NULL;
    int n = sharded->n_stages;
    enum merak_status rc = of_parts(sharded, &first, err);

    if (rc == MERAK_OK) {
        first->by_stage = calloc((size_t)n, sizeof(*first->by_stage));
        if (first->by_stage == NULL)
            rc = merak_fail_nomem(err, (size_t)n * sizeof(void *));
        else
            first->n_stages = n;
    }
    for (int s = 0; s < n && rc == MERAK_OK; s++) {
        int e = 0;

        while (sharded->by_stage[e] != sharded->by_stage[s])
            e++;
        if (sharded->by_stage[s] == sharded)
            first->by_stage[s] = first;
        else if (e < s)
            first->by_stage[s] = first->by_stage[e];
        else
            rc = of_parts(sharded->by_stage[s], &first->by_stage[s], err);
    }
    if (rc != MERAK_OK) {
        merak_stages_destroy(first);
        return rc;
    }
    *stages_p = first;
    return MERAK_OK;
}

const struct merak_stages *merak_stages_of(const struct merak_stages *stages,
                                           int stage)
{
    return stages->by_stage == NULL ? stages : stages->by_stage[stage];
}
