/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/search/tried.h - what is known of candidates that were built
 *
 * A search comes to the same candidate again: where it climbs, rates once more
 * without a bound on time, or with more levels of ZeRO.  Its programs are built
 * and simulated once.
 */
#ifndef MERAK_PARTITIONER_SEARCH_TRIED_H
#define MERAK_PARTITIONER_SEARCH_TRIED_H

#include "partitioner/search/search_impl.h"

/* merak_search_try(), or what it found of an equal candidate before. */
enum merak_status merak_search_try_once(struct merak_search *s,
                                        struct merak_candidate *cand,
                                        struct merak_error *err) MERAK_CHECKED;

#endif
