/* SPDX-License-Identifier: Apache-2.0 */
/* param_groups.c - frozen parameters, weight decay and learning rates */
#include "config.h"

#include "merak/model.h"

#include "base/nearest.h"
#include "partitioner/graph/graph.h"

#include <fnmatch.h>
#include <math.h>

/* The next parameter from value i on whose name matches; NULL if none does. */
static struct merak_value *next_match(const struct merak_graph *graph,
                                      const char *pattern, int *i)
{
    while (*i < graph->n_values) {
        struct merak_value *v = graph->value[(*i)++];

        if (v->kind == MERAK_VALUE_PARAM && fnmatch(pattern, v->name, 0) == 0)
            return v;
    }
    return NULL;
}

/* The graph if any parameter matches; otherwise records a mistake. */
static struct merak_graph *graph_for(struct merak_model *m, const char *what,
                                     const char *pattern)
{
    struct merak_graph *graph = merak_model_open_for(m, what);
    struct merak_nearest nearest;
    int i = 0;

    if (graph == NULL || next_match(graph, pattern, &i) != NULL)
        return graph;
    merak_nearest_init(&nearest, pattern);
    for (int v = 0; v < graph->n_values; v++) {
        if (graph->value[v]->kind == MERAK_VALUE_PARAM)
            merak_nearest_offer(&nearest, graph->value[v]->name);
    }
    merak_model_fail(m, MERAK_ERR_CONFIG,
                     "%s %.80s: no parameter has such a name%s%s", what,
                     pattern, nearest.name != NULL ? "; the nearest is " : "",
                     nearest.name != NULL ? nearest.name : "");
    return NULL;
}

/* Change each parameter whose name matches the pattern. */
static void change(struct merak_model *m, const char *what, const char *pattern,
                   void (*one)(struct merak_value *v, float x), float x)
{
    struct merak_graph *graph = graph_for(m, what, pattern);
    struct merak_value *v;
    int i = 0;

    if (graph == NULL)
        return;
    for (v = next_match(graph, pattern, &i); v != NULL;
         v = next_match(graph, pattern, &i))
        one(v, x);
}

static void freeze(struct merak_value *v, float x)
{
    (void)x;
    v->frozen = true;
}

void merak_freeze(struct merak_model *m, const char *pattern)
{
    change(m, "freeze", pattern, freeze, 0);
}

static void leave_undecayed(struct merak_value *v, float x)
{
    (void)x;
    v->decay = false;
}

void merak_no_decay(struct merak_model *m, const char *pattern)
{
    change(m, "no-decay", pattern, leave_undecayed, 0);
}

static void scale_rate(struct merak_value *v, float x)
{
    v->lr_scale = x;
}

void merak_lr_scale(struct merak_model *m, const char *pattern, float x)
{
    if (graph_for(m, "lr-scale", pattern) == NULL)
        return;
    if (!(x > 0) || !isfinite(x))
        merak_model_fail(m, MERAK_ERR_CONFIG,
                         "lr-scale %.80s: expected a positive number, got %g",
                         pattern, (double)x);
    else
        change(m, "lr-scale", pattern, scale_rate, x);
}
