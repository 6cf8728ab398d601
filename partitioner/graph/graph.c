/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - the proxy graph: values, nodes, printing */
#include "config.h"

#include "partitioner/graph/graph.h"

#include "partitioner/graph/dims.h"
#include "partitioner/graph/letters.h"
#include "partitioner/graph/mem_pool.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/text_writer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum merak_status merak_graph_create(struct merak_graph **graph_p,
                                     struct merak_error *err)
{
    struct merak_graph *graph = calloc(1, sizeof(*graph));

    if (graph == NULL)
        return merak_fail_nomem(err, sizeof(*graph));
    graph->pool = merak_pool_create();
    if (graph->pool == NULL) {
        merak_graph_destroy(graph);
        return merak_fail(err, MERAK_ERR_NOMEM, "cannot allocate a graph");
    }
    *graph_p = graph;
    return MERAK_OK;
}

void merak_graph_destroy(struct merak_graph *graph)
{
    if (graph == NULL)
        return;
    merak_pool_destroy(graph->pool);
    free(graph->value);
    free(graph->node);
    free(graph);
}

/* printf into the graph's own memory; NULL when out of memory. */
static const char *__attribute__((format(printf, 2, 3)))
format_name(struct merak_graph *graph, const char *fmt, ...)
{
    const char *name;
    va_list ap;

    va_start(ap, fmt);
    name = merak_pool_vprintf(graph->pool, fmt, ap);
    va_end(ap);
    return name;
}

/* Make room for one more node or value. */
static enum merak_status grow(void *array_p, int *room, int n,
                              struct merak_error *err)
{
    if (n > INT32_MAX / 4)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "a graph of more than %d nodes or values", n);
    return merak_grow(array_p, room, n, sizeof(void *), err);
}

/* --- values ----------------------------------------------------------------
 */

/* A tensor's bytes must not overflow, in the widest type it is kept in. */
static enum merak_status check_shape(const char *what,
                                     const struct merak_shape *shape,
                                     struct merak_error *err)
{
    size_t bytes = sizeof(double);

    if (shape->ndim < 0 || shape->ndim > MERAK_MAX_DIMS)
        return merak_fail(err, MERAK_ERR_PARAM, "%s: %d dims, expected 0 to %d",
                          what, shape->ndim, MERAK_MAX_DIMS);
    for (int d = 0; d < shape->ndim; d++) {
        char text[MERAK_SHAPE_TEXT];

        if (shape->dim[d] == 0)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "%s: shape %s has an empty dim", what,
                              merak_shape_print(shape, text));
        if (!merak_size_mul(bytes, shape->dim[d], &bytes) ||
            bytes > PTRDIFF_MAX)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "%s: shape %s has too many elements to count",
                              what, merak_shape_print(shape, text));
    }
    return MERAK_OK;
}

enum merak_status merak_graph_value(struct merak_graph *graph,
                                    const struct merak_value *proto,
                                    struct merak_value **value_p,
                                    struct merak_error *err)
{
    struct merak_value *value;
    enum merak_status rc = check_shape(proto->name, &proto->shape, err);

    if (rc != MERAK_OK)
        return rc;
    rc = grow(&graph->value, &graph->value_room, graph->n_values, err);
    if (rc != MERAK_OK)
        return rc;
    value = merak_pool_alloc(graph->pool, sizeof(*value));
    if (value == NULL)
        return merak_fail_nomem(err, sizeof(*value));
    *value = *proto;
    value->name = format_name(graph, "%s", proto->name);
    if (value->name == NULL)
        return merak_fail_nomem(err, strlen(proto->name) + 1);
    value->id = graph->n_values;
    value->graph = graph;
    graph->value[graph->n_values++] = value;
    *value_p = value;
    return MERAK_OK;
}

size_t merak_value_bytes(const struct merak_value *value)
{
    return merak_shape_count(&value->shape) * merak_dtype_bytes(value->dtype);
}

/* --- nodes ------------------------------------------------------------------
 */

static enum merak_status check_inputs(const struct merak_graph *graph,
                                      const struct merak_op *op, int n_in,
                                      struct merak_value *const *in,
                                      struct merak_error *err)
{
    if (n_in < op->min_in || n_in > op->max_in)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "%s: %d inputs, expected %d to %d", op->name, n_in,
                          op->min_in, op->max_in);
    for (int i = 0; i < n_in; i++) {
        if (in[i] == NULL)
            return merak_fail(err, MERAK_ERR_PARAM, "%s: input %d is NULL",
                              op->name, i);
        if (in[i]->graph != graph)
            return merak_fail(err, MERAK_ERR_PARAM,
                              "%s: input %d, %s, is of another model", op->name,
                              i, in[i]->name);
    }
    return MERAK_OK;
}

static const char *node_name(struct merak_graph *graph,
                             const struct merak_node *node)
{
    const char *op = node->op->name;
    int same = 1;

    if (node->phase == MERAK_PHASE_F)
        return format_name(graph, "%s.%d", op, node->id);
    /* A forward node's gradient nodes are adjacent: count those of the same op
     * before this one. */
    for (int i = node->id - 1;
         i >= 0 && graph->node[i]->phase != MERAK_PHASE_F &&
         graph->node[i]->forward == node->forward;
         i--)
        same += graph->node[i]->op == node->op;
    /* Ops used in both directions (add, dropout, rope) get the suffix that
     * the names of the others include. */
    op = format_name(graph, "%s%s.%d", op,
                     strstr(op, "_d") != NULL ? "" : "_dx", node->forward);
    if (op == NULL || same == 1)
        return op;
    return format_name(graph, "%s+%d", op, same - 1);
}

static enum merak_status make_outputs(struct merak_graph *graph,
                                      struct merak_node *node,
                                      const struct merak_infer *inf,
                                      struct merak_error *err)
{
    static const enum merak_value_kind kind[] = {
        [MERAK_PHASE_F] = MERAK_VALUE_ACTIVATION,
        [MERAK_PHASE_B] = MERAK_VALUE_GRADIENT,
        [MERAK_PHASE_W] = MERAK_VALUE_PARAM_GRAD};
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < node->n_out && rc == MERAK_OK; i++) {
        struct merak_value proto = {.kind = kind[node->phase],
                                    .name = node->name,
                                    .dtype = inf->dtype[node->n_in + i],
                                    .shape = inf->shape[node->n_in + i],
                                    .producer = node->id,
                                    .out = i,
                                    .of = -1};

        if (i > 0)
            proto.name = format_name(graph, "%s:%d", node->name, i);
        rc = proto.name == NULL
                 ? merak_fail_nomem(err, strlen(node->name) + 4)
                 : merak_graph_value(graph, &proto, &node->out[i], err);
    }
    return rc;
}

void merak_node_infer(const struct merak_node *node, struct merak_infer *inf)
{
    memset(inf, 0, sizeof(*inf));
    inf->attrs = &node->attrs;
    inf->n_in = node->n_in;
    inf->n_out = node->n_out;
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        const struct merak_value *v = merak_node_operand(node, o);

        if (v == NULL) /* an output, before infer */
            continue;
        inf->shape[o] = v->shape;
        inf->dtype[o] = v->dtype;
    }
}

struct merak_cost merak_node_cost(const struct merak_node *node)
{
    struct merak_cost cost = {0};
    struct merak_infer inf;

    merak_node_infer(node, &inf);
    node->op->cost(&inf, &cost);
    return cost;
}

/* Complete a node that has its inputs and is not in the graph's array yet. */
static enum merak_status finish_node(struct merak_graph *graph,
                                     struct merak_node *node,
                                     struct merak_error *err)
{
    struct merak_infer inf;
    enum merak_status rc;

    merak_node_infer(node, &inf);
    rc = node->op->infer(&inf, err);
    if (rc != MERAK_OK)
        return rc;
    node->name = node_name(graph, node);
    if (node->name == NULL)
        return merak_fail_nomem(err, strlen(node->op->name) + 16);
    rc = make_outputs(graph, node, &inf, err);
    if (rc == MERAK_OK)
        merak_node_pass_letters(node);
    return rc;
}

/* Copy the list: programs read the attributes of the graph they were built
 * from, and the graph that these came from may be freed by then. */
static enum merak_status own_list(struct merak_graph *graph,
                                  struct merak_attrs *attrs,
                                  struct merak_error *err)
{
    size_t bytes = (size_t)attrs->i[2] * sizeof(*attrs->list);
    double *list;

    if (attrs->list == NULL)
        return MERAK_OK;
    list = merak_pool_alloc(graph->pool, bytes);
    if (list == NULL)
        return merak_fail_nomem(err, bytes);
    memcpy(list, attrs->list, bytes);
    attrs->list = list;
    return MERAK_OK;
}

enum merak_status
merak_graph_node(struct merak_graph *graph, const struct merak_op *op,
                 const struct merak_attrs *attrs, enum merak_phase phase,
                 int forward, int n_in, struct merak_value *const *in,
                 struct merak_node **node_p, struct merak_error *err)
{
    struct merak_node *node;
    int n_values = graph->n_values;
    enum merak_status rc = check_inputs(graph, op, n_in, in, err);

    if (rc != MERAK_OK)
        return rc;
    rc = grow(&graph->node, &graph->node_room, graph->n_nodes, err);
    if (rc != MERAK_OK)
        return rc;
    node = merak_pool_alloc(graph->pool, sizeof(*node));
    if (node == NULL)
        return merak_fail_nomem(err, sizeof(*node));
    node->id = graph->n_nodes;
    node->op = op;
    if (attrs != NULL)
        node->attrs = *attrs;
    rc = own_list(graph, &node->attrs, err);
    if (rc != MERAK_OK)
        return rc;
    node->phase = phase;
    node->forward = phase == MERAK_PHASE_F ? node->id : forward;
    node->n_in = n_in;
    node->n_out = op->n_out;
    memcpy(node->in, in, (size_t)n_in * sizeof(*in));
    rc = finish_node(graph, node, err);
    if (rc != MERAK_OK) {
        graph->n_values = n_values; /* outputs made so far */
        return rc;
    }
    graph->node[graph->n_nodes++] = node;
    if (phase == MERAK_PHASE_F)
        graph->n_forward = graph->n_nodes;
    *node_p = node;
    return MERAK_OK;
}

/* --- for gradient builders ---------------------------------------------------
 */

struct merak_value *merak_node_in(const struct merak_node *node, int i)
{
    return i >= 0 && i < node->n_in ? node->in[i] : NULL;
}

struct merak_value *merak_node_out(const struct merak_node *node, int i)
{
    return i >= 0 && i < node->n_out ? node->out[i] : NULL;
}

int merak_node_in_count(const struct merak_node *node)
{
    return node->n_in;
}

const struct merak_attrs *merak_node_attrs(const struct merak_node *node)
{
    return &node->attrs;
}

const struct merak_shape *merak_value_shape(const struct merak_value *value)
{
    return &value->shape;
}

/* --- totals and printing
 * ------------------------------------------------------- */

size_t merak_graph_param_count(const struct merak_graph *graph)
{
    size_t n = 0;

    for (int i = 0; i < graph->n_values; i++) {
        if (graph->value[i]->kind == MERAK_VALUE_PARAM)
            n += merak_shape_count(&graph->value[i]->shape);
    }
    return n;
}

void merak_graph_fingerprint(const struct merak_graph *graph,
                             char hex[MERAK_FINGERPRINT_TEXT])
{
    uint64_t h = 0;

    for (int i = 0; i < graph->n_values; i++) {
        const struct merak_value *v = graph->value[i];

        if (v->kind != MERAK_VALUE_PARAM)
            continue;
        h = merak_rng_mix(h, merak_rng_key(0, v->name));
        for (int d = 0; d < v->shape.ndim; d++)
            h = merak_rng_mix(h, v->shape.dim[d]);
    }
    snprintf(hex, MERAK_FINGERPRINT_TEXT, "%016llx", (unsigned long long)h);
}

/* Producers precede their consumers. */
void merak_graph_mark_recycling(const struct merak_graph *graph, bool *node)
{
    memset(node, 0, (size_t)graph->n_nodes * sizeof(*node));
    for (int i = 0; i < graph->n_recycling; i++)
        node[graph->recycling[i].out->producer] = true;
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        for (int i = 0; node[n] && i < graph->node[n]->n_in; i++) {
            if (graph->node[n]->in[i]->producer >= 0)
                node[graph->node[n]->in[i]->producer] = true;
        }
    }
}

double merak_graph_flops(const struct merak_graph *graph)
{
    bool *again = calloc((size_t)graph->n_nodes + 1, sizeof(*again));
    double flops = 0;

    if (again != NULL && graph->n_recycling > 0)
        merak_graph_mark_recycling(graph, again);
    for (int i = 0; i < graph->n_nodes; i++)
        flops += merak_node_cost(graph->node[i]).flops *
                 (again != NULL && again[i] ? graph->passes : 1);
    free(again);
    return flops;
}

static void print_node(FILE *f, const struct merak_node *node)
{
    static const char phase[] = {'F', 'B', 'W'};
    char text[MERAK_SHAPE_TEXT];

    fprintf(f, "%c %s = %s(", phase[node->phase], node->name, node->op->name);
    for (int i = 0; i < node->n_in; i++)
        fprintf(f, "%s%s", i > 0 ? ", " : "", node->in[i]->name);
    fputs(") ->", f);
    for (int i = 0; i < node->n_out; i++)
        fprintf(f, " %s%s", merak_dtype_name(node->out[i]->dtype),
                merak_shape_print(&node->out[i]->shape, text));
    fputc('\n', f);
}

enum merak_status merak_graph_print(const struct merak_graph *graph,
                                    char **text_p, struct merak_error *err)
{
    struct merak_text_writer writer;
    FILE *f = merak_text_open(&writer);

    if (f == NULL)
        return merak_text_close(&writer, text_p, err);
    for (int i = 0; i < graph->n_nodes; i++)
        print_node(f, graph->node[i]);
    return merak_text_close(&writer, text_p, err);
}

/* --- conversions ----------------------------------------------------------
 */

bool merak_node_is_convert(const struct merak_node *node)
{
    return node->op->role == MERAK_ROLE_CONVERT;
}

const struct merak_value *merak_value_origin(const struct merak_graph *graph,
                                             const struct merak_value *value)
{
    while (value->producer >= 0 &&
           merak_node_is_convert(graph->node[value->producer]))
        value = graph->node[value->producer]->in[0];
    return value;
}

/* --- positions -------------------------------------------------------------
 */

size_t merak_node_pieces(const struct merak_graph *graph,
                         const struct merak_node *node)
{
    for (int o = 0; o < node->n_in + node->n_out; o++) {
        if (merak_value_has_positions(merak_node_operand(node, o)))
            return graph->position_pieces;
    }
    return 0;
}

bool merak_node_reads_back(const struct merak_node *node, int i)
{
    return i < node->n_in ? node->op->back_in >> i & 1
                          : node->op->back_out >> (i - node->n_in) & 1;
}
