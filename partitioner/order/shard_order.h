/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/order/shard_order.h - a sharded graph with its nodes in an order
 * to be cut
 *
 * Layouts do not depend on the order of nodes, but cuts between stages do: with
 * parallel branches, the order determines what crosses a cut.
 */
#ifndef MERAK_PARTITIONER_ORDER_SHARD_ORDER_H
#define MERAK_PARTITIONER_ORDER_SHARD_ORDER_H

#include "partitioner/layout/shard.h"

/* merak_shard_described(); then put the nodes in the order that opt->branches
 * names, and mark those of shared layers (merak_shared_mark()). */
enum merak_status merak_shard(const struct merak_graph *graph,
                              const struct merak_shard_options *opt,
                              struct merak_sharded **sharded_p,
                              struct merak_error *err) MERAK_CHECKED;
/* Set sharded->branches, and put the nodes in `order` if they can run in it and
 * it is worth taking; sharded->order holds the result.  Every value is computed
 * from the same operands as before. */
enum merak_status merak_sharded_gather(struct merak_sharded *sharded,
                                       enum merak_branches order,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
