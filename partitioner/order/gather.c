/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c - a sharded graph's nodes in an order that is better to cut
 *
 * A model is described in some order, but with parallel branches many orders
 * are possible: two towers may be described layer by layer in turns, a short
 * branch long before what reads it.  Whatever is made before a cut and read
 * after it crosses that cut, so the order determines what stages send.
 *
 * Two more orders are made: the one in which the fewest bytes are alive
 * (dag_order.c), to be cut where few values cross, and blocks of about the
 * same time (blocks.c), to be cut between them.  The planner decides which of
 * the three gives the fastest plan.  For very many atoms only blocks are made:
 * the search over sets takes long, blocks little more than linear time.
 *
 * Sums keep their order: the uses of a value, or of a parameter, stay in the
 * order in which they were described.  All nodes keep their operands, so that
 * the order changes no bit of any result.
 */
#include "config.h"

#include "partitioner/order/shard_order.h"

#include "base/arrays.h"
#include "base/error.h"
#include "partitioner/order/atoms.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ATOMS 6000 /* that are gathered: for more, sets take long */
#define BLOCK 20       /* atoms between cut points where one value crosses */
#define WORTH 0.97     /* of the described order's cost: at most, to be taken */
#define BLOCKS 128     /* that are made */
#define MEMORY 4       /* a block may hold this many times its share */

struct gatherer {
    const struct merak_graph *graph;
    struct merak_atoms atoms;
    int *order; /* [n] atoms */
    int *block; /* by atom, for MERAK_BRANCHES_BLOCKS; else NULL */
};

/* --- is there anything to gain? ------------------------------------------- */

/* Is it a chain of blocks?  Then cut points where at most one value crosses are
 * never far apart. */
static bool is_chain(const struct merak_dag *dag, int *open)
{
    int alive = 0, since = 0;

    memset(open, 0, ((size_t)dag->n + 1) * sizeof(*open));
    for (int e = 0; e < dag->n_edges; e++) {
        if (dag->edge[e].bytes > 0) {
            open[dag->edge[e].from]++;
            open[dag->edge[e].to]--;
        }
    }
    for (int i = 0; i < dag->n; i++, since++) {
        alive += open[i];
        if (alive <= 1)
            since = 0;
        if (since > BLOCK)
            return false;
    }
    return true;
}

/* --- orders --------------------------------------------------------------- */

/* Fill order[]; *found_p: it is worth taking. */
static enum merak_status gather(struct gatherer *g, bool *found_p,
                                struct merak_error *err)
{
    const struct merak_dag *dag = &g->atoms.dag;
    double described, cost = DBL_MAX;
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < dag->n; i++)
        g->order[i] = i;
    described = merak_dag_cost(dag, g->order);
    if (dag->n <= MAX_ATOMS)
        rc = merak_dag_order(dag, g->order, &cost, err);
    *found_p = rc == MERAK_OK && cost < WORTH * described;
    return rc;
}

/* Atoms of a block stay in the order in which they were described. */
static void order_by_block(struct gatherer *g, int n_blocks)
{
    int n = 0;

    for (int b = 0; b < n_blocks; b++) {
        for (int i = 0; i < g->atoms.dag.n; i++) {
            if (g->block[i] == b)
                g->order[n++] = i;
        }
    }
}

static enum merak_status make_blocks(struct gatherer *g, bool *found_p,
                                     struct merak_error *err)
{
    const struct merak_dag *dag = &g->atoms.dag;
    struct merak_block_options opt = {.blocks = BLOCKS};
    int n_blocks = 0;
    enum merak_status rc;

    g->block = calloc((size_t)dag->n + 1, sizeof(*g->block));
    if (g->block == NULL)
        return merak_fail_nomem(err, (size_t)dag->n * sizeof(*g->block));
    for (int i = 0; i < dag->n; i++)
        opt.memory += dag->memory[i] * MEMORY / BLOCKS;
    rc = merak_dag_blocks(dag, &opt, g->block, &n_blocks, err);
    if (rc == MERAK_OK)
        order_by_block(g, n_blocks);
    *found_p = rc == MERAK_OK && n_blocks > 1;
    return rc;
}

/* --- the graph in that order ---------------------------------------------- */

/* Nodes in their new order: forward ones first, then gradients in the reverse
 * order of their forward nodes. */
struct renumbering {
    int *at;   /* new id by old */
    int *from; /* old id by new */
    int n;
};

static void take(struct renumbering *r, int node)
{
    r->from[r->n] = node;
    r->at[node] = r->n++;
}

/* A node, and before it the conversions that it is the first to need. */
static void take_item(const struct gatherer *g, struct renumbering *r, int node)
{
    const struct merak_node *n = g->graph->node[node];

    for (int i = 0; i < n->n_in; i++) {
        int p = n->in[i]->producer;

        if (p >= 0 && r->at[p] < 0 && merak_node_is_convert(g->graph->node[p]))
            take_item(g, r, p);
    }
    take(r, node);
}

struct late {
    int node, of; /* forward node's new id */
};

static int compare_late(const void *a, const void *b)
{
    const struct late *x = a, *y = b;

    return x->of != y->of ? y->of - x->of : x->node - y->node;
}

static bool is_in_order(const struct gatherer *g, const struct renumbering *r)
{
    for (int n = 0; n < r->n; n++) {
        const struct merak_node *node = g->graph->node[r->from[n]];

        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i]->producer >= 0 && r->at[node->in[i]->producer] >= n)
                return false;
        }
    }
    return r->n == g->graph->n_nodes;
}

/* False if the nodes cannot run in that order. */
static bool renumber(const struct gatherer *g, struct renumbering *r,
                     struct late *late)
{
    const struct merak_atoms *a = &g->atoms;
    int n_late = 0;

    for (int n = 0; n < g->graph->n_nodes; n++)
        r->at[n] = -1;
    for (int i = 0; i < a->dag.n; i++) {
        for (int k = a->first[g->order[i]]; k < a->first[g->order[i] + 1]; k++)
            take_item(g, r, a->node[k]);
    }
    for (int n = 0; n < g->graph->n_nodes; n++) { /* copies for gradients */
        if (r->at[n] < 0 && g->graph->node[n]->phase == MERAK_PHASE_F)
            take(r, n);
    }
    for (int n = 0; n < g->graph->n_nodes; n++) {
        const struct merak_node *node = g->graph->node[n];

        if (r->at[n] < 0)
            late[n_late++] = (struct late){n, r->at[node->forward]};
    }
    qsort(late, (size_t)n_late, sizeof(*late), compare_late);
    for (int i = 0; i < n_late; i++)
        take(r, late[i].node);
    return is_in_order(g, r);
}

/* A conversion belongs to the first node that needs it, which follows it; those
 * after the last node are for gradients. */
static void own_conversions(struct merak_sharded *s)
{
    int owner = -1;

    for (int i = s->graph->n_forward - 1; i >= 0; i--) {
        if (s->hop[i].kind == MERAK_CONVERT_NONE)
            owner = i;
        else if (owner >= 0)
            s->graph->node[i]->forward = owner;
    }
}

/* Reorder all arrays by node; node, strategy and hop are scratch. */
static void apply(struct merak_sharded *s, const struct renumbering *r,
                  struct merak_node **node, struct merak_strategy *strategy,
                  struct merak_hop *hop)
{
    size_t n = (size_t)r->n;

    for (int i = 0; i < r->n; i++) {
        node[i] = s->graph->node[r->from[i]];
        strategy[i] = s->strategy[r->from[i]];
        hop[i] = s->hop[r->from[i]];
    }
    memcpy(s->graph->node, node, n * sizeof(*node));
    memcpy(s->strategy, strategy, n * sizeof(*strategy));
    memcpy(s->hop, hop, n * sizeof(*hop));
    for (int i = 0; i < r->n; i++) {
        s->graph->node[i]->id = i;
        s->graph->node[i]->forward = r->at[s->graph->node[i]->forward];
    }
    own_conversions(s);
    for (int v = 0; v < s->graph->n_values; v++) {
        if (s->graph->value[v]->producer >= 0)
            s->graph->value[v]->producer = r->at[s->graph->value[v]->producer];
    }
}

/* Blocks by node, with the nodes in their new order. */
static enum merak_status keep_blocks(const struct gatherer *g,
                                     const struct renumbering *r,
                                     struct merak_sharded *s,
                                     struct merak_error *err)
{
    if (g->block == NULL)
        return MERAK_OK;
    s->block = calloc((size_t)r->n + 1, sizeof(*s->block));
    if (s->block == NULL)
        return merak_fail_nomem(err, (size_t)r->n * sizeof(*s->block));
    for (int n = 0; n < r->n; n++) {
        int atom = g->atoms.of_node[r->from[n]];

        s->block[n] = atom < 0 ? -1 : g->block[atom];
    }
    return MERAK_OK;
}

/* Put the nodes in g->order if they can run in it, and record that. */
static enum merak_status rewrite(const struct gatherer *g,
                                 struct merak_sharded *s,
                                 enum merak_branches order,
                                 struct merak_error *err)
{
    size_t n = (size_t)g->graph->n_nodes + 1;
    struct renumbering r = {.n = 0};
    struct late *late;
    struct merak_node **node;
    struct merak_strategy *strategy;
    struct merak_hop *hop;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(r.at, n), MERAK_ARRAY(r.from, n),   MERAK_ARRAY(late, n),
        MERAK_ARRAY(node, n), MERAK_ARRAY(strategy, n), MERAK_ARRAY(hop, n)};
    enum merak_status rc = MERAK_ARRAYS(arrays, err);

    if (rc == MERAK_OK && renumber(g, &r, late)) {
        apply(s, &r, node, strategy, hop);
        s->order = order;
        rc = keep_blocks(g, &r, s, err);
    }
    free(r.at);
    return rc;
}

/* --- together ------------------------------------------------------------- */

enum merak_status merak_sharded_gather(struct merak_sharded *sharded,
                                       enum merak_branches order,
                                       struct merak_error *err)
{
    struct gatherer g = {.graph = sharded->graph};
    bool found = false;
    enum merak_status rc = merak_atoms_init(&g.atoms, sharded, err);

    if (rc == MERAK_OK) {
        g.order = calloc((size_t)g.atoms.dag.n + 1, sizeof(*g.order));
        if (g.order == NULL)
            rc = merak_fail_nomem(err, (size_t)g.atoms.dag.n * sizeof(int));
    }
    if (rc == MERAK_OK)
        sharded->branches =
            sharded->graph->passes <= 1 && !is_chain(&g.atoms.dag, g.order);
    if (rc == MERAK_OK && sharded->branches && order == MERAK_BRANCHES_GATHERED)
        rc = gather(&g, &found, err);
    if (rc == MERAK_OK && sharded->branches && order == MERAK_BRANCHES_BLOCKS)
        rc = make_blocks(&g, &found, err);
    if (rc == MERAK_OK && found)
        rc = rewrite(&g, sharded, order, err);
    free(g.order);
    free(g.block);
    merak_atoms_fini(&g.atoms);
    return rc;
}
