/* SPDX-License-Identifier: Apache-2.0 */
/* shard_copies.c - copies of values in the layouts that consumers need */
#include "config.h"

#include "partitioner/layout/shard_writer.h"

#include "partitioner/graph/mem_pool.h"

#include "base/error.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- arrays that grow with the graph ----------------------------------------
 */

static enum merak_status grow(void *array_p, size_t item, size_t *room,
                              size_t n, struct merak_error *err)
{
    size_t want = *room == 0 ? 64 : *room;
    void **array = array_p;
    void *grown;

    if (n <= *room)
        return MERAK_OK;
    while (want < n)
        want *= 2;
    grown = realloc(*array, want * item);
    if (grown == NULL)
        return merak_fail_nomem(err, want * item);
    *array = grown;
    *room = want;
    return MERAK_OK;
}

enum merak_status merak_write_set_layout(struct merak_shard_writer *w,
                                         const struct merak_value *v,
                                         const struct merak_layout *layout,
                                         struct merak_error *err)
{
    struct merak_layout kept = *layout; /* it may be in the array that grows */
    enum merak_status rc = grow(&w->out->layout, sizeof(*w->out->layout),
                                &w->layouts, (size_t)v->id + 1, err);

    if (rc == MERAK_OK)
        w->out->layout[v->id] = kept;
    return rc;
}

const struct merak_layout *
merak_write_layout(const struct merak_shard_writer *w,
                   const struct merak_value *v)
{
    return &w->out->layout[v->id];
}

enum merak_status merak_write_set_node(struct merak_shard_writer *w,
                                       const struct merak_node *node,
                                       const struct merak_strategy *strategy,
                                       const struct merak_hop *hop,
                                       struct merak_error *err)
{
    size_t n = (size_t)node->id + 1, room = w->nodes;
    enum merak_status rc =
        grow(&w->out->strategy, sizeof(*w->out->strategy), &room, n, err);

    if (rc != MERAK_OK)
        return rc;
    rc = grow(&w->out->hop, sizeof(*w->out->hop), &w->nodes, n, err);
    if (rc != MERAK_OK)
        return rc;
    w->out->strategy[node->id] = *strategy;
    w->out->hop[node->id] = hop != NULL ? *hop : (struct merak_hop){.axis = -1};
    return MERAK_OK;
}

enum merak_status merak_write_add_copy(struct merak_shard_writer *w, int old,
                                       struct merak_value *value,
                                       enum merak_phase phase,
                                       struct merak_error *err)
{
    struct merak_copy *copy = merak_pool_alloc(w->graph->pool, sizeof(*copy));
    struct merak_copy **end = &w->entry[old].copies;

    if (copy == NULL)
        return merak_fail_nomem(err, sizeof(*copy));
    *copy = (struct merak_copy){value, phase, NULL};
    while (*end != NULL)
        end = &(*end)->next;
    *end = copy;
    return MERAK_OK;
}

enum merak_status merak_write_rename(struct merak_shard_writer *w,
                                     struct merak_value *v, const char *name,
                                     const char *suffix,
                                     struct merak_error *err)
{
    v->name = merak_graph_name(w->graph, "%s%s", name, suffix);
    return v->name == NULL ? merak_fail_nomem(err, strlen(name) + 16)
                           : MERAK_OK;
}

/* --- conversions
 * ------------------------------------------------------------------ */

static enum merak_status
emit_hop(struct merak_shard_writer *w, struct merak_value *src,
         const struct merak_hop *hop, enum merak_phase phase, int forward,
         struct merak_value **dst_p, struct merak_error *err)
{
    const struct merak_strategy none = {
        {MERAK_CUT_NONE, MERAK_CUT_NONE, MERAK_CUT_NONE, MERAK_CUT_NONE}};
    const char *base = strrchr(src->name, '@');
    struct merak_node *node;
    struct merak_value *dst;
    char text[34] = "@";
    enum merak_status rc;

    rc = merak_graph_node(w->graph, merak_op_find("convert"), NULL, phase,
                          forward, 1, &src, &node, err);
    if (rc == MERAK_OK)
        rc = merak_write_set_node(w, node, &none, hop, err);
    if (rc == MERAK_OK)
        rc = merak_write_set_layout(w, node->out[0], &hop->to, err);
    if (rc != MERAK_OK)
        return rc;
    dst = node->out[0];
    dst->kind = src->kind == MERAK_VALUE_GRADIENT ? MERAK_VALUE_GRADIENT
                                                  : MERAK_VALUE_ACTIVATION;
    dst->of = src->of;
    node->name = merak_graph_name(w->graph, "convert.%d", node->id);
    merak_layout_print(&w->mesh, &hop->to, text + 1, sizeof(text) - 1);
    dst->name = merak_graph_name(w->graph, "%.*s%s",
                                 base == NULL ? (int)strlen(src->name)
                                              : (int)(base - src->name),
                                 src->name, text);
    if (node->name == NULL || dst->name == NULL)
        return merak_fail_nomem(err, strlen(src->name) + 64);
    *dst_p = dst;
    return MERAK_OK;
}

static enum merak_status no_path(const struct merak_shard_writer *w,
                                 const struct merak_value *v,
                                 const struct merak_layout *to,
                                 struct merak_error *err)
{
    char a[32], b[32];

    return merak_fail(
        err, MERAK_ERR_UNSUPPORTED, "%s: layout %s does not convert to %s",
        v->name,
        merak_layout_print(&w->mesh, merak_write_layout(w, v), a, sizeof(a)),
        merak_layout_print(&w->mesh, to, b, sizeof(b)));
}

enum merak_status merak_write_convert(struct merak_shard_writer *w,
                                      struct merak_value *src,
                                      const struct merak_layout *to,
                                      enum merak_phase phase, int forward,
                                      struct merak_value **dst_p,
                                      struct merak_error *err)
{
    struct merak_hop hops[MERAK_MAX_HOPS];
    int n = merak_sharded_path(w->out, &src->shape, merak_write_layout(w, src),
                               to, hops, NULL);
    enum merak_status rc = MERAK_OK;

    if (n < 0)
        return no_path(w, src, to, err);
    for (int h = 0; h < n && rc == MERAK_OK; h++)
        rc = emit_hop(w, src, &hops[h], phase, forward, &src, err);
    if (rc == MERAK_OK)
        *dst_p = src;
    return rc;
}

/* May a consumer of this phase read the copy?  What a W node has converted
 * may come too late for a B node. */
static bool is_usable(const struct merak_shard_writer *w, int old,
                      const struct merak_copy *copy, enum merak_phase phase)
{
    const struct merak_copy *natural = w->entry[old].copies;

    if (copy == natural || copy->phase == phase)
        return true;
    if (copy->phase == MERAK_PHASE_F)
        return merak_copy_is_kept(&w->mesh, &copy->value->shape,
                                  merak_write_layout(w, natural->value),
                                  merak_write_layout(w, copy->value));
    return copy->phase == MERAK_PHASE_B && phase == MERAK_PHASE_W;
}

static double path_cost(const struct merak_shard_writer *w,
                        const struct merak_copy *copy,
                        const struct merak_layout *to)
{
    struct merak_hop hops[MERAK_MAX_HOPS];
    double cost;

    if (merak_sharded_path(w->out, &copy->value->shape,
                           merak_write_layout(w, copy->value), to, hops,
                           &cost) < 0)
        return INFINITY;
    return cost;
}

enum merak_status merak_write_get(struct merak_shard_writer *w, int old,
                                  const struct merak_layout *layout,
                                  enum merak_phase phase, int forward,
                                  struct merak_value **value_p,
                                  struct merak_error *err)
{
    const struct merak_copy *best = NULL;
    double best_cost = INFINITY;
    enum merak_status rc;

    for (struct merak_copy *c = w->entry[old].copies; c != NULL; c = c->next) {
        double cost;

        if (!is_usable(w, old, c, phase))
            continue;
        cost = path_cost(w, c, layout);
        if (best == NULL || cost < best_cost) {
            best = c;
            best_cost = cost;
        }
    }
    assert(best != NULL);
    rc = merak_write_convert(w, best->value, layout, phase, forward, value_p,
                             err);
    if (rc != MERAK_OK || best_cost == 0)
        return rc;
    return merak_write_add_copy(w, old, *value_p, phase, err);
}
