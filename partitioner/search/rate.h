/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/rate.h - a candidate's time and memory from its table */
#ifndef MERAK_PARTITIONER_SEARCH_RATE_H
#define MERAK_PARTITIONER_SEARCH_RATE_H

#include "partitioner/plan/held.h"
#include "partitioner/schedule/player.h"
#include "partitioner/search/follow.h"
#include "partitioner/search/range.h"

struct merak_candidate {
    const struct merak_table *table;
    const struct merak_schedule *schedule;
    struct merak_given_lists given;    /* cut, drops; NULL: not given */
    const struct merak_follow *follow; /* its action lists, or NULL */
    struct merak_search_tally *tally;  /* to be added to, or NULL */
    struct merak_plan plan;  /* cut and drop are NULL: see bound and drop */
    int *bound;              /* [parts + 1] segments, from 0 to table->n */
    struct merak_drop *drop; /* [parts] */
    int *balanced;           /* bounds whose longest part is shortest, memory
                                ignored: the same for all schedules */
    double rated_s;
    double error; /* times which plans of its kind took longer; 0: unknown */
    double bytes;         /* of the stage that takes most */
    int stage;            /* that one */
    double step_s, arena; /* of its programs; 0: not built */
    double comms_bytes;   /* of their communicators; 0: not counted */
    double limit;         /* bytes of an arena, of a trial with fewer than it
                             may take; 0: as many */
    double fetch_s;       /* of the step they wait for fetched parameters */
    double offload_s;     /* and for optimizer state that is the host's */
    bool settled;         /* arena is what a run would reserve */
    bool polished;        /* no boundary moves for a shorter estimate */
    bool retried;         /* too big, it was cut again for its programs */
    double part_s[MERAK_PART_COUNT];
};

/* Replicas along one of the axes that they are summed over. */
struct merak_replicas {
    int n;
    struct merak_spread spread; /* of them, as a rank meets them */
};

/* Gathers of parameters and reductions of gradients over dp peers (ends.c). */
struct merak_ends {
    double *gather_s, *reduce_s; /* by segment */
    double *gathered; /* by segment: when ZeRO-1 has gathered what it reads */
    double *all_gathered, *done; /* by stage; all in one allocation */
    struct merak_reduction *reduction;
    struct merak_drain *drain;
};

/* Everything needed to rate a candidate except the bounds. */
struct merak_rater {
    const struct merak_cost_model *cost; /* of kernels; those of links: */
    struct merak_links links;     /* the ranks of a stage use a node's uplink */
    struct merak_links contended; /* those of all stages do */
    /* Seconds of the uplink of a domain of this level (a node) for each byte
     * that every rank of a stage reduces over replicas; 0: no other stage
     * shares it, or dp is 1. */
    double uplink_s_per_byte;
    int uplink_level;
    const struct merak_table *table;
    const struct merak_plan *plan;
    struct merak_stage_mesh mesh;    /* of each stage */
    struct merak_search_tally tally; /* of this rater alone */
    int parts, chain, chunks;        /* chain: the parts that one stage runs */
    double limit;                    /* bytes of a stage, if drops are chosen */
    bool delays_reduce;              /* merak_plan_delays_reduce(), parts 1.. */
    bool fixed;                      /* drop is given or already chosen */
    double most_s, most_bytes;       /* give up above either; most_s 0: no
                                        limits */
    struct merak_follow own;         /* if the candidate has no lists */
    const struct merak_lists *lists, *lists_less; /* of struct merak_follow */
    struct merak_replicas replicas[2];            /* the inner ones first */
    int n_replicas;
    struct merak_ends ends;
    double *work_s, *forward_s; /* [segment + 1] seconds of a unit before each
                                   segment; one allocation */
    struct merak_player player; /* plays the lists */
    struct merak_part_cost *part_cost; /* by part; player.cost points to it */
    double *hop;                       /* [block][stage]; likewise */
    struct merak_marks marks; /* of ranges, one mark and top a segment */
    int busiest; /* the stage that works most, as of the latest merak_rate() */
    double (*turns)[2]; /* by part: which of its forwards, and backwards, follow
                           one that ends where they begin: lent.c */
    bool lends_tied;    /* segments share a matrix */
    /* By part, likewise: */
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
/* What a rank holds, as the programs of this plan will; `lends`: matrices. */
static inline struct merak_held
merak_rater_held(const struct merak_rater *rater, enum merak_held_kind kind,
                 bool lends)
{
    return merak_plan_held(rater->plan, kind, rater->mesh.dp > 1, lends);
}
/* Ranks that have a part each. */
static inline int merak_rater_parts(const struct merak_rater *rater,
                                    struct merak_held held)
{
    return merak_plan_held_parts(rater->plan, held.over, rater->mesh.dp);
}
/* Seconds of the step with these bounds; sets rater->drop to what each part
 * drops.  part_s and bytes_p may be NULL.  For a step above rater->most_s or
 * most_bytes, the result is only a lower bound. */
double merak_rate(struct merak_rater *rater, const int *bound, double *part_s,
                  double *bytes_p, int *stage_p);
/* The share of a value's bytes that the hop from a stage to another moves: less
 * than 1 of what is sent in part, up with a bit for the place of each element.
 * A ratio that is still to be found counts as the most. */
double merak_rate_sent_share(const struct merak_plan *plan, int from, int to,
                             bool up);

#endif
