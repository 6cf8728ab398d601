/* SPDX-License-Identifier: Apache-2.0 */
/* base/digits.h - numbers within a list that an option takes, "b4-27" */
#ifndef MERAK_BASE_DIGITS_H
#define MERAK_BASE_DIGITS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MERAK_MOST_DIGITS = 6 };

/* The number at *text_p, which is moved past it; false: there is none, or one of
 * too many digits, and nothing is moved. */
static inline bool merak_next_number(const char **text_p, int *number_p)
{
    size_t n = strspn(*text_p, "0123456789");

    if (n == 0 || n > MERAK_MOST_DIGITS)
        return false;
    *number_p = atoi(*text_p);
    *text_p += n;
    return true;
}

#endif
