/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/fixed.h - given cuts and recomputation */
#ifndef MERAK_PARTITIONER_SEARCH_FIXED_H
#define MERAK_PARTITIONER_SEARCH_FIXED_H

#include "partitioner/search/rate.h"

/* MERAK_ERR_CONFIG if the lists contradict each other or themselves. */
enum merak_status merak_fixed_valid(const struct merak_given_lists *lists,
                                    struct merak_error *err) MERAK_CHECKED;
/* Chunks as requested, or as the given parts imply; 0: any. */
int merak_fixed_chunks(const struct merak_choices *pin, int pp);
/* Segments and parts of a candidate, without vocabulary-parallel layers. */
int merak_candidate_segments(const struct merak_candidate *cand);
int merak_candidate_parts(const struct merak_candidate *cand);
/* Fill bound[] from the given cut. */
void merak_fixed_bound(const struct merak_candidate *cand, int *bound);
/* Does each part with these bounds have the blocks it is to drop? */
bool merak_fixed_allows(const struct merak_candidate *cand, const int *bound);
/* Does its plan have the lists' number of parts?  If so, check() returns
 * MERAK_ERR_CONFIG where the schedule does not allow the lists. */
bool merak_fixed_parts(const struct merak_candidate *cand);
enum merak_status merak_fixed_check(const struct merak_candidate *cand,
                                    const struct merak_schedule *schedule,
                                    struct merak_error *err) MERAK_CHECKED;

#endif
