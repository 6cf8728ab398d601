/* SPDX-License-Identifier: Apache-2.0 */
/* base/factors.h - a number as a product: "2x4"
 *
 * All factors in one integer, 16 bits each, the first one lowest: plans and
 * options keep, compare and copy it like any other number.  0: no factors.
 */
#ifndef MERAK_BASE_FACTORS_H
#define MERAK_BASE_FACTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

#define MERAK_MAX_FACTORS 3
#define MERAK_MAX_FACTOR 65535
#define MERAK_FACTORS_TEXT 24

/* Their number; list[MERAK_MAX_FACTORS] in order. */
int merak_factors_list(int64_t factors, int *list);
/* 1 if there are none. */
int64_t merak_factors_product(int64_t factors);
/* The next of all lists of n factors with this product, in ascending order, the
 * first after 0; false if there is none. */
bool merak_factors_next(int product, int n, int64_t *factors_p);
/* One to MERAK_MAX_FACTORS of them, each 2..MERAK_MAX_FACTOR; false if text is
 * anything else. */
bool merak_factors_parse(const char *text, int64_t *factors_p);
/* The divisors of n nearest to a number that is none: the one below, or n, and
 * the one above; false if there is none above. */
bool merak_divisors_near(size_t n, size_t asked, size_t *below_p,
                         size_t *above_p);
/* Add them to an error: " (nearest: 2 or 4)". */
enum merak_status merak_divisors_fix(size_t n, size_t asked,
                                     struct merak_error *err) MERAK_CHECKED;
/* With `between` in place of the x; returns text. */
const char *merak_factors_text(int64_t factors, const char *between,
                               char text[MERAK_FACTORS_TEXT]);

#endif
