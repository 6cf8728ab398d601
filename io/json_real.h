/* SPDX-License-Identifier: Apache-2.0 */
/* io/json_real.h - a number for jansson, which makes none that is not finite
 * and then leaves out the whole object that should have it */
#ifndef MERAK_IO_JSON_REAL_H
#define MERAK_IO_JSON_REAL_H

#include <jansson.h>
#include <math.h>

/* A new reference: the number, or null if it is not finite. */
static inline json_t *merak_json_real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

#endif
