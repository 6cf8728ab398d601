/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/graph/expert_load.h - rows of a rank whose router is not balanced
 */
#ifndef MERAK_PARTITIONER_GRAPH_EXPERT_LOAD_H
#define MERAK_PARTITIONER_GRAPH_EXPERT_LOAD_H

#include "merak/op.h"

/* Times an even share: the rows that a rank has, at most all that can be its
 * experts'; and those beyond what is kept. */
struct merak_expert_load {
    double rows, again;
};

/*
 * Of operands of a rank's shapes.
 *
 *   gate, w  operands: a matrix of each expert; a number of each row of all
 *            tokens
 *   kept     rows that are kept for each expert
 *   load     times an even share that the router gives the rank's experts
 *   all      experts of all ranks
 */
struct merak_expert_load merak_expert_load(const struct merak_infer *local,
                                           int gate, int w, double kept,
                                           double load, int64_t all);

#endif
