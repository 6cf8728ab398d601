/* SPDX-License-Identifier: Apache-2.0 */
/* base/json_number.h - numbers as JSON has them */
#ifndef MERAK_BASE_JSON_NUMBER_H
#define MERAK_BASE_JSON_NUMBER_H

#include <math.h>
#include <stdio.h>

/* Room for any of them. */
struct merak_json_number {
    char text[32];
};

/* Print x with so many significant digits; what is not finite, for which JSON
 * has no number, is null. */
static inline const char *merak_json_number(struct merak_json_number *room,
                                            int digits, double x)
{
    if (isfinite(x))
        snprintf(room->text, sizeof(room->text), "%.*g", digits, x);
    else
        snprintf(room->text, sizeof(room->text), "null");
    return room->text;
}

#endif
