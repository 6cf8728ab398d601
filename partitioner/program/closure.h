/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/closure.h - what has to run again if values are
 * dropped
 *
 * The rule that programs and the planner's table share: see action_nodes.c.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_CLOSURE_H
#define MERAK_PARTITIONER_PROGRAM_CLOSURE_H

#include "partitioner/layout/shard.h"

struct merak_closure {
    const struct merak_sharded *sharded;
    const int *block; /* by node id, forward nodes */
    bool *crosses;    /* by value: another block's forward uses it */
    /* Is a node considered, and are a forward node's outputs to be dropped if
     * no rule prevents it? */
    bool (*is_here)(const void *arg, int node);
    bool (*drops)(const void *arg, int node);
    const void *arg;
    bool *recompute; /* out, by node: runs again */
    bool *dropped; /* out, by value: read again after it was dropped; NULL: not
                      needed */
};

/* Is it attention, forward or backward?  Selective recomputation drops it. */
bool merak_op_is_attention(const struct merak_op *op);
/* Fill in crosses, which is all false. */
void merak_closure_find_crossings(struct merak_closure *closure);
/* Fill in recompute and dropped, which are all false. */
void merak_closure_find(struct merak_closure *closure);

#endif
