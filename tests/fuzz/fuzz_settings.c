/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_settings.c - the file that --config names */
#include "config.h"

#include "fuzz/fuzz.h"

#include "base/options.h"
#include "runtime/train/train_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_seeds(void)
{
    fuzz_add_text("# a run\n[data]\ndata = \"a.bin\"\nseq = 128\n\n"
                  "[optimizer]\nlr = 3e-4 # peak\nmin_lr = 1_000e-8\n"
                  "steps = 1_000\nlr-schedule = \"wsd\"\nclip = 0\n");
    fuzz_add_text("tp = 2\npp = 2\ndp = auto\nschedule = 'interleaved'\n"
                  "chunks = 2\nzero1 = true\nckpt = \"a \\\"b\\\" \\\\ c\"\n"
                  "keep = 2\nckpt-every = 10\nmetrics = 'x # y'\n");
}

/* What the options save is a file that gives the same options. */
static void come_back(const struct merak_option_table *table,
                      const struct merak_train_options *opt)
{
    struct merak_error err = {.text = ""};
    const char *path = fuzz_path("saved.toml");
    char *words[] = {(char *)(uintptr_t) "merak",
                     (char *)(uintptr_t) "--config", (char *)(uintptr_t)path,
                     NULL};
    char **argv = words, *text = NULL;
    int argc = 3;
    FILE *out = fopen(path, "we");
    enum merak_status rc;

    fuzz_must(out != NULL, "a file is made");
    merak_options_save(table, opt, out);
    fuzz_must(fclose(out) == 0, "and written");
    rc = merak_options_expand(&table, 1, &argc, &argv, &text, &err);
    if (rc != MERAK_OK)
        fprintf(stderr, "%s\n", err.text);
    fuzz_must(rc == MERAK_OK, "options that were saved are read again");
    free(text); /* and argv */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct merak_option_table *table = merak_train_options_table();
    char path[600], *text = NULL;
    char *words[] = {
        (char *)(uintptr_t) "merak",   (char *)(uintptr_t) "--config", path,
        (char *)(uintptr_t) "--steps", (char *)(uintptr_t) "3",        NULL};
    char **argv = words;
    struct merak_train_options opt;
    struct merak_error err = {.text = ""};
    int argc = 5;
    enum merak_status rc;

    snprintf(path, sizeof(path), "%s", fuzz_file("run.toml", data, n));
    memset(&opt, 0, sizeof(opt));
    rc = merak_options_expand(&table, 1, &argc, &argv, &text, &err);
    if (rc == MERAK_OK) {
        fuzz_must(argv[argc] == NULL, "arguments end");
        rc = merak_train_options_parse(argc, argv, 0, &opt, &err);
        fuzz_must(rc != MERAK_OK || opt.help || opt.steps == 3,
                  "an option in front of the file's wins");
    }
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    else
        come_back(table, &opt);
    merak_given_fini(&opt.choice.list);
    free(text); /* and argv */
    return 0;
}
