/* SPDX-License-Identifier: Apache-2.0 */
/* layer_names.h - the layers of a model, which a graph does not have
 *
 * Models number them in their parameters' names: "h.3.mlp.c_fc.weight" belongs
 * to layer 3.
 */
#ifndef MERAK_PARTITIONER_GRAPH_LAYER_NAMES_H
#define MERAK_PARTITIONER_GRAPH_LAYER_NAMES_H

#include "partitioner/graph/graph.h"

/* The first part of a dotted name that is a number; -1 if none is. */
int merak_layer_of_name(const char *name);
/* The layer whose parameter a node reads; -1: none. */
int merak_node_layer(const struct merak_node *node);
/* One more than the highest layer; 0: the graph has none. */
int merak_graph_layers(const struct merak_graph *graph);
/* By forward node, the layer that it is in, from the first node that reads a
 * parameter of it to that of the next layer; -1 before the first layer, and
 * behind the last from where a parameter is read that is of none. */
void merak_layers_mark(const struct merak_graph *graph, int *layer);

#endif
