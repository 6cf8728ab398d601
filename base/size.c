/* SPDX-License-Identifier: Apache-2.0 */
/* size.c - bytes and seconds as text */
#include "config.h"

#include "base/size.h"

#include <math.h>
#include <stdio.h>

const char *merak_number_text(double n, char text[MERAK_NUMBER_TEXT])
{
    snprintf(text, MERAK_NUMBER_TEXT, fabs(n) < 9999.5 ? "%.4g" : "%.0f", n);
    return text;
}

void merak_bytes_text(double bytes, char text[MERAK_BYTES_TEXT])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    char number[MERAK_NUMBER_TEXT];
    int u = 0;

    while (bytes >= 1024 && u < 4) {
        bytes /= 1024;
        u++;
    }
    snprintf(text, MERAK_BYTES_TEXT, "%.18s %s",
             merak_number_text(bytes, number), unit[u]);
}

const char *merak_seconds_text(double s, char text[MERAK_SECONDS_TEXT])
{
    char number[MERAK_NUMBER_TEXT];

    if (s >= 9999.5)
        snprintf(text, MERAK_SECONDS_TEXT, "%.12s s",
                 merak_number_text(s, number));
    else if (s >= 1 || s == 0)
        snprintf(text, MERAK_SECONDS_TEXT, "%.4g s", s);
    else if (s >= 1e-3)
        snprintf(text, MERAK_SECONDS_TEXT, "%.4g ms", 1e3 * s);
    else
        snprintf(text, MERAK_SECONDS_TEXT, "%.3g us", 1e6 * s);
    return text;
}
