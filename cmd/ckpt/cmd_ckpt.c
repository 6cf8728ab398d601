/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_ckpt.c - `merak ckpt`: its verbs, one file each */
#include "config.h"

#include "cmd/cmd.h"

#include "base/nearest.h"
#include "cmd/ckpt/ckpt_verbs.h"
#include "cmd/finish.h"

#include <string.h>

const struct ckpt_verb ckpt_verb[] = {
    {"ls", "DIR [OPTION]...", "the checkpoints of a run, newest first",
     &ckpt_ls_options, ckpt_run_ls},
    {"show", "DIR [TENSOR] [OPTION]...",
     "what a checkpoint holds; a tensor's parts and statistics",
     &ckpt_show_options, ckpt_run_show},
    {"verify", "DIR [OPTION]...", "check every byte against its checksum",
     &ckpt_verify_options, ckpt_run_verify},
    {"diff", "DIR DIR [OPTION]...", "compare two checkpoints",
     &ckpt_diff_options, ckpt_run_diff},
    {"reshard", "DIR --out RUN [OPTION]...",
     "write a copy of a checkpoint as other degrees would",
     &ckpt_reshard_options, ckpt_run_reshard},
    {"prune", "RUN [OPTION]...", "remove checkpoints that are not kept",
     &ckpt_prune_options, ckpt_run_prune},
    {"import", "FOLDER --out RUN [OPTION]...",
     "make a Hugging Face folder's weights a run's first checkpoint",
     &ckpt_import_options, ckpt_run_import},
    {"export", "DIR --format hf|llmc --out FOLDER [OPTION]...",
     "make a model folder from a checkpoint's weights", &ckpt_export_options,
     ckpt_run_export},
};
const int ckpt_n_verbs = sizeof(ckpt_verb) / sizeof(ckpt_verb[0]);

static const char notes[] =
    "\n"
    "DIR is one checkpoint (RUN/step-00000020) or the directory of a run:\n"
    "then its newest is used; verify checks all of them.\n"
    "\n"
    "Exit codes: 0 fine, 1 different (diff), 66 usage, 67 damaged, missing or\n"
    "of another model, 69 memory or disk.  merak-ckpt(1) has the rest.\n";

static int help(void)
{
    for (int i = 0; i < ckpt_n_verbs; i++)
        printf("%s merak ckpt %s %s\n", i == 0 ? "usage:" : "      ",
               ckpt_verb[i].name, ckpt_verb[i].arguments);
    putchar('\n');
    for (int i = 0; i < ckpt_n_verbs; i++)
        printf("  %-8s %s\n", ckpt_verb[i].name, ckpt_verb[i].about);
    fputs(notes, stdout);
    for (int i = 0; i < ckpt_n_verbs; i++) {
        printf("\n%s:\n", ckpt_verb[i].name);
        merak_options_help(ckpt_verb[i].options, stdout);
    }
    return ckpt_flushed("help", MERAK_EXIT_DONE);
}

static int help_verb(const struct ckpt_verb *verb)
{
    printf("usage: merak ckpt %s %s\n\n  %s\n\n", verb->name, verb->arguments,
           verb->about);
    merak_options_help(verb->options, stdout);
    return ckpt_flushed("help", MERAK_EXIT_DONE);
}

static bool asks_for_help(const char *arg)
{
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

static int unknown_verb(const char *name)
{
    struct merak_nearest near;
    char text[MERAK_NEAREST_TEXT];

    merak_nearest_init(&near, name);
    for (int i = 0; i < ckpt_n_verbs; i++)
        merak_nearest_offer(&near, ckpt_verb[i].name);
    return merak_cmd_misused(
        "ckpt", "has no command \"%s\"%s", name,
        merak_nearest_word_text(&near, text, sizeof(text)));
}

int merak_cmd_ckpt(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";

    if (argc < 2)
        return merak_cmd_misused("ckpt", "needs a command");
    if (asks_for_help(name))
        return help();
    for (int i = 0; i < ckpt_n_verbs; i++) {
        if (strcmp(name, ckpt_verb[i].name) != 0)
            continue;
        for (int k = 2; k < argc; k++) {
            if (asks_for_help(argv[k]))
                return help_verb(&ckpt_verb[i]);
        }
        return ckpt_verb[i].run(argc - 1, argv + 1);
    }
    return unknown_verb(name);
}
