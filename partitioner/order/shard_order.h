/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/order/shard_order.h - a sharded graph, its nodes in an order to
 * be cut
 *
 * Layouts do not depend on the order of nodes, cuts between stages do: where
 * branches run beside each other, what crosses a cut is decided here.
 */
#ifndef MERAK_PARTITIONER_ORDER_SHARD_ORDER_H
#define MERAK_PARTITIONER_ORDER_SHARD_ORDER_H

#include "partitioner/layout/shard.h"

/* merak_shard_described(), its nodes then put in the order that opt->branches
 * names, and nodes of shared blocks marked. */
enum merak_status merak_shard(const struct merak_graph *graph,
                              const struct merak_shard_options *opt,
                              struct merak_sharded **sharded_p,
                              struct merak_error *err) MERAK_CHECKED;
/* Set sharded->branches, and reorder the nodes where that is possible and
 * crosses fewer bytes or evens out blocks; sharded->order holds the result.  No
 * value is computed from others than before, nor in another way. */
enum merak_status merak_sharded_gather(struct merak_sharded *sharded,
                                       enum merak_branches order,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
