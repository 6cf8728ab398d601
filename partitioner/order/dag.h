/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/order/dag.h - what is to be done, and what needs what
 *
 * Work as plain data: items that take time, and edges from what is made to
 * who reads it.  A value with several readers has an edge from its maker to
 * the first of them, from there to the second, and so on, each with all of
 * its bytes: readers keep the order in which they are numbered, and what
 * crosses any cut through an order is the sum of the edges over it.
 * Pure functions, deterministic; atoms.c makes such data of a sharded graph.
 */
#ifndef MERAK_PARTITIONER_ORDER_DAG_H
#define MERAK_PARTITIONER_ORDER_DAG_H

#include "merak/status.h"

#include <stddef.h>

struct merak_dag_edge {
    int from, to; /* from < to */
    double bytes; /* 0: an order, and nothing else */
};

struct merak_dag {
    int n;           /* items, numbered in an order that they can run in */
    double *seconds; /* by item */
    double *memory;  /* by item: bytes that its stage holds for it */
    int n_edges;
    struct merak_dag_edge *edge; /* several may join the same two */
};

/* Seconds of an order of all items times the bytes that cross meanwhile. */
double merak_dag_cost(const struct merak_dag *dag, const int *order);

/*
 * An order with few bytes alive: the least merak_dag_cost() there is where
 * few sets of items can have run at a time, else a good one.
 *
 *   order   out  [n] items
 *   cost_p  out  its cost; DBL_MAX if more items were ready at once than are
 *                looked at, and order is not filled in
 */
enum merak_status merak_dag_order(const struct merak_dag *dag, int *order,
                                  double *cost_p,
                                  struct merak_error *err) MERAK_CHECKED;

struct merak_block_options {
    int blocks;    /* k, at least 1 */
    double memory; /* bytes that a block may have, unless it is one item; 0:
                      no bound */
};

/*
 * Cut the items in k blocks that take about as long as each other and that
 * little crosses.
 *
 *   block     out  [n] its block, 0 .. *n_blocks_p - 1
 *   n_blocks_p out k; fewer if there are fewer items, more if `memory` asks
 *
 * No edge leads to a lower block, so that blocks can run in the order of their
 * numbers and each is convex.  None takes longer than twice the mean, k blocks
 * of all the time, or than one item of it.
 * Source: Tanaka et al. 2021 (RaNNC), sec. III-B; see blocks.c.
 */
enum merak_status merak_dag_blocks(const struct merak_dag *dag,
                                   const struct merak_block_options *opt,
                                   int *block, int *n_blocks_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
