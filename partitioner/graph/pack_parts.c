/* SPDX-License-Identifier: Apache-2.0 */
/* pack_parts.c - values that go from part to part of a model as their largest
 * elements
 *
 * The graph is copied node by node, in its order, and where a part begins what
 * goes on to it is packed and unpacked.  From there on `now` of a value is what
 * was unpacked, so its later readers have that.
 */
#include "config.h"

#include "partitioner/graph/pack_parts.h"

#include "partitioner/graph/letters.h"

#include "base/arrays.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct packer {
    const struct merak_graph *graph;
    struct merak_graph *to;
    const struct merak_pack *how;
    struct merak_value **now;       /* by old value */
    struct merak_value *(*sent)[2]; /* by old value: elements, their places */
    int *last;                      /* by old value: node that reads it last */
    struct merak_error *err;
};

static void find_last_readers(struct packer *p)
{
    for (int v = 0; v < p->graph->n_values; v++)
        p->last[v] = -1;
    for (int n = 0; n < p->graph->n_forward; n++) {
        for (int i = 0; i < p->graph->node[n]->n_in; i++)
            p->last[p->graph->node[n]->in[i]->id] = n;
    }
}

/* --- copies --------------------------------------------------------------- */

/* All of the graph that is neither a node nor a value. */
static void copy_facts(struct packer *p)
{
    const struct merak_graph *from = p->graph;
    struct merak_graph *to = p->to;

    memcpy(to->losses, from->losses, sizeof(to->losses));
    to->n_losses = from->n_losses;
    to->dtype = from->dtype;
    to->grad_dtype = from->grad_dtype;
    to->micro_batch = from->micro_batch;
    to->seq = from->seq;
    memcpy(to->input, from->input, sizeof(to->input));
    to->n_inputs = from->n_inputs;
    to->documents = from->documents;
    to->passes = from->passes;
}

static enum merak_status copy_node(struct packer *p,
                                   const struct merak_node *node)
{
    struct merak_value *in[MERAK_MAX_OPERANDS];
    struct merak_node *copy;
    enum merak_status rc;

    for (int i = 0; i < node->n_in; i++)
        in[i] = p->now[node->in[i]->id];
    rc = merak_graph_node(p->to, node->op, &node->attrs, MERAK_PHASE_F, -1,
                          node->n_in, in, &copy, p->err);
    for (int i = 0; i < node->n_out && rc == MERAK_OK; i++) {
        const struct merak_value *was = node->out[i];
        struct merak_value *now = copy->out[i];

        now->reported = was->reported;
        memcpy(now->letter, was->letter, sizeof(now->letter));
        p->now[was->id] = now;
        if (p->graph->loss == was)
            p->to->loss = now;
    }
    return rc;
}

/* --- pairs ---------------------------------------------------------------- */

/* Does a value that was made before this node go on, in floats of channels? */
static bool is_packed(const struct packer *p, const struct merak_value *v,
                      int node)
{
    return v->kind == MERAK_VALUE_ACTIVATION && v->producer < node &&
           p->last[v->id] >= node &&
           (v->dtype == MERAK_F32 || v->dtype == MERAK_BF16) &&
           v->shape.ndim > 1 &&
           !merak_letter_is_known(v->letter[v->shape.ndim - 1]);
}

static enum merak_status check_row(const struct packer *p,
                                   const struct merak_value *v, int part)
{
    size_t C = v->shape.dim[v->shape.ndim - 1];

    if (C > (size_t)p->how->ratio[part])
        return MERAK_OK;
    return merak_fail(p->err, MERAK_ERR_CONFIG,
                      "--lossy-hops: ratio %d for %s, which part %d sends in "
                      "rows of %zu; expected a ratio below %zu",
                      p->how->ratio[part], v->name, part, C, C);
}

static struct merak_attrs attrs_of(const struct packer *p,
                                   const struct merak_value *v, int part)
{
    size_t C = v->shape.dim[v->shape.ndim - 1];
    size_t r = (size_t)p->how->ratio[part];

    return (struct merak_attrs){.i = {(int64_t)((C + r - 1) / r), (int64_t)C}};
}

static enum merak_status pack_value(struct packer *p,
                                    const struct merak_value *v, int part)
{
    const struct merak_attrs attrs = attrs_of(p, v, part);
    struct merak_node *node;
    enum merak_status rc = check_row(p, v, part);

    if (rc == MERAK_OK)
        rc = merak_graph_node(p->to, merak_op_find("topk_pack"), &attrs,
                              MERAK_PHASE_F, -1, 1, &p->now[v->id], &node,
                              p->err);
    if (rc == MERAK_OK)
        memcpy(p->sent[v->id], node->out, sizeof(p->sent[v->id]));
    return rc;
}

static enum merak_status unpack_value(struct packer *p,
                                      const struct merak_value *v, int part)
{
    const struct merak_attrs attrs = attrs_of(p, v, part);
    struct merak_node *node;
    enum merak_status rc =
        merak_graph_node(p->to, merak_op_find("topk_unpack"), &attrs,
                         MERAK_PHASE_F, -1, 2, p->sent[v->id], &node, p->err);

    if (rc == MERAK_OK)
        p->now[v->id] = node->out[0];
    return rc;
}

/* What goes from a part to the next one, which begins at this node. */
static enum merak_status send(struct packer *p, int part, int node)
{
    enum merak_status rc = MERAK_OK;

    for (int v = 0; v < p->graph->n_values && rc == MERAK_OK; v++) {
        if (is_packed(p, p->graph->value[v], node))
            rc = pack_value(p, p->graph->value[v], part);
    }
    for (int v = 0; v < p->graph->n_values && rc == MERAK_OK; v++) {
        if (is_packed(p, p->graph->value[v], node))
            rc = unpack_value(p, p->graph->value[v], part);
    }
    return rc;
}

/* --- all of it ------------------------------------------------------------ */

/* The next value in the order in which they were described: one without a
 * producer, or a node with all its outputs. */
static enum merak_status copy_next(struct packer *p,
                                   const struct merak_value *v)
{
    enum merak_status rc = MERAK_OK;

    if (v->kind == MERAK_VALUE_GRADIENT || v->kind == MERAK_VALUE_PARAM_GRAD ||
        p->now[v->id] != NULL)
        return MERAK_OK;
    if (v->producer < 0) {
        rc = merak_graph_value(p->to, v, &p->now[v->id], p->err);
        for (int i = 0; i < p->to->n_inputs && rc == MERAK_OK; i++) {
            if (v->kind == MERAK_VALUE_INPUT && v->input == i)
                p->to->input[i].name = p->now[v->id]->name;
        }
        return rc;
    }
    for (int part = v->producer > 0 ? p->how->part[v->producer - 1] : 0;
         part < p->how->part[v->producer] && rc == MERAK_OK; part++) {
        if (p->how->ratio[part] > 0)
            rc = send(p, part, v->producer);
    }
    return rc == MERAK_OK ? copy_node(p, p->graph->node[v->producer]) : rc;
}

enum merak_status merak_graph_pack(const struct merak_graph *graph,
                                   const struct merak_pack *pack,
                                   struct merak_graph **packed_p,
                                   struct merak_error *err)
{
    size_t values = (size_t)graph->n_values + 1;
    struct packer p = {.graph = graph, .how = pack, .err = err};
    const struct merak_array arrays[] = {MERAK_ARRAY(p.now, values),
                                         MERAK_ARRAY(p.sent, values),
                                         MERAK_ARRAY(p.last, values)};
    enum merak_status rc = merak_graph_create(&p.to, err);

    if (rc == MERAK_OK)
        rc = MERAK_ARRAYS(arrays, err);
    if (rc == MERAK_OK) {
        find_last_readers(&p);
        copy_facts(&p);
    }
    for (int v = 0; v < graph->n_values && rc == MERAK_OK; v++)
        rc = copy_next(&p, graph->value[v]);
    if (rc == MERAK_OK)
        rc = merak_graph_differentiate(p.to, err);
    if (rc == MERAK_OK) {
        *packed_p = p.to;
        p.to = NULL;
    }
    merak_graph_destroy(p.to);
    free(p.now);
    return rc;
}
