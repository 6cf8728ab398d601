/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/rate.h - a candidate's time and memory from its table */
#ifndef MERAK_PARTITIONER_SEARCH_RATE_H
#define MERAK_PARTITIONER_SEARCH_RATE_H

#include "partitioner/schedule/player.h"
#include "partitioner/search/follow.h"
#include "partitioner/search/range.h"

struct merak_candidate {
    const struct merak_table *table;
    const struct merak_schedule *schedule;
    const struct merak_given_lists *lists; /* that it keeps to, or NULL */
    const struct merak_follow *follow;     /* its lists, or NULL */
    struct merak_search_tally *tally;      /* to be added to, or NULL */
    struct merak_plan plan;  /* cut and drop are NULL: bound and drop say */
    int *bound;              /* [parts + 1] segments, from 0 to table->n */
    struct merak_drop *drop; /* [parts] */
    int *balanced;           /* bounds whose longest part is shortest, memory
                                left aside: the same for all schedules */
    double rated_s;
    double bytes;         /* of the stage that takes most */
    int stage;            /* that one */
    double step_s, arena; /* of its programs; 0: not built */
    bool settled;         /* arena is what a run would reserve */
    double part_s[MERAK_PART_COUNT];
};

/* Parameters in parts, gradients over dp peers (ends.c). */
struct merak_ends {
    double *gather_s, *reduce_s; /* by segment */
    double *gathered; /* by segment: with ZeRO-1, when what it reads is there */
    double *all_gathered, *done; /* by stage; all of one allocation */
    struct merak_reduction *reduction;
    struct merak_drain *drain;
};

/* Everything but the bounds that rating a candidate takes. */
struct merak_rater {
    struct merak_cost_model shared;
    const struct merak_cost_model *cost; /* that; the rater stays in place */
    struct merak_cost_model contended;   /* all stages of a node use its ways */
    /* What a stage's ranks take of a node's way for a byte that each of them
     * reduces over replicas; 0: no other stage does there, or dp is 1. */
    double uplink_s_per_byte;
    const struct merak_table *table;
    const struct merak_plan *plan;
    struct merak_search_tally tally; /* of this rater alone */
    int parts, chain, chunks;  /* chain: of the parts, those of one stage */
    double limit;              /* what stages may take: AUTO */
    bool sums_behind;          /* of parts but the first (program.h) */
    bool fixed;                /* drop is not to be chosen, or no more */
    double most_s, most_bytes; /* of no use if it takes more; most_s 0:
                                  any will do */
    struct merak_follow own;   /* if the candidate has no lists */
    const struct merak_lists *lists, *lists_less; /* of struct merak_follow */
    int dp_inside; /* of dp peers, on the same node */
    struct merak_ends ends;
    double *work_s, *forward_s; /* [segment + 1] of a unit, of what lies
                                   before; one allocation */
    struct merak_player player; /* of lists */
    double *costs;              /* what player.cost points to */
    struct merak_marks marks;   /* of ranges; mark and top, one each */
    /* By part, as of the latest merak_rate(): */
    struct merak_range *range;
    struct merak_keeps *keeps;
    struct merak_drop *drop;
};

enum merak_status merak_rater_init(struct merak_rater *rater,
                                   const struct merak_cost_model *cost,
                                   const struct merak_candidate *cand,
                                   double limit,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_rater_fini(struct merak_rater *rater);
/* Seconds of the step with these bounds, and in rater->drop what each part
 * drops; part_s and bytes_p may be NULL.  Of a step that takes
 * more than rater->most_s or most_bytes, only seconds that it takes at least
 * are found. */
double merak_rate(struct merak_rater *rater, const int *bound, double *part_s,
                  double *bytes_p, int *stage_p);

#endif
