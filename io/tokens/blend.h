/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/blend.h - the order in which weighted sources take turns
 *
 * Weights become counts out of a period of P <= 65536 samples.  Within a
 * period the turns go to the source with the largest deficit (its share of
 * the samples so far, less what it had; the first one of equals), and after
 * P samples every source had exactly its count, all deficits are zero and
 * the same turns come again.  One period in a table is therefore the whole
 * infinite sequence: which source sample i comes from, and how many that
 * source gave before it, are two look-ups.
 */
#ifndef MERAK_IO_TOKENS_BLEND_H
#define MERAK_IO_TOKENS_BLEND_H

#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

#define MERAK_BLEND_MAX_PERIOD 65536
/* So that rounding errors of all counts together stay below one turn. */
#define MERAK_BLEND_MAX_SOURCES 4096

struct merak_blend {
    size_t n;         /* sources */
    uint32_t period;  /* P */
    uint32_t *count;  /* [n] turns of each source in a period, sum P */
    uint16_t *source; /* [P] whose turn it is */
    uint16_t *before; /* [P] turns this source had earlier in the period */
};

/*
 * Weights need not sum to 1.  P is the smallest that meets all of them to
 * 1e-9, else 65536 with counts rounded by largest remainder.
 * MERAK_ERR_CONFIG names, by its number from 1, a weight that is not
 * positive and finite, or too small beside the others to get a turn.
 */
enum merak_status merak_blend_init(struct merak_blend *blend,
                                   const double *weights, size_t n,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_blend_fini(struct merak_blend *blend);
/* Source of sample `index`; *number_p is its number among that source's. */
size_t merak_blend_at(const struct merak_blend *blend, uint64_t index,
                      uint64_t *number_p);

#endif
