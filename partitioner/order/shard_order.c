/* SPDX-License-Identifier: Apache-2.0 */
/* shard_order.c - see shard_order.h */
#include "config.h"

#include "partitioner/order/shard_order.h"

enum merak_status merak_shard(const struct merak_graph *graph,
                              const struct merak_shard_options *opt,
                              struct merak_sharded **sharded_p,
                              struct merak_error *err)
{
    struct merak_sharded *sharded = NULL;
    enum merak_status rc = merak_shard_described(graph, opt, &sharded, err);

    if (rc == MERAK_OK)
        rc = merak_sharded_gather(sharded, opt->branches, err);
    if (rc == MERAK_OK && opt->shared > 0)
        rc = merak_shared_mark(sharded, err);
    if (rc != MERAK_OK) {
        merak_sharded_destroy(sharded);
        return rc;
    }
    *sharded_p = sharded;
    return MERAK_OK;
}
