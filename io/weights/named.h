/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/named.h - names with shapes, of a model or of a file */
#ifndef MERAK_IO_WEIGHTS_NAMED_H
#define MERAK_IO_WEIGHTS_NAMED_H

#include <stdbool.h>

#include "merak/status.h"
#include "merak/types.h"

struct merak_graph;

struct merak_named {
    const char *name;
    struct merak_shape shape;
};

/* The parameters of a graph, in its order, with or without its adapters;
 * free() the list; names are borrowed from the graph. */
enum merak_status merak_named_params(const struct merak_graph *graph,
                                     bool adapters,
                                     struct merak_named **named_p, int *n_p,
                                     struct merak_error *err) MERAK_CHECKED;
/*
 * Are both lists equal, in any order?  MERAK_ERR_MISMATCH names the first that
 * is missing in `have`, else one of another shape, else one that is only in
 * `have`, with the most similar name in the other list, and how many more
 * there are.
 *
 *   where  where `have` comes from, for the message
 */
enum merak_status merak_named_compare(const struct merak_named *want,
                                      int n_want,
                                      const struct merak_named *have,
                                      int n_have, const char *where,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
