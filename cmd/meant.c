/* SPDX-License-Identifier: Apache-2.0 */
/* meant.c - the option that a mistyped one was probably meant to be */
#include "config.h"

#include "cmd/cmd.h"

#include "base/nearest.h"

const char *merak_cmd_meant(const struct option *options, const char *arg,
                            char *text, size_t bytes)
{
    struct merak_nearest nearest;

    merak_nearest_init(&nearest, arg);
    for (; options->name != NULL; options++)
        merak_nearest_offer(&nearest, options->name);
    return merak_nearest_text(&nearest, text, bytes);
}
