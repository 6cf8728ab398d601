/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/cut.h - where to cut a candidate into parts */
#ifndef MERAK_PARTITIONER_SEARCH_CUT_H
#define MERAK_PARTITIONER_SEARCH_CUT_H

#include "partitioner/search/rate.h"

struct merak_search;

/*
 * Fill cand->bound, drop and the rated fields with the best cuts found whose
 * stages take at most `limit` bytes each; rated_s is 0 if there are none, or
 * the search has failed.
 * With `any`, stages may take more.  `initial`, if not NULL, is used if it fits
 * and there are too many cuts to try all.  A given cut is the only one tried.
 */
void merak_search_cut(struct merak_search *s, struct merak_candidate *cand,
                      const int *initial, double limit, bool any);
/* The same with the cut that is reached from `bound`, which does not fit, by
 * moving boundaries while the fullest stage gets less full, and then while the
 * step gets shorter.  `bound` is overwritten. */
void merak_search_lighten(struct merak_search *s, struct merak_candidate *cand,
                          int *bound, double limit);
/* Find cand->balanced, which is the same for any schedule of these parts. */
void merak_search_balance(struct merak_search *s, struct merak_candidate *cand);
/* Enumerate all ways to cut n segments into `parts`; false at the end. */
void merak_cuts_first(int *bound, int parts, int n);
bool merak_cuts_next(int *bound, int parts, int n);
double merak_cuts_count(int parts, int n);
/* Rate the candidate's present bounds; drops are chosen to fit `limit`. */
enum merak_status merak_search_rate(const struct merak_cost_model *cost,
                                    struct merak_candidate *cand, double limit,
                                    struct merak_error *err) MERAK_CHECKED;
/* Move the candidate's bounds while the step gets shorter. */
void merak_search_polish(struct merak_search *s, struct merak_candidate *cand);

#endif
