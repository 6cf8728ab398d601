/* SPDX-License-Identifier: Apache-2.0 */
/* shard_shared.c - vocabulary-parallel layers over all pipeline stages
 *
 * A vocabulary is the index that embeddings look up and cross-entropies sum
 * over.  Nodes that have one are cut by it along the stages' axis, and so are
 * the nodes that compute logits, back to the parameter they come from.  Those
 * that read only inputs of the model are the embedding; those that read
 * activations are the head, and so is all that follows them up to the loss.
 */
#include "config.h"

#include "partitioner/layout/shard_impl.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { NEITHER, EMBEDDING, HEAD };

struct cutter {
    const struct merak_graph *graph;
    const struct merak_signature *sig;
    const struct merak_mesh *mesh;
    int axis; /* the stages' */
    int n_shared;
    struct merak_strategy *strategy;
    int *dim;     /* by value: the dim that must be split, or -1 */
    int found[3]; /* by block: nodes that are cut */
};

static bool takes_activations(const struct merak_graph *graph,
                              const struct merak_node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        /* Where tensor ranks divide the samples, they have slices of tokens. */
        if (merak_value_origin(graph, node->in[i])->kind ==
            MERAK_VALUE_ACTIVATION)
            return true;
    }
    return false;
}

/* The index of a node that is a vocabulary, for its op or because consumers
 * need that dim of an output split; or -1. */
static int vocabulary_of(const struct cutter *c, const struct merak_node *node)
{
    const struct merak_signature *sig = &c->sig[node->id];

    for (int i = 0; i < sig->n_index; i++) {
        if (sig->index[i].vocabulary)
            return i;
    }
    for (int o = 0; o < node->n_out; o++) {
        int d = c->dim[node->out[o]->id];

        if (d >= 0)
            return sig->operand_dim[node->n_in + o][d];
    }
    return -1;
}

static enum merak_status check_cut(const struct cutter *c,
                                   const struct merak_node *node, int cut,
                                   struct merak_error *err)
{
    const struct merak_index *index = &c->sig[node->id].index[cut];
    size_t ranks = 1;

    for (int x = 0; x < c->mesh->n_axes; x++) {
        if (c->strategy[node->id].cut[x] == cut)
            ranks *= (size_t)c->mesh->axis[x].size;
    }
    if (index->kind == MERAK_INDEX_WHOLE || !index->uneven)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "%s cannot be cut over all stages: its op needs the "
                          "whole vocabulary; use --schedule 1f1b",
                          node->name);
    if (index->extent < ranks)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%s: a vocabulary of %zu cannot be cut over %zu "
                          "ranks; use fewer stages, or --schedule 1f1b",
                          node->name, index->extent, ranks);
    return MERAK_OK;
}

static enum merak_status cut_node(struct cutter *c,
                                  const struct merak_node *node,
                                  struct merak_error *err)
{
    int block = takes_activations(c->graph, node) ? HEAD : EMBEDDING;
    int cut = vocabulary_of(c, node);

    if (cut < 0 || block > c->n_shared)
        return MERAK_OK;
    c->found[block]++;
    c->strategy[node->id].cut[c->axis] = (int8_t)cut;
    /* Inputs that have the vocabulary must be split by it. */
    for (int i = 0; i < node->n_in; i++) {
        for (int d = 0; d < node->in[i]->shape.ndim; d++) {
            if (c->sig[node->id].operand_dim[i][d] == cut)
                c->dim[node->in[i]->id] = d;
        }
    }
    return check_cut(c, node, cut, err);
}

/* A parameter has one layout: cut for all of its uses, or for none. */
static enum merak_status check_params(const struct cutter *c,
                                      struct merak_error *err)
{
    for (int n = 0; n < c->graph->n_forward; n++) {
        const struct merak_node *node = c->graph->node[n];

        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i]->kind == MERAK_VALUE_PARAM &&
                c->dim[node->in[i]->id] >= 0 && c->strategy[n].cut[c->axis] < 0)
                return merak_fail(
                    err, MERAK_ERR_CONFIG,
                    "%s is tied: cut over all stages for the embedding, it "
                    "would be whole in %s; use --chunks 3, which cuts the "
                    "head, too",
                    node->in[i]->name, node->name);
        }
    }
    return MERAK_OK;
}

enum merak_status merak_shared_cut(const struct merak_graph *graph,
                                   const struct merak_signature *sig,
                                   const struct merak_mesh *mesh, int n_shared,
                                   struct merak_strategy *strategy,
                                   struct merak_error *err)
{
    struct cutter c = {.graph = graph,
                       .sig = sig,
                       .mesh = mesh,
                       .axis = mesh->n_axes - 1,
                       .n_shared = n_shared,
                       .strategy = strategy};
    size_t values = (size_t)graph->n_values + 1;
    enum merak_status rc = MERAK_OK;

    c.dim = malloc(values * sizeof(*c.dim));
    if (c.dim == NULL)
        return merak_fail_nomem(err, values * sizeof(*c.dim));
    for (int v = 0; v < graph->n_values; v++)
        c.dim[v] = -1;
    for (int n = graph->n_forward - 1; n >= 0 && rc == MERAK_OK; n--)
        rc = cut_node(&c, graph->node[n], err);
    if (rc == MERAK_OK)
        rc = check_params(&c, err);
    if (rc == MERAK_OK &&
        (c.found[EMBEDDING] == 0 || (n_shared >= HEAD && c.found[HEAD] == 0)))
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "the model has no %s with a vocabulary to cut over "
                        "all stages; use --schedule 1f1b",
                        c.found[EMBEDDING] == 0 ? "embedding" : "head");
    free(c.dim);
    return rc;
}

/* --- of the sharded graph ------------------------------------------------- */

static bool is_cut(const struct merak_sharded *sharded,
                   const struct merak_node *node)
{
    int axis = sharded->mesh.n_axes - 1;

    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v = merak_node_operand(node, o);

        if (sharded->layout[v->id].at[axis].kind != MERAK_REPLICATED)
            return true;
    }
    return false;
}

static int block_of_input(const struct merak_sharded *sharded,
                          const struct merak_node *node)
{
    int block = NEITHER;

    for (int i = 0; i < node->n_in; i++) {
        int from = node->in[i]->producer;

        if (from >= 0 && sharded->shared[from] > block)
            block = sharded->shared[from];
    }
    return block;
}

/* A cut op's layer follows from its inputs.  Partial results belong to the
 * layer that made them until they are whole.  Whatever is computed from the
 * head's results belongs to the head. */
static int block_of(const struct merak_sharded *sharded,
                    const struct merak_node *node)
{
    bool converts = sharded->hop[node->id].kind != MERAK_CONVERT_NONE;

    if (node->phase != MERAK_PHASE_F) {
        int block = sharded->shared[node->forward];

        return block == NEITHER && is_cut(sharded, node)
                   ? block_of_input(sharded, node)
                   : block;
    }
    if (is_cut(sharded, node) && converts)
        return block_of_input(sharded, node);
    if (is_cut(sharded, node))
        return takes_activations(sharded->graph, node) ? HEAD : EMBEDDING;
    return block_of_input(sharded, node) == HEAD ? HEAD : NEITHER;
}

enum merak_status merak_shared_mark(struct merak_sharded *sharded,
                                    struct merak_error *err)
{
    const struct merak_graph *graph = sharded->graph;
    size_t nodes = (size_t)graph->n_nodes + 1;

    sharded->shared = calloc(nodes, sizeof(*sharded->shared));
    if (sharded->shared == NULL)
        return merak_fail_nomem(err, nodes);
    for (int n = 0; n < graph->n_nodes; n++)
        sharded->shared[n] = (uint8_t)block_of(sharded, graph->node[n]);
    /* A whole copy belongs to its consumer, which comes after it. */
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const struct merak_node *node = graph->node[n];

        if (sharded->hop[n].kind != MERAK_CONVERT_NONE &&
            node->phase == MERAK_PHASE_F && !is_cut(sharded, node) &&
            sharded->shared[n] == NEITHER)
            sharded->shared[n] = sharded->shared[node->forward];
    }
    return MERAK_OK;
}
