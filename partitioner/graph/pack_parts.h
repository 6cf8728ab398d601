/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/graph/pack_parts.h - values that go from part to part of a model as
 * their largest elements
 */
#ifndef MERAK_PARTITIONER_GRAPH_PACK_PARTS_H
#define MERAK_PARTITIONER_GRAPH_PACK_PARTS_H

#include "partitioner/graph/graph.h"

struct merak_pack {
    const int *part;  /* by forward node: ascending, from 0 */
    const int *ratio; /* by part: at which its values go to the next ones; 0:
                         whole */
};

/*
 * A graph of the same nodes, and between parts pairs of topk_pack, the last
 * nodes of a part, and topk_unpack, the first ones of the next.  Of what later
 * parts read, values of floats are packed along their last dim if channels run
 * along it.  Readers in the part itself have the whole value, and gradients are
 * those of what is computed.  A value that goes on is packed again for each
 * hop.
 *
 *   graph     in   of a model that recycles nothing; without gradients or with
 *   packed_p  out  differentiated; the caller destroys it
 *
 * MERAK_ERR_CONFIG names a value whose rows have no more elements than the
 * ratio.
 */
enum merak_status merak_graph_pack(const struct merak_graph *graph,
                                   const struct merak_pack *pack,
                                   struct merak_graph **packed_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
