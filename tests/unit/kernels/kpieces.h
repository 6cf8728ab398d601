/* SPDX-License-Identifier: Apache-2.0 */
/* kpieces.h - kernels on sequences in pieces (merak_position()) */
#ifndef MERAK_TESTS_KPIECES_H
#define MERAK_TESTS_KPIECES_H

#include "unit/kernels/kcheck.h"

/* Sequences in pieces, on one rank and cut over ranks with two of them each,
 * give what the reference gives for them in order: of every op that knows
 * positions, and its gradients. */
void kc_check_pieces(const struct kc_suite *suite, enum merak_dtype dtype);

#endif
