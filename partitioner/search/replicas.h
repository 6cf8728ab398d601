/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/replicas.h - exchanges over the replicas of a stage */
#ifndef MERAK_PARTITIONER_SEARCH_REPLICAS_H
#define MERAK_PARTITIONER_SEARCH_REPLICAS_H

#include "partitioner/search/search_impl.h"

/* Fill rater->replicas. */
void merak_replicas_init(struct merak_rater *rater);
/* Seconds of n collectives over replicas, of `bytes` of a rank in total; and
 * what kernels lose to one of them that runs at the same time. */
double merak_over_dp(const struct merak_rater *rater, bool reduce, double bytes,
                     int n);
struct merak_interference
merak_over_dp_interference(const struct merak_rater *rater, bool reduce,
                           double bytes);
/* The same over the replicas that share matrices out (zero_home); and seconds
 * to gather `bytes`, of which all have parts, in these first. */
double merak_over_home(const struct merak_rater *rater, bool reduce,
                       double bytes, int n);
struct merak_interference
merak_over_home_interference(const struct merak_rater *rater, bool reduce,
                             double bytes);
/* Are these on one node? */
bool merak_home_is_in_node(const struct merak_rater *rater);
double merak_to_home(const struct merak_rater *rater, double bytes);
/* Bytes that leave a domain of a level for each byte that a rank reduces. */
double merak_reduced_far(const struct merak_rater *rater, int level);
/* Seconds to sum so many bytes of norms. */
double merak_norm_over_dp(const struct merak_rater *rater, double bytes);

/* How replicas may be summed over, and share matrices out. */
struct merak_home {
    int dp_in;
    enum merak_zero_home home;
};

enum { MERAK_MAX_HOMES = 3 };

/* Those to try with a candidate's degrees, order and level of ZeRO: what is
 * given, and where that is to be found the replicas of a node. */
int merak_search_homes(struct merak_search *search,
                       const struct merak_candidate *cand,
                       struct merak_home list[MERAK_MAX_HOMES]);

#endif
