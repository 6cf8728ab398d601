/* SPDX-License-Identifier: Apache-2.0 */
/* base/degree_text.h - degrees of parallelism, for messages */
#ifndef MERAK_BASE_DEGREE_TEXT_H
#define MERAK_BASE_DEGREE_TEXT_H

#include <stdint.h>

struct merak_degrees {
    int64_t tp, cp, ep, pp, dp;
};

#define MERAK_DEGREES_TEXT 160
/* "tp 2, pp 4, dp 1", with `between` in place of ", ", and with cp and ep where
 * they are more than 1: "tp 2, cp 2, pp 4, dp 1".  Returns text. */
const char *merak_degrees_text(const struct merak_degrees *degrees,
                               const char *between,
                               char text[MERAK_DEGREES_TEXT]);

#endif
