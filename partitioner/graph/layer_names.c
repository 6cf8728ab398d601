/* SPDX-License-Identifier: Apache-2.0 */
/* layer_names.c - the layers of a model, by its parameters' names */
#include "config.h"

#include "partitioner/graph/layer_names.h"

#include <stdlib.h>
#include <string.h>

int merak_layer_of_name(const char *name)
{
    for (;;) {
        size_t n = strcspn(name, "."), digits = strspn(name, "0123456789");

        if (digits > 0 && digits == n && n <= 6)
            return atoi(name);
        if (name[n] == '\0')
            return -1;
        name += n + 1;
    }
}

int merak_node_layer(const struct merak_node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        int layer = node->in[i]->kind == MERAK_VALUE_PARAM
                        ? merak_layer_of_name(node->in[i]->name)
                        : -1;

        if (layer >= 0)
            return layer;
    }
    return -1;
}

int merak_graph_layers(const struct merak_graph *graph)
{
    int n = 0;

    for (int i = 0; i < graph->n_forward; i++) {
        int k = merak_node_layer(graph->node[i]);

        n = k >= n ? k + 1 : n;
    }
    return n;
}

static bool reads_param(const struct merak_node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i]->kind == MERAK_VALUE_PARAM)
            return true;
    }
    return false;
}

void merak_layers_mark(const struct merak_graph *graph, int *layer)
{
    int last = graph->n_forward - 1, now = -1;

    while (last >= 0 && merak_node_layer(graph->node[last]) < 0)
        last--;
    for (int i = 0; i < graph->n_forward; i++) {
        int k = merak_node_layer(graph->node[i]);

        if (k >= 0)
            now = k;
        else if (i > last && reads_param(graph->node[i]))
            now = -1;
        layer[i] = now;
    }
}
