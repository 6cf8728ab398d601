/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/order/atoms.h - a sharded graph's forward nodes as atoms
 *
 * An atom is a node that depends on the batch, with the nodes that depend only
 * on parameters and that it is the first to need.  The ops from the logits to
 * each token's loss are one atom.  If another use of what such nodes read is
 * between them, they are atoms of their own.  Conversions belong to the node
 * that reads them, gradient nodes to their forward node.
 *
 * RaNNC clones what several atoms need and does not depend on the batch.  Here
 * parameters are values, not nodes: every stage that reads one has a copy, and
 * every use has its own gradient, which amounts to a clone.  Nodes that compute
 * something from parameters alone are not cloned: each copy would add to the
 * parameters' gradients separately, in a different order of sums, and readers
 * keep their order anyway, so that a copy would free nothing.
 */
#ifndef MERAK_PARTITIONER_ORDER_ATOMS_H
#define MERAK_PARTITIONER_ORDER_ATOMS_H

#include "partitioner/order/dag.h"
#include "partitioner/layout/shard.h"

struct merak_atoms {
    struct merak_dag dag; /* in the order in which they were described; with
                             seconds and memory of gradients and of the
                             optimizer's state */
    int *of_node;         /* by node id; -1: a conversion or a gradient */
    int *first, *node;    /* by atom: start of its nodes, ascending */
};

/*
 *   sharded  as written, its nodes in the order in which they were described
 *   atoms    out  merak_atoms_fini() frees it, also after a failure
 */
enum merak_status merak_atoms_init(struct merak_atoms *atoms,
                                   const struct merak_sharded *sharded,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_atoms_fini(struct merak_atoms *atoms);

#endif
