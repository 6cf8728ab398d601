/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_options.c - command lines of training, one argument a line */
#include "config.h"

#include "fuzz/fuzz.h"

#include "runtime/train/train_options.h"

#include "partitioner/plan/list_text.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ARGS = 60 };

void fuzz_seeds(void)
{
    fuzz_add_text("--model\ngpt2.json\n--data\nx.bin\n--steps\n10\n--tp\n2\n"
                  "--pp=2\n--dp\n2\n--schedule\ninterleaved\n--chunks\n2\n");
    fuzz_add_text(
        "--lr\n1e-3\n--min-lr=1e-4\n--warmup\n10\n--lr-schedule\nwsd\n"
        "--weight-decay\n0.1\n--lr-scale\nwte=0.5,*.b=2\n--freeze\n"
        "h.0.*\n");
    fuzz_add_text(
        "--ckpt\nrun\n--ckpt-every\n5\n--keep\n2\n--resume\nauto\n"
        "--trace\ntrace\n--metrics\nm.jsonl\n--print\ngraph,stages\n");
    fuzz_add_text(
        "--cut\n3,7,12\n--recompute\nauto\n--zero1\nyes\n--dtype\n"
        "bf16\n--branches\nblocks\n--tp-batch\n75%\n--deadline\n30\n");
    fuzz_add_text("--drop\n1a,2,0,3a\n--micro-batch\n4\n--global-batch\n64\n"
                  "--seq\n128\n--help\n");
}

/* argv ends with NULL, as of a program. */
static int cut_lines(char *text, char **argv)
{
    int argc = 0;
    char *rest = text;

    argv[argc++] = (char *)(uintptr_t) "merak";
    for (char *line = strsep(&rest, "\n"); line != NULL && argc < MOST_ARGS;
         line = strsep(&rest, "\n"))
        argv[argc++] = line;
    argv[argc] = NULL;
    return argc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct merak_train_options opt;
    struct merak_error err = {.text = ""};
    char *text = fuzz_text(data, n), *argv[MOST_ARGS + 1];
    char recipe[MERAK_RECIPE_BYTES];
    enum merak_status rc;
    int argc = cut_lines(text, argv);

    memset(&opt, 0, sizeof(opt));
    rc = merak_train_options_parse(argc, argv, 0, &opt, &err);
    if (rc == MERAK_OK) {
        merak_train_recipe(&opt, recipe);
        fuzz_must(memchr(recipe, '\0', sizeof(recipe)) != NULL,
                  "a recipe ends");
        for (uint64_t step = 0; step < 20; step += 7)
            (void)merak_learning_rate(&opt.optimizer, opt.steps, step);
    } else {
        fuzz_refused(rc, &err);
    }
    merak_given_fini(&opt.choice.list);
    free(text);
    return 0;
}
