/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - adapters beside linear layers: two more of them, and a sum */
#include "config.h"

#include "merak/model.h"

#include "base/nearest.h"
#include "partitioner/graph/describe.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WEIGHT ".weight"

enum { NAME_BYTES = 256 };

static bool has_params(const struct merak_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++) {
        if (graph->value[i]->kind == MERAK_VALUE_PARAM)
            return true;
    }
    return false;
}

void merak_lora(struct merak_model *m, const struct merak_lora *lora)
{
    struct merak_graph *graph = merak_model_open_for(m, "merak_lora");

    if (graph == NULL)
        return;
    if (has_params(graph))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "merak_lora: expected before the first parameter");
    else if (lora->rank == 0 || !(lora->alpha > 0) || !isfinite(lora->alpha) ||
             !(lora->dropout >= 0 && lora->dropout < 1) ||
             lora->targets == NULL)
        merak_model_fail(m, MERAK_ERR_CONFIG,
                         "lora: rank %zu, alpha %g and dropout %g: expected a "
                         "rank of at least 1, alpha above 0, and 0 <= dropout "
                         "< 1",
                         lora->rank, (double)lora->alpha,
                         (double)lora->dropout);
    else
        m->lora = *lora;
}

/* --- which layers ---------------------------------------------------------
 */

/* The name of a layer is its weight's, without ".weight". */
static void layer_name(const struct merak_value *w, char name[NAME_BYTES])
{
    size_t n = strlen(w->name), end = strlen(WEIGHT);

    if (n > end && strcmp(w->name + n - end, WEIGHT) == 0)
        n -= end;
    snprintf(name, NAME_BYTES, "%.*s", (int)n, w->name);
}

/* Does one pattern match the layer's name, or what follows one of its dots? */
static bool matches(const char *pattern, const char *layer)
{
    while (layer != NULL) {
        if (fnmatch(pattern, layer, 0) == 0)
            return true;
        layer = strchr(layer, '.');
        layer = layer != NULL ? layer + 1 : NULL;
    }
    return false;
}

static bool is_named(const char *targets, const char *layer)
{
    char pattern[NAME_BYTES];
    size_t n;

    for (const char *at = targets; *at != '\0'; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        snprintf(pattern, sizeof(pattern), "%.*s", (int)n, at);
        if (n < sizeof(pattern) && matches(pattern, layer))
            return true;
    }
    return false;
}

/* An adapter would change only one of a weight's uses. */
static bool is_read_otherwise(const struct merak_graph *graph,
                              const struct merak_value *w)
{
    const struct merak_op *linear = merak_op_find("linear");

    for (int n = 0; n < graph->n_nodes; n++) {
        for (int i = 0; i < graph->node[n]->n_in; i++) {
            if (graph->node[n]->in[i] == w && graph->node[n]->op != linear)
                return true;
        }
    }
    return false;
}

static bool can_adapt(const struct merak_graph *graph,
                      const struct merak_value *w)
{
    return w->kind == MERAK_VALUE_PARAM && !w->adapter &&
           !is_read_otherwise(graph, w);
}

static const char *last_part(const char *layer)
{
    const char *dot = strrchr(layer, '.');

    return dot != NULL ? dot + 1 : layer;
}

void merak_lora_check(struct merak_model *m)
{
    const struct merak_op *linear = merak_op_find("linear");
    const struct merak_graph *graph = m->graph;
    struct merak_nearest nearest;
    char name[NAME_BYTES];

    if (m->lora.rank == 0)
        return;
    merak_nearest_init(&nearest, m->lora.targets);
    for (int n = 0; n < graph->n_nodes; n++) {
        const struct merak_value *w;

        if (graph->node[n]->op != linear)
            continue;
        w = graph->node[n]->in[1];
        if (w->adapter)
            return;
        layer_name(w, name);
        if (!can_adapt(graph, w))
            continue;
        merak_nearest_offer(&nearest, merak_name(m, "%s", last_part(name)));
        merak_nearest_offer(&nearest, merak_name(m, "%s", name));
    }
    merak_model_fail(m, MERAK_ERR_CONFIG,
                     "lora-targets %.80s: no linear layer has such a name%s%s",
                     m->lora.targets,
                     nearest.name != NULL ? "; the nearest is " : "",
                     nearest.name != NULL ? nearest.name : "");
}

/* --- adapters -------------------------------------------------------------
 */

/* A layer that is used several times has one adapter. */
static struct merak_value *adapter(struct merak_model *m, const char *name,
                                   int ndim, const size_t *dim,
                                   struct merak_init init)
{
    struct merak_value *value;

    for (int i = 0; i < m->graph->n_values; i++) {
        if (m->graph->value[i]->adapter &&
            strcmp(m->graph->value[i]->name, name) == 0)
            return m->graph->value[i];
    }
    m->adapting = true;
    value = merak_param(m, name, ndim, dim, init);
    m->adapting = false;
    return value;
}

double merak_lora_factor(const struct merak_lora *lora)
{
    double rank = (double)lora->rank;

    return (double)lora->alpha / (lora->by_root ? sqrt(rank) : rank);
}

static struct merak_value *scaled(struct merak_model *m, struct merak_value *x)
{
    double factor = merak_lora_factor(&m->lora);
    const struct merak_attrs attrs = {.f = {factor}};
    struct merak_value *out[1];

    if (factor == 1.0)
        return x;
    return merak_apply(m, "scale", &attrs, 1, &x, out) == MERAK_OK ? out[0]
                                                                   : NULL;
}

struct merak_value *merak_lora_add(struct merak_model *m, struct merak_value *x,
                                   struct merak_value *w, int n_contract,
                                   struct merak_value *y)
{
    size_t a_dim[MERAK_MAX_DIMS + 1], b_dim[MERAK_MAX_DIMS + 1], in = 1;
    struct merak_value *a, *b;
    char layer[NAME_BYTES];
    int n_out;

    if (m->lora.rank == 0 || y == NULL || !can_adapt(m->graph, w))
        return y;
    layer_name(w, layer);
    if (!is_named(m->lora.targets, layer))
        return y;
    n_out = w->shape.ndim - n_contract;
    a_dim[0] = b_dim[n_out] = m->lora.rank;
    memcpy(b_dim, w->shape.dim, (size_t)n_out * sizeof(*b_dim));
    for (int d = 0; d < n_contract; d++)
        in *= a_dim[1 + d] = w->shape.dim[n_out + d];
    a = adapter(m, merak_name(m, "%s.lora_A" WEIGHT, layer), 1 + n_contract,
                a_dim, MERAK_UNIFORM(1 / sqrtf((float)in)));
    b = adapter(m, merak_name(m, "%s.lora_B" WEIGHT, layer), n_out + 1, b_dim,
                MERAK_ZEROS);
    x = merak_dropout(m, x, m->lora.dropout);
    x = scaled(m, merak_linear(m, x, a, NULL, n_contract));
    return merak_add(m, y, merak_linear(m, x, b, NULL, 1));
}
