/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/boundary.h - how values that are replicated over tensor
 * ranks go from stage to stage
 */
#ifndef MERAK_PARTITIONER_PROGRAM_BOUNDARY_H
#define MERAK_PARTITIONER_PROGRAM_BOUNDARY_H

#include "partitioner/program/program.h"

/* The number of tensor ranks that a value of this layout is replicated over;
 * *axis_p (or NULL): along which axis, or MERAK_MAX_AXES: the whole group. */
int merak_boundary_ways(const struct merak_sharded *sharded,
                        const struct merak_layout *layout, int *axis_p);
/* Bytes of the largest value that crosses stages and is replicated. */
double merak_boundary_bytes(const struct merak_sharded *sharded,
                            const struct merak_stages *stages);
/*
 * plan->scatter, for a plan whose degrees are set.  AUTO: the ranks per node,
 * if there are several nodes, a tensor group is in one of them, and by the
 * cost model a boundary of this many bytes, of which slices cross one by one,
 * arrives sooner in parts, gathered, than whole; else 0.  A pure function: all
 * ranks make the same choice.
 */
int merak_boundary_choose(enum merak_boundary boundary,
                          const struct merak_cost_model *cost,
                          const struct merak_plan *plan, double bytes);

#endif
