/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/improve.h - building, simulating and cutting a candidate
 * otherwise
 */
#ifndef MERAK_PARTITIONER_SEARCH_IMPROVE_H
#define MERAK_PARTITIONER_SEARCH_IMPROVE_H

#include "partitioner/search/search_impl.h"

/* Instructions that are built and simulated for a request, or to improve one
 * of its plans. */
#define MERAK_EFFORT 50000
#define MERAK_MOST_EFFORT (4 * MERAK_EFFORT)
#define MERAK_MAX_CLIMBS 12

/* Simulated ones that fit come first, by time; then the rest, by estimate. */
void merak_candidates_sort(struct merak_candidate *list, int n);
/* Estimates of one table and level of ZeRO err alike: where one that was rated
 * as rated_s takes `least` times as long or longer when it is built, so are the
 * others expected to.  The list, of which it is no member, is then sorted again.
 */
void merak_candidates_correct(struct merak_candidate *list, int n,
                              const struct merak_candidate *built,
                              double rated_s, double least);
/* Only seconds are asked for: is it too slow, or did a large plan answer? */
bool merak_search_is_useless(const struct merak_search *s, double seconds);
/* Does it need only a little too much memory?  A given cut has no alternative,
 * and the table may be far off. */
bool merak_candidate_is_tight(const struct merak_search *s,
                              const struct merak_candidate *c);
/* Build and simulate; `settled` if it fits. */
void merak_candidate_try(struct merak_search *s, struct merak_candidate *c);
/* Try it with its cut improved, or as it was if only that fits. */
void merak_candidate_try_polished(struct merak_search *s,
                                  struct merak_candidate *c);
/* Cut it anew within what the table says of programs that fit; if that is not
 * enough, within less, as much less as programs took too much. */
void merak_candidate_refit(struct merak_search *s, struct merak_candidate *c);
/* Try it with the same cut in less memory than it takes: what stages then drop
 * may be recomputed while they would wait, and less is in their way. */
void merak_candidate_lessen(struct merak_search *s, struct merak_candidate *c);
/* Hill climbing from a good plan: simulate other cuts of it, with so much
 * effort.  That is its own: what others took does not count, so that a plan is
 * the same whichever others a request has. */
void merak_candidate_climb(struct merak_search *s, struct merak_candidate *c,
                           double effort);

/* --- moves.c -------------------------------------------------------------- */

/* Try what memory makes slow with its optimizer state in the host's memory, and
 * with more shared out over replicas, where neither is given. */
void merak_search_try_moves(struct merak_search *s);

#endif
