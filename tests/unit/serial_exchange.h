/* SPDX-License-Identifier: Apache-2.0 */
/* serial_exchange.h - exchanges of all kinds, and what they must come to
 *
 * For ranks of test_ranks.h: what is not so prints and leaves.
 */
#ifndef MERAK_TESTS_SERIAL_EXCHANGE_H
#define MERAK_TESTS_SERIAL_EXCHANGE_H

#include "partitioner/layout/layout.h"

struct exchange_row {
    struct merak_place from, to;
    enum merak_dtype dtype;
    struct merak_shape shape;
};
extern const struct exchange_row exchange_rows[];
extern const size_t n_exchange_rows;

/* The exchange as member `me` of n sees it. */
void exchange_make(struct merak_exchange *ex, const struct exchange_row *row,
                   int n, int me);
/* What a member brings. */
void exchange_bring(void *in, const struct merak_exchange *ex, int member);
/* May it be made in place: an all-reduce, or a reduce-scatter whose part is one
 * piece of what this member brings? */
bool exchange_in_place(const struct merak_exchange *ex);
/* Bytes from the input to the output: in place, or after it. */
size_t exchange_out_at(const struct merak_exchange *ex, bool in_place);
/* What this member got is right, to the bit. */
void exchange_check(const struct merak_exchange *ex, const void *out,
                    const struct exchange_row *row);

#endif
