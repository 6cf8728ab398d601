/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/cut.h - where to cut a candidate */
#ifndef MERAK_PARTITIONER_SEARCH_CUT_H
#define MERAK_PARTITIONER_SEARCH_CUT_H

#include "partitioner/search/rate.h"

/*
 * Fill cand->bound, drop and what is rated with the best cuts found whose
 * stages take at most `limit` bytes each; rated_s is 0 if there are none.
 * With `any`, stages that take more will do.  `like`, if not NULL, is taken
 * if it fits and trying all is too much.  A given cut is the only one.
 */
enum merak_status merak_search_cut(const struct merak_cost_model *cost,
                                   struct merak_candidate *cand,
                                   const int *like, double limit, bool any,
                                   struct merak_error *err) MERAK_CHECKED;
/* Find cand->balanced; its schedule may be any for as many parts. */
enum merak_status merak_search_balance(const struct merak_cost_model *cost,
                                       struct merak_candidate *cand,
                                       struct merak_error *err) MERAK_CHECKED;
/* All ways to cut n segments in so many parts, in order; false at the end. */
void merak_cuts_first(int *bound, int parts, int n);
bool merak_cuts_next(int *bound, int parts, int n);
double merak_cuts_count(int parts, int n);
/* Rate it with the bounds it has; what to drop is chosen for this limit. */
enum merak_status merak_search_rate(const struct merak_cost_model *cost,
                                    struct merak_candidate *cand, double limit,
                                    struct merak_error *err) MERAK_CHECKED;
/* Better cuts near the candidate's. */
enum merak_status merak_search_polish(const struct merak_cost_model *cost,
                                      struct merak_candidate *cand,
                                      double limit,
                                      struct merak_error *err) MERAK_CHECKED;

#endif
