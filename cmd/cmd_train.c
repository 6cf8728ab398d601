/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_train.c - `merak train`: the stock trainer for Hugging Face models */
#include "config.h"

#include "cmd/cmd.h"

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "io/hf_config.h"
#include "runtime/boot/boot.h"
#include "runtime/runtime.h"
#include "runtime/train/trainer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options that programs with their own model do not have. */
struct model_options {
    const char *model;
    int unknown; /* enum merak_hf_unknown */
    size_t encoder_seq; /* 0: by the decoder's */
};

static const struct merak_option rows[] = {
    {"model", MERAK_OPTION_TEXT, offsetof(struct model_options, model),
     .about = "Hugging Face folder, or its config.json (required)",
     .arg = "DIR", .group = "model"},
    {"config-unknown", MERAK_OPTION_WORD,
     offsetof(struct model_options, unknown), .about = MERAK_HF_UNKNOWN_ABOUT,
     .words = MERAK_HF_UNKNOWN_WORDS},
    {"encoder-seq", MERAK_OPTION_SIZE,
     offsetof(struct model_options, encoder_seq),
     .about = MERAK_HF_ENCODER_SEQ_ABOUT, .least = 1, .most = INT_MAX},
};

static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static void print_help(void)
{
    puts("usage: merak train --model DIR --data PREFIX [OPTION VALUE]...\n"
         "       merak train plan [OPTION]...     as merak plan\n");
    merak_options_help(&table, stdout);
    putchar('\n');
    merak_train_options_help();
}

static enum merak_status load(const struct model_options *opt,
                              struct merak_hf_config *config,
                              struct merak_error *err)
{
    enum merak_status rc;

    if (opt->model == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no model: give --model DIR, a Hugging Face folder "
                          "or its config.json");
    rc = merak_hf_config_read(opt->model, (enum merak_hf_unknown)opt->unknown,
                              config, err);
    if (rc == MERAK_OK && config->note[0] != '\0' && merak_boot_is_first())
        merak_info("io", "%s", config->note);
    config->encoder.seq = opt->encoder_seq;
    return rc;
}

int merak_cmd_train(int argc, char **argv)
{
    struct model_options opt = {.model = NULL};
    struct merak_hf_config config;
    struct merak_error err;
    char *from_file = NULL; /* options point into it */
    bool help = false;
    int code;
    enum merak_status rc;

    if (argc > 1 && strcmp(argv[1], "plan") == 0)
        return merak_cmd_plan(argc - 1, argv + 1);
    rc = merak_options_expand(
        (const struct merak_option_table *const[]){&table,
                                                   merak_train_options_table()},
        2, &argc, &argv, &from_file, &err);
    if (rc == MERAK_OK)
        rc = merak_options_take(&table, merak_train_options_table(), &argc,
                                argv, &opt, &help, &err);
    if (rc == MERAK_OK && help) {
        print_help();
        free(from_file);
        return MERAK_EXIT_DONE;
    }
    if (rc == MERAK_OK)
        rc = load(&opt, &config, &err);
    if (rc != MERAK_OK) {
        if (merak_boot_is_first())
            fprintf(stderr, "merak: error: %s\n", err.text);
        free(from_file);
        return MERAK_EXIT_CONFIG;
    }
    code = merak_trainer_main(argc, argv, merak_hf_describe, &config, opt.model,
                              config.positions);
    free(from_file);
    return code;
}
