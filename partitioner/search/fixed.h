/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/fixed.h - cuts and recomputation that are given */
#ifndef MERAK_PARTITIONER_SEARCH_FIXED_H
#define MERAK_PARTITIONER_SEARCH_FIXED_H

#include "partitioner/search/rate.h"

/* MERAK_ERR_CONFIG if the lists contradict each other or themselves. */
enum merak_status merak_fixed_valid(const struct merak_given_lists *lists,
                                    struct merak_error *err) MERAK_CHECKED;
/* Chunks that are asked for, or that given parts come to; 0: any. */
int merak_fixed_chunks(const struct merak_choices *pin, int pp);
/* What a candidate is cut of, and into: not the blocks that all stages run. */
int merak_candidate_segments(const struct merak_candidate *cand);
int merak_candidate_parts(const struct merak_candidate *cand);
bool merak_fixed_cut(const struct merak_candidate *cand);
/* By part, or NULL. */
const struct merak_drop *merak_fixed_drop(const struct merak_candidate *cand);
/* Fill bound from the given cut. */
void merak_fixed_bound(const struct merak_candidate *cand, int *bound);
/* Do parts with these bounds have the blocks that they are to drop? */
bool merak_fixed_allows(const struct merak_candidate *cand, const int *bound);
/* Has its plan as many parts as the lists are of?  MERAK_ERR_CONFIG if it has
 * but cannot be so under the schedule. */
bool merak_fixed_parts(const struct merak_candidate *cand);
enum merak_status merak_fixed_check(const struct merak_candidate *cand,
                                    const struct merak_schedule *schedule,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
