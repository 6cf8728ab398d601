/* SPDX-License-Identifier: Apache-2.0 */
/* layers.c - which layers a program, or a part of the model, has
 *
 * A graph has no layers; models number them in their parameters' names:
 * "h.3.mlp.c_fc.weight" belongs to layer 3.
 */
#include "config.h"

#include "partitioner/program/program.h"
#include "partitioner/program/stages.h"

#include "base/error.h"
#include "partitioner/graph/layer_names.h"
#include "partitioner/layout/shard.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first layer from `least` on, or INT_MAX. */
static int next_layer(const struct merak_program *program, int least)
{
    int next = INT_MAX;

    for (int i = 0; i < program->n_params; i++) {
        int layer = merak_layer_of_name(program->param[i].name);

        if (layer >= least && layer < next)
            next = layer;
    }
    return next;
}

void merak_program_layers(const struct merak_program *program,
                          char text[MERAK_LAYERS_TEXT])
{
    size_t n = 0;
    int first = next_layer(program, 0);

    snprintf(text, MERAK_LAYERS_TEXT, "-");
    while (first < INT_MAX) {
        char run[32], to[16] = "";
        int last = first;

        while (next_layer(program, last + 1) == last + 1)
            last++;
        if (last > first)
            snprintf(to, sizeof(to), "-%d", last);
        snprintf(run, sizeof(run), "%s%d%s", n > 0 ? "," : "", first, to);
        if (n + strlen(run) + sizeof(",..") > MERAK_LAYERS_TEXT) {
            snprintf(text + n, MERAK_LAYERS_TEXT - n, ",..");
            return;
        }
        n += (size_t)snprintf(text + n, MERAK_LAYERS_TEXT - n, "%s", run);
        first = next_layer(program, last + 1);
    }
}

enum merak_status merak_stages_layers(const struct merak_sharded *sharded,
                                      const struct merak_stages *stages,
                                      int *count, int *split_p,
                                      struct merak_error *err)
{
    const struct merak_graph *graph = sharded->graph;
    struct {
        int part; /* 1 + that in which it begins */
        bool is_split;
    } * layer;
    size_t room = (size_t)merak_graph_layers(graph) + 1;

    layer = calloc(room, sizeof(*layer));
    if (layer == NULL)
        return merak_fail_nomem(err, room * sizeof(*layer));
    memset(count, 0, (size_t)stages->n * sizeof(*count));
    *split_p = 0;
    for (int i = 0; i < graph->n_forward; i++) {
        int k = merak_node_layer(graph->node[i]), part = stages->of_node[i] + 1;

        if (k < 0)
            continue;
        if (layer[k].part == 0) {
            layer[k].part = part;
            count[part - 1]++;
        } else if (layer[k].part != part && !layer[k].is_split) {
            layer[k].is_split = true;
            ++*split_p;
        }
    }
    free(layer);
    return MERAK_OK;
}

/* The first and the last forward node that read a layer's parameters. */
struct layer_ends {
    int first, last;
};

/* Of n layers; the caller frees them. */
static struct layer_ends *find_ends(const struct merak_graph *graph, int n)
{
    struct layer_ends *ends = calloc((size_t)n + 1, sizeof(*ends));

    for (int i = graph->n_forward - 1; ends != NULL && i >= 0; i--) {
        int k = merak_node_layer(graph->node[i]);

        if (k < 0)
            continue;
        ends[k].first = i;
        ends[k].last = i > ends[k].last ? i : ends[k].last;
    }
    return ends;
}

/* The cut point between layer k - 1 and layer k, nearest to the latter; behind
 * the last layer, nearest to that.  -1: there is none. */
static int point_before(const struct merak_cut_point *place, int n_points,
                        const struct layer_ends *ends, int n_layers, int k)
{
    int best = -1;

    for (int i = n_points; i >= 1; i--) {
        bool behind = k == 0 || place[i].node > ends[k - 1].last;

        if (!behind)
            break;
        if (k == n_layers)
            best = i - 1;
        else if (place[i].node <= ends[k].first)
            return i - 1;
    }
    return best;
}

enum merak_status merak_stages_cut_layers(const struct merak_sharded *sharded,
                                          const int *count, int n, int *place,
                                          struct merak_error *err)
{
    struct merak_cut_point *points = NULL;
    int n_points, n_layers = merak_graph_layers(sharded->graph);
    struct layer_ends *ends = find_ends(sharded->graph, n_layers);
    int layer = 0, last = -1;
    enum merak_status rc;

    if (ends == NULL)
        return merak_fail_nomem(err, sizeof(*ends));
    rc = merak_stages_list(sharded, &points, &n_points, err);
    for (int i = 0; rc == MERAK_OK && i + 1 < n; i++) {
        layer += count[i];
        place[i] = layer <= n_layers
                       ? point_before(points, n_points, ends, n_layers, layer)
                       : -1;
        if (place[i] <= last)
            rc = merak_fail(err, MERAK_ERR_CONFIG,
                            "no cut point before layer %d for part %d", layer,
                            i + 1);
        last = place[i];
    }
    free(points);
    free(ends);
    return rc;
}
