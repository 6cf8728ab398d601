/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/tp_plan.h - how tensor ranks divide parameters that a user
 * has named: what the search over layouts must obey
 *
 * By patterns of names, in the words of Hugging Face's tp_plan and PyTorch's
 * parallelize plans:
 *
 *   colwise    along a dim that the node's output has, and what it reads has
 *              not: outputs of a linear, columns of a table
 *   rowwise    along a dim that the output has not: inputs of a linear, whose
 *              outputs are then summed, the vocabulary of a table
 *   replicate  not at all: whole on every tensor rank
 *   0, 1, ..   along that dim of the parameter, as Shard(0): of a tied table,
 *              which is read in two ways, the one that both can have
 */
#ifndef MERAK_PARTITIONER_LAYOUT_TP_PLAN_H
#define MERAK_PARTITIONER_LAYOUT_TP_PLAN_H

#include "partitioner/graph/graph.h"
#include "partitioner/layout/layout.h"

#define MERAK_TP_PLAN_TEXT 256

enum merak_tp_style {
    MERAK_TP_FREE, /* whatever is cheapest */
    MERAK_TP_COLWISE,
    MERAK_TP_ROWWISE,
    MERAK_TP_REPLICATE,
    MERAK_TP_DIM, /* + the dim */
};

struct merak_tp_plan {
    char text[MERAK_TP_PLAN_TEXT]; /* "*.up.weight:colwise+*.down.*:rowwise";
                                      "": nothing is named */
};

bool merak_tp_plan_any(const struct merak_tp_plan *plan);
bool merak_tp_plan_equal(const struct merak_tp_plan *a,
                         const struct merak_tp_plan *b);
/* "PATTERN:STYLE,PATTERN:STYLE", or + between them; the first pattern that a
 * name matches holds.  MERAK_ERR_CONFIG says what was expected. */
enum merak_status merak_tp_plan_parse(const char *text,
                                      struct merak_tp_plan *plan,
                                      struct merak_error *err) MERAK_CHECKED;
/* May tensor ranks have this index of a node cut, of a node of this style? */
bool merak_tp_style_allows(const struct merak_node *node,
                           const struct merak_signature *sig,
                           const struct merak_tp_plan *plan,
                           enum merak_tp_style style, int index);
/*
 * Which style each forward node has.
 *
 *   plan   in   not empty
 *   sig    in   [n_forward] of the nodes
 *   mesh   in   the axes; those for weights divide
 *   style  out  [n_forward]
 *
 * MERAK_ERR_CONFIG names a pattern that no parameter's name matches, two that
 * want one node cut in two ways, and a parameter that has no such dim or one
 * that tp does not divide.
 */
enum merak_status merak_tp_plan_mark(const struct merak_tp_plan *plan,
                                     const struct merak_graph *graph,
                                     const struct merak_signature *sig,
                                     const struct merak_mesh *mesh,
                                     enum merak_tp_style *style,
                                     struct merak_error *err) MERAK_CHECKED;
/* The same for one rank: only whether it is sensible for this model. */
enum merak_status merak_tp_plan_check(const struct merak_tp_plan *plan,
                                      const struct merak_graph *graph,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
