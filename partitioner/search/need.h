/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/need.h - memory of stages, and what they drop for it */
#ifndef MERAK_PARTITIONER_SEARCH_NEED_H
#define MERAK_PARTITIONER_SEARCH_NEED_H

#include "partitioner/search/rate.h"

/* What a part takes alone on its stage: bytes, and seconds to recompute what
 * it drops to take no more than `limit`, if that can be; `known` blocks do not
 * do.  Overwrites range, keeps and drop of the part. */
struct merak_need {
    double bytes, recompute_s;
    int blocks; /* that do, were blocks dropped; 0: none are to be */
};
struct merak_need merak_part_need(struct merak_rater *rater,
                                  const struct merak_range *range, int part,
                                  double limit, int known);
/* What one of a stage's parts may take at most, if each takes as much; beside
 * blocks that all stages run, what these leave. */
double merak_part_limit(struct merak_rater *rater, double limit);
/* Bytes that a part alone on its stage takes by the table at least, whatever
 * is dropped; and so does every part that it is a piece of. */
double merak_part_least(const struct merak_rater *rater,
                        const struct merak_range *range, int part);
/* Choose what each part drops, or keep to it if rater->fixed; fill keeps.
 * Returns the bytes of the stage that takes most. */
double merak_stages_need(struct merak_rater *rater, int *stage_p);
/* Bytes of a stage that drops these, by part, cut as in the latest
 * merak_rate(). */
double merak_stage_need(struct merak_rater *rater, int stage,
                        const struct merak_drop *drop);
/* Parameters of all of a stage's parts, those they share once. */
struct merak_range merak_stage_holds(const struct merak_rater *rater,
                                     int stage);

#endif
