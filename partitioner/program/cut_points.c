/* SPDX-License-Identifier: Apache-2.0 */
/* cut_points.c - the positions where a graph may be cut into stages
 *
 * A cut is before a forward node.  It is crossed by the activations made
 * before and used at or after it, looking through converted copies (a
 * conversion belongs to its consumer).  Candidates are positions where fewer
 * values cross than before and after: in a transformer one, the residual
 * stream, so that stages are made of whole attention and MLP blocks; with a
 * second tower, or under a skip connection, that and what passes by.  If nodes
 * are ordered by blocks, candidates are the positions between blocks.  Where
 * what crosses is packed (graph/pack_parts.c), candidates are those of the
 * graph without: the position of a pair is between its two nodes.
 */
#include "config.h"

#include "partitioner/program/stages.h"

#include "base/error.h"

#include <stdlib.h>

struct points {
    const struct merak_sharded *sharded;
    const struct merak_graph *graph;
    int *last_use; /* by value: last forward node that uses it or a copy */
    struct merak_cut_point *cut; /* [0] is the graph's start, [n_cuts - 1] its
                                    end */
    int n_cuts;
};

static bool is_shared(const struct merak_sharded *sharded, int node)
{
    return sharded->n_shared > 0 && sharded->shared[node] > 0;
}

static bool is_of_pair(const struct merak_node *node)
{
    return node->phase == MERAK_PHASE_F &&
           (node->op->role == MERAK_ROLE_PACK ||
            node->op->role == MERAK_ROLE_UNPACK);
}

/* What a converted copy was made of, or what was unpacked. */
static const struct merak_value *origin(const struct merak_graph *g,
                                        const struct merak_value *v)
{
    v = merak_value_origin(g, v);
    while (v->producer >= 0 && is_of_pair(g->node[v->producer]))
        v = merak_value_origin(g, g->node[v->producer]->in[0]);
    return v;
}

/* May a cut be before a node? */
static bool is_place(const struct merak_node *node)
{
    return node->phase == MERAK_PHASE_F && !merak_node_is_convert(node) &&
           !is_of_pair(node);
}

static void find_last_uses(struct points *c)
{
    for (int v = 0; v < c->graph->n_values; v++)
        c->last_use[v] = -1;
    for (int n = 0; n < c->graph->n_nodes; n++) {
        const struct merak_node *node = c->graph->node[n];

        if (!is_place(node))
            continue;
        for (int i = 0; i < node->n_in; i++)
            c->last_use[origin(c->graph, node->in[i])->id] = n;
    }
}

/* A cut before each forward node but the first, in order, from cut[1] on. */
static void scan(struct points *c)
{
    const struct merak_graph *g = c->graph;
    int alive = 0;
    double bytes = 0;
    bool any = false;

    c->cut[0] = (struct merak_cut_point){.node = 0};
    c->n_cuts = 1;
    for (int n = 0; n < g->n_nodes; n++) {
        const struct merak_node *node = g->node[n];

        if (!is_place(node))
            continue;
        if (any)
            c->cut[c->n_cuts++] = (struct merak_cut_point){
                .node = n, .alive = alive, .bytes = bytes};
        any = true;
        for (int i = 0; i < node->n_out; i++) {
            if (c->last_use[node->out[i]->id] > n) {
                alive++;
                bytes += (double)merak_value_bytes(node->out[i]);
            }
        }
        for (int v = 0; v < node->n_in; v++) {
            const struct merak_value *in = origin(g, node->in[v]);
            bool seen = false;

            for (int u = 0; u < v; u++)
                seen = seen || origin(g, node->in[u]) == in;
            if (!seen && in->producer >= 0 && c->last_use[in->id] == n) {
                alive--;
                bytes -= (double)merak_value_bytes(in);
            }
        }
    }
    c->cut[c->n_cuts++] = (struct merak_cut_point){.node = g->n_nodes};
}

/* Keep the positions, or rows of them, where fewer values cross than before
 * and after; at the ends of the graph one side is enough. */
static void keep_least(struct points *c)
{
    int n = c->n_cuts, kept = 1;

    for (int from = 1, to; from < n - 1; from = to) {
        int alive = c->cut[from].alive;

        for (to = from; to < n - 1 && c->cut[to].alive == alive; to++)
            ;
        if ((from > 1 && c->cut[from - 1].alive < alive) ||
            (to < n - 1 && c->cut[to].alive < alive))
            continue;
        while (from < to)
            c->cut[kept++] = c->cut[from++];
    }
    c->cut[kept++] = c->cut[n - 1];
    c->n_cuts = kept;
}

/* What is unpacked just before a position belongs to the part behind it. */
static void move_before_unpacked(struct points *c)
{
    const struct merak_graph *g = c->graph;

    for (int i = 1; i < c->n_cuts - 1; i++) {
        for (int n = c->cut[i].node - 1;
             n >= 0 && (merak_node_is_convert(g->node[n]) ||
                        g->node[n]->op->role == MERAK_ROLE_UNPACK);
             n--) {
            if (g->node[n]->op->role == MERAK_ROLE_UNPACK)
                c->cut[i].node = n;
        }
    }
}

/* Keep the positions between blocks, if nodes are ordered by blocks. */
static void keep_between_blocks(struct points *c)
{
    const int *block = c->sharded->block;
    int kept = 1, before = 0;

    for (int i = 1; i < c->n_cuts - 1; i++) {
        if (block[c->cut[i].node] != before)
            c->cut[kept++] = c->cut[i];
        before = block[c->cut[i].node];
    }
    c->cut[kept++] = c->cut[c->n_cuts - 1];
    c->n_cuts = kept;
}

/* Keep positions before the loss: what its gradient is divided by are the
 * positions of a micro-batch, which stages of other replicas have more of, or
 * fewer. */
static void keep_before_loss(struct points *c)
{
    const struct merak_graph *g = c->graph;
    int loss = 0, kept = 1;

    while (loss < g->n_nodes && !merak_node_is_of_loss(g->node[loss]))
        loss++;
    for (int i = 1; i < c->n_cuts - 1; i++) {
        if (c->cut[i].node <= loss)
            c->cut[kept++] = c->cut[i];
    }
    c->cut[kept++] = c->cut[c->n_cuts - 1];
    c->n_cuts = kept;
}

/* Keep positions so that every part has something between the shared blocks. */
static void keep_between_shared(struct points *c)
{
    const struct merak_graph *g = c->graph;
    int first = g->n_nodes, last = -1, kept = 1;

    for (int n = 0; n < g->n_nodes; n++) {
        if (g->node[n]->phase != MERAK_PHASE_F ||
            merak_node_is_convert(g->node[n]) || is_shared(c->sharded, n))
            continue;
        first = n < first ? n : first;
        last = n;
    }
    for (int i = 1; i < c->n_cuts - 1; i++) {
        if (c->cut[i].node > first && c->cut[i].node <= last)
            c->cut[kept++] = c->cut[i];
    }
    c->cut[kept++] = c->cut[c->n_cuts - 1];
    c->n_cuts = kept;
}

enum merak_status merak_cut_points_find(const struct merak_sharded *sharded,
                                        bool before_loss,
                                        struct merak_cut_point *cut, int *n_p,
                                        struct merak_error *err)
{
    const struct merak_graph *graph = sharded->graph;
    size_t values = (size_t)graph->n_values + 1;
    struct points c = {.sharded = sharded, .graph = graph, .cut = cut};

    c.last_use = malloc(values * sizeof(*c.last_use));
    if (c.last_use == NULL)
        return merak_fail_nomem(err, values * sizeof(*c.last_use));
    find_last_uses(&c);
    scan(&c);
    if (sharded->block != NULL)
        keep_between_blocks(&c);
    else
        keep_least(&c);
    if (sharded->n_shared > 0)
        keep_between_shared(&c);
    if (before_loss)
        keep_before_loss(&c);
    move_before_unpacked(&c);
    free(c.last_use);
    *n_p = c.n_cuts;
    return MERAK_OK;
}
