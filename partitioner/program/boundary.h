/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/boundary.h - how values go from stage to stage that
 * tensor ranks hold alike
 */
#ifndef MERAK_PARTITIONER_PROGRAM_BOUNDARY_H
#define MERAK_PARTITIONER_PROGRAM_BOUNDARY_H

#include "partitioner/program/program.h"

/* How many tensor ranks hold a value of this layout alike; *axis_p, which may
 * be NULL: the axis they are along, or MERAK_MAX_AXES: the whole group. */
int merak_boundary_ways(const struct merak_sharded *sharded,
                        const struct merak_layout *layout, int *axis_p);
/* Bytes of the largest value that crosses stages and is held alike. */
double merak_boundary_bytes(const struct merak_sharded *sharded,
                            const struct merak_stages *stages);
/*
 * plan->scatter, of a plan that has its degrees.  AUTO: nodes' ranks if a
 * tensor group is in one of several nodes and a boundary of so many bytes, of
 * which slices cross one by one, is gathered there sooner, by the costs, than
 * it comes whole; else 0.  A pure
 * function: all ranks choose alike.
 */
int merak_boundary_choose(enum merak_boundary boundary,
                          const struct merak_cost_model *cost,
                          const struct merak_plan *plan, double bytes);

#endif
