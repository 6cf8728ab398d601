/* SPDX-License-Identifier: Apache-2.0 */
/* factors.c - a number as a product */
#include "config.h"

#include "base/factors.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BITS = 16, MOST_DIGITS = 5 };

int merak_factors_list(int64_t factors, int *list)
{
    int n = 0;

    for (; factors > 0 && n < MERAK_MAX_FACTORS; factors >>= BITS)
        list[n++] = (int)(factors & MERAK_MAX_FACTOR);
    return n;
}

static int64_t factors_of(const int *list, int n)
{
    int64_t factors = 0;

    while (n > 0)
        factors = factors << BITS | list[--n];
    return factors;
}

int64_t merak_factors_product(int64_t factors)
{
    int list[MERAK_MAX_FACTORS], n = merak_factors_list(factors, list);
    int64_t product = 1;

    while (n > 0)
        product *= list[--n];
    return product;
}

/* Fill in list[at..n) with the least factors of `product`, the first of them
 * `from` or more. */
static bool least_factors(int product, int from, int *list, int at, int n)
{
    if (at == n - 1) {
        list[at] = product;
        return product >= from;
    }
    for (list[at] = from; list[at] < product; list[at]++) {
        if (product % list[at] == 0 &&
            least_factors(product / list[at], 2, list, at + 1, n))
            return true;
    }
    return false;
}

bool merak_factors_next(int product, int n, int64_t *factors_p)
{
    int list[MERAK_MAX_FACTORS], rest = 1;
    bool found = *factors_p == 0 && least_factors(product, 2, list, 0, n);

    if (*factors_p != 0)
        rest = list[merak_factors_list(*factors_p, list) - 1];
    for (int at = n - 2; at >= 0 && !found && *factors_p != 0; at--) {
        rest *= list[at];
        found = least_factors(rest, list[at] + 1, list, at, n);
    }
    if (found)
        *factors_p = factors_of(list, n);
    return found;
}

bool merak_divisors_near(size_t n, size_t asked, size_t *below_p,
                         size_t *above_p)
{
    size_t below = asked < n ? asked : n, above = asked + 1;

    while (n % below != 0)
        below--;
    while (above < n && n % above != 0)
        above++;
    *below_p = below;
    *above_p = above;
    return above <= n;
}

enum merak_status merak_divisors_fix(size_t n, size_t asked,
                                     struct merak_error *err)
{
    size_t below, above;

    if (merak_divisors_near(n, asked, &below, &above))
        return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu or %zu)",
                               below, above);
    return merak_error_fix(err, MERAK_ERR_CONFIG, " (nearest: %zu)", below);
}

bool merak_factors_parse(const char *text, int64_t *factors_p)
{
    int list[MERAK_MAX_FACTORS], n = 0;

    for (;; text++) {
        size_t digits = strspn(text, "0123456789");

        if (n == MERAK_MAX_FACTORS || digits == 0 || digits > MOST_DIGITS)
            return false;
        list[n] = atoi(text);
        if (list[n] < 2 || list[n] > MERAK_MAX_FACTOR)
            return false;
        n++;
        text += digits;
        if (*text == '\0') {
            *factors_p = factors_of(list, n);
            return true;
        }
        if (*text != 'x')
            return false;
    }
}

const char *merak_factors_text(int64_t factors, const char *between,
                               char text[MERAK_FACTORS_TEXT])
{
    int list[MERAK_MAX_FACTORS], n = merak_factors_list(factors, list);
    int at = 0;

    text[0] = '\0';
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, (size_t)(MERAK_FACTORS_TEXT - at), "%s%d",
                       i > 0 ? between : "", list[i]);
    return text;
}
