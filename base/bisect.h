/* SPDX-License-Identifier: Apache-2.0 */
/* base/bisect.h - the first of ascending things that is far enough */
#ifndef MERAK_BASE_BISECT_H
#define MERAK_BASE_BISECT_H

/*
 * Make the integer `i` the first of [from, to) for which an expression of it
 * holds, or `to` where it holds for none.  Where it holds for one it has to for
 * all after it.  It may have effects: the last number it was asked for need not
 * be the one that is found.
 */
#define MERAK_BISECT(i, from, to, holds)                       \
    do {                                                       \
        __typeof__(i) bisect_lo = (from), bisect_hi = (to);    \
                                                               \
        while (bisect_lo < bisect_hi) {                        \
            (i) = bisect_lo + (bisect_hi - bisect_lo - 1) / 2; \
            if (holds)                                         \
                bisect_hi = (i);                               \
            else                                               \
                bisect_lo = (i) + 1;                           \
        }                                                      \
        (i) = bisect_hi;                                       \
    } while (0)

#endif
