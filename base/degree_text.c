/* SPDX-License-Identifier: Apache-2.0 */
/* degree_text.c - degrees of parallelism, for messages */
#include "config.h"

#include "base/degree_text.h"

#include <inttypes.h>
#include <stdio.h>

const char *merak_degrees_text(const struct merak_degrees *degrees,
                               const char *between,
                               char text[MERAK_DEGREES_TEXT])
{
    const struct {
        const char *name;
        int64_t n, least; /* the lowest degree that is shown */
    } row[] = {{"tp", degrees->tp, INT64_MIN},
               {"cp", degrees->cp, 2},
               {"ep", degrees->ep, 2},
               {"pp", degrees->pp, INT64_MIN},
               {"dp", degrees->dp, INT64_MIN}};
    int at = 0;

    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        if (row[i].n >= row[i].least)
            at += snprintf(text + at, (size_t)(MERAK_DEGREES_TEXT - at),
                           "%s%s %" PRId64, at > 0 ? between : "", row[i].name,
                           row[i].n);
    }
    return text;
}
