/* SPDX-License-Identifier: Apache-2.0 */
/* base/size.h - overflow-checked sizes, even cuts, and bytes as text
 */
#ifndef MERAK_BASE_SIZE_H
#define MERAK_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>

/* *out = a * b; false (and *out untouched) if it does not fit. */
static inline bool merak_size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;

    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool merak_size_add(size_t a, size_t b, size_t *out)
{
    size_t r;

    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Round up to a multiple of align, a power of two. */
static inline size_t merak_size_align(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

/* The greatest common divisor; the other number, if one is 0. */
static inline size_t merak_size_gcd(size_t a, size_t b)
{
    while (b != 0) {
        size_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/*
 * First element of part i when `extent` elements are cut into `parts`
 * contiguous parts whose sizes differ by at most one; part i is
 * [merak_cut(e, p, i), merak_cut(e, p, i + 1)).  Every dim is cut by this rule,
 * evenly or not.
 */
static inline size_t merak_cut(size_t extent, size_t parts, size_t i)
{
    return (size_t)((unsigned __int128)extent * i / parts);
}

/* Four digits, or all of an integer that has more: "5.196", "51960"; returns
 * text. */
enum { MERAK_NUMBER_TEXT = 32 };
const char *merak_number_text(double n, char text[MERAK_NUMBER_TEXT]);
/* "1.5 GiB", for humans. */
enum { MERAK_BYTES_TEXT = 24 };
void merak_bytes_text(double bytes, char text[MERAK_BYTES_TEXT]);
/* "12.3 us", "7.26 s"; returns text. */
enum { MERAK_SECONDS_TEXT = 16 };
const char *merak_seconds_text(double s, char text[MERAK_SECONDS_TEXT]);
/* "s", or "" after 1. */
static inline const char *merak_plural(long n)
{
    return n == 1 ? "" : "s";
}

#endif
