/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/blend.h - the order in which weighted sources take turns
 *
 * Weights become counts out of a period of P <= 65536 samples.  Within a
 * period each turn goes to the source with the largest deficit (its share of
 * the samples so far minus its turns so far; the first one of equals).  After
 * P samples every source has had exactly its count, all deficits are zero and
 * the sequence repeats.  So a table of one period describes the whole infinite
 * sequence: which source sample i comes from, and how many samples that source
 * gave before, are two look-ups.
 */
#ifndef MERAK_IO_TOKENS_BLEND_H
#define MERAK_IO_TOKENS_BLEND_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

#define MERAK_BLEND_MAX_PERIOD 65536
/* So that the total rounding error of all counts stays below one turn. */
#define MERAK_BLEND_MAX_SOURCES 4096

struct merak_blend {
    size_t n;         /* sources */
    uint32_t period;  /* P */
    uint32_t *count;  /* [n] turns of each source in a period, sum P */
    uint16_t *source; /* [P] the source of each turn */
    uint16_t *before; /* [P] turns this source had earlier in the period */
};

/*
 * Weights need not sum to 1.  P is the smallest that meets all of them to
 * 1e-9, else 65536 with counts rounded by largest remainder.  MERAK_ERR_CONFIG
 * names, by its number from 1, a weight that is not positive and finite, or
 * too small relative to the others to get a turn.
 */
enum merak_status merak_blend_init(struct merak_blend *blend,
                                   const double *weights, size_t n,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_blend_fini(struct merak_blend *blend);
/* Source of sample `index`; *number_p is its number among that source's. */
size_t merak_blend_at(const struct merak_blend *blend, uint64_t index,
                      uint64_t *number_p);

#endif
