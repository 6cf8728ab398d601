/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/order/atoms.h - a sharded graph's forward nodes as atoms
 *
 * An atom is a node that depends on the batch, and the nodes that depend on
 * parameters alone and that it is the first to need.  A loss is one atom, all
 * steps from the logits on.  Where another use of what such nodes read stands
 * between them they are atoms of their own.  Conversions belong to whoever
 * reads what they make, gradient nodes to their forward node.
 *
 * RaNNC clones what several atoms need and the batch does not change.  Here
 * parameters are values and no nodes: every stage that reads one has its own,
 * and its use has a gradient of its own, which is a clone in all but name.
 * Nodes that make something of parameters alone are not cloned: each copy
 * would add to the parameters' gradients apart, in another order of sums, and
 * readers keep their order among them anyway, so that a copy would free
 * nothing.
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
    int *first, *node;    /* by atom: begins of its nodes, ascending */
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
