/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data.c - `merak data`: make token files and show what is in them */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/data.h"
#include "cmd/finish.h"

#include "base/nearest.h"

#include <string.h>

static const char usage[] =
    "usage: merak data pack --tokenizer byte|FILE.json --out PREFIX FILE...\n"
    "       merak data show DATA...\n"
    "\n"
    "  pack  text to indexed tokens (Megatron .bin/.idx, or llm.c)\n"
    "  show  print and check what a data set holds\n"
    "\n"
    "`merak data pack --help` and `merak data show --help` list the options;\n"
    "merak-data(1) has the rest.\n";

static int unknown_verb(const char *verb)
{
    struct merak_nearest near;
    char text[MERAK_NEAREST_TEXT];

    merak_nearest_init(&near, verb);
    merak_nearest_offer(&near, "pack");
    merak_nearest_offer(&near, "show");
    return merak_cmd_misused(
        "data", "has no command \"%s\"%s, only pack and show", verb,
        merak_nearest_word_text(&near, text, sizeof(text)));
}

int merak_cmd_data(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";

    if (strcmp(verb, "pack") == 0)
        return merak_data_pack(argc - 1, argv + 1);
    if (strcmp(verb, "show") == 0)
        return merak_data_show(argc - 1, argv + 1);
    if (strcmp(verb, "--help") == 0) {
        fputs(usage, stdout);
        return merak_cmd_flush("data help", MERAK_EXIT_DONE);
    }
    if (argc < 2)
        return merak_cmd_misused("data", "needs \"pack\" or \"show\"");
    return unknown_verb(verb);
}
