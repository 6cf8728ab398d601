/* SPDX-License-Identifier: Apache-2.0 */
/* zero_tensor_ranks.c - parameters whose optimizer state is distributed over
 * tensor ranks
 *
 * Under ZeRO-1, replicas divide a parameter's state.  Tensor ranks that hold
 * all of a parameter are replicas as well: in layers that are cut by samples,
 * and of what is not cut at all.  To divide the state takes one collective
 * more, the gather before the parameter is read again; the all-reduce of its
 * gradient becomes a reduce-scatter.  In return, each element that a rank does
 * not keep saves 12 bytes of memory, and about 6 bytes sent between replicas.
 * A collective's latency equals about 100 KB of bandwidth: parameters of 2^14
 * elements and more, the weights, are worth it; norms and biases are not.
 */
#include "config.h"

#include "partitioner/layout/shard.h"

#define LARGE ((size_t)1 << 14) /* elements on a tensor rank */

unsigned merak_sharded_flat_axes(const struct merak_sharded *sharded, int param)
{
    const struct merak_layout *layout = &sharded->layout[param];
    const int first[MERAK_MAX_AXES] = {0}; /* the same for all ranks */
    struct merak_box box;
    unsigned axes = 0;

    if (sharded->graph->value[param]->frozen)
        return 0; /* it has none */
    for (int a = 0; a < merak_sharded_tensor_axes(sharded); a++) {
        if (layout->at[a].kind == MERAK_REPLICATED)
            axes |= 1u << a;
    }
    if (axes == 0)
        return 0;
    merak_layout_box(&sharded->mesh, layout,
                     &sharded->graph->value[param]->shape, first, &box);
    return merak_box_count(&box) >= LARGE ? axes : 0;
}
