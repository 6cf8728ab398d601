/* SPDX-License-Identifier: Apache-2.0 */
/* size.c - bytes as people read them */
#include "config.h"

#include "base/size.h"

#include <stdio.h>

void merak_bytes_text(double bytes, char text[MERAK_BYTES_TEXT])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;

    while (bytes >= 1024 && u < 4) {
        bytes /= 1024;
        u++;
    }
    snprintf(text, MERAK_BYTES_TEXT, "%.4g %s", bytes, unit[u]);
}
