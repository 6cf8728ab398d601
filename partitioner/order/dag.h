/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/order/dag.h - work items and their dependencies
 *
 * Work as plain data: items that take time, and edges from producers to
 * readers.  A value with several readers has an edge from its producer to
 * the first of them, from there to the second, and so on, each with all of
 * its bytes: readers keep the order in which they are numbered, and what
 * crosses any cut through an order is the sum of the edges over it.
 * Pure functions, deterministic; atoms.c builds this from a sharded graph.
 */
#ifndef MERAK_PARTITIONER_ORDER_DAG_H
#define MERAK_PARTITIONER_ORDER_DAG_H

#include "merak/status.h"

#include <stddef.h>

struct merak_dag_edge {
    int from, to; /* from < to */
    double bytes; /* 0: only an order */
};

struct merak_dag {
    int n;           /* items, numbered in an order that they can run in */
    double *seconds; /* by item */
    double *memory;  /* by item: bytes that its stage holds for it */
    int n_edges;
    struct merak_dag_edge *edge; /* several may connect the same two */
};

/* The sum over all items, in this order, of seconds times bytes alive. */
double merak_dag_cost(const struct merak_dag *dag, const int *order);

/*
 * An order with few bytes alive: the one with the least merak_dag_cost() if
 * few sets of items can have run at any time, else a good one.
 *
 *   order   out  [n] items
 *   cost_p  out  its cost; DBL_MAX if more items were ready at once than are
 *                tracked, and then order is not filled in
 */
enum merak_status merak_dag_order(const struct merak_dag *dag, int *order,
                                  double *cost_p,
                                  struct merak_error *err) MERAK_CHECKED;

struct merak_block_options {
    int blocks;    /* k, at least 1 */
    double memory; /* bytes that a block may hold, unless it is one item; 0:
                      no limit */
};

/*
 * Cut the items into k blocks of about equal time, with few bytes crossing
 * between them.
 *
 *   block     out  [n] its block, 0 .. *n_blocks_p - 1
 *   n_blocks_p out k; fewer if there are fewer items, more if `memory` needs it
 *
 * No edge leads to a lower block, so that blocks can run in the order of their
 * numbers and each is convex.  No block takes longer than 2/k of the total
 * time, unless it is one item.
 * Source: Tanaka et al. 2021 (RaNNC), sec. III-B; see blocks.c.
 */
enum merak_status merak_dag_blocks(const struct merak_dag *dag,
                                   const struct merak_block_options *opt,
                                   int *block, int *n_blocks_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
