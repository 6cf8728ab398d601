/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/lent.h - what ZeRO-2 and 3 exchange in actions */
#ifndef MERAK_PARTITIONER_SEARCH_LENT_H
#define MERAK_PARTITIONER_SEARCH_LENT_H

#include "partitioner/graph/graph.h"
#include "partitioner/search/rate.h"

/* Fill rater->turns, once it has lists. */
void merak_lent_count_turns(struct merak_rater *rater);
/* Seconds that an action of a part takes longer for it: a forward, a backward,
 * or W, if the schedule separates that. */
double merak_lent_s(const struct merak_rater *rater, int part,
                    enum merak_phase phase);
/* How much of that is for sums, in the action that makes gradients. */
double merak_lent_sums_s(const struct merak_rater *rater, int part);

#endif
