/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data.c - `merak data`: makes token files and shows what is in them */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/data.h"

#include <stdarg.h>
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

int merak_data_usage(const char *fmt, ...)
{
    va_list ap;

    fputs("merak data ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputs("; see --help\n", stderr);
    return MERAK_EXIT_CONFIG;
}

int merak_data_failed(const char *verb, enum merak_status rc,
                      const struct merak_error *err)
{
    fprintf(stderr, "merak data %s: %s\n", verb, err->text);
    switch (rc) {
    case MERAK_ERR_PARAM:
    case MERAK_ERR_CONFIG:
    case MERAK_ERR_UNSUPPORTED:
        return MERAK_EXIT_CONFIG;
    case MERAK_ERR_NOMEM:
    case MERAK_ERR_NOSPACE:
    case MERAK_ERR_SYSTEM:
        return MERAK_EXIT_RESOURCE;
    default:
        return MERAK_EXIT_DATA;
    }
}

int merak_data_flush(const char *verb)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return MERAK_EXIT_DONE;
    fprintf(stderr, "merak data %s: cannot write the output\n", verb);
    return MERAK_EXIT_RESOURCE;
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
        return merak_data_flush("help");
    }
    if (argc < 2)
        return merak_data_usage("needs \"pack\" or \"show\"");
    return merak_data_usage("has no \"%s\", only \"pack\" and \"show\"", verb);
}
