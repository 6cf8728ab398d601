/* SPDX-License-Identifier: Apache-2.0 */
/* atoms.c - a sharded graph as work to be ordered and cut
 */
#include "config.h"

#include "partitioner/order/atoms.h"

#include "base/arrays.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define STATE_BYTES                                           \
    16 /* of a parameter's element: weight, gradient, moments \
        */

struct maker {
    struct merak_atoms *atoms;
    const struct merak_graph *graph;
    bool *depends; /* by node: on the batch */
    int *owner;    /* by node: whose atom it is in, itself or a later one */
    int *last;     /* by value: the atom that read it last, or -1 */
};

static bool is_work(const struct maker *m, int node)
{
    return m->graph->node[node]->phase == MERAK_PHASE_F &&
           !merak_node_is_convert(m->graph->node[node]);
}

/* --- which nodes ---------------------------------------------------------- */

static void mark_dependent(struct maker *m)
{
    for (int n = 0; n < m->graph->n_nodes; n++) {
        const struct merak_node *node = m->graph->node[n];

        for (int i = 0; i < node->n_in && node->phase == MERAK_PHASE_F; i++) {
            const struct merak_value *v = node->in[i];

            m->depends[n] = m->depends[n] || v->kind == MERAK_VALUE_INPUT ||
                            v->kind == MERAK_VALUE_RECYCLED ||
                            (v->producer >= 0 && m->depends[v->producer]);
        }
    }
}

/* Which nodes share an atom. */
enum join {
    JOIN_NONE, /* each is its own */
    JOIN_LOSS, /* a loss is one */
    JOIN_ALL,  /* and what does not depend on the batch joins its first
                  reader */
};

static void find_owners(struct maker *m, enum join join)
{
    for (int n = 0; n < m->graph->n_nodes; n++)
        m->owner[n] = n;
    for (int n = m->graph->n_nodes - 1; n >= 0; n--) {
        const struct merak_node *node = m->graph->node[n];

        if (!is_work(m, n))
            continue;
        for (int i = 0; i < node->n_in; i++) {
            int p = merak_value_origin(m->graph, node->in[i])->producer;

            if (p >= 0 && ((join >= JOIN_ALL && !m->depends[p]) ||
                           (join >= JOIN_LOSS && m->graph->node[p]->op->role ==
                                                     MERAK_ROLE_LOSS_PART)))
                m->owner[p] = m->owner[n];
        }
    }
}

/* Number atoms in the order of their owners. */
static void list_nodes(struct maker *m)
{
    struct merak_atoms *a = m->atoms;

    a->dag.n = 0;
    for (int n = 0; n < m->graph->n_nodes; n++) {
        a->of_node[n] = -1;
        if (is_work(m, n) && m->owner[n] == n)
            a->of_node[n] = a->dag.n++;
    }
    memset(a->first, 0, ((size_t)a->dag.n + 1) * sizeof(*a->first));
    for (int n = 0; n < m->graph->n_nodes; n++) {
        if (!is_work(m, n))
            continue;
        a->of_node[n] = a->of_node[m->owner[n]];
        a->first[a->of_node[n]]++;
    }
    for (int i = 1; i <= a->dag.n; i++)
        a->first[i] += a->first[i - 1];
    for (int n = m->graph->n_nodes - 1; n >= 0; n--) {
        if (is_work(m, n))
            a->node[--a->first[a->of_node[n]]] = n;
    }
}

/* --- what they take ------------------------------------------------------- */

static double seconds_of(const struct merak_node *node)
{
    struct merak_cost cost = merak_node_cost(node);

    return cost.flops / 1e12 + cost.bytes / 1e11;
}

static double memory_of(const struct maker *m, const struct merak_node *node)
{
    double bytes = 0;

    for (int i = 0; i < node->n_in; i++) {
        const struct merak_value *v = merak_value_origin(m->graph, node->in[i]);

        if (v->kind == MERAK_VALUE_PARAM)
            bytes += STATE_BYTES * (double)merak_shape_count(&v->shape);
    }
    for (int i = 0; i < node->n_out; i++)
        bytes += (double)merak_value_bytes(node->out[i]);
    return bytes;
}

static void measure(struct maker *m)
{
    struct merak_dag *dag = &m->atoms->dag;

    memset(dag->seconds, 0, (size_t)dag->n * sizeof(*dag->seconds));
    memset(dag->memory, 0, (size_t)dag->n * sizeof(*dag->memory));
    for (int n = 0; n < m->graph->n_nodes; n++) {
        const struct merak_node *node = m->graph->node[n];
        int atom = m->atoms->of_node[node->forward];

        if (atom < 0 || merak_node_is_convert(node))
            continue;
        dag->seconds[atom] += seconds_of(node);
        if (node->phase == MERAK_PHASE_F)
            dag->memory[atom] += memory_of(m, node);
    }
}

/* --- what needs what ------------------------------------------------------ */

/* A node comes after the producers of what it reads, and after the other
 * readers that were described before it. */
static void add_edges(struct maker *m, const struct merak_node *node)
{
    struct merak_dag *dag = &m->atoms->dag;
    int atom = m->atoms->of_node[node->id];

    for (int i = 0; i < node->n_in; i++) {
        const struct merak_value *v = merak_value_origin(m->graph, node->in[i]);
        int before = m->last[v->id];

        if (before < 0 && v->producer >= 0)
            before = m->atoms->of_node[v->producer];
        if (v->kind == MERAK_VALUE_INPUT || before == atom)
            continue;
        if (before >= 0)
            dag->edge[dag->n_edges++] = (struct merak_dag_edge){
                before, atom,
                v->producer >= 0 ? (double)merak_value_bytes(v) : 0};
        m->last[v->id] = atom;
    }
}

/* False if an atom would have to come before one with a lower number. */
static bool make_edges(struct maker *m)
{
    struct merak_dag *dag = &m->atoms->dag;
    bool sound = true;

    dag->n_edges = 0;
    for (int v = 0; v < m->graph->n_values; v++)
        m->last[v] = -1;
    for (int n = 0; n < m->graph->n_nodes; n++) {
        if (is_work(m, n))
            add_edges(m, m->graph->node[n]);
    }
    for (int e = 0; e < dag->n_edges; e++)
        sound = sound && dag->edge[e].from < dag->edge[e].to;
    return sound;
}

/* --- together ------------------------------------------------------------- */

static enum merak_status maker_alloc(struct maker *m, size_t nodes,
                                     size_t values, struct merak_error *err)
{
    const struct merak_array arrays[] = {MERAK_ARRAY(m->depends, nodes),
                                         MERAK_ARRAY(m->owner, nodes),
                                         MERAK_ARRAY(m->last, values)};

    return MERAK_ARRAYS(arrays, err);
}

static enum merak_status atoms_alloc(struct merak_atoms *atoms, size_t nodes,
                                     size_t edges, struct merak_error *err)
{
    const struct merak_array arrays[] = {MERAK_ARRAY(atoms->of_node, nodes),
                                         MERAK_ARRAY(atoms->first, nodes),
                                         MERAK_ARRAY(atoms->node, nodes),
                                         MERAK_ARRAY(atoms->dag.seconds, nodes),
                                         MERAK_ARRAY(atoms->dag.memory, nodes),
                                         MERAK_ARRAY(atoms->dag.edge, edges)};

    return MERAK_ARRAYS(arrays, err);
}

static enum merak_status maker_init(struct maker *m, struct merak_atoms *atoms,
                                    const struct merak_sharded *sharded,
                                    struct merak_error *err)
{
    size_t nodes = (size_t)sharded->graph->n_nodes + 2, edges = nodes;
    enum merak_status rc;

    for (int n = 0; n < sharded->graph->n_nodes; n++)
        edges += (size_t)sharded->graph->node[n]->n_in;
    *m = (struct maker){.atoms = atoms, .graph = sharded->graph};
    *atoms = (struct merak_atoms){.dag = {.n = 0}};
    rc = maker_alloc(m, nodes, (size_t)m->graph->n_values + 1, err);
    return rc == MERAK_OK ? atoms_alloc(atoms, nodes, edges, err) : rc;
}

/* Uses of a value keep their order.  If another use is between those of one
 * atom, fewer nodes are joined; separate nodes are always in order. */
static void join_nodes(struct maker *m)
{
    bool sound = false;

    for (int join = JOIN_ALL; join >= JOIN_NONE && !sound; join--) {
        find_owners(m, (enum join)join);
        list_nodes(m);
        sound = make_edges(m);
    }
    assert(sound);
}

enum merak_status merak_atoms_init(struct merak_atoms *atoms,
                                   const struct merak_sharded *sharded,
                                   struct merak_error *err)
{
    struct maker m;
    enum merak_status rc = maker_init(&m, atoms, sharded, err);

    if (rc == MERAK_OK) {
        mark_dependent(&m);
        join_nodes(&m);
        measure(&m);
    }
    free(m.depends);
    return rc;
}

void merak_atoms_fini(struct merak_atoms *atoms)
{
    free(atoms->of_node);
}
