/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/need.h - memory of stages, and what they drop to fit */
#ifndef MERAK_PARTITIONER_SEARCH_NEED_H
#define MERAK_PARTITIONER_SEARCH_NEED_H

#include "partitioner/search/rate.h"

/* What a part needs alone on its stage: bytes, and seconds to recompute what
 * it drops to fit in `limit`, if that is possible; dropping `known` blocks is
 * known not to fit.  Overwrites range, keeps and drop of the part. */
struct merak_need {
    double bytes, recompute_s;
    int blocks; /* fewest blocks that fit if dropped; 0: none have to be */
};
struct merak_need merak_part_need(struct merak_rater *rater,
                                  const struct merak_range *range, int part,
                                  double limit, int known);
/* Bytes that each of a stage's parts may take if all take the same; with
 * vocabulary-parallel layers, what these leave. */
double merak_part_limit(struct merak_rater *rater, double limit);
/* Lower bound, by the table, of the bytes that a part alone on its stage takes
 * whatever it drops; it also holds for every part that contains this one. */
double merak_part_least(const struct merak_rater *rater,
                        const struct merak_range *range, int part);
/* Lower bound, by the table, of what the stage takes that takes most, however a
 * candidate is cut and whatever it drops; it has its action lists. */
double merak_stages_least(const struct merak_cost_model *cost,
                          const struct merak_candidate *cand);
/* Choose what each part drops, or use rater->drop if rater->fixed; fill keeps.
 * Returns the bytes of the stage that takes most. */
double merak_stages_need(struct merak_rater *rater, int *stage_p);
/* Bytes of a stage with these drops (by part) and the bounds of the latest
 * merak_rate(). */
double merak_stage_need(struct merak_rater *rater, int stage,
                        const struct merak_drop *drop);
/* The same of all of its parts' drops. */
void merak_stage_find_again(struct merak_rater *rater, int stage, bool all,
                            struct merak_drop *drop);
/* --- keeps.c --- */
/* What a part keeps with its drop in rater->drop. */
struct merak_keeps merak_rater_keeps(const struct merak_rater *rater, int part);
/* Set how much of its drop it recomputes, where the plan offloads the rest:
 * all, or what takes least time. */
void merak_rater_find_again(struct merak_rater *rater, int part, bool all);
/* Parameters of all of a stage's parts; those they share count once. */
struct merak_range merak_stage_holds(const struct merak_rater *rater,
                                     int stage);

#endif
