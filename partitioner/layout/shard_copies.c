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

static bool grow(struct merak_shard_writer *w, void *array_p, size_t item,
                 size_t *room, size_t n)
{
    size_t want = *room == 0 ? 64 : *room;
    void **array = array_p;
    void *grown;

    if (w->rc != MERAK_OK)
        return false;
    if (n <= *room)
        return true;
    while (want < n)
        want *= 2;
    grown = realloc(*array, want * item);
    if (grown == NULL) {
        w->rc = merak_fail_nomem(w->err, want * item);
        return false;
    }
    *array = grown;
    *room = want;
    return true;
}

void merak_write_set_layout(struct merak_shard_writer *w,
                            const struct merak_value *v,
                            const struct merak_layout *layout)
{
    struct merak_layout kept = *layout; /* it may be in the array that grows */

    if (grow(w, &w->out->layout, sizeof(*w->out->layout), &w->layouts,
             (size_t)v->id + 1))
        w->out->layout[v->id] = kept;
}

void merak_write_set_origin(struct merak_shard_writer *w,
                            const struct merak_value *v, int old)
{
    size_t before = w->origins;

    if (w->parts == NULL || !grow(w, &w->out->origin, sizeof(*w->out->origin),
                                  &w->origins, (size_t)v->id + 1))
        return;
    for (size_t i = before; i < w->origins; i++)
        w->out->origin[i] = -1;
    w->out->origin[v->id] = old;
}

const struct merak_layout *
merak_write_layout(const struct merak_shard_writer *w,
                   const struct merak_value *v)
{
    return &w->out->layout[v->id];
}

const char *merak_write_name(struct merak_shard_writer *w, const char *fmt, ...)
{
    const char *name;
    va_list ap;

    if (w->rc != MERAK_OK)
        return NULL;
    va_start(ap, fmt);
    name = merak_pool_vprintf(w->graph->pool, fmt, ap);
    va_end(ap);
    if (name == NULL)
        w->rc = merak_fail_nomem(w->err, 64);
    return name;
}

struct merak_node *merak_write_node(struct merak_shard_writer *w,
                                    const struct merak_node *proto,
                                    const struct merak_strategy *strategy,
                                    const struct merak_hop *hop)
{
    struct merak_sharded *out = w->out;
    struct merak_node *node;
    size_t n, room = w->nodes;

    if (w->rc != MERAK_OK)
        return NULL;
    w->rc =
        merak_graph_node(w->graph, proto->op, &proto->attrs, proto->phase,
                         proto->forward, proto->n_in, proto->in, &node, w->err);
    if (w->rc != MERAK_OK)
        return NULL;
    n = (size_t)node->id + 1;
    if (!grow(w, &out->strategy, sizeof(*out->strategy), &room, n) ||
        !grow(w, &out->hop, sizeof(*out->hop), &w->nodes, n))
        return NULL;
    out->strategy[node->id] = *strategy;
    out->hop[node->id] = hop != NULL ? *hop : (struct merak_hop){.axis = -1};
    node->name = hop != NULL ? merak_write_name(w, "convert.%d", node->id)
                             : merak_write_name(w, "%s", proto->name);
    return w->rc == MERAK_OK ? node : NULL;
}

void merak_write_add_copy(struct merak_shard_writer *w, int old,
                          struct merak_value *value, enum merak_phase phase)
{
    struct merak_copy **end = &w->entry[old].copies;

    if (w->rc != MERAK_OK)
        return;
    merak_write_set_origin(w, value, *end == NULL ? old : -1);
    while (*end != NULL)
        end = &(*end)->next;
    *end = merak_pool_alloc(w->graph->pool, sizeof(**end));
    if (*end == NULL)
        w->rc = merak_fail_nomem(w->err, sizeof(**end));
    else
        **end = (struct merak_copy){value, phase, w->part, w->rows_left, NULL};
}

/* --- conversions
 * ------------------------------------------------------------------ */

/* What an exchange depends on besides its operand. */
struct rows_left {
    struct merak_value *value; /* or NULL */
    double load;
};

/* The number of rows without which nothing of a value was made. */
static struct rows_left rows_left_of(const struct merak_shard_writer *w,
                                     const struct merak_value *v)
{
    const struct merak_node *node;

    if (w->rows_left != NULL)
        return (struct rows_left){w->rows_left, w->rows_left_load};
    if (v->producer < 0)
        return (struct rows_left){NULL, 0};
    node = w->graph->node[v->producer];
    for (int i = 0; node->op->rows_left_in > 0 && i < node->n_out; i++) {
        if (node->out[i] == v && (node->op->rows_left_makes >> i & 1) != 0)
            return (struct rows_left){node->in[node->op->rows_left_in],
                                      node->attrs.f[0]};
    }
    return (struct rows_left){NULL, 0};
}

static struct merak_value *emit_hop(struct merak_shard_writer *w,
                                    struct merak_value *src,
                                    const struct rows_left *left,
                                    const struct merak_hop *hop,
                                    enum merak_phase phase, int forward)
{
    bool waits = left->value != NULL && hop->kind != MERAK_CONVERT_SLICE;
    const struct merak_node proto = {.op = merak_op_find("convert"),
                                     .phase = phase,
                                     .forward = forward,
                                     .attrs.f = {waits ? left->load : 0},
                                     .n_in = waits ? 2 : 1,
                                     .in = {src, left->value}};
    const char *base = strrchr(src->name, '@');
    struct merak_node *node =
        merak_write_node(w, &proto, &MERAK_STRATEGY_NONE, hop);
    struct merak_value *dst;
    char text[34] = "@";

    if (node == NULL)
        return NULL;
    dst = node->out[0];
    merak_write_set_layout(w, dst, &hop->to);
    dst->kind = src->kind == MERAK_VALUE_GRADIENT ? MERAK_VALUE_GRADIENT
                                                  : MERAK_VALUE_ACTIVATION;
    dst->of = src->of;
    memcpy(dst->letter, src->letter, sizeof(dst->letter));
    merak_layout_print(&w->mesh, &hop->to, text + 1, sizeof(text) - 1);
    dst->name = merak_write_name(w, "%.*s%s",
                                 base == NULL ? (int)strlen(src->name)
                                              : (int)(base - src->name),
                                 src->name, text);
    return dst;
}

static void fail_path(struct merak_shard_writer *w, const struct merak_value *v,
                      const struct merak_layout *to)
{
    char a[32], b[32];

    w->rc = merak_fail(
        w->err, MERAK_ERR_UNSUPPORTED, "%s: layout %s does not convert to %s",
        v->name,
        merak_layout_print(&w->mesh, merak_write_layout(w, v), a, sizeof(a)),
        merak_layout_print(&w->mesh, to, b, sizeof(b)));
}

struct merak_value *merak_write_convert(struct merak_shard_writer *w,
                                        struct merak_value *src,
                                        const struct merak_layout *to,
                                        enum merak_phase phase, int forward)
{
    struct merak_hop hops[MERAK_MAX_HOPS];
    struct rows_left left;
    int n;

    if (w->rc != MERAK_OK)
        return NULL;
    left = rows_left_of(w, src);
    n = merak_sharded_path(w->out, &src->shape, merak_write_layout(w, src), to,
                           hops, NULL);
    if (n < 0)
        fail_path(w, src, to);
    for (int h = 0; h < n && w->rc == MERAK_OK; h++)
        src = emit_hop(w, src, &left, &hops[h], phase, forward);
    return src;
}

/* May a consumer of this phase read the copy?  What a W node has converted
 * may come too late for a B node. */
static bool is_usable(const struct merak_shard_writer *w, int old,
                      const struct merak_copy *copy, enum merak_phase phase)
{
    const struct merak_copy *natural = w->entry[old].copies;

    if (copy == natural)
        return true;
    if (copy->part != w->part ||
        (copy->rows_left != NULL && copy->rows_left != w->rows_left))
        return false;
    if (copy->phase == phase)
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

struct merak_value *merak_write_get(struct merak_shard_writer *w, int old,
                                    const struct merak_layout *layout,
                                    enum merak_phase phase, int forward)
{
    const struct merak_copy *best = NULL;
    double best_cost = INFINITY;
    struct merak_value *value;

    if (w->rc != MERAK_OK)
        return NULL;
    for (struct merak_copy *c = w->entry[old].copies; c != NULL; c = c->next) {
        double cost;

        if (!is_usable(w, old, c, phase) ||
            merak_layout_reaches(merak_write_layout(w, c->value)))
            continue;
        cost = path_cost(w, c, layout);
        if (best == NULL || cost < best_cost) {
            best = c;
            best_cost = cost;
        }
    }
    assert(best != NULL);
    value = merak_write_convert(w, best->value, layout, phase, forward);
    if (best_cost != 0)
        merak_write_add_copy(w, old, value, phase);
    return value;
}

/* The hops from a copy to a layout with parts of neighbours', axis by axis: the
 * second one's elements are of what the first has made, so that those of corners
 * come with it.  -1: there is no such way. */
static int find_halo(const struct merak_shard_writer *w,
                     const struct merak_copy *copy,
                     const struct merak_layout *wide,
                     struct merak_hop hops[MERAK_MAX_AXES])
{
    struct merak_layout from = *merak_write_layout(w, copy->value);
    int n = 0;

    for (int x = 0; x < w->mesh.n_axes; x++) {
        if (merak_place_equal(&from.at[x], &wide->at[x]))
            continue;
        if (!merak_layout_change(&w->mesh, &from, x, wide->at[x], &hops[n]))
            return -1;
        from = hops[n++].to;
    }
    return n;
}

static bool are_slices(const struct merak_hop *hops, int n)
{
    for (int h = 0; h < n; h++) {
        if (hops[h].kind != MERAK_CONVERT_SLICE)
            return false;
    }
    return n > 0;
}

static struct merak_value *emit_halo(struct merak_shard_writer *w, int old,
                                     struct merak_value *value,
                                     const struct merak_hop *hops, int n,
                                     enum merak_phase phase, int forward)
{
    const struct rows_left left = {NULL, 0};

    for (int h = 0; h < n && w->rc == MERAK_OK; h++) {
        value = emit_hop(w, value, &left, &hops[h], phase, forward);
        merak_write_add_copy(w, old, value, phase);
    }
    return value;
}

/* What is whole is sliced. */
struct merak_value *merak_write_halo(struct merak_shard_writer *w, int old,
                                     const struct merak_layout *layout,
                                     const struct merak_layout *wide,
                                     enum merak_phase phase, int forward)
{
    struct merak_hop hops[MERAK_MAX_AXES];
    struct merak_value *value;
    int n;

    if (w->rc != MERAK_OK)
        return NULL;
    for (struct merak_copy *c = w->entry[old].copies; c != NULL; c = c->next) {
        if (is_usable(w, old, c, phase) &&
            merak_layout_equal(&w->mesh, merak_write_layout(w, c->value), wide))
            return c->value;
    }
    for (struct merak_copy *c = w->entry[old].copies; c != NULL; c = c->next) {
        n = is_usable(w, old, c, phase) ? find_halo(w, c, wide, hops) : -1;
        if (are_slices(hops, n))
            return emit_halo(w, old, c->value, hops, n, phase, forward);
    }
    value = merak_write_get(w, old, layout, phase, forward);
    if (w->rc != MERAK_OK)
        return NULL;
    n = find_halo(w, &(struct merak_copy){.value = value}, wide, hops);
    if (n < 0) {
        fail_path(w, value, wide);
        return NULL;
    }
    return emit_halo(w, old, value, hops, n, phase, forward);
}
